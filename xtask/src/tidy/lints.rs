//! Rules `allow`, `swallowed` and `open-end`: lints are expected with a reason, never allowed; a result that is thrown away
//! has a comment; an unfinished place names its issue.

use super::Finding;
use super::source::{Line, Source};

/// Marks of unfinished places; split so that this file has none.
const MARKS: [[&str; 2]; 4] = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["HA", "CK"]];

pub(super) fn check(file: &Source, findings: &mut Vec<Finding>) {
    let mut before = &Line::default();
    for (number, line) in file.numbered() {
        let mut find = |rule, what| findings.push(Finding::new(&file.path, number, rule, what));
        let code: String = line.code.split_whitespace().collect();
        let attribute = code.starts_with("#[") || code.starts_with("#![");
        if attribute && (code.contains("[allow(") || code.contains(",allow(")) {
            find(
                "allow",
                "use #[expect(lint, reason = \"…\")]; an allow outlives its cause",
            );
        }
        let thrown_away = ["let_=", ";let_=", "{let_="].iter().any(|begin| {
            // A tuple of plain names marks arguments that a default method does not need.
            code.split_once(begin)
                .is_some_and(|(_, value)| !value.starts_with('(') || value.matches('(').count() > 1)
                && (begin.len() > "let_=".len() || code.starts_with(begin))
        });
        if thrown_away && line.comment.is_empty() && (before.is_code() || before.comment.is_empty())
        {
            find(
                "swallowed",
                "say above the line why the result may be thrown away",
            );
        }
        if is_open_end(&line.comment) {
            find(
                "open-end",
                "an unfinished place needs its issue: `(#N)` behind the mark",
            );
        }
        before = line;
    }
}

fn is_open_end(comment: &str) -> bool {
    MARKS.iter().map(|parts| parts.concat()).any(|mark| {
        comment.match_indices(&mark).any(|(at, _)| {
            let before = comment.get(..at).unwrap_or_default();
            let after = comment.get(at + mark.len()..).unwrap_or_default();
            let is_word = !before.ends_with(char::is_alphanumeric)
                && !after.starts_with(char::is_alphanumeric);
            let has_issue = after.starts_with("(#");
            is_word && !has_issue
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<&'static str> {
        let mut findings = Vec::new();
        check(&Source::parse("x.rs", text), &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn allowing_is_found_and_expecting_is_not() {
        assert_eq!(rules("#[allow(dead_code)]"), ["allow"]);
        assert_eq!(rules("#![allow(dead_code, reason = \"x\")]"), ["allow"]);
        assert_eq!(rules("#[cfg_attr(test, allow(dead_code))]"), ["allow"]);
        assert!(rules("#[expect(dead_code, reason = \"x\")]").is_empty());
        assert!(rules("let s = \"#[allow(x)]\"; // #[allow(x)]").is_empty());
    }

    #[test]
    fn a_result_that_is_thrown_away_needs_a_comment() {
        assert_eq!(rules("a();\nlet _ = b();"), ["swallowed"]);
        assert_eq!(rules("a(); // why\nlet _ = b();"), ["swallowed"]);
        assert!(rules("let _ = b(); // why").is_empty());
        assert!(rules("// why\nlet _ = b();").is_empty());
        assert!(rules("let _guard = b();").is_empty());
        assert_eq!(rules("if x { let _ = b(); }"), ["swallowed"]);
        assert_eq!(rules("let _ = (b(), c);"), ["swallowed"]);
        assert!(rules("let _ = (request, plan);").is_empty());
    }

    #[test]
    fn an_unfinished_place_needs_its_issue() {
        let mark = MARKS[0].concat();
        assert_eq!(rules(&format!("// {mark}: later")), ["open-end"]);
        assert!(rules(&format!("// {mark}(#12): later")).is_empty());
        assert!(rules(&format!("let s = \"{mark}\";")).is_empty());
        assert!(rules(&format!("// {mark}S are words too")).is_empty());
    }
}
