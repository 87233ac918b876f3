//! Promise: whatever is cut off, what a flush or FUA has promised is there, and every sector holds that or something newer.

use crate::faults::Faults;
use crate::history::{Figures, Setting, play};
use crate::images::{Lower, UpperKind};

/// Histories of each setting, unless `BLOCKYARD_SEEDS` asks for another number.
const SEEDS: u64 = 12;

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    let first = number("BLOCKYARD_FIRST_SEED").unwrap_or(0);
    first..first + number("BLOCKYARD_SEEDS").unwrap_or(SEEDS)
}

fn settings() -> Vec<Setting> {
    let stacks = [
        vec![],
        vec![Lower::Plain],
        vec![Lower::Lz4, Lower::PlainInTar, Lower::Zstd],
    ];
    let uppers = [UpperKind::Log, UpperKind::Hybrid, UpperKind::Sparse];
    let faults = Faults::default();
    uppers
        .into_iter()
        .flat_map(|upper| {
            stacks.clone().into_iter().map(move |lowers| Setting {
                upper,
                lowers,
                faults,
            })
        })
        .collect()
}

/// Plays the seeds of every setting.
fn play_all(settings: &[Setting]) -> Figures {
    let mut total = Figures::default();
    for setting in settings {
        for seed in seeds() {
            match play(seed, setting) {
                Ok(figures) => total += figures,
                Err(why) => panic!("seed {seed} of {setting:?}: {why}"),
            }
        }
    }
    assert!(total.cuts > 0 && total.flushes > 0);
    println!(
        "figures: {} seeds of {} settings; {total}",
        seeds().count(),
        settings.len()
    );
    total
}

#[test]
fn what_was_flushed_survives_every_cut() {
    play_all(&settings());
}

/// A write that fails may be there in part, and a flush that fails has promised nothing; everything else is as ever.
#[test]
fn what_was_flushed_survives_failures_below() {
    let failing = Faults {
        writes: 30,
        reads: 30,
        punches: 100,
        ..Faults::default()
    };
    let unsynced = Faults {
        syncs: 60,
        ..Faults::default()
    };
    let with = |faults| {
        settings()
            .into_iter()
            .map(move |setting| Setting { faults, ..setting })
    };
    let settings: Vec<_> = with(failing).chain(with(unsynced)).collect();
    let total = play_all(&settings);
    assert!(total.failed > 0);
}
