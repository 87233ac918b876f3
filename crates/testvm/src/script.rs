//! The small shell scripts that carry a job into the guest.

use std::path::{Path, PathBuf};

use crate::job::{DeviceManager, GuestJob};
use crate::kernel::Kernel;

/// Exit status of a job that could not even begin; the reason is in its log.
const NOT_BEGUN: u8 = 125;
/// Directories where the guest has an empty tmpfs of its own.
const HIDDEN: [&str; 3] = ["/tmp", "/run", "/var/tmp"];

/// The word as a POSIX shell reads it back unchanged.
#[must_use]
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn quote_path(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// What init sources: where the modules are, and which directories survive below a tmpfs.
pub(crate) fn paths(kernel: &Kernel, job: &GuestJob) -> String {
    let mut kept: Vec<&PathBuf> = job
        .kept_dirs()
        .filter(|dir| {
            HIDDEN
                .iter()
                .any(|hidden| dir.starts_with(hidden) && *dir != Path::new(hidden))
        })
        .collect();
    kept.sort();
    kept.dedup();
    let mut text = format!(
        "modules={}\nkept() {{ :\n",
        quote_path(&kernel.modules_root())
    );
    for (index, dir) in kept.iter().enumerate() {
        text.push_str(&format!("keep {index} {}\n", quote_path(dir)));
    }
    text.push_str("}\n");
    text
}

/// What the guest runs inside its root: environment, modules, device manager, then the command itself.
pub(crate) fn job(job: &GuestJob, path: &str, home: &str) -> String {
    let mut text = format!(
        "export PATH={} HOME={} LC_ALL=C\n",
        quote(path),
        quote(home)
    );
    for (name, value) in &job.env {
        text.push_str(&format!("export {name}={}\n", quote(value)));
    }
    let mut modules: Vec<&str> = job.modules.iter().map(String::as_str).collect();
    if !job.disks.is_empty() {
        modules.push("virtio_blk");
    }
    for module in modules {
        let words: Vec<String> = module.split_whitespace().map(quote).collect();
        text.push_str(&format!(
            "modprobe {} || exit {NOT_BEGUN}\n",
            words.join(" ")
        ));
    }
    if job.device_manager == DeviceManager::Udevd {
        // udev's programs do nothing in a chroot unless told that it is none.
        text.push_str(&format!(
            "export SYSTEMD_IGNORE_CHROOT=1 SYSTEMD_IN_CHROOT=0\n\
             {{ /lib/systemd/systemd-udevd --daemon && udevadm trigger && udevadm settle; }} > /run/udev.log 2>&1 || \
             {{ cat /run/udev.log; exit {NOT_BEGUN}; }}\n"
        ));
    }
    text.push_str(&format!(
        "cd {} || exit {NOT_BEGUN}\n",
        quote_path(&job.dir)
    ));
    let argv: Vec<String> = job.argv.iter().map(|word| quote(word)).collect();
    text.push_str(&format!("exec {}\n", argv.join(" ")));
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_shell_reads_quoted_words_back_unchanged() {
        let words = [
            "plain",
            "",
            "two words",
            "it's",
            "$HOME",
            "a\"b",
            "new\nline",
            "*",
            "~",
            "a;b",
        ];
        let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let script = format!("printf '%s\\0' {}", line.join(" "));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let read = String::from_utf8(output.stdout).unwrap();
        let read: Vec<&str> = read.strip_suffix('\0').unwrap().split('\0').collect();
        assert_eq!(read, words);
    }

    #[test]
    fn a_job_becomes_a_script_that_ends_in_the_command() {
        let mut guest_job = GuestJob::new(["echo", "two words"]);
        guest_job.env.push(("A_B".to_owned(), "x y".to_owned()));
        guest_job.modules = vec!["null_blk nr_devices=0".to_owned()];
        guest_job.device_manager = DeviceManager::Udevd;
        let text = job(&guest_job, "/bin", "/h");
        assert!(text.contains("export A_B='x y'\n"));
        assert!(text.contains("modprobe null_blk nr_devices=0 || exit 125\n"));
        assert!(text.contains("systemd-udevd"));
        assert!(text.ends_with("cd / || exit 125\nexec echo 'two words'\n"));
        guest_job.device_manager = DeviceManager::KernelOnly;
        assert!(!job(&guest_job, "/bin", "/h").contains("udevd"));
    }
}
