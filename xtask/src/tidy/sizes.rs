//! Rule `file-lines`: a file has at most 500 lines of code. Functions and arguments are clippy's to count.

use super::Finding;
use super::source::{Line, Source};

/// The ceiling; the aim is about 120.
const CODE_LINES_MAX: usize = 500;

pub(super) fn check(file: &Source, findings: &mut Vec<Finding>) {
    let amount = file.lines.iter().filter(|line| Line::is_code(line)).count();
    if amount > CODE_LINES_MAX {
        let what = format!("{amount} lines of code, at most {CODE_LINES_MAX}; one idea a file");
        findings.push(Finding {
            amount,
            ..Finding::new(&file.path, 0, "file-lines", what)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_counts() {
        for (code_lines, want) in [(CODE_LINES_MAX, 0), (CODE_LINES_MAX + 1, 1)] {
            let text = "x();\n".repeat(code_lines) + &"// y\n\n".repeat(1000);
            let mut findings = Vec::new();
            check(&Source::parse("x.rs", &text), &mut findings);
            assert_eq!(findings.len(), want);
            assert!(
                findings
                    .iter()
                    .all(|finding| finding.amount == CODE_LINES_MAX + 1)
            );
        }
    }
}
