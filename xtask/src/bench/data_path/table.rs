//! The figures as a table.

use std::collections::BTreeMap;
use std::fmt;

use super::contenders::Contender;
use super::fio::Direction;
use crate::bench::figures::median;

/// Instructions per I/O by contender and direction, of each round.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<(Contender, Direction), Vec<f64>>);

impl Table {
    pub(crate) fn add(&mut self, contender: Contender, direction: Direction, instructions: f64) {
        let cell = self.0.entry((contender, direction)).or_default();
        cell.push(instructions);
    }

    fn median(&self, contender: Contender, direction: Direction) -> f64 {
        median(
            self.0
                .get(&(contender, direction))
                .cloned()
                .unwrap_or_default(),
        )
    }
}

impl fmt::Display for Table {
    /// In thousands, as one compares them; single instructions in the raw figures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| instructions per 4 KiB I/O | median | above null_blk | raw figures |"
        )?;
        write!(f, "|---|---|---|---|")?;
        for ((contender, direction), values) in &self.0 {
            let total = self.median(*contender, *direction);
            let above = total - self.median(Contender::NullBlk, *direction);
            let raw: Vec<_> = values.iter().map(|value| format!("{value:.0}")).collect();
            write!(
                f,
                "\n| {contender} {direction} | {:.1}K | {:.1}K | {} |",
                total / 1e3,
                above / 1e3,
                raw.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_what_is_above_null_blk_and_the_raw_figures() {
        let mut table = Table::default();
        for value in [9_000.0, 8_800.0, 8_900.0] {
            table.add(Contender::NullBlk, Direction::Read, value);
        }
        table.add(Contender::Raw, Direction::Read, 19_300.0);
        let text = table.to_string();
        let rows: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| null_blk (kernel) randread | 8.9K | 0.0K | 9000, 8800, 8900 |",
                "| raw randread | 19.3K | 10.4K | 19300 |",
            ]
        );
    }
}
