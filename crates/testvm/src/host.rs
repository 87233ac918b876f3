//! The Debian packages that tests, demonstration and benchmarks need, installed where they are missing.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::{Error, ErrorKind};
use crate::program::{self, find_program};

/// What shows that a package is there.
#[derive(Clone, Copy, Debug)]
enum Evidence {
    /// A program of this name is found.
    Program(&'static str),
    /// One of the files exists.
    File(&'static [&'static str]),
    /// dpkg has it installed: for packages whose program another package could have brought.
    Installed,
}

/// A package and its evidence.
#[derive(Clone, Copy, Debug)]
struct Need {
    package: &'static str,
    evidence: Evidence,
}

const fn program(package: &'static str, name: &'static str) -> Need {
    Need {
        package,
        evidence: Evidence::Program(name),
    }
}

/// virtiofsd as its own package has it (Debian 13) and as QEMU 7.2 brings it (Debian 12), in this order: the package
/// also has a link in QEMU's place.
pub(crate) const VIRTIOFSD_FILES: [&str; 2] = ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"];

const NEEDS: [Need; 17] = [
    // The machine.
    program("qemu-system-x86", "qemu-system-x86_64"),
    Need {
        package: "busybox-static",
        // The program of the package `busybox` is linked dynamically and cannot be an initramfs.
        evidence: Evidence::Installed,
    },
    program("kmod", "depmod"),
    program("xz-utils", "xz"),
    program("zstd", "zstd"),
    program("util-linux", "setpriv"),
    // What tests use inside.
    program("mount", "losetup"),
    program("e2fsprogs", "mke2fs"),
    program("fio", "fio"),
    program("dmsetup", "dmsetup"),
    program("udev", "udevadm"),
    program("psmisc", "fuser"),
    program("procps", "ps"),
    program("iproute2", "ip"),
    program("curl", "curl"),
    // libFuzzer is built from its C++ source.
    program("g++", "g++"),
    Need {
        package: "debian-archive-keyring",
        evidence: Evidence::File(&[
            "/usr/share/keyrings/debian-archive-keyring.gpg",
            "/usr/share/keyrings/debian-archive-keyring.pgp",
        ]),
    },
];

/// Packages that are missing on this machine, by name.
///
/// # Errors
/// The machine's release cannot be read, or dpkg fails.
pub fn missing_packages() -> Result<Vec<&'static str>, Error> {
    let os_release = fs::read_to_string("/etc/os-release")
        .map_err(|error| Error::io("read the release of this machine", "/etc/os-release", error))?;
    let virtiofsd = Need {
        package: virtiofsd_package(&os_release),
        evidence: Evidence::File(&VIRTIOFSD_FILES),
    };
    Ok(NEEDS
        .iter()
        .chain(std::iter::once(&virtiofsd))
        .filter(|need| !is_there(need))
        .map(|need| need.package)
        .collect())
}

/// Installs what is missing. Says on `report` what it installs before it does. Does nothing, and needs no network,
/// when everything is there.
///
/// # Errors
/// Something is missing and this process is not root (the error holds the command to run), or apt fails.
pub fn ensure_packages(report: &mut dyn Write) -> Result<(), Error> {
    let missing = missing_packages()?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(
            ErrorKind::Package,
            "install packages",
            format!(
                "missing: {list}; run as root: apt-get update && apt-get install --no-install-recommends {list}"
            ),
        ));
    }
    writeln!(report, "installing Debian packages: {list}")
        .map_err(|error| Error::io("report", "the packages to install", error))?;
    let apt = || -> Result<_, Error> {
        let mut command = program::command("apt-get")?;
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Another apt on this machine: wait for it instead of failing.
            .args([
                "-q",
                "-y",
                "-o",
                "DPkg::Lock::Timeout=300",
                "-o",
                "Acquire::Retries=3",
            ]);
        Ok(command)
    };
    program::output(apt()?.arg("update"), "fetch package lists")?;
    program::output(
        apt()?
            .args(["install", "--no-install-recommends"])
            .args(&missing),
        "install packages",
    )?;
    let still = missing_packages()?;
    if still.is_empty() {
        Ok(())
    } else {
        Err(Error::new(
            ErrorKind::Package,
            "install packages",
            format!(
                "apt succeeded, and yet these are missing: {}",
                still.join(" ")
            ),
        ))
    }
}

fn is_there(need: &Need) -> bool {
    match need.evidence {
        Evidence::Program(name) => find_program(name).is_some(),
        Evidence::File(files) => files.iter().any(|file| Path::new(file).exists()),
        Evidence::Installed => is_installed(need.package),
    }
}

fn is_installed(package: &str) -> bool {
    let status = program::command("dpkg-query").and_then(|mut command| {
        program::output_text(
            command.args(["-W", "-f", "${db:Status-Status}", package]),
            "query a package",
        )
    });
    status.is_ok_and(|status| status == "installed")
}

/// Debian 12 has virtiofsd inside QEMU's package, later releases in its own.
fn virtiofsd_package(os_release: &str) -> &'static str {
    let version = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_ID="))
        .and_then(|value| value.trim_matches('"').parse::<u32>().ok());
    match version {
        Some(..=12) => "qemu-system-common",
        _ => "virtiofsd",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_that_is_run_has_a_package() {
        // The programs named anywhere in this crate and in the tests' scripts, and what brings them.
        let wanted = [
            ("qemu-system-x86_64", "qemu-system-x86"),
            ("depmod", "kmod"),
            ("xz", "xz-utils"),
            ("zstd", "zstd"),
            ("setpriv", "util-linux"),
            ("mke2fs", "e2fsprogs"),
            ("fio", "fio"),
            ("dmsetup", "dmsetup"),
            ("udevadm", "udev"),
        ];
        for (name, package) in wanted {
            let found = NEEDS.iter().any(|need| {
                need.package == package
                    && matches!(need.evidence, Evidence::Program(program) if program == name)
            });
            assert!(found, "{name} -> {package}");
        }
    }

    #[test]
    fn no_package_is_named_twice() {
        let mut packages: Vec<_> = NEEDS.iter().map(|need| need.package).collect();
        packages.sort_unstable();
        packages.dedup();
        assert_eq!(packages.len(), NEEDS.len());
    }

    #[test]
    fn evidence_tells_there_from_missing() {
        let cases = [
            (Evidence::Program("sh"), true),
            (Evidence::Program("no-such-program-here"), false),
            (Evidence::File(&["/no/such", "/etc/os-release"]), true),
            (Evidence::File(&["/no/such"]), false),
            (Evidence::Installed, false),
        ];
        for (evidence, want) in cases {
            let need = Need {
                package: "no-such-package-here",
                evidence,
            };
            assert_eq!(is_there(&need), want, "{evidence:?}");
        }
    }

    #[test]
    fn virtiofsd_comes_from_the_right_package() {
        let cases = [
            ("ID=debian\nVERSION_ID=\"12\"\n", "qemu-system-common"),
            ("ID=debian\nVERSION_ID=\"13\"\n", "virtiofsd"),
            ("ID=debian\nVERSION_ID=13\n", "virtiofsd"),
            ("ID=debian\n", "virtiofsd"),
        ];
        for (os_release, want) in cases {
            assert_eq!(virtiofsd_package(os_release), want);
        }
    }
}
