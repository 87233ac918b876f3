//! Which blocks of a disk a sparse upper has: a bit for each, in leaves that exist once one of their blocks does.

use block::{Extent, Sectors};
use overlaybd::lsmt::{LayerIndex, MutableIndex, Piece, Source};

/// Blocks of a leaf: 4 KiB of bits for 128 MiB of disk in blocks of 4 KiB.
const LEAF_BLOCKS: u64 = 1 << 15;
const LEAF_WORDS: usize = 512;

/// The map. A block is as long as the file system's, 4 KiB at most: what it can tell after a restart.
#[derive(Debug)]
pub(super) struct Presence {
    block_sectors: u64,
    leaves: Vec<Option<Box<[u64; LEAF_WORDS]>>>,
}

/// Blocks that follow one another, present or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) extent: Extent,
    pub(super) is_present: bool,
}

impl Presence {
    /// Of a disk of `size`, with the blocks that `index` has any sector of.
    pub(super) fn new(size: Sectors, block_sectors: u64, index: &MutableIndex) -> Self {
        let blocks = size.0.div_ceil(block_sectors);
        let leaves = usize::try_from(blocks.div_ceil(LEAF_BLOCKS)).unwrap_or(0);
        let mut presence = Self {
            block_sectors,
            leaves: (0..leaves).map(|_| None).collect(),
        };
        for segment in index.segments() {
            presence.mark(segment.extent());
        }
        presence
    }

    pub(super) const fn block_sectors(&self) -> u64 {
        self.block_sectors
    }

    /// The blocks that touch `extent` are there from now on.
    pub(super) fn mark(&mut self, extent: Extent) {
        let (first, end) = self.blocks(extent);
        let mut block = first;
        while block < end {
            let leaf_end = (block / LEAF_BLOCKS + 1) * LEAF_BLOCKS;
            let word_end = (block / 64 + 1) * 64;
            let part_end = end.min(word_end).min(leaf_end);
            let leaf = usize::try_from(block / LEAF_BLOCKS).unwrap_or(usize::MAX);
            if let Some(leaf) = self.leaves.get_mut(leaf) {
                let leaf = leaf.get_or_insert_with(|| Box::new([0; LEAF_WORDS]));
                let word = usize::try_from(block % LEAF_BLOCKS / 64).unwrap_or(usize::MAX);
                if let Some(word) = leaf.get_mut(word) {
                    *word |= mask(block % 64, part_end - block);
                }
            }
            block = part_end;
        }
    }

    /// Whether every block that touches `extent` is there.
    pub(super) fn has_all(&self, extent: Extent) -> bool {
        self.runs(extent).all(|run| run.is_present)
    }

    /// `extent` in runs of blocks, in order; the first and the last one are cut to it.
    pub(super) fn runs(&self, extent: Extent) -> Runs<'_> {
        Runs {
            presence: self,
            at: extent.start.0,
            end: extent.start.0.saturating_add(extent.len.0),
        }
    }

    /// The blocks from the first that touches `extent` to behind the last.
    const fn blocks(&self, extent: Extent) -> (u64, u64) {
        let end = extent.start.0.saturating_add(extent.len.0);
        (
            extent.start.0 / self.block_sectors,
            end.div_ceil(self.block_sectors),
        )
    }

    /// The bits of the blocks from `block` on to the end of its word.
    fn word(&self, block: u64) -> u64 {
        let leaf = usize::try_from(block / LEAF_BLOCKS).unwrap_or(usize::MAX);
        let word = usize::try_from(block % LEAF_BLOCKS / 64).unwrap_or(usize::MAX);
        let leaf = self.leaves.get(leaf).and_then(Option::as_deref);
        leaf.and_then(|leaf| leaf.get(word)).copied().unwrap_or(0) >> (block % 64)
    }
}

/// See [`Presence::runs`].
#[derive(Clone, Debug)]
pub(super) struct Runs<'a> {
    presence: &'a Presence,
    at: u64,
    end: u64,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.at >= self.end {
            return None;
        }
        let sectors = self.presence.block_sectors;
        let start = self.at;
        let mut block = start / sectors;
        let is_present = self.presence.word(block) & 1 == 1;
        while self.at < self.end {
            let word = self.presence.word(block);
            let alike = if is_present {
                word.trailing_ones()
            } else {
                word.trailing_zeros()
            };
            let in_word = 64 - block % 64;
            let alike = u64::from(alike).min(in_word);
            block += alike;
            self.at = (block * sectors).min(self.end);
            if alike < in_word {
                break;
            }
        }
        Some(Run {
            extent: Extent {
                start: Sectors(start),
                len: Sectors(self.at - start),
            },
            is_present,
        })
    }
}

/// A run of an upper, as a piece of the disk: a block that is not there is a hole.
pub(super) const fn piece_of(run: Run, layer: LayerIndex, first_sector: Sectors) -> Piece {
    let source = if run.is_present {
        Source::Data {
            layer,
            offset: Sectors(first_sector.0 + run.extent.start.0),
        }
    } else {
        Source::Hole
    };
    Piece {
        extent: run.extent,
        source,
    }
}

/// `len` bits from bit `first` on; at most 64 in all.
const fn mask(first: u64, len: u64) -> u64 {
    let low = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    low << first
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(start: u64, len: u64) -> Extent {
        Extent {
            start: Sectors(start),
            len: Sectors(len),
        }
    }

    #[test]
    fn blocks_far_apart_cost_a_leaf_each() {
        let size = Sectors(1 << 30);
        let mut presence = Presence::new(size, 8, &MutableIndex::new());
        presence.mark(extent(5, 1));
        presence.mark(extent((1 << 30) - 8, 8));
        let leaves = presence.leaves.iter().flatten().count();
        assert_eq!(leaves, 2);
        let runs: Vec<_> = presence.runs(extent(0, 1 << 30)).collect();
        let want = [
            (0, 8, true),
            (8, (1 << 30) - 16, false),
            ((1 << 30) - 8, 8, true),
        ];
        let found = runs.iter().map(|run| {
            let Extent { start, len } = run.extent;
            (start.0, len.0, run.is_present)
        });
        assert!(found.eq(want));
    }

    proptest! {
        #[test]
        fn runs_agree_with_a_plain_map(
            marks in prop::collection::vec((0_u64..70_000, 1_u64..900), 0..20),
            asked in prop::collection::vec((0_u64..70_000, 1_u64..5_000), 1..10),
            shift in 0_u32..4,
        ) {
            let block = 1_u64 << shift;
            let size = 80_000;
            let mut presence = Presence::new(Sectors(size), block, &MutableIndex::new());
            let mut model = vec![false; usize::try_from(size).unwrap()];
            for (start, len) in marks {
                presence.mark(extent(start, len));
                let first = start / block * block;
                let end = (start + len).next_multiple_of(block).min(size);
                model[usize::try_from(first).unwrap()..usize::try_from(end).unwrap()].fill(true);
            }
            for (start, len) in asked {
                let mut at = start;
                for run in presence.runs(extent(start, len)) {
                    prop_assert_eq!(run.extent.start.0, at);
                    prop_assert!(run.extent.len.0 > 0);
                    at += run.extent.len.0;
                    let part = usize::try_from(run.extent.start.0).unwrap()..usize::try_from(at).unwrap();
                    prop_assert!(model[part].iter().all(|there| *there == run.is_present));
                }
                prop_assert_eq!(at, start + len);
            }
        }
    }
}
