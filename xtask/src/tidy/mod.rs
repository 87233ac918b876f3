//! The style rules that no other tool checks, over every file of the tree. Exceptions may only shrink.

mod cycles;
mod files;
mod headers;
mod layers;
mod lints;
mod names;
mod ratchet;
mod signatures;
mod sizes;
mod source;
mod unsafety;
mod words;

use anyhow::{Result, bail};

use self::files::Tree;
use crate::cargo::{self, Metadata};
use crate::console;

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, relative to the workspace's root.
    pub(crate) file: String,
    /// The line, counted from 1; 0 stands for the whole file.
    pub(crate) line: usize,
    /// The rule's short name, as the ratchet file knows it.
    pub(crate) rule: &'static str,
    /// For rules that count: how much it is. Else 1.
    pub(crate) amount: usize,
    /// What is wrong and what to do.
    pub(crate) what: String,
}

impl Finding {
    fn new(file: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            rule,
            amount: 1,
            what: what.into(),
        }
    }
}

/// Checks everything.
pub(crate) fn run() -> Result<()> {
    let root = cargo::workspace_root();
    let tree = Tree::read(root)?;
    let metadata = Metadata::load()?;
    let mut findings = Vec::new();
    for file in &tree.rust {
        headers::check(file, &mut findings);
        names::check(file, &mut findings);
        sizes::check(file, &mut findings);
        lints::check(file, &mut findings);
        signatures::check(file, &mut findings);
        unsafety::check(file, &mut findings);
    }
    for text in &tree.texts {
        words::check(text, &mut findings);
    }
    layers::check(&metadata, &mut findings);
    cycles::check(&tree.rust, &mut findings);
    let exceptions = ratchet::Exceptions::read(root)?;
    let mut left = exceptions.apply(findings);
    left.sort();
    for finding in &left {
        console::complain(&format!(
            "{}:{}: [{}] {}",
            finding.file, finding.line, finding.rule, finding.what
        ));
    }
    if !left.is_empty() {
        bail!("tidy found {} places", left.len());
    }
    Ok(())
}
