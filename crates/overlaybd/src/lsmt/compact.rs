//! Plans of a new layer's file: commit (of an upper or a sealed layer), merge (of a stack), flatten (of both).
//!
//! ```text
//!   0        header
//!   4096     data of all segments, in the order of the disk     <- copies
//!   tail     records, padding to 256 of them, zeros to 4096, trailer
//! ```
//!
//! The bytes are those of the reference where its two writers agree: data, records and their number. Where they differ: uuids
//! are written as the C++ one does, the trailer begins at a multiple of 4096 as in the Rust one.
//!
//! A hole stays a hole, zeros stay zeros and hide what is below: the new layer means in a stack what its source meant.

use block::{ByteLen, ByteOffset, Extent, Sectors};

use super::header::{Flags, HEADER_BYTES, HEADER_LEN, HEADER_SECTORS, Header, UserTag};
use super::index::{Index, IndexBuilder, LAYER_RECORDS_MAX, Segments};
use super::lookup::LayerIndex;
use super::record::{RECORD_BYTES, Record, Segment};
use super::uuid::LayerUuid;
use crate::{Error, ErrorKind, FileRange};

/// Records are padded to a multiple of this: 4096 bytes.
const RECORDS_MULTIPLE: usize = HEADER_BYTES / RECORD_BYTES;
/// Segments of data are taken over in pieces of this many sectors and joined again. Where long runs are cut in the result
/// follows from it: 255 pieces fit a record, so at 16320 sectors. It is the reference's buffer of 32 KiB.
const PIECE_SECTORS: u64 = 64;

/// What a new layer says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewLayer {
    /// Size of the disk, or 0 for the size of what is below. Segments behind a size are left out.
    pub virtual_size: Sectors,
    /// Its uuid.
    pub uuid: Option<LayerUuid>,
    /// The uuid of the layer that it belongs on.
    pub parent_uuid: Option<LayerUuid>,
    /// Free text.
    pub user_tag: UserTag,
}

/// Data to copy into the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataCopy {
    /// Which file to read: the tag of the source's segment.
    pub layer: LayerIndex,
    /// What to read.
    pub from: FileRange,
    /// Where in the new file it goes.
    pub to: ByteOffset,
}

/// What to write into a new layer's file: the header, the copies, the tail.
#[derive(Clone, Debug)]
pub struct LayerPlan<'a> {
    /// The first block.
    pub header: Vec<u8>,
    /// What follows the data: index, filler and trailer.
    pub tail: Vec<u8>,
    /// Where the tail goes: the end of the data.
    pub tail_offset: ByteOffset,
    source: &'a Index,
    end: u64,
}

impl<'a> LayerPlan<'a> {
    /// Of the layer that has what `source` has: the index of an upper, or of a sealed layer that is committed again.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if the layer would have more than [`LAYER_RECORDS_MAX`] records: nobody could read it.
    pub fn commit(source: &'a Index, layer: &NewLayer) -> Result<Self, Error> {
        Self::build(source, layer, |_| 0)
    }

    /// Of the layer that has what a stack of `lowers` files has, alone or under an upper; `source` is its merged index.
    ///
    /// The records keep the depth of the layer that they come from as their tag, as the reference writes it. Readers
    /// ignore it.
    ///
    /// # Errors
    /// As [`LayerPlan::commit`].
    pub fn merge(source: &'a Index, lowers: u8, layer: &NewLayer) -> Result<Self, Error> {
        // Depths count from the top; the upper has the number behind all of them.
        let depth = |tag| lowers.checked_sub(1).and_then(|top| top.checked_sub(tag));
        Self::build(source, layer, |tag| depth(tag).unwrap_or(lowers))
    }

    /// What to copy, in the order of the new file. Copies that meet in both files are one.
    #[must_use]
    pub fn copies(&self) -> Copies<'a> {
        Copies {
            segments: self.source.segments(),
            end: self.end,
            to: HEADER_SECTORS,
            next: None,
        }
    }

    /// The length of the new file.
    #[must_use]
    pub const fn len_bytes(&self) -> ByteLen {
        ByteLen(self.tail_offset.0 + self.tail.len() as u64)
    }

    fn build(
        source: &'a Index,
        layer: &NewLayer,
        tag_of: impl Fn(u8) -> u8,
    ) -> Result<Self, Error> {
        let end = match layer.virtual_size {
            Sectors(0) => u64::MAX,
            size => size.0,
        };
        let mut records = Records::new();
        for segment in visible(source, end) {
            records.add(segment, tag_of(segment.tag()))?;
        }
        let tail_offset = records.data_end.offset_bytes();
        let (index, records) = records.padded()?;
        let trailer = Header {
            flags: Flags::LAYER_TRAILER,
            index_offset: tail_offset,
            index_size: records as u64,
            virtual_size: layer.virtual_size,
            uuid: layer.uuid,
            parent_uuid: layer.parent_uuid,
            user_tag: layer.user_tag.clone(),
        };
        let header = Header {
            flags: Flags::LAYER_HEADER,
            index_offset: ByteOffset(0),
            index_size: 0,
            ..trailer.clone()
        };
        let mut tail = index;
        while !(tail_offset.0 + tail.len() as u64).is_multiple_of(HEADER_LEN.0) {
            tail.extend([0; RECORD_BYTES]);
        }
        tail.extend(trailer.encode());
        Ok(Self {
            header: header.encode().to_vec(),
            tail,
            tail_offset,
            source,
            end,
        })
    }
}

/// The segments of `source` before `end`, the last one cut there.
fn visible(source: &Index, end: u64) -> impl Iterator<Item = Segment> {
    source.segments().map_while(move |s| s.clipped(0, end))
}

/// The records of a new layer, as its data grow.
struct Records {
    index: IndexBuilder,
    data_end: Sectors,
}

impl Records {
    fn new() -> Self {
        Self {
            index: IndexBuilder::new(LAYER_RECORDS_MAX),
            data_end: HEADER_SECTORS,
        }
    }

    fn add(&mut self, segment: Segment, tag: u8) -> Result<(), Error> {
        if segment.is_zeroed() {
            return self.add_piece(Segment::zeroed(segment.extent(), self.data_end), tag);
        }
        let end = segment.end().0;
        let mut start = segment.start().0;
        while start < end {
            let len = PIECE_SECTORS.min(end - start);
            let piece = Extent {
                start: Sectors(start),
                len: Sectors(len),
            };
            self.add_piece(Segment::data(piece, self.data_end), tag)?;
            self.data_end.0 += len;
            start += len;
        }
        Ok(())
    }

    fn add_piece(
        &mut self,
        piece: Result<Segment, super::SegmentFault>,
        tag: u8,
    ) -> Result<(), Error> {
        let piece = piece.map_err(too_large)?.with_tag(tag);
        self.index.push_joined(piece).map_err(too_large)
    }

    /// The records' bytes with padding, and how many they are.
    fn padded(self) -> Result<(Vec<u8>, usize), Error> {
        let index = self.index.finish();
        let records = index.len().next_multiple_of(RECORDS_MULTIPLE);
        if records as u64 > LAYER_RECORDS_MAX {
            return Err(too_large(format!("{records} records with padding")));
        }
        let mut bytes = Vec::with_capacity(records * RECORD_BYTES);
        for segment in index.segments() {
            bytes.extend(segment.encode());
        }
        for _ in index.len()..records {
            bytes.extend(Record::Padding.encode());
        }
        Ok((bytes, records))
    }
}

fn too_large(fault: impl ToString) -> Error {
    let detail = format!("{}; at most {LAYER_RECORDS_MAX} records", fault.to_string());
    Error::new(ErrorKind::TooLarge, "new index", ByteOffset(0), detail)
}

/// The copies of a [`LayerPlan`].
#[derive(Clone, Debug)]
pub struct Copies<'a> {
    segments: Segments<'a>,
    end: u64,
    to: Sectors,
    next: Option<DataCopy>,
}

impl Copies<'_> {
    /// The copy of the next segment with data.
    fn next_segment(&mut self) -> Option<DataCopy> {
        let segment = loop {
            let segment = self.segments.next()?.clipped(0, self.end)?;
            if !segment.is_zeroed() {
                break segment;
            }
        };
        let copy = DataCopy {
            layer: LayerIndex(segment.tag()),
            from: FileRange {
                offset: segment.moffset().offset_bytes(),
                len: segment.len().len_bytes(),
            },
            to: self.to.offset_bytes(),
        };
        self.to.0 += segment.len().0;
        Some(copy)
    }
}

impl Iterator for Copies<'_> {
    type Item = DataCopy;

    fn next(&mut self) -> Option<DataCopy> {
        let mut copy = self.next.take().or_else(|| self.next_segment())?;
        while let Some(next) = self.next_segment() {
            let meets = copy.from.offset.advanced(copy.from.len.0) == next.from.offset;
            if copy.layer != next.layer || !meets {
                self.next = Some(next);
                break;
            }
            copy.from.len.0 += next.from.len.0;
        }
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsmt::samples::segment;

    fn index(segments: impl IntoIterator<Item = Segment>) -> Index {
        let mut builder = IndexBuilder::new(u64::MAX);
        segments.into_iter().for_each(|s| builder.push(s).unwrap());
        builder.finish()
    }

    fn records(plan: &LayerPlan<'_>) -> Vec<String> {
        let (records, _) = plan.tail.as_chunks::<RECORD_BYTES>();
        let records = records
            .iter()
            .map_while(|bytes| match Record::parse(*bytes) {
                Ok(Record::Segment(segment)) => Some(segment.to_string()),
                _ => None,
            });
        records.collect()
    }

    #[test]
    fn long_runs_are_cut_where_the_reference_cuts_them() {
        let source = index([segment(0, 16383, 100), segment(16383, 2000, 16483)]);
        let plan = LayerPlan::commit(&source, &NewLayer::default()).unwrap();
        assert_eq!(records(&plan), ["0 16320 8 0 0", "16320 2063 16328 0 0"]);
        let copies: Vec<_> = plan.copies().collect();
        assert_eq!(copies.len(), 1);
        assert_eq!(copies[0].from.len, Sectors(18383).len_bytes());
    }

    #[test]
    fn what_is_behind_the_size_is_left_out() {
        let source = index([segment(0, 10, 8), segment(15, 10, 50), segment(30, 1, 90)]);
        let layer = NewLayer {
            virtual_size: Sectors(20),
            ..NewLayer::default()
        };
        let plan = LayerPlan::commit(&source, &layer).unwrap();
        assert_eq!(records(&plan), ["0 10 8 0 0", "15 5 18 0 0"]);
        assert_eq!(plan.copies().count(), 2);
        assert_eq!(plan.tail_offset, Sectors(23).offset_bytes());
        assert_eq!(plan.len_bytes().0 % HEADER_LEN.0, 0);
    }

    #[test]
    fn a_layer_that_nobody_could_read_is_refused() {
        // 3906 blocks of 256 records are 999,936; one more would be over the limit with its padding.
        let count = 3906 * 256;
        let source = index((0..count).map(|at| segment(at * 2, 1, 8)));
        assert!(LayerPlan::commit(&source, &NewLayer::default()).is_ok());
        let source = index((0..=count).map(|at| segment(at * 2, 1, 8)));
        let error = LayerPlan::commit(&source, &NewLayer::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge);
    }
}
