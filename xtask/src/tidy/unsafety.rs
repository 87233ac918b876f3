//! Rules `unsafe` and `forbid-unsafe`: unsafe code only in the `sys` of two crates; every other crate forbids it.

use super::Finding;
use super::source::Source;

/// Crates that may have unsafe code, in `sys.rs` or below `sys/`.
const ALLOWED: [&str; 2] = ["crates/ublk/src/", "crates/reactor/src/"];

/// Tests that count allocations: a global allocator cannot be written without unsafe code.
const ALLOCATORS: [&str; 2] = [
    "crates/sim/tests/no_alloc.rs",
    "crates/overlaybd/tests/zfile/allocations.rs",
];

pub(super) fn check(file: &Source, findings: &mut Vec<Finding>) {
    let home = ALLOWED
        .iter()
        .find_map(|prefix| file.path.strip_prefix(prefix));
    let in_sys = home.is_some_and(|rest| rest == "sys.rs" || rest.starts_with("sys/"));
    if !in_sys && !ALLOCATORS.contains(&file.path.as_str()) {
        for (number, line) in file.numbered() {
            if has_word(&line.code, "unsafe") {
                let what = "unsafe code belongs into the `sys` of ublk or reactor";
                findings.push(Finding::new(&file.path, number, "unsafe", what));
            }
        }
    }
    let is_root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
    let wanted = if home.is_some() {
        "#![deny(unsafe_code)]"
    } else {
        "#![forbid(unsafe_code)]"
    };
    if is_root && !file.lines.iter().any(|line| line.code.trim() == wanted) {
        let what = format!("the crate's root must have `{wanted}`");
        findings.push(Finding::new(&file.path, 0, "forbid-unsafe", what));
    }
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_has_its_places_and_no_other() {
        let cases = [
            ("crates/ublk/src/sys.rs", "unsafe { x() }", 0),
            ("crates/reactor/src/sys/ring.rs", "unsafe { x() }", 0),
            ("crates/ublk/src/tag.rs", "unsafe { x() }", 1),
            ("crates/api/src/sys.rs", "unsafe { x() }", 1),
            (ALLOCATORS[0], "unsafe { x() }", 0),
            ("crates/sim/tests/seeds.rs", "unsafe { x() }", 1),
            ("crates/api/src/x.rs", "// unsafe\nlet unsafety = 1;", 0),
            ("crates/api/src/lib.rs", "#![forbid(unsafe_code)]", 0),
            ("crates/api/src/lib.rs", "mod x;", 1),
            ("crates/ublk/src/lib.rs", "#![deny(unsafe_code)]", 0),
            ("crates/ublk/src/lib.rs", "mod x;", 1),
        ];
        for (path, text, want) in cases {
            let mut findings = Vec::new();
            check(&Source::parse(path, text), &mut findings);
            assert_eq!(findings.len(), want, "{path}: {text}");
        }
    }
}
