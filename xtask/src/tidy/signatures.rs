//! Rule `bool-parameter`: a public function names its cases instead of taking a bool.

use super::Finding;
use super::source::Source;

pub(super) fn check(file: &Source, findings: &mut Vec<Finding>) {
    // Tests and examples offer nothing to anyone.
    if file.path.contains("/tests/") || file.path.contains("/examples/") {
        return;
    }
    let mut signature: Option<(usize, String)> = None;
    for (number, line) in file.lines_without_tests() {
        let code = line.code.trim();
        if code.starts_with("pub ") && code.split_whitespace().any(|word| word == "fn") {
            signature = Some((number, String::new()));
        }
        let Some((first, text)) = &mut signature else {
            continue;
        };
        text.push_str(code);
        // The first brace or semicolon ends the signature.
        if code.contains('{') || code.ends_with(';') {
            if takes_bool(text) {
                let what = "a public function takes a bool; name both cases or split it";
                findings.push(Finding::new(&file.path, *first, "bool-parameter", what));
            }
            signature = None;
        }
    }
}

/// Whether a parameter, not the result, is a bool or an optional one.
fn takes_bool(signature: &str) -> bool {
    let parameters = signature.split("->").next().unwrap_or(signature);
    let squeezed: String = parameters.split_whitespace().collect();
    [":bool,", ":bool)", ":Option<bool>"]
        .iter()
        .any(|pattern| squeezed.contains(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bool_parameters_of_public_functions_are_found() {
        let cases = [
            ("pub fn f(a: u8, force: bool) {}", 1),
            ("pub const fn f(\n    force: bool,\n) -> u8 {", 1),
            ("pub fn f(force: Option<bool>) {}", 1),
            ("pub fn f() -> bool {}", 0),
            ("fn f(force: bool) {}", 0),
            ("pub(crate) fn f(force: bool) {}", 0),
            ("pub struct S {\n    pub force: bool,\n}", 0),
            (
                "#[cfg(test)]\nmod tests {\n    pub fn f(force: bool) {}\n}",
                0,
            ),
        ];
        for (text, want) in cases {
            let mut findings = Vec::new();
            check(&Source::parse("crates/a/src/x.rs", text), &mut findings);
            assert_eq!(findings.len(), want, "{text}");
        }
    }
}
