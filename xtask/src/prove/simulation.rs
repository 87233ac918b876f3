//! Do many seeds of the simulated data plane break a rule?
//!
//! The simulation's soak program, in release, in portions, so that its clock is here and a failure costs one portion.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use testvm::Deadline;

use crate::cargo;
use crate::console::{self, say};

/// Seeds of one portion.
const PORTION: u64 = 1_000;

/// What `cargo xtask prove simulation` can be told.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask prove simulation")]
struct Options {
    /// Seeds to play
    #[arg(long, conflicts_with = "minutes")]
    seeds: Option<u64>,
    /// Minutes to play, when no number of seeds is given
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    start: u64,
}

/// Plays seeds until there are enough or one breaks a rule.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = "cargo xtask prove simulation".to_owned();
    let options = Options::parse_from(std::iter::once(&name).chain(arguments));
    let soak = cargo::build_example("sim", "soak", "release")?;
    let limit = match options.seeds {
        Some(_) => Duration::MAX,
        None => Duration::from_secs(60 * options.minutes),
    };
    let wanted = options.seeds.unwrap_or(u64::MAX - options.start);
    let clock = Deadline::after(limit);
    let (mut played, mut succeeded) = (0, 0);
    while played < wanted && !clock.remaining().is_zero() {
        let (start, portion) = (options.start + played, PORTION.min(wanted - played));
        let mut command = std::process::Command::new(&soak);
        command.args([portion.to_string(), start.to_string()]);
        let output = command.output().context("start the simulation")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            console::complain(&String::from_utf8_lossy(&output.stderr));
            bail!(
                "not proven: {played} seeds from {} on were good; then, {}: {text}",
                options.start,
                output.status
            );
        }
        succeeded += requests(&text)?;
        played += portion;
        say(&format!("{} {succeeded} requests", rate(played, &clock)));
    }
    if played == 0 {
        bail!("not proven: no seed was played; give --seeds or --minutes above 0");
    }
    say(&format!(
        "proven: {} from {} on broke no rule; {succeeded} requests succeeded",
        rate(played, &clock),
        options.start
    ));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "seeds far below 2^52")]
fn rate(played: u64, clock: &Deadline) -> String {
    let elapsed_s = clock.elapsed().as_secs_f64();
    let per_s = played as f64 / elapsed_s;
    format!("{played} seeds ({per_s:.0} seeds/s, {elapsed_s:.0} s)")
}

/// How many requests succeeded, from the report at the end.
fn requests(text: &str) -> Result<u64> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("succeeded: "));
    line.and_then(|line| line.trim_end_matches(',').parse().ok())
        .context("the simulation's report names no requests that succeeded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_the_report_and_no_report_is_an_error() {
        let text = "1000 seeds: 7 requests succeeded\nReport {\n    succeeded: 12,\n}\n";
        assert_eq!(requests(text).unwrap(), 12);
        assert!(requests("1000 seeds: 7 requests succeeded\n").is_err());
    }
}
