//! Developer tasks: check, tidy, test, vm, demo, bench, prove. Run as `cargo xtask TASK`.
//!
//! The same program is the host's side and, started in a guest, the guest's side of `test` and `demo`.
#![forbid(unsafe_code)]

mod bench;
mod cargo;
mod check;
mod console;
mod demo;
mod guest_tests;
mod host_tests;
mod plan;
mod prove;
mod studies;
mod tally;
mod test;
mod tidy;
mod turn;
mod vm;
mod vm_tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Developer tasks of Blockyard")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fast gates: format, clippy, documentation, tidy
    Check,
    /// The style rules that no other tool checks
    Tidy,
    /// Everything: gates, host tests, then tests on every kernel; ends with "N passed, N failed, N skipped"
    Test(test::Options),
    /// Run a command in a virtual machine: cargo xtask vm -- uname -a
    Vm(vm::Options),
    /// Serve a real file system image and use it, every step shown
    Demo(demo::Options),
    /// Run a benchmark by name
    Bench {
        /// Its name; without one, the names are listed
        name: Option<String>,
        /// Its own options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Run a demonstration of a promised property by name
    Prove {
        /// Its name; without one, the names are listed
        name: Option<String>,
        /// Its own options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// The guest's side of `test`
    #[command(hide = true)]
    GuestTests {
        /// The plan that the host wrote
        plan: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Check => check::run(),
        Task::Tidy => tidy::run(),
        Task::Test(options) => test::run(&options),
        Task::Vm(options) => vm::run(&options),
        Task::Demo(options) => demo::run(&options),
        Task::Bench { name, options } => {
            studies::run("benchmark", studies::BENCHMARKS, name.as_deref(), &options)
        }
        Task::Prove { name, options } => {
            studies::run("proof", studies::PROOFS, name.as_deref(), &options)
        }
        Task::GuestTests { plan } => guest_tests::run(&plan),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::complain(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
