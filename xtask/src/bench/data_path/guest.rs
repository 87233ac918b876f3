//! The guest's side: rounds in which every contender is measured once, then the table.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::Options;
use super::contenders::{FILE_BYTES, RANGE_BYTES};
use super::fio;
use super::images::{Programs, Store};
use super::table::Table;
use crate::console::say;

/// One write of the preparation.
const CHUNK_BYTES: usize = 1 << 20;

/// Measures everything and prints the figures.
pub(crate) fn run(options: &Options, programs: &Programs) -> Result<()> {
    // On tmpfs, as everything below /tmp is in a guest.
    let scratch = tempfile::tempdir().context("make a scratch directory")?;
    let file = scratch.path().join("disk");
    write_range(&file, 0).with_context(|| format!("write {}", file.display()))?;
    let store = Store {
        file,
        folder: scratch.path().to_owned(),
    };
    let mut table = Table::default();
    for round in 1..=options.rounds {
        for contender in options.contenders() {
            let served = contender
                .start(&store, programs)
                .with_context(|| format!("start {contender}, round {round}"))?;
            for direction in contender.directions().iter().copied() {
                let instructions = fio::instructions(served.device(), direction, options)
                    .with_context(|| format!("{contender}, round {round}"))?;
                say(&format!(
                    "round {round}: {contender} {direction}: {instructions:.0} instructions per I/O"
                ));
                table.add(contender, direction, instructions);
            }
            served
                .stop()
                .with_context(|| format!("stop {contender}, round {round}"))?;
        }
    }
    say(&table.to_string());
    Ok(())
}

/// A sparse file that has data everywhere in the range, which begins at `begin`.
pub(super) fn write_range(path: &Path, begin: u64) -> Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    if begin == 0 {
        file.set_len(FILE_BYTES)?;
    }
    file.seek(SeekFrom::Start(begin))?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    let chunks = RANGE_BYTES / u64::try_from(CHUNK_BYTES)?;
    for _ in 0..chunks {
        file.write_all(&chunk)?;
    }
    Ok(())
}
