//! Do devices that come and go under load leave anything behind, however often?
//!
//! The product's test of it, with more rounds, on every kernel.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use testvm::{KERNELS_VARIABLE, Place, host};

use crate::console::{self, say};
use crate::tally::Tally;
use crate::vm_tests::{self, Figures, Selection};

/// The test that is run.
const TEST: &str = "rounds::rounds_of_devices_removed_under_load_leave_nothing";
/// Tells it how many rounds.
const ROUNDS_VARIABLE: &str = "BLOCKYARD_ROUNDS";
/// What a round may take: ten times what it takes on an emulated machine that is quiet.
const ROUND_LIMIT_S: u64 = 30;
/// To boot, and for what stands around the rounds.
const BOOT_LIMIT: Duration = Duration::from_secs(5 * 60);

/// What `cargo xtask prove rounds` can be told.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask prove rounds")]
struct Options {
    /// Rounds on each kernel
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Kernels: "6.12,latest", one of them, or "host" for the running kernel
    #[arg(long, env = KERNELS_VARIABLE, default_value = "6.12,latest")]
    kernels: Place,
}

/// Runs the rounds on every kernel.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = "cargo xtask prove rounds".to_owned();
    let options = Options::parse_from(std::iter::once(&name).chain(arguments));
    host::ensure_packages(&mut console::output())?;
    let test_limit = Duration::from_secs(ROUND_LIMIT_S * u64::from(options.rounds));
    let selection = Selection {
        only: Some(TEST),
        env: vec![(ROUNDS_VARIABLE.to_owned(), options.rounds.to_string())],
        test_limit,
        kernel_limit: test_limit + BOOT_LIMIT,
    };
    let mut tally = Tally::default();
    let figures = vm_tests::run(&options.kernels, &selection, &mut tally)?;
    let kernels = match &options.kernels {
        Place::Host => 1,
        Place::Guests(all) => all.len(),
    };
    if tally.failed > 0 || tally.skipped > 0 {
        bail!("not proven: {tally}; the reasons are above");
    }
    say(&conclude(options.rounds, kernels, &figures)?);
    Ok(())
}

/// The last line. A kernel that did not play all the rounds is an error.
fn conclude(rounds: u32, kernels: usize, figures: &[Figures]) -> Result<String> {
    let wanted = format!("{rounds} rounds of ");
    if let Some(wrong) = figures.iter().find(|f| !f.line.starts_with(&wanted)) {
        bail!("not proven: on {}: {}", wrong.kernel, wrong.line);
    }
    ensure!(
        figures.len() == kernels,
        "not proven: figures of {} kernels, not of {kernels}; see whether {TEST} still prints them",
        figures.len()
    );
    let each: Vec<_> = figures
        .iter()
        .map(|f| format!("{}: {}", f.kernel, f.line))
        .collect();
    Ok(format!(
        "proven: nothing was left behind; {}",
        each.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(line: &str) -> Figures {
        Figures {
            kernel: "6.12.95".to_owned(),
            line: line.to_owned(),
        }
    }

    #[test]
    fn every_kernel_must_have_played_every_round() {
        let good = || figures("200 rounds of 8 devices");
        assert_eq!(
            conclude(200, 1, &[good()]).unwrap(),
            "proven: nothing was left behind; 6.12.95: 200 rounds of 8 devices"
        );
        for bad in [
            vec![],
            vec![good()],
            vec![good(), figures("20 rounds of 8")],
        ] {
            assert!(conclude(200, 2, &bad).is_err(), "{bad:?}");
        }
    }
}
