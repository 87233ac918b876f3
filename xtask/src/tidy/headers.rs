//! Rule `header`: every Rust file opens with `//!` and says what it is for.

use super::Finding;
use super::source::Source;

/// A header shorter than this says nothing.
const WORDS_MIN: usize = 2;

pub(super) fn check(file: &Source, findings: &mut Vec<Finding>) {
    let words = file
        .first
        .strip_prefix("//!")
        .map(|header| header.split_whitespace().count());
    let what = match words {
        None => "the file must open with `//!` and say in one sentence what it is for",
        Some(count) if count < WORDS_MIN || file.first.contains("placeholder") => {
            "the header says nothing; one sentence about the file's role"
        }
        Some(_) => return,
    };
    findings.push(Finding::new(&file.path, 1, "header", what));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_must_be_there_and_say_something() {
        let cases = [
            ("//! Counts the beans of one bag.\n", 0),
            ("//! Beans.\n", 1),
            ("// Counts the beans of one bag.\n", 1),
            ("\n//! Counts the beans of one bag.\n", 1),
            ("//! placeholder header of this file\n", 1),
            ("", 1),
        ];
        for (text, want) in cases {
            let mut findings = Vec::new();
            check(&Source::parse("x.rs", text), &mut findings);
            assert_eq!(findings.len(), want, "{text}");
        }
    }
}
