//! Plays many seeds: `cargo run --release -p sim --example soak -- [SEEDS] [START]`. Stops at the first broken rule.
#![expect(clippy::print_stdout, reason = "a tool for the terminal")]

use std::process::ExitCode;

use sim::{Config, Report};

/// Seeds between two lines of progress.
const PROGRESS: u64 = 1_000;

fn main() -> ExitCode {
    let mut numbers = std::env::args()
        .skip(1)
        .map_while(|argument| argument.parse::<u64>().ok());
    let (seeds, start) = (
        numbers.next().unwrap_or(10_000),
        numbers.next().unwrap_or(0),
    );
    let config = Config::default();
    let mut total = Report::default();
    for seed in start..start.saturating_add(seeds) {
        match sim::run(seed, &config) {
            Ok(report) => total += report,
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
        if (seed + 1 - start).is_multiple_of(PROGRESS) {
            println!(
                "{} seeds: {} requests succeeded",
                seed + 1 - start,
                total.succeeded
            );
        }
    }
    println!("{total:#?}");
    ExitCode::SUCCESS
}
