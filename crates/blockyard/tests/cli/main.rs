//! Runs the binary against an in-memory daemon and looks at exit code, standard output and the one line of standard error.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, like the tests themselves"
)]

mod commands;
mod harness;
mod images;
mod images_wrong;
#[path = "../../../api/tests/server/memory.rs"]
mod memory;
mod wrong;
