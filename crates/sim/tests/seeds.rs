//! Many seeds of the whole simulation. A failure prints its seed and how to see it again.
//!
//! `SIM_SEED=n` plays only seed n; `SIM_SEEDS=n` plays n seeds from a start that differs from run to run (`SIM_START`
//! overrides it).
#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it met"
)]

use sim::{Config, Faults, Report};

const SEEDS: u64 = 120;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .and_then(|value| value.parse().ok())
}

fn play(seed: u64, config: &Config) -> Report {
    sim::run(seed, config).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn no_seed_breaks_a_rule_and_together_they_meet_every_situation() {
    let config = Config::default();
    if let Some(seed) = number("SIM_SEED") {
        println!("{:#?}", play(seed, &config));
        return;
    }
    let count = number("SIM_SEEDS").unwrap_or(SEEDS);
    let start = number("SIM_START").unwrap_or(0);
    let mut total = Report::default();
    for seed in start..start + count {
        total += play(seed, &config);
    }
    println!("{total:#?}");
    let met = [
        ("success", total.succeeded),
        ("failure", total.failed),
        ("read without a copy", total.zero_copy_bytes),
        ("stop before the server saw a request", total.unseen),
        ("release", total.released),
        ("abandon", total.abandoned),
        ("abandon with requests in flight", total.abandoned_requests),
        ("panic of a target", total.poisoned),
        ("truncation", total.truncated),
        ("hanging operation", total.hanging_steps),
        ("power cut", total.power_cuts),
    ];
    for (situation, count) in met {
        assert!(count > 0, "no seed met this situation: {situation}");
    }
}

#[test]
fn a_seed_always_tells_the_same_story() {
    let config = Config {
        faults: Some(Faults::ROUGH),
        ..Config::default()
    };
    let first: Vec<_> = (0..8).map(|seed| play(seed, &config)).collect();
    let again: Vec<_> = (0..8).map(|seed| play(seed, &config)).collect();
    assert_eq!(first, again);
    assert!(first.iter().all(|report| report.events > 0));
    let mut hashes: Vec<_> = first.iter().map(|report| report.trace_hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), first.len());
}

#[test]
fn a_kernel_without_faults_leaves_nothing_but_nonsense_full_disks_and_ends_to_fail() {
    let config = Config {
        faults: Some(Faults::NONE),
        epochs: 1,
        ..Config::default()
    };
    for seed in 0..20 {
        let report = play(seed, &config);
        assert_eq!(report.hanging_steps, 0);
        assert!(report.succeeded > 0, "{report:?}");
    }
}
