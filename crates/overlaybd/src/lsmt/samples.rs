//! Values that the unit tests of several modules make.

use block::{Extent, Sectors};

use super::record::Segment;

/// An extent of `len` sectors.
pub(super) fn extent(start: u64, len: u64) -> Extent {
    Extent {
        start: Sectors(start),
        len: Sectors(len),
    }
}

/// A segment of data.
pub(super) fn segment(start: u64, len: u64, moffset: u64) -> Segment {
    Segment::data(extent(start, len), Sectors(moffset)).unwrap()
}
