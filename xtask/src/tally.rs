//! Counting tests: what the test runners report, added up to one last line.

use std::fmt;
use std::ops::AddAssign;

/// Tests by their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// One failure and nothing else.
    pub(crate) const ONE_FAILED: Self = Self {
        passed: 0,
        failed: 1,
        skipped: 0,
    };

    /// What a line of a test runner's output counts: a summary of nextest or of libtest, else nothing.
    pub(crate) fn of_line(line: &str) -> Self {
        let line = strip_colours(line);
        let line = line.trim();
        let summary = line.starts_with("Summary [") && line.contains(" run: ");
        if !summary && !line.starts_with("test result: ") {
            return Self::default();
        }
        let counts = line
            .rsplit_once(" run: ")
            .map_or(line, |(_, counts)| counts);
        let mut tally = Self::default();
        for part in counts.split([',', ';', '.', '(']) {
            let mut words = part.split_whitespace();
            let Some(count) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            match words.collect::<Vec<_>>().join(" ").as_str() {
                "passed" => tally.passed += count,
                "failed" | "timed out" | "exec failed" | "failed due to signal" => {
                    tally.failed += count
                }
                "skipped" | "ignored" => tally.skipped += count,
                // "1 slow", "2 flaky", "0 measured", "3 filtered out": no tests of their own.
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// The text without terminal escapes.
fn strip_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split('\u{1b}');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_both_runners_are_read_and_other_lines_are_not() {
        let cases = [
            (
                "     Summary [   0.017s] 12 tests run: 12 passed, 3 skipped",
                (12, 0, 3),
            ),
            (
                "     Summary [  10.1s] 9/12 tests run: 5 passed (1 slow, 1 flaky), 2 failed, 1 timed out, 1 exec failed, 3 skipped",
                (5, 4, 3),
            ),
            (
                "\u{1b}[32;1m     Summary\u{1b}[0m [   0.0s] 1 test run: \u{1b}[1m1\u{1b}[0m passed, 0 skipped",
                (1, 0, 0),
            ),
            (
                "test result: ok. 31 passed; 0 failed; 2 ignored; 0 measured; 4 filtered out; finished in 0.05s",
                (31, 0, 2),
            ),
            (
                "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 23.24s",
                (3, 2, 0),
            ),
            ("3 passed, 1 failed", (0, 0, 0)),
            ("", (0, 0, 0)),
        ];
        for (line, (passed, failed, skipped)) in cases {
            let want = Tally {
                passed,
                failed,
                skipped,
            };
            assert_eq!(Tally::of_line(line), want, "{line}");
        }
    }

    #[test]
    fn the_last_line_has_its_exact_form() {
        let mut tally = Tally::ONE_FAILED;
        tally += Tally {
            passed: 7,
            failed: 0,
            skipped: 2,
        };
        assert_eq!(tally.to_string(), "7 passed, 1 failed, 2 skipped");
    }
}
