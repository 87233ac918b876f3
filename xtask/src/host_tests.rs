//! Tests that need no kernel of their own: units, properties, integration tests and examples in documentation.

use std::process::Command;

use anyhow::{Result, bail};
use testvm::{VM_VARIABLE, find_program};

use crate::cargo::{self, Metadata};
use crate::console;
use crate::tally::Tally;

/// Integration tests with this prefix need a kernel; the VM stage runs them.
pub(crate) const VM_PREFIX: &str = "vm_";

/// Runs all of them, even after a failure, and counts.
pub(crate) fn run(tally: &mut Tally) -> Result<()> {
    let integration = Metadata::load()?.integration_tests(|name| !name.starts_with(VM_PREFIX));
    let mut selection = vec!["--workspace", "--lib", "--bins"];
    for name in &integration {
        selection.extend(["--test", name]);
    }
    let tests = if find_program("cargo-nextest").is_some() {
        ["nextest", "run", "--no-fail-fast"].as_slice()
    } else {
        ["test", "--no-fail-fast"].as_slice()
    };
    let tests = runner(&[tests, &selection].concat(), tally)?;
    // nextest does not run examples in documentation.
    let examples = runner(&["test", "--workspace", "--doc", "--no-fail-fast"], tally)?;
    if !tests || !examples || tally.failed > 0 {
        bail!("host tests failed");
    }
    Ok(())
}

/// Runs one test runner; whether it succeeded.
fn runner(arguments: &[&str], tally: &mut Tally) -> Result<bool> {
    let mut command: Command = cargo::cargo(arguments);
    command.env(VM_VARIABLE, "defer");
    let status = console::tee(&mut command, |line| *tally += Tally::of_line(line))?;
    Ok(status.success())
}
