//! Which Debian archive to fetch kernels from: the one that this machine's own apt is set up with.

use crate::error::{Error, ErrorKind};
use crate::program;

/// Names the archive where apt's set-up names none.
const MIRROR_VARIABLE: &str = "BLOCKYARD_DEBIAN_MIRROR";
/// One line per package index: origin, label and address, as apt fills them in once it has lists.
const FORMAT: &str = "$(ORIGIN)|$(LABEL)|$(REPO_URI)";

/// The address of the archive.
pub(crate) fn find() -> Result<String, Error> {
    if let Some(mirror) = std::env::var(MIRROR_VARIABLE)
        .ok()
        .filter(|mirror| !mirror.is_empty())
    {
        return Ok(mirror);
    }
    let targets = program::output_text(
        program::command("apt-get")?.args([
            "indextargets",
            "--format",
            FORMAT,
            "Created-By: Packages",
        ]),
        "ask apt for its archives",
    )?;
    choose(&targets).ok_or_else(|| {
        Error::new(
            ErrorKind::Kernel,
            "find a Debian archive",
            format!("apt's sources name none; set {MIRROR_VARIABLE} to the address of one"),
        )
    })
}

/// The main archive of Debian among the lines of [`FORMAT`]. Origin and label are known only after `apt-get update`;
/// before, the last part of the address must do.
fn choose(targets: &str) -> Option<String> {
    let lines: Vec<(&str, &str, &str)> = targets
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, '|');
            Some((fields.next()?, fields.next()?, fields.next()?.trim()))
        })
        .collect();
    let named = lines
        .iter()
        .find(|(origin, label, _)| *origin == "Debian" && *label == "Debian");
    let by_address = || {
        lines
            .iter()
            .find(|(_, _, uri)| uri.trim_end_matches('/').ends_with("/debian"))
    };
    named
        .or_else(by_address)
        .map(|(_, _, uri)| uri.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_archive_is_found_with_and_without_fetched_lists() {
        let cases = [
            (
                "Other|Other|https://a.example/apt/\nDebian|Debian-Security|http://m.example/debian-security/\n\
                 Debian|Debian|http://m.example/some/where/\n",
                Some("http://m.example/some/where"),
            ),
            (
                "$(ORIGIN)|$(LABEL)|http://m.example/debian-security\n$(ORIGIN)|$(LABEL)|http://m.example/debian\n",
                Some("http://m.example/debian"),
            ),
            ("Other|Other|https://a.example/apt/\n", None),
            ("nonsense\n", None),
            ("", None),
        ];
        for (targets, want) in cases {
            assert_eq!(choose(targets).as_deref(), want);
        }
    }
}
