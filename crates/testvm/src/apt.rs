//! Fetching packages of a suite that this machine does not use, with apt but without touching apt's own state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, ErrorKind};
use crate::program;

/// Debian's archive keys: bookworm's file name, and the one that newer releases add.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// A suite of the archive with apt state of its own.
pub(crate) struct Suite {
    dir: PathBuf,
    name: &'static str,
}

impl Suite {
    /// Sets the state up below `dir` and fetches the suite's package list.
    pub(crate) fn fetch(dir: &Path, mirror: &str, name: &'static str) -> Result<Self, Error> {
        let dir = dir.join(name);
        for sub in ["lists/partial", "cache/archives/partial", "debs"] {
            let sub = dir.join(sub);
            fs::create_dir_all(&sub)
                .map_err(|error| Error::io("create apt state", sub.display(), error))?;
        }
        let keyring = KEYRINGS
            .iter()
            .find(|file| Path::new(file).exists())
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Package,
                    "find Debian's archive key",
                    "no keyring is installed; install the package debian-archive-keyring",
                )
            })?;
        let sources = dir.join("sources.list");
        fs::write(
            &sources,
            format!("deb [signed-by={keyring} arch=amd64] {mirror} {name} main\n"),
        )
        .map_err(|error| Error::io("write apt sources", sources.display(), error))?;
        let suite = Self { dir, name };
        program::output(
            suite.command("apt-get")?.args(["-qq", "update"]),
            "fetch a package list",
        )?;
        Ok(suite)
    }

    /// The package that the meta package depends on and whose name matches, for example the newest kernel image.
    pub(crate) fn dependency(
        &self,
        meta: &str,
        matches: impl Fn(&str) -> bool,
    ) -> Result<String, Error> {
        let record = program::output_text(
            self.command("apt-cache")?
                .args(["show", "--no-all-versions", meta]),
            "look up a package",
        )?;
        depends(&record)
            .find(|name| matches(name))
            .map(str::to_owned)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Kernel,
                    "look up a package",
                    format!("{meta} of {} depends on nothing suitable", self.name),
                )
            })
    }

    /// Which of the names the suite has.
    pub(crate) fn existing(&self, names: &[String]) -> Result<Vec<String>, Error> {
        let all = program::output_text(
            self.command("apt-cache")?.arg("pkgnames"),
            "list package names",
        )?;
        let existing: Vec<&str> = all.lines().collect();
        Ok(names
            .iter()
            .filter(|name| existing.contains(&name.as_str()))
            .cloned()
            .collect())
    }

    /// Downloads the packages, checked against the archive's signature, and unpacks them below `root`.
    pub(crate) fn unpack(&self, packages: &[String], root: &Path) -> Result<(), Error> {
        let debs = self.dir.join("debs");
        program::output(
            self.command("apt-get")?
                .current_dir(&debs)
                .args(["-qq", "download"])
                .args(packages),
            "download packages",
        )?;
        let entries =
            fs::read_dir(&debs).map_err(|error| Error::io("read", debs.display(), error))?;
        for entry in entries {
            let path = entry
                .map_err(|error| Error::io("read", debs.display(), error))?
                .path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                program::output(
                    program::command("dpkg-deb")?.arg("-x").arg(&path).arg(root),
                    "unpack a package",
                )?;
            }
        }
        Ok(())
    }

    fn command(&self, name: &str) -> Result<Command, Error> {
        let mut command = program::command(name)?;
        let dir = self.dir.display();
        for option in [
            format!("Dir::Etc::sourcelist={dir}/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::State::lists={dir}/lists"),
            "Dir::State::status=/dev/null".to_owned(),
            format!("Dir::Cache={dir}/cache"),
            "APT::Architecture=amd64".to_owned(),
            "APT::Architectures=amd64".to_owned(),
            // The state belongs to this user; apt's own one could not write there.
            "APT::Sandbox::User=".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=3".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        Ok(command)
    }
}

/// Package names of a record's `Depends:` line.
fn depends(record: &str) -> impl Iterator<Item = &str> {
    record
        .lines()
        .filter_map(|line| line.strip_prefix("Depends:"))
        .flat_map(|line| line.split([',', '|']))
        .filter_map(|part| part.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_without_versions_and_alternatives() {
        let record = "Package: linux-image-cloud-amd64\nPre-Depends: not-this\n\
                      Depends: linux-image-7.3.4+deb13-cloud-amd64 (= 7.3.4-1), a | b (>> 1)\nDescription: x\n";
        let names: Vec<&str> = depends(record).collect();
        assert_eq!(names, ["linux-image-7.3.4+deb13-cloud-amd64", "a", "b"]);
        assert_eq!(depends("Package: x\n").count(), 0);
    }
}
