//! A read-only index: sorted, disjoint segments, made to be searched.
//!
//! ```text
//!   level 2                 [ first key of each node of level 1 ]
//!   level 1     [ first key of each node of level 0 ] [ ... ] [ ... ]
//!   level 0     [ 16 keys ] [ 16 keys ] [ 16 keys ] ...        8 bytes a segment
//!   targets     [ where in which file ] ...                    8 bytes a segment
//! ```
//!
//! A key is a segment's start and length, so that one comparison of integers orders two segments. A search reads one node
//! per level, two cache lines, and counts without a branch how many of its keys lie before the sector. A million segments
//! have five levels, of which all but the lowest stay in a core's cache; a binary search would miss the cache ten times.
//!
//! Memory: 16 bytes a segment, as in a file, and 8/15 of a byte for the levels above.

use block::{Extent, Sectors};

use super::lookup::Pieces;
use super::record::{Segment, key_of_start};

/// The most records of a sealed layer's index, padding included: the C++ reference reads no more.
pub const LAYER_RECORDS_MAX: u64 = 1_000_000;
/// The most records of an upper's log, and segments of a merged index: the limit of the C++ reference, 2 GB of memory.
pub const INDEX_RECORDS_MAX: u64 = 128_000_000;

/// Keys of a node: two cache lines.
const NODE_KEYS: usize = 16;
/// Fills the last node of a level; larger than any key.
const NO_KEY: u64 = u64::MAX;

/// Keys that one step of a search looks at.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([u64; NODE_KEYS]);

impl Node {
    /// How many keys are smaller than `bound`.
    fn count_below(&self, bound: u64) -> usize {
        self.0.iter().map(|key| usize::from(*key < bound)).sum()
    }
}

/// A read-only index. The tag of a segment says which file it is in.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Keys of all segments.
    keys: Vec<Node>,
    /// Where the data of each segment are.
    targets: Vec<u64>,
    /// The levels above the keys, lowest first.
    levels: Vec<Vec<Node>>,
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
        self.targets.len()
    }

    /// Whether there is no segment: everything is a hole.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Bytes of memory that the segments and the levels above them take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let nodes = self.keys.capacity() + self.levels.iter().map(Vec::capacity).sum::<usize>();
        nodes * size_of::<Node>() + self.targets.capacity() * size_of::<u64>()
    }

    /// All segments, in order.
    #[must_use]
    pub const fn segments(&self) -> Segments<'_> {
        Segments { index: self, at: 0 }
    }

    /// The segments from the one on that contains `sector`, or else from the next one on.
    #[must_use]
    pub fn segments_from(&self, sector: Sectors) -> Segments<'_> {
        let started = self.count_started(sector);
        let contains = |at: &usize| self.segment(*at).is_some_and(|s| s.end() > sector);
        let at = started.checked_sub(1).filter(contains).unwrap_or(started);
        Segments { index: self, at }
    }

    /// What `extent` consists of, in order. Allocates nothing.
    #[must_use]
    pub fn pieces(&self, extent: Extent) -> Pieces<Segments<'_>> {
        Pieces::new(self.segments_from(extent.start), extent)
    }

    /// How many segments start at or before `sector`.
    fn count_started(&self, sector: Sectors) -> usize {
        let bound = key_of_start(sector.0.saturating_add(1));
        let mut node = 0;
        let levels = self.levels.iter().rev().chain([&self.keys]);
        let mut started = 0;
        for level in levels {
            let count = level.get(node).map_or(0, |keys| keys.count_below(bound));
            started = node * NODE_KEYS + count;
            // The nodes below are numbered as the keys here: the one that the last smaller key leads to.
            node = started.saturating_sub(1);
        }
        started
    }

    fn segment(&self, at: usize) -> Option<Segment> {
        let target = self.targets.get(at)?;
        let key = self.keys.get(at / NODE_KEYS)?.0.get(at % NODE_KEYS)?;
        Some(Segment::from_words(*key, *target))
    }
}

impl PartialEq for Index {
    fn eq(&self, other: &Self) -> bool {
        self.segments().eq(other.segments())
    }
}

impl Eq for Index {}

/// Segments of an [`Index`], in order.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    index: &'a Index,
    at: usize,
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let segment = self.index.segment(self.at)?;
        self.at += 1;
        Some(segment)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.index.len() - self.at;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Segments<'_> {}

/// Makes an index of segments that come in order.
#[derive(Debug)]
pub struct IndexBuilder {
    index: Index,
    max: u64,
    end: u64,
}

impl IndexBuilder {
    /// For at most `max` segments. Memory grows with what is pushed.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self {
            index: Index::default(),
            max,
            end: 0,
        }
    }

    /// Adds a segment behind all others.
    ///
    /// # Errors
    /// An [`OrderFault`] if it is not behind them or one too many.
    pub fn push(&mut self, segment: Segment) -> Result<(), OrderFault> {
        let (start, end) = (segment.start().0, self.end);
        if start < end {
            return Err(OrderFault::Overlap { start, end });
        }
        let at = self.index.len();
        if at as u64 >= self.max {
            return Err(OrderFault::TooMany { max: self.max });
        }
        let (key, target) = segment.to_words();
        if at.is_multiple_of(NODE_KEYS) {
            self.index.keys.push(Node([NO_KEY; NODE_KEYS]));
        }
        if let Some(slot) = self.key_slot(at) {
            *slot = key;
        }
        self.index.targets.push(target);
        self.end = segment.end().0;
        Ok(())
    }

    /// Adds a segment, as a part of the last one if they meet on the disk and in the file.
    ///
    /// # Errors
    /// As [`IndexBuilder::push`].
    pub fn push_joined(&mut self, segment: Segment) -> Result<(), OrderFault> {
        let last_at = self.index.len().wrapping_sub(1);
        let joined = self.index.segment(last_at).and_then(|l| l.joined(segment));
        let Some(joined) = joined else {
            return self.push(segment);
        };
        if let Some(slot) = self.key_slot(last_at) {
            *slot = joined.to_words().0;
        }
        self.end = joined.end().0;
        Ok(())
    }

    /// The index.
    #[must_use]
    pub fn finish(self) -> Index {
        let mut index = self.index;
        index.keys.shrink_to_fit();
        index.targets.shrink_to_fit();
        while let Some(level) = level_above(index.levels.last().unwrap_or(&index.keys)) {
            index.levels.push(level);
        }
        index
    }

    fn key_slot(&mut self, at: usize) -> Option<&mut u64> {
        self.index
            .keys
            .get_mut(at / NODE_KEYS)?
            .0
            .get_mut(at % NODE_KEYS)
    }
}

/// The first key of each node, in nodes; `None` if there is one node only.
fn level_above(below: &[Node]) -> Option<Vec<Node>> {
    let node_of = |nodes: &[Node]| {
        let mut keys = [NO_KEY; NODE_KEYS];
        for (key, node) in keys.iter_mut().zip(nodes) {
            *key = node.0.first().copied().unwrap_or(NO_KEY);
        }
        Node(keys)
    };
    (below.len() > 1).then(|| below.chunks(NODE_KEYS).map(node_of).collect())
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
    fn every_sector_is_found_at_every_number_of_levels() {
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
        assert!(index.memory_bytes() < 100_000 * 16 + 100_000 * 8 / 15 + 1024);
    }
}
