//! The 16-byte record of an index: which segment of the virtual disk is where in a file.

use std::fmt;

use block::{Extent, Sectors};

use super::header::HEADER_SECTORS;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 16;
/// The most sectors of one record: 14 bits, 8 MiB less a sector.
pub const RECORD_SECTORS_MAX: u64 = (1 << LENGTH_BITS) - 1;
/// The most sectors of two joined records. One less than would fit: the C++ reference compares strictly.
const JOINED_SECTORS_MAX: u64 = RECORD_SECTORS_MAX - 1;

const OFFSET_BITS: u32 = 50;
const LENGTH_BITS: u32 = 14;
const MOFFSET_BITS: u32 = 55;
const TAG_SHIFT: u32 = 56;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const MOFFSET_MASK: u64 = (1 << MOFFSET_BITS) - 1;
const ZEROED: u64 = 1 << MOFFSET_BITS;
/// The offset that marks padding.
const OFFSET_NONE: u64 = OFFSET_MASK;

/// A segment: a run of sectors of the virtual disk, and where its data are or that it is zeros.
///
/// 16 bytes, like the record. The first word is turned, length below offset, so that it orders segments.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    key: u64,
    target: u64,
}

/// What an index holds at one place: a segment or filler.
///
/// Two little-endian words:
///
/// | word | bits | field | meaning |
/// |---|---|---|---|
/// | low | 0-49 | offset | first sector of the virtual disk |
/// | low | 50-63 | length | sectors, 1 to 16383 |
/// | high | 0-54 | moffset | first sector in the file, counted from its byte 0 |
/// | high | 55 | zeroed | 1: reads as zeros, there is no data |
/// | high | 56-63 | tag | which file; has a meaning in warp layers only (1 = target) |
///
/// A record with offset 2^50 - 1 and length 0 is padding and may be anywhere in an index. Any other record of length 0 is
/// damage: dropping it would turn data into a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Filler, to be skipped.
    Padding,
    /// A segment.
    Segment(Segment),
}

/// Why numbers make no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentFault {
    /// No sectors.
    #[error("length 0 at sector {start}")]
    Empty {
        /// The first sector.
        start: u64,
    },
    /// More sectors than a record can say.
    #[error("length {len}, at most {RECORD_SECTORS_MAX}")]
    TooLong {
        /// The sectors.
        len: u64,
    },
    /// The first sector does not fit, or means padding.
    #[error("start {start}, at most {}", OFFSET_NONE - 1)]
    Start {
        /// The first sector.
        start: u64,
    },
    /// The place in the file does not fit.
    #[error("sector {moffset} of the file, at most {MOFFSET_MASK}")]
    Moffset {
        /// The sector in the file.
        moffset: u64,
    },
    /// The place in the file is outside its data.
    #[error("sectors {start} to {end} of the file, whose data end at {limit}")]
    Outside {
        /// The first sector in the file.
        start: u64,
        /// The first sector behind it.
        end: u64,
        /// The first sector behind the data of the file.
        limit: u64,
    },
}

impl Segment {
    /// A segment of data that starts at sector `moffset` of its file. Tag 0.
    ///
    /// # Errors
    /// A [`SegmentFault`] if a record cannot hold the numbers.
    pub const fn data(extent: Extent, moffset: Sectors) -> Result<Self, SegmentFault> {
        let (start, len) = (extent.start.0, extent.len.0);
        if len == 0 {
            return Err(SegmentFault::Empty { start });
        }
        if len > RECORD_SECTORS_MAX {
            return Err(SegmentFault::TooLong { len });
        }
        if start >= OFFSET_NONE {
            return Err(SegmentFault::Start { start });
        }
        if moffset.0 > MOFFSET_MASK {
            return Err(SegmentFault::Moffset { moffset: moffset.0 });
        }
        Ok(Self {
            key: start << LENGTH_BITS | len,
            target: moffset.0,
        })
    }

    /// A segment of zeros. `moffset` has no meaning, but the reference refuses one outside the data of the file.
    ///
    /// # Errors
    /// As [`Segment::data`].
    pub const fn zeroed(extent: Extent, moffset: Sectors) -> Result<Self, SegmentFault> {
        match Self::data(extent, moffset) {
            Ok(segment) => Ok(Self {
                target: segment.target | ZEROED,
                ..segment
            }),
            fault => fault,
        }
    }

    /// The first sector of the virtual disk.
    #[must_use]
    pub const fn start(self) -> Sectors {
        Sectors(self.key >> LENGTH_BITS)
    }

    /// The number of sectors, 1 to [`RECORD_SECTORS_MAX`].
    #[must_use]
    pub const fn len(self) -> Sectors {
        Sectors(self.key & LENGTH_MASK)
    }

    /// Never: a segment has sectors.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }

    /// The first sector behind it.
    #[must_use]
    pub const fn end(self) -> Sectors {
        Sectors(self.start().0 + self.len().0)
    }

    /// Its range of the virtual disk.
    #[must_use]
    pub const fn extent(self) -> Extent {
        Extent {
            start: self.start(),
            len: self.len(),
        }
    }

    /// Its first sector in the file; without a meaning if it is zeroed.
    #[must_use]
    pub const fn moffset(self) -> Sectors {
        Sectors(self.target & MOFFSET_MASK)
    }

    /// The first sector of the file behind its data; of zeros, the same as [`Segment::moffset`].
    #[must_use]
    pub const fn moffset_end(self) -> Sectors {
        let len = if self.is_zeroed() { 0 } else { self.len().0 };
        Sectors(self.moffset().0 + len)
    }

    /// Whether it reads as zeros.
    #[must_use]
    pub const fn is_zeroed(self) -> bool {
        self.target & ZEROED != 0
    }

    /// Which file it is in. What that means is up to the index.
    #[must_use]
    pub const fn tag(self) -> u8 {
        self.target.to_le_bytes()[7]
    }

    /// The same with another tag.
    #[must_use]
    pub fn with_tag(self, tag: u8) -> Self {
        let tag = u64::from(tag) << TAG_SHIFT;
        Self {
            target: self.target & (ZEROED | MOFFSET_MASK) | tag,
            ..self
        }
    }

    /// The record as it is in a file.
    #[must_use]
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        encode_words(self.start().0 | self.len().0 << OFFSET_BITS, self.target)
    }

    /// Refuses a place outside the data of a file that end at `limit`.
    ///
    /// The place of zeros has no meaning, so one before the data is let through, which the C++ reference refuses. One behind
    /// them says that the file has lost its end.
    pub(super) fn check_within(self, limit: Sectors) -> Result<(), SegmentFault> {
        let (start, end) = (self.moffset(), self.moffset_end());
        if end <= limit && (start >= HEADER_SECTORS || self.is_zeroed()) {
            return Ok(());
        }
        Err(SegmentFault::Outside {
            start: start.0,
            end: end.0,
            limit: limit.0,
        })
    }

    /// The part of it in `start..end`, or `None` if there is none.
    pub(super) fn clipped(self, start: u64, end: u64) -> Option<Self> {
        let (old_start, old_end) = (self.start().0, self.end().0);
        let (start, end) = (start.max(old_start), end.min(old_end));
        if start >= end {
            return None;
        }
        let moved = if self.is_zeroed() {
            0
        } else {
            start - old_start
        };
        Some(Self {
            key: start << LENGTH_BITS | (end - start),
            target: self.target + moved,
        })
    }

    /// This and `next` as one, if they meet on the disk and in the file and fit one record.
    pub(super) const fn joined(self, next: Self) -> Option<Self> {
        let meets = self.end().0 == next.start().0 && self.moffset_end().0 == next.moffset().0;
        let is_alike = (self.target ^ next.target) & !MOFFSET_MASK == 0;
        let len = self.len().0 + next.len().0;
        if meets && is_alike && len <= JOINED_SECTORS_MAX {
            Some(Self {
                key: self.key + next.len().0,
                target: self.target,
            })
        } else {
            None
        }
    }

    /// The two words: the first orders segments by their start.
    pub(super) const fn to_words(self) -> (u64, u64) {
        (self.key, self.target)
    }

    /// From words that [`Segment::to_words`] made.
    pub(super) const fn from_words(key: u64, target: u64) -> Self {
        Self { key, target }
    }
}

/// The smallest first word that a segment from `start` on can have; saturates behind every segment.
pub(super) const fn key_of_start(start: u64) -> u64 {
    if start > OFFSET_MASK {
        u64::MAX
    } else {
        start << LENGTH_BITS
    }
}

impl Record {
    /// Parses the 16 bytes of a record.
    ///
    /// # Errors
    /// A [`SegmentFault`] for a record that no writer makes.
    pub fn parse(bytes: [u8; RECORD_BYTES]) -> Result<Self, SegmentFault> {
        let words = u128::from_le_bytes(bytes);
        let low = u64_of(words);
        let high = u64_of(words >> u64::BITS);
        let extent = Extent {
            start: Sectors(low & OFFSET_MASK),
            len: Sectors(low >> OFFSET_BITS),
        };
        if extent.start.0 == OFFSET_NONE && extent.len.0 == 0 {
            return Ok(Self::Padding);
        }
        let segment = Segment::data(extent, Sectors(high & MOFFSET_MASK))?;
        Ok(Self::Segment(Segment {
            target: high,
            ..segment
        }))
    }

    /// The record as it is in a file.
    #[must_use]
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        match self {
            Self::Padding => encode_words(OFFSET_NONE, 0),
            Self::Segment(segment) => segment.encode(),
        }
    }
}

fn encode_words(low: u64, high: u64) -> [u8; RECORD_BYTES] {
    (u128::from(low) | u128::from(high) << u64::BITS).to_le_bytes()
}

/// The low 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "cutting off the high word is the purpose"
)]
const fn u64_of(words: u128) -> u64 {
    words as u64
}

impl fmt::Display for Segment {
    /// `offset length moffset zeroed tag`, numbers in sectors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, len, moffset) = (self.start().0, self.len().0, self.moffset().0);
        let zeroed = u8::from(self.is_zeroed());
        write!(f, "{start} {len} {moffset} {zeroed} {}", self.tag())
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({self})")
    }
}

impl fmt::Display for Record {
    /// As [`Segment`]; padding as the numbers that it has in a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Padding => write!(f, "{OFFSET_NONE} 0 0 0 0"),
            Self::Segment(segment) => segment.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsmt::samples::extent;

    fn data(start: u64, len: u64, moffset: u64) -> Segment {
        Segment::data(extent(start, len), Sectors(moffset)).unwrap()
    }

    fn zeroed(start: u64, len: u64, moffset: u64) -> Segment {
        Segment::zeroed(extent(start, len), Sectors(moffset)).unwrap()
    }

    #[test]
    fn records_of_the_reference_have_these_bytes() {
        let cases: [(Record, [u8; 16]); 3] = [
            (
                Record::Segment(data(0, 16, 8)),
                [0, 0, 0, 0, 0, 0, 0x40, 0, 8, 0, 0, 0, 0, 0, 0, 0],
            ),
            (
                Record::Segment(zeroed(16, 1, 24)),
                [0x10, 0, 0, 0, 0, 0, 4, 0, 0x18, 0, 0, 0, 0, 0, 0x80, 0],
            ),
            (
                Record::Padding,
                [
                    0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                ],
            ),
        ];
        for (record, bytes) in cases {
            assert_eq!(record.encode(), bytes);
            assert_eq!(Record::parse(bytes), Ok(record));
        }
    }

    #[test]
    fn the_largest_numbers_survive_a_round_trip() {
        let start = (1 << 50) - 2;
        let largest = data(start, RECORD_SECTORS_MAX, (1 << 55) - 1).with_tag(255);
        assert_eq!(
            Record::parse(largest.encode()),
            Ok(Record::Segment(largest))
        );
        assert_eq!(largest.tag(), 255);
        assert_eq!(largest.end(), Sectors(start + 16383));
        assert_eq!(largest.with_tag(1).tag(), 1);
    }

    #[test]
    fn numbers_out_of_range_make_no_segment() {
        let fault = |start, len, moffset| Segment::data(extent(start, len), Sectors(moffset));
        assert_eq!(fault(5, 0, 8), Err(SegmentFault::Empty { start: 5 }));
        assert_eq!(
            fault(5, 16384, 8),
            Err(SegmentFault::TooLong { len: 16384 })
        );
        let start = OFFSET_NONE;
        assert_eq!(fault(start, 1, 8), Err(SegmentFault::Start { start }));
        let moffset = 1 << 55;
        assert_eq!(fault(0, 1, moffset), Err(SegmentFault::Moffset { moffset }));
    }

    #[test]
    fn a_record_of_length_0_that_is_no_padding_is_refused() {
        let fault = Record::parse([0; RECORD_BYTES]);
        assert_eq!(fault, Err(SegmentFault::Empty { start: 0 }));
        let mut padding_with_length = Record::Padding.encode();
        padding_with_length[7] = 1;
        assert!(Record::parse(padding_with_length).is_err());
    }

    #[test]
    fn clipping_moves_the_place_of_data_and_not_of_zeros() {
        let clip = |segment: Segment, start, end| segment.clipped(start, end);
        assert_eq!(clip(data(10, 10, 100), 13, 15), Some(data(13, 2, 103)));
        assert_eq!(clip(zeroed(10, 10, 100), 13, 50), Some(zeroed(13, 7, 100)));
        assert_eq!(clip(data(10, 10, 100), 20, 30), None);
        assert_eq!(clip(data(10, 10, 100), 0, 10), None);
    }

    #[test]
    fn segments_join_only_where_disk_and_file_meet() {
        let a = data(0, 8, 100);
        assert_eq!(a.joined(data(8, 8, 108)), Some(data(0, 16, 100)));
        assert_eq!(a.joined(data(8, 8, 109)), None);
        assert_eq!(a.joined(data(9, 8, 108)), None);
        assert_eq!(a.joined(data(8, 8, 108).with_tag(1)), None);
        assert_eq!(a.joined(zeroed(8, 8, 108)), None);
        let zeros = zeroed(0, 8, 100);
        assert_eq!(zeros.joined(zeroed(8, 8, 100)), Some(zeroed(0, 16, 100)));
        let half = data(0, 8192, 8);
        assert_eq!(half.joined(data(8192, 8191, 8200)), None);
        assert!(half.joined(data(8192, 8190, 8200)).is_some());
    }

    #[test]
    fn places_outside_the_data_of_the_file_are_refused() {
        let limit = Sectors(100);
        for (segment, want) in [
            (data(0, 92, 8), true),
            (data(0, 93, 8), false),
            (data(0, 1, 7), false),
            (zeroed(0, 9, 100), true),
            (zeroed(0, 9, 101), false),
            (zeroed(0, 9, 0), true),
        ] {
            assert_eq!(segment.check_within(limit).is_ok(), want, "{segment}");
        }
    }

    #[test]
    fn records_print_as_their_numbers() {
        let line = Record::Segment(zeroed(16, 1, 24).with_tag(7)).to_string();
        assert_eq!(line, "16 1 24 1 7");
        assert_eq!(Record::Padding.to_string(), "1125899906842623 0 0 0 0");
    }
}
