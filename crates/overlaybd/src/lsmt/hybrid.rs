//! What a write to a hybrid upper does: sectors that the upper has data for are overwritten in place, the rest is appended.
//!
//! It saves the space of sectors that are written again and again, and gives up what a log promises: a power loss in the
//! middle of an overwrite may tear sectors that were durable. A reader sees no difference.

use std::iter::Peekable;

use block::{Extent, Sectors};

use super::log::Appended;
use super::lookup::{Pieces, Source};
use super::mutable::{MutableIndex, MutableSegments};
use super::record::{Segment, SegmentFault};

/// One step of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// Write these sectors over the upper's own data. No record.
    Overwrite {
        /// Which sectors of the disk.
        extent: Extent,
        /// Where they are in the data file.
        offset: Sectors,
    },
    /// Append the segment's sectors to the data file, then its record to the index file.
    Append(Segment),
}

/// The steps of one write, in the order of the disk. Allocates nothing.
#[derive(Clone, Debug)]
pub struct HybridWrite<'a> {
    pieces: Peekable<Pieces<MutableSegments<'a>>>,
    data_end: Sectors,
    appended: Appended,
}

impl<'a> HybridWrite<'a> {
    /// Of a write of `extent` to an upper with this index, whose data file ends at `data_end`.
    #[must_use]
    pub fn new(index: &'a MutableIndex, extent: Extent, data_end: Sectors) -> Self {
        Self {
            pieces: index.pieces(extent).peekable(),
            data_end,
            appended: Appended::written(Extent::default(), data_end),
        }
    }
}

impl Iterator for HybridWrite<'_> {
    type Item = Result<WriteStep, SegmentFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(segment) = self.appended.next() {
            return Some(segment.map(WriteStep::Append));
        }
        let piece = self.pieces.next()?;
        let mut extent = piece.extent;
        if let Source::Data { offset, .. } = piece.source {
            return Some(Ok(WriteStep::Overwrite { extent, offset }));
        }
        let is_data = |source| matches!(source, Source::Data { .. });
        while let Some(next) = self.pieces.next_if(|next| !is_data(next.source)) {
            extent.len.0 += next.extent.len.0;
        }
        self.appended = Appended::written(extent, self.data_end);
        self.data_end.0 += extent.len.0;
        let segment = self.appended.next()?;
        Some(segment.map(WriteStep::Append))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsmt::samples::extent;

    #[test]
    fn own_data_are_overwritten_and_the_rest_is_appended() {
        let mut index = MutableIndex::new();
        let zeros = Segment::zeroed(extent(4, 4), Sectors(20)).unwrap();
        index.insert(zeros);
        index.insert(Segment::data(extent(10, 5), Sectors(8)).unwrap());
        let steps: Vec<_> = HybridWrite::new(&index, extent(2, 20000), Sectors(20))
            .map(Result::unwrap)
            .collect();
        let append = |start, len, moffset| {
            let segment = Segment::data(extent(start, len), Sectors(moffset));
            WriteStep::Append(segment.unwrap())
        };
        let want = [
            // Hole, zeros and hole are one segment.
            append(2, 8, 20),
            WriteStep::Overwrite {
                extent: extent(10, 5),
                offset: Sectors(8),
            },
            append(15, 16383, 28),
            append(16398, 3604, 16411),
        ];
        assert_eq!(steps, want);
    }
}
