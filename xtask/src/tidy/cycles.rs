//! Rule `cycle`: the modules of a crate use each other in one direction only.
//!
//! A module is a file. It uses another one when its code, tests left out, names it by a path that begins with `crate` or
//! `super`. A module and those inside it may name each other: they are one thing.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::Source;

/// The path of a module below its crate's root, such as `tidy::cycles`; the root itself is the empty path.
type Module = Vec<String>;

pub(super) fn check(files: &[Source], findings: &mut Vec<Finding>) {
    let mut crates: BTreeMap<&str, Vec<(Module, &Source)>> = BTreeMap::new();
    for file in files {
        if let Some((root, module)) = place(&file.path) {
            crates.entry(root).or_default().push((module, file));
        }
    }
    for modules in crates.values() {
        let uses = edges(modules);
        for (module, file) in modules {
            if let Some(way) = way_back(module, &uses) {
                let names: Vec<String> = way.iter().map(|module| module.join("::")).collect();
                // Each cycle once: at its first module by name.
                if names.iter().min() == names.first() {
                    let what = format!(
                        "modules in a circle: {} -> {}",
                        names.join(" -> "),
                        module.join("::")
                    );
                    findings.push(Finding::new(&file.path, 0, "cycle", what));
                }
            }
        }
    }
}

/// The crate's source directory and the module's path, for files below `src`. Programs of `src/bin` are not looked at.
fn place(path: &str) -> Option<(&str, Module)> {
    let (root, rest) = path.split_once("/src/")?;
    if rest.starts_with("bin/") {
        return None;
    }
    let mut module: Module = rest
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if module
        .last()
        .is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main"))
    {
        module.pop();
    }
    Some((root, module))
}

/// Which module uses which, ancestors and descendants left out.
fn edges(modules: &[(Module, &Source)]) -> BTreeMap<Module, BTreeSet<Module>> {
    let known: BTreeSet<&Module> = modules.iter().map(|(module, _)| module).collect();
    let mut uses: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, file) in modules {
        let code: String = file
            .lines_without_tests()
            .map(|(_, line)| line.code.as_str())
            .collect::<Vec<_>>()
            .join(" ");
        for path in named_paths(&code, module) {
            let longest = (1..=path.len()).rev().find_map(|len| {
                let prefix = path.get(..len)?.to_vec();
                known.contains(&prefix).then_some(prefix)
            });
            if let Some(target) = longest
                && !target.starts_with(module)
                && !module.starts_with(&target)
            {
                uses.entry(module.clone()).or_default().insert(target);
            }
        }
    }
    uses
}

/// Paths that begin with `crate`, `super` or `self`, made absolute; groups in braces are spread out.
fn named_paths(code: &str, module: &[String]) -> Vec<Module> {
    let words = split_words(code);
    let mut paths = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let behind_path = at > 0 && words.get(at - 1).is_some_and(|word| word == "::");
        let start = match word.as_str() {
            "crate" => Vec::new(),
            "super" if !module.is_empty() => {
                module.get(..module.len() - 1).unwrap_or_default().to_vec()
            }
            _ => continue,
        };
        // `pub(crate)` names nothing, and the second `super` of `super::super` is read with the first.
        if !behind_path && words.get(at + 1).is_some_and(|word| word == "::") {
            spread(words.get(at + 1..).unwrap_or_default(), start, &mut paths);
        }
    }
    paths
}

/// Reads `::a::{b, c::d}` behind `prefix`, up to where the path ends.
fn spread(words: &[String], mut prefix: Module, paths: &mut Vec<Module>) {
    let mut rest = words;
    while let [colons, word, behind @ ..] = rest
        && colons == "::"
    {
        match word.as_str() {
            "super" => {
                prefix.pop();
            }
            "{" => {
                for item in group(behind) {
                    // As if the item stood alone behind the prefix.
                    let alone = [&["::".to_owned()], item].concat();
                    spread(&alone, prefix.clone(), paths);
                }
                return;
            }
            name if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                prefix.push(name.to_owned());
            }
            _ => break,
        }
        rest = behind;
    }
    paths.push(prefix);
}

/// The items of a group whose opening brace was just read.
fn group(words: &[String]) -> Vec<&[String]> {
    let mut items = Vec::new();
    let (mut depth, mut begin) = (0_u32, 0);
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "{" => depth += 1,
            "}" if depth > 0 => depth -= 1,
            "}" | "," if depth == 0 => {
                items.extend(words.get(begin..at).filter(|item| !item.is_empty()));
                begin = at + 1;
                if word == "}" {
                    break;
                }
            }
            _ => {}
        }
    }
    items
}

/// Names, `::` and single signs.
fn split_words(code: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_name = false;
    let mut rest = code.chars().peekable();
    while let Some(c) = rest.next() {
        if c.is_alphanumeric() || c == '_' {
            match words.last_mut() {
                Some(word) if in_name => word.push(c),
                _ => words.push(c.to_string()),
            }
            in_name = true;
            continue;
        }
        in_name = false;
        if c == ':' && rest.peek() == Some(&':') {
            rest.next();
            words.push("::".to_owned());
        } else if !c.is_whitespace() {
            words.push(c.to_string());
        }
    }
    words
}

/// The shortest way from a module back to itself, that module first.
fn way_back<'a>(
    start: &'a Module,
    uses: &'a BTreeMap<Module, BTreeSet<Module>>,
) -> Option<Vec<&'a Module>> {
    let mut ways: std::collections::VecDeque<Vec<&Module>> = [vec![start]].into();
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last()?;
        for next in uses.get(*last).into_iter().flatten() {
            if next == start {
                return Some(way);
            }
            if seen.insert(next) {
                let mut longer = way.clone();
                longer.push(next);
                ways.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::parse(path, text))
            .collect();
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_circle_is_found_once_and_a_line_is_none() {
        let line = [
            ("c/src/lib.rs", "mod a; mod b; mod d;"),
            ("c/src/a.rs", "use crate::b::B;"),
            ("c/src/b.rs", "use crate::{d::D, d};"),
            ("c/src/d.rs", "pub(crate) struct D;"),
        ];
        assert!(cycles(&line).is_empty());
        let mut circle = line;
        circle[3].1 = "fn f(_: super::a::A) {}";
        assert_eq!(cycles(&circle), ["modules in a circle: a -> b -> d -> a"]);
        // Another crate with the same names does not matter.
        circle[3].0 = "e/src/d.rs";
        assert!(cycles(&circle).is_empty());
    }

    #[test]
    fn tests_and_parents_do_not_make_a_circle() {
        let files = [
            ("c/src/a.rs", "use crate::b::B;"),
            (
                "c/src/b.rs",
                "struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
            ),
            ("c/src/p/mod.rs", "mod q; use self::q::Q;"),
            ("c/src/p/q.rs", "use super::P; use crate::p::R;"),
        ];
        assert!(cycles(&files).is_empty());
    }

    #[test]
    fn paths_are_made_absolute_and_groups_spread_out() {
        let module = ["p".to_owned(), "q".to_owned()];
        let paths = named_paths(
            "use super::{a::{b, c as d}, self}; crate::x::Y(super::super::z::f())",
            &module,
        );
        let paths: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["p::a::b", "p::a::c", "p::self", "x::Y", "z::f"]);
        assert!(named_paths("pub(crate) fn f() {}", &module).is_empty());
    }
}
