//! The fast gates.

use anyhow::Result;

use crate::cargo::{cargo, succeed};
use crate::{console, tidy};

/// Runs every gate; stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    console::stage("format", || {
        succeed(&mut cargo(&["fmt", "--all", "--check"]))
    })?;
    console::stage("tidy", tidy::run)?;
    console::stage("clippy", || {
        succeed(&mut cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    console::stage("documentation", || {
        succeed(
            cargo(&["doc", "--workspace", "--no-deps", "--quiet"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })
}
