//! A read-only index: sorted, disjoint segments, made to be searched.
//!
//! ```text
//!   buckets    [ 0 | 3 | 3 | 7 | ... ]     how many segments start before each equal part of the disk; 4 bytes a bucket
//!                    |       \____
//!   segments   [ s s s s s s s s ... ]     16 bytes a segment, as in a file
//! ```
//!
//! A search looks at the bucket of its sector and then at all segments that start in it, 4 to 8 where segments are spread
//! evenly: two cache misses, one after the other, where a binary search over a million segments has ten or more. Where they
//! are not, the buckets of crowded places hold more and are halved; at worst it is that binary search.
//!
//! Memory: 16 bytes a segment and 1/2 to 1 byte for the buckets.

use std::slice;

use block::{Extent, Sectors};

use super::lookup::Pieces;
use super::record::Segment;

/// The most records of a sealed layer's index, padding included: the C++ reference reads no more.
pub const LAYER_RECORDS_MAX: u64 = 1_000_000;
/// The most records of an upper's log, and segments of a merged index: the limit of the C++ reference, 2 GB of memory.
pub const INDEX_RECORDS_MAX: u64 = 128_000_000;

/// At least so many segments a bucket on average: one cache line. Fewer would cost more memory than they save time.
const BUCKET_SEGMENTS: usize = 4;

/// So many segments are looked at one by one rather than halved: four cache lines.
const COUNTED_MAX: usize = 16;

/// A read-only index. The tag of a segment says which file it is in.
#[derive(Clone, Debug, Default)]
pub struct Index {
    segments: Vec<Segment>,
    /// How many segments start before sector `number << shift`; one more than there are buckets.
    buckets: Vec<u32>,
    shift: u32,
}

/// Why a segment cannot be the next one of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderFault {
    /// It starts before the end of the one before.
    #[error("starts at sector {start}, before {end}, the end of the record before")]
    Overlap {
        /// Its first sector.
        start: u64,
        /// The end of the one before.
        end: u64,
    },
    /// There are too many.
    #[error("more than {max} segments")]
    TooMany {
        /// The limit.
        max: u64,
    },
}

impl Index {
    /// The number of segments.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether there is no segment: everything is a hole.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes of memory that the segments and buckets take.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.segments.capacity() * size_of::<Segment>() + self.buckets.capacity() * size_of::<u32>()
    }

    /// All segments, in order.
    #[must_use]
    pub fn segments(&self) -> Segments<'_> {
        Segments(self.segments.iter())
    }

    /// The segments from the one on that contains `sector`, or else from the next one on.
    #[must_use]
    pub fn segments_from(&self, sector: Sectors) -> Segments<'_> {
        let (first, behind) = self.candidates(sector);
        let bucket = self.segments.get(first..behind).unwrap_or_default();
        let at = first + count_ended(bucket, sector);
        Segments(self.segments.get(at..).unwrap_or_default().iter())
    }

    /// What `extent` consists of, in order. Allocates nothing.
    #[must_use]
    pub fn pieces(&self, extent: Extent) -> Pieces<Segments<'_>> {
        Pieces::new(self.segments_from(extent.start), extent)
    }

    /// A range of segments: all before it end at or before `sector`, all behind it start after `sector`.
    fn candidates(&self, sector: Sectors) -> (usize, usize) {
        let bucket = usize::try_from(sector.0 >> self.shift).unwrap_or(usize::MAX);
        let started = |bucket: usize| match self.buckets.get(bucket) {
            Some(started) => usize::try_from(*started).unwrap_or(usize::MAX),
            None => self.segments.len(),
        };
        // The last segment of the buckets before may reach into this one.
        let first = started(bucket).saturating_sub(1);
        (first, started(bucket.saturating_add(1)))
    }

    /// Counts the segments of each bucket.
    fn fill_buckets(&mut self) {
        let Some(last) = self.segments.last() else {
            return;
        };
        let buckets_max = (self.segments.len() / BUCKET_SEGMENTS).max(1) as u64;
        let last = last.start().0;
        while (last >> self.shift) >= buckets_max {
            self.shift += 1;
        }
        let buckets = (last >> self.shift) + 1;
        let mut started = 0;
        let mut rest = self.segments.iter().peekable();
        self.buckets = (0..=buckets)
            .map(|bucket| {
                while rest
                    .next_if(|s| s.start().0 >> self.shift < bucket)
                    .is_some()
                {
                    started += 1;
                }
                started
            })
            .collect();
    }
}

/// How many of the sorted `segments` end at or before `sector`.
fn count_ended(segments: &[Segment], sector: Sectors) -> usize {
    let is_ended = |segment: &&Segment| segment.end() <= sector;
    if segments.len() <= COUNTED_MAX {
        // Loads that do not wait for one another: their cache misses overlap.
        segments.iter().filter(is_ended).count()
    } else {
        segments.partition_point(|segment| is_ended(&segment))
    }
}

impl PartialEq for Index {
    fn eq(&self, other: &Self) -> bool {
        self.segments == other.segments
    }
}

impl Eq for Index {}

/// Segments of an [`Index`], in order.
#[derive(Clone, Debug)]
pub struct Segments<'a>(slice::Iter<'a, Segment>);

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        self.0.next().copied()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Segments<'_> {}

/// Makes an index of segments that come in order.
#[derive(Debug)]
pub struct IndexBuilder {
    segments: Vec<Segment>,
    max: u64,
}

impl IndexBuilder {
    /// For at most `max` segments, and never more than [`INDEX_RECORDS_MAX`]. Memory grows with what is pushed.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self {
            segments: Vec::new(),
            max: max.min(INDEX_RECORDS_MAX),
        }
    }

    /// Adds a segment behind all others.
    ///
    /// # Errors
    /// An [`OrderFault`] if it is not behind them or one too many.
    pub fn push(&mut self, segment: Segment) -> Result<(), OrderFault> {
        let start = segment.start().0;
        let end = self.segments.last().map_or(0, |last| last.end().0);
        if start < end {
            return Err(OrderFault::Overlap { start, end });
        }
        if self.segments.len() as u64 >= self.max {
            return Err(OrderFault::TooMany { max: self.max });
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Adds a segment, as a part of the last one if they meet on the disk and in the file.
    ///
    /// # Errors
    /// As [`IndexBuilder::push`].
    pub fn push_joined(&mut self, segment: Segment) -> Result<(), OrderFault> {
        if let Some(last) = self.segments.last_mut()
            && let Some(joined) = last.joined(segment)
        {
            *last = joined;
            return Ok(());
        }
        self.push(segment)
    }

    /// The index.
    #[must_use]
    pub fn finish(self) -> Index {
        let mut index = Index {
            segments: self.segments,
            ..Index::default()
        };
        index.segments.shrink_to_fit();
        index.fill_buckets();
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start: u64, len: u64) -> Segment {
        let extent = Extent {
            start: Sectors(start),
            len: Sectors(len),
        };
        Segment::data(extent, Sectors(start + 8)).unwrap()
    }

    /// `count` segments of 2 sectors with holes of 1 sector before each.
    fn index(count: u64) -> Index {
        let mut builder = IndexBuilder::new(count);
        for at in 0..count {
            builder.push(segment(at * 3 + 1, 2)).unwrap();
        }
        builder.finish()
    }

    #[test]
    fn every_sector_is_found_at_every_number_of_segments() {
        for count in [0, 1, 2, 15, 16, 17, 255, 256, 257, 4096, 4097, 5000] {
            let index = index(count);
            assert_eq!(index.len() as u64, count);
            for sector in (0..count * 3 + 3).step_by(if count > 300 { 7 } else { 1 }) {
                let found = index.segments_from(Sectors(sector)).next();
                let want = sector.div_ceil(3).max(1) - 1;
                // Sectors 0, 3, 6 are holes: the next segment is the one of that number.
                let want = if sector % 3 == 0 { sector / 3 } else { want };
                let want = (want < count).then(|| segment(want * 3 + 1, 2));
                assert_eq!(found, want, "{sector} of {count}");
            }
            assert_eq!(index.segments_from(Sectors(u64::MAX)).next(), None);
        }
    }

    #[test]
    fn crowded_and_empty_buckets_are_searched_as_well() {
        let mut builder = IndexBuilder::new(1000);
        let starts = (0..500).map(|at| at * 3);
        let starts: Vec<u64> = starts.chain([1 << 20, (1 << 50) - 2]).collect();
        for start in &starts {
            builder.push(segment(*start, 2)).unwrap();
        }
        let index = builder.finish();
        for (at, start) in starts.iter().enumerate() {
            for (sector, want) in [(*start, at), (start + 1, at), (start + 2, at + 1)] {
                let found = index.segments_from(Sectors(sector)).next();
                let want = starts.get(want).map(|start| segment(*start, 2));
                assert_eq!(found, want, "{sector}");
            }
        }
    }

    #[test]
    fn segments_out_of_order_and_one_too_many_are_refused() {
        let mut builder = IndexBuilder::new(2);
        builder.push(segment(10, 5)).unwrap();
        let overlap = OrderFault::Overlap { start: 14, end: 15 };
        assert_eq!(builder.push(segment(14, 5)), Err(overlap));
        builder.push(segment(15, 5)).unwrap();
        let too_many = OrderFault::TooMany { max: 2 };
        assert_eq!(builder.push(segment(30, 1)), Err(too_many));
        assert_eq!(builder.finish().len(), 2);
    }

    #[test]
    fn joined_segments_are_one() {
        let mut builder = IndexBuilder::new(2);
        for start in [8, 16, 24, 40] {
            builder.push_joined(segment(start, 8)).unwrap();
        }
        let all: Vec<_> = builder.finish().segments().collect();
        assert_eq!(all, [segment(8, 24), segment(40, 8)]);
    }

    #[test]
    fn a_segment_takes_16_bytes_and_little_more() {
        let index = index(100_000);
        assert!(index.memory_bytes() <= 100_000 * 17 + 8);
    }
}
