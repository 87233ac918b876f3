//! The index of an upper: inserting a segment replaces what it covers.
//!
//! A B-tree from keys to targets, the same two words as in [`Index`], so that a lookup walks neighbours in memory and an
//! insertion moves at most one node. Inserting allocates nodes of the tree; looking up allocates nothing.

use std::collections::{BTreeMap, btree_map};

use block::{Extent, Sectors};

use super::index::{INDEX_RECORDS_MAX, Index, IndexBuilder, OrderFault};
use super::lookup::Pieces;
use super::record::{Segment, key_of_start};

/// An index that changes. Segments are disjoint; neighbours that meet on the disk and in the file are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MutableIndex {
    segments: BTreeMap<u64, u64>,
}

impl MutableIndex {
    /// An index of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            segments: BTreeMap::new(),
        }
    }

    /// The number of segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether there is no segment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Puts `segment` over whatever is there.
    pub fn insert(&mut self, segment: Segment) {
        let (start, end) = (segment.start().0, segment.end().0);
        let before = self.last_before(start);
        if self.try_replace(before, segment) {
            return;
        }
        let mut added = segment;
        if let Some(before) = before {
            self.cut(before, start, end);
            if let Some(joined) = before.clipped(0, start).and_then(|b| b.joined(segment)) {
                self.remove(joined.start().0);
                added = joined;
            }
        }
        while let Some(covered) = self.first_in(start, end) {
            self.cut(covered, start, end);
        }
        if let Some(joined) = self.first_in(end, end + 1).and_then(|n| added.joined(n)) {
            self.remove(end);
            added = joined;
        }
        self.put(added);
    }

    /// Puts `segment` in the place of one with the same extent, unless it joins a neighbour. Disks are overwritten as they were
    /// written, and this is a third of the way.
    fn try_replace(&mut self, before: Option<Segment>, segment: Segment) -> bool {
        let joins = |first: Segment, second: Segment| first.joined(second).is_some();
        // One that reaches into the extent leaves no other with the same.
        if before.is_some_and(|before| joins(before, segment)) {
            return false;
        }
        let (key, target) = segment.to_words();
        let mut from_here = self.segments.range_mut(key_of_start(segment.start().0)..);
        let Some((_, replaced)) = from_here.next().filter(|(found, _)| **found == key) else {
            return false;
        };
        let next = from_here.next();
        if next.is_some_and(|(key, target)| joins(segment, Segment::from_words(*key, *target))) {
            return false;
        }
        *replaced = target;
        true
    }

    /// All segments, in order.
    #[must_use]
    pub fn segments(&self) -> MutableSegments<'_> {
        MutableSegments(self.segments.range(..))
    }

    /// The segments from the one on that contains `sector`, or else from the next one on.
    #[must_use]
    pub fn segments_from(&self, sector: Sectors) -> MutableSegments<'_> {
        let before = self.last_before(sector.0).filter(|s| s.end() > sector);
        let first = before.map_or(sector, Segment::start).0;
        MutableSegments(self.segments.range(key_of_start(first)..))
    }

    /// What `extent` consists of, in order. Allocates nothing.
    #[must_use]
    pub fn pieces(&self, extent: Extent) -> Pieces<MutableSegments<'_>> {
        Pieces::new(self.segments_from(extent.start), extent)
    }

    /// The same as a read-only index.
    ///
    /// # Errors
    /// [`OrderFault::TooMany`] beyond [`INDEX_RECORDS_MAX`] segments.
    pub fn to_index(&self) -> Result<Index, OrderFault> {
        self.to_index_tagged(0)
    }

    /// As [`MutableIndex::to_index`], with `tag` in every segment.
    pub(super) fn to_index_tagged(&self, tag: u8) -> Result<Index, OrderFault> {
        let mut all = IndexBuilder::new(INDEX_RECORDS_MAX);
        for segment in self.segments() {
            all.push_joined(segment.with_tag(tag))?;
        }
        Ok(all.finish())
    }

    /// Removes the part of `old`, a segment of this index, that is in `start..end`.
    fn cut(&mut self, old: Segment, start: u64, end: u64) {
        self.segments.remove(&old.to_words().0);
        for left in [old.clipped(0, start), old.clipped(end, u64::MAX)] {
            left.into_iter().for_each(|segment| self.put(segment));
        }
    }

    fn put(&mut self, segment: Segment) {
        let (key, target) = segment.to_words();
        self.segments.insert(key, target);
    }

    /// Removes the segment that starts at `start`.
    fn remove(&mut self, start: u64) {
        if let Some(segment) = self.first_in(start, start + 1) {
            self.segments.remove(&segment.to_words().0);
        }
    }

    fn last_before(&self, start: u64) -> Option<Segment> {
        MutableSegments(self.segments.range(..key_of_start(start))).next_back()
    }

    /// The first segment that starts in `start..end`.
    fn first_in(&self, start: u64, end: u64) -> Option<Segment> {
        MutableSegments(self.segments.range(key_of_start(start)..key_of_start(end))).next()
    }
}

/// Segments of a [`MutableIndex`], in order.
#[derive(Clone, Debug)]
pub struct MutableSegments<'a>(btree_map::Range<'a, u64, u64>);

impl Iterator for MutableSegments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let (key, target) = self.0.next()?;
        Some(Segment::from_words(*key, *target))
    }
}

impl DoubleEndedIterator for MutableSegments<'_> {
    fn next_back(&mut self) -> Option<Segment> {
        let (key, target) = self.0.next_back()?;
        Some(Segment::from_words(*key, *target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsmt::samples::segment;

    fn lines(inserted: &[Segment]) -> Vec<String> {
        let mut index = MutableIndex::new();
        inserted.iter().for_each(|s| index.insert(*s));
        let lines: Vec<_> = index.segments().map(|s| s.to_string()).collect();
        let compact = index.to_index().unwrap();
        assert!(compact.segments().map(|s| s.to_string()).eq(lines.clone()));
        lines
    }

    #[test]
    fn a_segment_replaces_what_it_covers() {
        let old = segment(10, 10, 100);
        let cases: [(Segment, &[&str]); 6] = [
            (
                segment(12, 3, 50),
                &["10 2 100 0 0", "12 3 50 0 0", "15 5 105 0 0"],
            ),
            (segment(10, 10, 50), &["10 10 50 0 0"]),
            (segment(5, 30, 50), &["5 30 50 0 0"]),
            (segment(5, 6, 50), &["5 6 50 0 0", "11 9 101 0 0"]),
            (segment(19, 6, 50), &["10 9 100 0 0", "19 6 50 0 0"]),
            (segment(20, 6, 50), &["10 10 100 0 0", "20 6 50 0 0"]),
        ];
        for (new, want) in cases {
            assert_eq!(lines(&[old, new]), want, "{new}");
        }
    }

    #[test]
    fn writes_that_follow_one_another_are_one_segment() {
        let first = segment(0, 8, 100);
        let second = segment(8, 8, 108);
        let third = segment(16, 8, 116);
        assert_eq!(lines(&[first, second, third]), ["0 24 100 0 0"]);
        assert_eq!(lines(&[third, first, second]), ["0 24 100 0 0"]);
        assert_eq!(
            lines(&[segment(0, 16, 100), segment(8, 8, 108)]),
            ["0 16 100 0 0"]
        );
    }

    #[test]
    fn a_segment_that_takes_the_place_of_another_joins_its_neighbours_all_the_same() {
        let others = [segment(0, 8, 100), segment(8, 8, 300), segment(16, 8, 400)];
        let with = |new| lines(&[others[0], others[1], others[2], new]);
        assert_eq!(with(segment(8, 8, 108)), ["0 16 100 0 0", "16 8 400 0 0"]);
        assert_eq!(with(segment(8, 8, 392)), ["0 8 100 0 0", "8 16 392 0 0"]);
        assert_eq!(
            with(segment(8, 8, 500)),
            ["0 8 100 0 0", "8 8 500 0 0", "16 8 400 0 0"]
        );
    }

    #[test]
    fn lookup_begins_with_the_segment_that_contains_the_sector() {
        let mut index = MutableIndex::new();
        index.insert(segment(10, 10, 100));
        index.insert(segment(30, 10, 200));
        for (sector, want) in [
            (0, Some(10)),
            (10, Some(10)),
            (19, Some(10)),
            (20, Some(30)),
            (40, None),
        ] {
            let found = index.segments_from(Sectors(sector)).next();
            assert_eq!(found.map(|s| s.start().0), want, "{sector}");
        }
        let end = Extent {
            start: Sectors(u64::MAX),
            len: Sectors(1),
        };
        assert_eq!(index.pieces(end).count(), 0);
    }
}
