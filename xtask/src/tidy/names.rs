//! Rule `name`: a file or directory is named after the thing in it.

use super::Finding;
use super::source::Source;

/// Names that say nothing.
const BANNED: [&str; 9] = [
    "util", "utils", "helper", "helpers", "common", "misc", "types", "impls", "imp",
];
/// As above; apart because the word is fine in other places.
const BANNED_TOO: [&str; 1] = ["shared"];

pub(super) fn check(file: &Source, findings: &mut Vec<Finding>) {
    let parts = file.path.trim_end_matches(".rs").split('/');
    for part in parts {
        if BANNED.contains(&part) || BANNED_TOO.contains(&part) {
            let what = format!("`{part}` names nothing; name the thing that is in it");
            findings.push(Finding::new(&file.path, 0, "name", what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_names_are_found_as_files_and_as_directories() {
        let cases = [
            ("crates/a/src/extent.rs", 0),
            ("crates/a/src/utils.rs", 1),
            ("crates/a/src/types/extent.rs", 1),
            ("crates/a/src/shared.rs", 1),
            ("crates/a/src/commonplace.rs", 0),
        ];
        for (path, want) in cases {
            let mut findings = Vec::new();
            check(&Source::parse(path, ""), &mut findings);
            assert_eq!(findings.len(), want, "{path}");
        }
    }
}
