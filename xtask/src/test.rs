//! `cargo xtask test`: gates, host tests, then every kernel; the last line is the count over everything.

use anyhow::{Result, bail};
use testvm::{KERNELS_VARIABLE, Place, host};

use crate::prove::fuzz;
use crate::tally::Tally;
use crate::vm_tests::Selection;
use crate::{check, console, host_tests, turn, vm_tests};

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Gates, host tests and fuzzing only, no machines
    #[arg(long)]
    fast: bool,
    /// Kernels for the tests that need one: "6.12,latest", one of them, or "host" for the running kernel
    #[arg(long, env = KERNELS_VARIABLE, default_value = "6.12,latest")]
    kernels: Place,
    /// Of the tests that need a kernel, only those whose name contains this; gates and host tests are left out
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Runs the stages. Something that fails ends the run after its stage.
pub(crate) fn run(options: &Options) -> Result<()> {
    let _turn = turn::take()?;
    let mut tally = Tally::default();
    let done = console::stage("test", || stages(options, &mut tally));
    if let Err(error) = &done {
        console::complain(&format!("xtask: {error:#}"));
        // A stage that failed without a failing test, such as the gates, counts as one failure.
        if tally.failed == 0 {
            tally += Tally::ONE_FAILED;
        }
    }
    console::say(&tally.to_string());
    if tally.failed > 0 {
        bail!("the tests failed; the reasons are above");
    }
    Ok(())
}

fn stages(options: &Options, tally: &mut Tally) -> Result<()> {
    console::stage("host packages", || {
        Ok(host::ensure_packages(&mut console::output())?)
    })?;
    if options.only.is_none() {
        check::run()?;
        console::stage("host tests", || host_tests::run(tally))?;
        console::stage("fuzzing", fuzz::short)?;
    }
    if options.fast {
        return Ok(());
    }
    let selection = Selection::ordinary(options.only.as_deref());
    vm_tests::run(&options.kernels, &selection, tally)?;
    Ok(())
}
