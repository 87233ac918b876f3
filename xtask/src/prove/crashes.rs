//! Is everything that was promised there after any cut, for thousands of histories?
//!
//! The tests of uppers with more seeds, in release, in portions, so that a failure costs one portion.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use crate::cargo;
use crate::console::{complain, say};

/// The test program's name, and its tests that play seeds.
const PROGRAM: &str = "serving";
const TESTS: &str = "crash::";
/// Seeds of one portion, of each setting.
const PORTION: u64 = 100;

/// What `cargo xtask prove crashes` can be told.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask prove crashes")]
struct Options {
    /// Seeds for each kind of image
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    start: u64,
}

/// Plays the seeds until one breaks a promise.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = "cargo xtask prove crashes".to_owned();
    let options = Options::parse_from(std::iter::once(&name).chain(arguments));
    let program = cargo::build_test("image", PROGRAM, "release")?;
    let mut played = 0;
    while played < options.seeds {
        let portion = PORTION.min(options.seeds - played);
        let figures = play(&program, options.start + played, portion)?;
        played += portion;
        for line in figures {
            say(&format!("seeds up to {}: {line}", options.start + played));
        }
    }
    say(&format!(
        "proven: {played} seeds from {} on broke no promise, for each kind of image",
        options.start
    ));
    Ok(())
}

fn play(program: &Path, start: u64, seeds: u64) -> Result<Vec<String>> {
    let output = Command::new(program)
        .args([TESTS, "--nocapture"])
        .env("BLOCKYARD_FIRST_SEED", start.to_string())
        .env("BLOCKYARD_SEEDS", seeds.to_string())
        .output()
        .context("start the tests of uppers")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        complain(&text);
        complain(&String::from_utf8_lossy(&output.stderr));
        bail!(
            "not proven: the seeds from {start} on ended with {}",
            output.status
        );
    }
    figures(&text, seeds)
}

/// The lines of figures. Without any, or with other seeds, nothing was played.
fn figures(text: &str, seeds: u64) -> Result<Vec<String>> {
    let lines = text.lines().filter_map(|line| line.split_once("figures: "));
    let lines: Vec<_> = lines.map(|(_, line)| line.to_owned()).collect();
    let wanted = format!("{seeds} seeds of ");
    ensure!(
        !lines.is_empty() && lines.iter().all(|line| line.starts_with(&wanted)),
        "not proven: the tests say of {seeds} seeds: {lines:?}"
    );
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_played_other_seeds_prove_nothing() {
        let text = "test crash::x ... figures: 100 seeds of 9 settings; 5 requests\nok\n";
        assert_eq!(
            figures(text, 100).unwrap(),
            ["100 seeds of 9 settings; 5 requests"]
        );
        assert!(figures(text, 10).is_err());
        assert!(figures("running 0 tests\n", 100).is_err());
    }
}
