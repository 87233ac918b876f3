//! The guest's side: rounds in which every contender is measured once, then the table.

use anyhow::{Context, Result};

use super::Options;
use super::fio;
use super::images::{Programs, Store};
use super::range::write_range;
use super::table::Table;
use crate::console::say;

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
