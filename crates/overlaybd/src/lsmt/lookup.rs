//! What an extent consists of: the pieces that an index, or two over one another, give.

use block::{Extent, Sectors};

use super::record::Segment;

/// The place of a file in a stack, counted from the bottom. A warp layer has two files, any other layer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerIndex(pub u8);

/// Where the content of a piece comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing here: what is below shows, and zeros if nothing is below.
    Hole,
    /// Zeros that hide what is below.
    Zero,
    /// Data of a file.
    Data {
        /// Which file; the tag of the segment.
        layer: LayerIndex,
        /// Its first sector, counted from byte 0 of the file.
        offset: Sectors,
    },
}

/// A part of an extent that comes from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its range of the virtual disk; never empty.
    pub extent: Extent,
    /// Where its content comes from.
    pub source: Source,
}

impl Piece {
    fn of_segment(segment: Segment) -> Self {
        let source = if segment.is_zeroed() {
            Source::Zero
        } else {
            Source::Data {
                layer: LayerIndex(segment.tag()),
                offset: segment.moffset(),
            }
        };
        Self {
            extent: segment.extent(),
            source,
        }
    }
}

/// The pieces of an extent, in order and without gaps.
#[derive(Clone, Debug)]
pub struct Pieces<I> {
    segments: I,
    current: Option<Segment>,
    at: u64,
    end: u64,
}

impl<I: Iterator<Item = Segment>> Pieces<I> {
    /// The pieces of `extent`, given sorted segments from the first one on that ends behind its start.
    pub(super) fn new(mut segments: I, extent: Extent) -> Self {
        Self {
            current: segments.next(),
            segments,
            at: extent.start.0,
            end: extent.start.0.saturating_add(extent.len.0),
        }
    }
}

impl<I: Iterator<Item = Segment>> Iterator for Pieces<I> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.at >= self.end {
            return None;
        }
        if self.current.is_some_and(|s| s.end().0 <= self.at) {
            self.current = self.segments.next();
        }
        let piece = match self.current.and_then(|s| s.clipped(self.at, self.end)) {
            Some(segment) if segment.start().0 == self.at => Piece::of_segment(segment),
            before => {
                let end = before.map_or(self.end, |segment| segment.start().0);
                hole(self.at, end)
            }
        };
        self.at += piece.extent.len.0;
        Some(piece)
    }
}

const fn hole(start: u64, end: u64) -> Piece {
    Piece {
        extent: Extent {
            start: Sectors(start),
            len: Sectors(end - start),
        },
        source: Source::Hole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsmt::samples::extent;

    #[test]
    fn an_extent_falls_into_holes_zeros_and_data() {
        let segments = [
            Segment::data(extent(10, 10), Sectors(100)).unwrap(),
            Segment::zeroed(extent(20, 5), Sectors(110)).unwrap(),
            Segment::data(extent(30, 10), Sectors(200))
                .unwrap()
                .with_tag(3),
        ];
        let data = |start, len, layer, offset| {
            let (layer, offset) = (LayerIndex(layer), Sectors(offset));
            (start, len, Source::Data { layer, offset })
        };
        let cases = [
            (extent(0, 5), vec![(0, 5, Source::Hole)]),
            (extent(12, 0), vec![]),
            (extent(12, 3), vec![data(12, 3, 0, 102)]),
            (
                extent(5, 28),
                vec![
                    (5, 5, Source::Hole),
                    data(10, 10, 0, 100),
                    (20, 5, Source::Zero),
                    (25, 5, Source::Hole),
                    data(30, 3, 3, 200),
                ],
            ),
            (
                extent(39, 3),
                vec![data(39, 1, 3, 209), (40, 2, Source::Hole)],
            ),
            (
                extent(u64::MAX - 1, 9),
                vec![(u64::MAX - 1, 1, Source::Hole)],
            ),
        ];
        for (whole, want) in cases {
            let from = segments.into_iter().filter(|s| s.end() > whole.start);
            let pieces = Pieces::new(from, whole);
            let got: Vec<_> = pieces
                .map(|piece| (piece.extent.start.0, piece.extent.len.0, piece.source))
                .collect();
            assert_eq!(got, want, "{whole:?}");
        }
    }
}
