//! What a write to a log upper appends: segments, and the bytes of their records in groups.
//!
//! Order that keeps the log's promise: append the sectors, make them durable, then append the records. A record that is
//! durable before its data is exactly what [`super::LogLoader::finish_strict`] refuses.

use std::num::NonZeroU16;

use block::{Extent, Sectors};

use super::record::{RECORD_BYTES, RECORD_SECTORS_MAX, Record, Segment, SegmentFault};

/// The segments of one write or discard: as many as records of limited length need.
#[derive(Clone, Debug)]
pub struct Appended {
    left: Extent,
    data_end: Sectors,
    make: fn(Extent, Sectors) -> Result<Segment, SegmentFault>,
}

impl Appended {
    /// Of a write of `extent` whose sectors are appended at `data_end` of the data file.
    #[must_use]
    pub const fn written(extent: Extent, data_end: Sectors) -> Self {
        Self {
            left: extent,
            data_end,
            make: Segment::data,
        }
    }

    /// Of a discard of `extent`, which reads as zeros then. The data file does not grow; its end is in the records, because
    /// the reference refuses zeros that are placed outside the data.
    #[must_use]
    pub const fn discarded(extent: Extent, data_end: Sectors) -> Self {
        Self {
            left: extent,
            data_end,
            make: Segment::zeroed,
        }
    }
}

impl Iterator for Appended {
    type Item = Result<Segment, SegmentFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let extent = Extent {
            start: self.left.start,
            len: Sectors(self.left.len.0.min(RECORD_SECTORS_MAX)),
        };
        if extent.len.0 == 0 {
            return None;
        }
        let segment = (self.make)(extent, self.data_end);
        let Ok(appended) = segment else {
            self.left.len = Sectors(0);
            return Some(segment);
        };
        self.data_end = appended.moffset_end();
        self.left.start = appended.end();
        self.left.len.0 -= extent.len.0;
        Some(segment)
    }
}

/// Records that are written to the index file together. The memory for them is taken once.
///
/// With a group of one record each is written at once, which is what the reference does by default.
#[derive(Clone, Debug)]
pub struct RecordGroup {
    bytes: Vec<u8>,
    size_bytes: usize,
}

/// The group must be written and cleared before another record fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the group of records is full")]
pub struct GroupFull;

impl RecordGroup {
    /// An empty group of `records`.
    #[must_use]
    pub fn new(records: NonZeroU16) -> Self {
        let size_bytes = usize::from(records.get()) * RECORD_BYTES;
        Self {
            bytes: Vec::with_capacity(size_bytes),
            size_bytes,
        }
    }

    /// Adds the record of `segment`.
    ///
    /// # Errors
    /// [`GroupFull`]; nothing is added then.
    pub fn try_push(&mut self, segment: Segment) -> Result<(), GroupFull> {
        if self.is_full() {
            return Err(GroupFull);
        }
        self.bytes.extend(segment.encode());
        Ok(())
    }

    /// Fills a group that has records up with padding, as every group in a file has the same size. A group of nothing stays
    /// empty: there is nothing to write.
    pub fn pad(&mut self) {
        while !self.bytes.is_empty() && !self.is_full() {
            self.bytes.extend(Record::Padding.encode());
        }
    }

    /// What to append to the index file.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it must be written before the next record.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.bytes.len() >= self.size_bytes
    }

    /// Forgets the records, after they were written.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(appended: Appended) -> Vec<String> {
        appended.map(|s| s.unwrap().to_string()).collect()
    }

    #[test]
    fn long_extents_become_several_segments() {
        let extent = Extent {
            start: Sectors(5),
            len: Sectors(2 * 16383 + 1),
        };
        let written = Appended::written(extent, Sectors(8));
        let want = [
            "5 16383 8 0 0",
            "16388 16383 16391 0 0",
            "32771 1 32774 0 0",
        ];
        assert_eq!(lines(written), want);
        let discarded = Appended::discarded(extent, Sectors(8));
        let want = ["5 16383 8 1 0", "16388 16383 8 1 0", "32771 1 8 1 0"];
        assert_eq!(lines(discarded), want);
        let nothing = Extent::default();
        assert_eq!(Appended::written(nothing, Sectors(8)).count(), 0);
    }

    #[test]
    fn an_extent_that_no_record_can_hold_ends_with_its_fault() {
        let extent = Extent {
            start: Sectors((1 << 50) - 2),
            len: Sectors(20000),
        };
        let mut appended = Appended::written(extent, Sectors(8));
        assert!(appended.next().is_some_and(|s| s.is_ok()));
        assert!(appended.next().is_some_and(|s| s.is_err()));
        assert!(appended.next().is_none());
    }

    #[test]
    fn a_group_is_padded_to_its_size() {
        let extent = Extent {
            start: Sectors(0),
            len: Sectors(1),
        };
        let segment = Segment::data(extent, Sectors(8)).unwrap();
        let mut group = RecordGroup::new(NonZeroU16::new(3).unwrap());
        group.pad();
        assert!(group.as_bytes().is_empty());
        group.try_push(segment).unwrap();
        group.pad();
        assert_eq!(group.as_bytes().len(), 48);
        assert_eq!(group.as_bytes()[16..32], Record::Padding.encode());
        assert_eq!(group.try_push(segment), Err(GroupFull));
        group.clear();
        assert_eq!(group.try_push(segment), Ok(()));
    }
}
