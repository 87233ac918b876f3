//! Exceptions that may only shrink. `xtask/tidy-exceptions.toml` holds, per rule, files and the amount that is tolerated:
//!
//! ```toml
//! [file-lines]
//! "crates/x/src/y.rs" = 612
//! ```
//!
//! For rules that count, the amount is the count; for others, the number of places. An amount above what is found is
//! itself a finding, so that a file that got better cannot get worse again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

/// Where the exceptions are.
const FILE: &str = "xtask/tidy-exceptions.toml";

/// Rule, then file, then tolerated amount.
#[derive(Debug, Default)]
pub(super) struct Exceptions(BTreeMap<String, BTreeMap<String, usize>>);

impl Exceptions {
    /// Reads the file below the root.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("read {FILE}"))?;
        toml::from_str(&text)
            .map(Self)
            .with_context(|| format!("parse {FILE}"))
    }

    /// What remains after the exceptions: findings that none covers, and exceptions that are too large.
    pub(super) fn apply(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let mut found: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for finding in &findings {
            *found.entry((finding.rule, &finding.file)).or_default() += finding.amount;
        }
        let tolerated = |rule: &str, file: &str| {
            self.0
                .get(rule)
                .and_then(|files| files.get(file))
                .copied()
                .unwrap_or(0)
        };
        let mut left: Vec<Finding> = self
            .0
            .iter()
            .flat_map(|(rule, files)| {
                files
                    .iter()
                    .map(move |(file, amount)| (rule, file, *amount))
            })
            .filter_map(|(rule, file, amount)| {
                let now = found
                    .get(&(rule.as_str(), file.as_str()))
                    .copied()
                    .unwrap_or(0);
                let what = format!(
                    "{file} has {now} of {rule} and an exception for {amount}; lower it to {now}"
                );
                (now < amount).then(|| Finding::new(FILE, 0, "ratchet", what))
            })
            .collect();
        let uncovered: Vec<Finding> = findings
            .iter()
            .filter(|finding| {
                let now = found
                    .get(&(finding.rule, finding.file.as_str()))
                    .copied()
                    .unwrap_or(0);
                now > tolerated(finding.rule, &finding.file)
            })
            .cloned()
            .collect();
        left.extend(uncovered);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exceptions(text: &str) -> Exceptions {
        Exceptions(toml::from_str(text).unwrap())
    }

    fn long_file(amount: usize) -> Finding {
        Finding {
            amount,
            ..Finding::new("a.rs", 0, "file-lines", "long")
        }
    }

    #[test]
    fn an_exception_covers_its_amount_and_may_only_shrink() {
        let exceptions = exceptions("[file-lines]\n\"a.rs\" = 600\n");
        assert!(exceptions.apply(vec![long_file(600)]).is_empty());
        assert_eq!(exceptions.apply(vec![long_file(601)]), [long_file(601)]);
        let left = exceptions.apply(vec![long_file(550)]);
        assert_eq!(left.len(), 1);
        assert!(left[0].what.contains("lower it to 550"), "{left:?}");
        assert!(
            exceptions.apply(Vec::new())[0]
                .what
                .contains("lower it to 0")
        );
    }

    #[test]
    fn without_exceptions_everything_is_left() {
        let finding = Finding::new("a.rs", 3, "allow", "x");
        assert_eq!(exceptions("").apply(vec![finding.clone()]), [finding]);
    }
}
