//! The guest's side: rounds in which every contender is measured once, then the table.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::Options;
use super::contenders::{Contender, FILE_BYTES, RANGE_BYTES};
use super::fio::{self, Direction};
use super::table::Table;
use crate::console::say;

/// One write of the preparation.
const CHUNK_BYTES: usize = 1 << 20;

/// Measures everything and prints the figures.
pub(crate) fn run(options: &Options, server: &Path) -> Result<()> {
    // On tmpfs, as everything below /tmp is in a guest.
    let scratch = tempfile::tempdir().context("make a scratch directory")?;
    let file = scratch.path().join("disk");
    write_range(&file).with_context(|| format!("write {}", file.display()))?;
    let mut table = Table::default();
    for round in 1..=options.rounds {
        for contender in Contender::ALL {
            let served = contender
                .start(&file, server)
                .with_context(|| format!("start {contender}, round {round}"))?;
            for direction in Direction::ALL {
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

/// A sparse file whose first part has data everywhere.
fn write_range(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    file.set_len(FILE_BYTES)?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    let chunks = RANGE_BYTES / u64::try_from(CHUNK_BYTES)?;
    for _ in 0..chunks {
        file.write_all(&chunk)?;
    }
    Ok(())
}
