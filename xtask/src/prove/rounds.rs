//! Does what the product's tests do in a few rounds still hold after many? On every kernel.
//!
//! | proof | a round |
//! |---|---|
//! | `rounds` | devices are created together, loaded and removed under load |
//! | `kills` | the daemon is killed while an upper is written to; for each kind of upper |

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{CommandFactory, FromArgMatches, Parser};
use testvm::{KERNELS_VARIABLE, Place, host};

use crate::console::{self, say};
use crate::tally::Tally;
use crate::vm_tests::{self, Figures, Selection};

/// Tells a test how many rounds.
const ROUNDS_VARIABLE: &str = "BLOCKYARD_ROUNDS";
/// What a round may take: ten times what it takes on an emulated machine that is quiet.
const ROUND_LIMIT_S: u64 = 30;
/// To boot, and for what stands around the rounds.
const BOOT_LIMIT: Duration = Duration::from_secs(5 * 60);

/// A test that is run with more rounds.
struct Rounds {
    name: &'static str,
    test: &'static str,
    default: u32,
    /// What is proven.
    promise: &'static str,
}

const DEVICES: Rounds = Rounds {
    name: "cargo xtask prove rounds",
    test: "rounds::rounds_of_devices_removed_under_load_leave_nothing",
    default: 200,
    promise: "nothing was left behind",
};

const KILLS: Rounds = Rounds {
    name: "cargo xtask prove kills",
    test: "images::what_was_flushed_survives_a_killed_daemon",
    default: 50,
    promise: "everything that was flushed was there",
};

#[derive(Debug, Parser)]
struct Options {
    /// Rounds on each kernel
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: Option<u32>,
    /// Kernels: "6.12,latest", one of them, or "host" for the running kernel
    #[arg(long, env = KERNELS_VARIABLE, default_value = "6.12,latest")]
    kernels: Place,
}

/// `cargo xtask prove rounds`.
pub(crate) fn of_devices(arguments: &[String]) -> Result<()> {
    DEVICES.run(arguments)
}

/// `cargo xtask prove kills`.
pub(crate) fn of_kills(arguments: &[String]) -> Result<()> {
    KILLS.run(arguments)
}

impl Rounds {
    /// Runs the rounds on every kernel.
    fn run(&self, arguments: &[String]) -> Result<()> {
        let name = self.name.to_owned();
        let matches = Options::command()
            .name(self.name)
            .get_matches_from(std::iter::once(&name).chain(arguments));
        let options = Options::from_arg_matches(&matches)?;
        let rounds = options.rounds.unwrap_or(self.default);
        host::ensure_packages(&mut console::output())?;
        let test_limit = Duration::from_secs(ROUND_LIMIT_S * u64::from(rounds));
        let selection = Selection {
            only: Some(self.test),
            env: vec![(ROUNDS_VARIABLE.to_owned(), rounds.to_string())],
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
        say(&self.conclude(rounds, kernels, &figures)?);
        Ok(())
    }

    /// The last line. A kernel that did not play all the rounds is an error.
    fn conclude(&self, rounds: u32, kernels: usize, figures: &[Figures]) -> Result<String> {
        let wanted = format!("{rounds} rounds of ");
        if let Some(wrong) = figures.iter().find(|f| !f.line.starts_with(&wanted)) {
            bail!("not proven: on {}: {}", wrong.kernel, wrong.line);
        }
        ensure!(
            figures.len() == kernels,
            "not proven: figures of {} kernels, not of {kernels}; see whether {} still prints them",
            figures.len(),
            self.test
        );
        let each: Vec<_> = figures
            .iter()
            .map(|f| format!("{}: {}", f.kernel, f.line))
            .collect();
        Ok(format!("proven: {}; {}", self.promise, each.join("; ")))
    }
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
            DEVICES.conclude(200, 1, &[good()]).unwrap(),
            "proven: nothing was left behind; 6.12.95: 200 rounds of 8 devices"
        );
        for bad in [
            vec![],
            vec![good()],
            vec![good(), figures("20 rounds of 8")],
        ] {
            assert!(DEVICES.conclude(200, 2, &bad).is_err(), "{bad:?}");
        }
    }
}
