//! A sealed layer: which ranges of its file to read, in order, and what they give.
//!
//! ```text
//!   0               header     HEADER_BYTES
//!   4096            data       sectors
//!   index_offset    records    16 bytes each, index_size of them, padding counted
//!   ...             filler     of any kind, not counted
//!   end - 4096      trailer    HEADER_BYTES
//!
//!   LayerEnds::of_file(len) --header, trailer bytes--> Layout --index bytes--> IndexLoader --> Layer
//! ```
//!
//! The trailer says where the index is; nothing may follow it. Lengths count from the start of the LSMT file, that is
//! inside a ZFile or a tar. Everything is bounded by the file's length before memory is taken for it: 16 bytes a record,
//! at most [`LAYER_RECORDS_MAX`] records.

use block::{ByteLen, ByteOffset, SECTOR_BYTES, Sectors};

use super::chunks::{RawRecord, RecordChunks};
use super::header::{self, HEADER_LEN, Header, Place};
use super::index::{Index, IndexBuilder, LAYER_RECORDS_MAX};
use super::record::{RECORD_BYTES, Record, Segment};
use crate::{Error, ErrorKind, FileRange};

/// Where the two blocks are that a layer's layout is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerEnds {
    /// The header.
    pub header: FileRange,
    /// The trailer.
    pub trailer: FileRange,
}

/// What a layer's records point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// The layer's own data.
    Own,
    /// Tag 0: its own data. Tag 1: the target, another file.
    Warp,
}

/// Where the parts of a sealed layer's file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    trailer: Header,
    index: FileRange,
    content: Content,
}

/// A sealed layer: its trailer and its index. Tags are 0, and 1 for the target of a warp layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The trailer: size, uuids, user tag.
    pub trailer: Header,
    /// What is where.
    pub index: Index,
    content: Content,
}

impl Layer {
    /// Whether some segments are in a second file, the target.
    #[must_use]
    pub fn has_target(&self) -> bool {
        self.content == Content::Warp
    }
}

impl LayerEnds {
    /// Of a file of `len`.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] if header and trailer do not fit.
    pub fn of_file(len: ByteLen) -> Result<Self, Error> {
        let trailer_offset = len.0.checked_sub(HEADER_LEN.0);
        let Some(offset) = trailer_offset.filter(|offset| *offset >= HEADER_LEN.0) else {
            let detail = format!("a layer has at least {}", ByteLen(2 * HEADER_LEN.0));
            let offset = ByteOffset(len.0);
            return Err(Error::new(ErrorKind::Truncated, "layer", offset, detail));
        };
        let block = |offset| FileRange {
            offset: ByteOffset(offset),
            len: HEADER_LEN,
        };
        Ok(Self {
            header: block(0),
            trailer: block(offset),
        })
    }
}

impl Layout {
    /// From the bytes of the two ranges in `ends`.
    ///
    /// # Errors
    /// [`ErrorKind::NotThisFormat`] without the magic at the start. [`ErrorKind::Corrupt`] without a sealed data file's
    /// trailer at the end, or with an index outside the file. [`ErrorKind::TooLarge`] beyond [`LAYER_RECORDS_MAX`].
    pub fn parse(ends: LayerEnds, header: &[u8], trailer: &[u8]) -> Result<Self, Error> {
        Self::parse_as(Content::Own, ends, header, trailer)
    }

    /// As [`Layout::parse`], of a warp layer: some of its records point into another file, the target. The file does not
    /// say so; the image's configuration does.
    ///
    /// # Errors
    /// As [`Layout::parse`].
    pub fn parse_warp(ends: LayerEnds, header: &[u8], trailer: &[u8]) -> Result<Self, Error> {
        Self::parse_as(Content::Warp, ends, header, trailer)
    }

    fn parse_as(
        content: Content,
        ends: LayerEnds,
        header: &[u8],
        trailer: &[u8],
    ) -> Result<Self, Error> {
        let place = Place::start("header");
        let flags = header::parse_flags(header, place)?;
        if !flags.is_header() || !flags.is_data() {
            let detail = format!("flags {:#x}: not the header of a data file", flags.bits());
            return Err(place.error(ErrorKind::Corrupt, header::FLAGS_AT, detail));
        }
        let offset = ends.trailer.offset;
        let trailer = Header::parse(trailer, "trailer", offset).map_err(|error| Error {
            // With the right header this is a layer, but one that lost or never had its end.
            kind: match error.kind {
                ErrorKind::NotThisFormat => ErrorKind::Corrupt,
                kind => kind,
            },
            ..error
        })?;
        let index = index_range(&trailer, offset)?;
        Ok(Self {
            trailer,
            index,
            content,
        })
    }

    /// The trailer.
    #[must_use]
    pub const fn trailer(&self) -> &Header {
        &self.trailer
    }

    /// The range of the records.
    #[must_use]
    pub const fn index(&self) -> FileRange {
        self.index
    }

    /// Takes the bytes of [`Layout::index`].
    #[must_use]
    pub fn loader(self) -> IndexLoader {
        IndexLoader {
            chunks: RecordChunks::new(self.index),
            builder: IndexBuilder::new(LAYER_RECORDS_MAX),
            layout: self,
        }
    }
}

/// Where the index is, if the trailer at `trailer_offset` is one and its numbers fit.
fn index_range(trailer: &Header, trailer_offset: ByteOffset) -> Result<FileRange, Error> {
    let place = Place {
        part: "trailer",
        offset: trailer_offset,
    };
    let flags = trailer.flags;
    if flags.is_header() || !flags.is_data() || !flags.is_sealed() {
        let detail = format!(
            "flags {:#x}: not the trailer of a sealed file",
            flags.bits()
        );
        return Err(place.error(ErrorKind::Corrupt, header::FLAGS_AT, detail));
    }
    let records = trailer.index_size;
    if records > LAYER_RECORDS_MAX {
        let detail = format!("{records} records, at most {LAYER_RECORDS_MAX}");
        return Err(place.error(ErrorKind::TooLarge, header::INDEX_SIZE_AT, detail));
    }
    let offset = trailer.index_offset;
    let len = records * RECORD_BYTES as u64;
    let is_inside = offset
        .0
        .checked_add(len)
        .is_some_and(|end| end <= trailer_offset.0);
    if !is_inside || offset.0 < HEADER_LEN.0 || !offset.0.is_multiple_of(SECTOR_BYTES) {
        let detail = format!(
            "index of {records} records at {offset}: not at a sector between header and trailer"
        );
        return Err(place.error(ErrorKind::Corrupt, header::INDEX_OFFSET_AT, detail));
    }
    let len = ByteLen(len);
    Ok(FileRange { offset, len })
}

/// Takes the bytes of a layer's index in chunks of any length.
#[derive(Debug)]
pub struct IndexLoader {
    layout: Layout,
    chunks: RecordChunks,
    builder: IndexBuilder,
}

impl IndexLoader {
    /// Takes the next bytes. After an error the loader is of no use.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a record that is impossible, out of order, or points outside the layer's data.
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<(), Error> {
        while let Some(raw) = self.chunks.next_record(&mut chunk)? {
            let corrupt = |fault: &dyn ToString| raw.error(ErrorKind::Corrupt, fault.to_string());
            let record = Record::parse(raw.bytes).map_err(|fault| corrupt(&fault))?;
            if let Record::Segment(segment) = record {
                let segment = self.placed(segment, &raw)?;
                self.builder
                    .push(segment)
                    .map_err(|fault| corrupt(&fault))?;
            }
        }
        Ok(())
    }

    /// The layer, when every byte came.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] if some did not.
    pub fn finish(self) -> Result<Layer, Error> {
        self.chunks.finish()?;
        Ok(Layer {
            trailer: self.layout.trailer,
            index: self.builder.finish(),
            content: self.layout.content,
        })
    }

    /// The segment with the tag that counts, if it is where the layer has data.
    fn placed(&self, segment: Segment, raw: &RawRecord) -> Result<Segment, Error> {
        let segment = match (self.layout.content, segment.tag()) {
            // Merged and stacked layers keep tags of files that only their writer knew.
            (Content::Own, _) | (Content::Warp, 0) => segment.with_tag(0),
            (Content::Warp, 1) => return Ok(segment),
            (Content::Warp, tag) => {
                let detail = format!("tag {tag} in a warp layer, which has 0 and 1");
                return Err(raw.error(ErrorKind::Corrupt, detail));
            }
        };
        // index_offset is a multiple of a sector.
        let data_end = Sectors(self.layout.index.offset.0 / SECTOR_BYTES);
        match segment.check_within(data_end) {
            Ok(()) => Ok(segment),
            Err(fault) => Err(raw.error(ErrorKind::Corrupt, fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Extent;

    use super::*;
    use crate::lsmt::{Flags, UserTag};

    fn trailer(index_offset: u64, index_size: u64) -> Header {
        Header {
            flags: Flags::LAYER_TRAILER,
            index_offset: ByteOffset(index_offset),
            index_size,
            virtual_size: Sectors(100),
            uuid: None,
            parent_uuid: None,
            user_tag: UserTag::default(),
        }
    }

    /// The layout of a file whose trailer is at byte 8192.
    fn layout(trailer: &Header) -> Result<Layout, Error> {
        let header = Header {
            flags: Flags::LAYER_HEADER,
            ..trailer.clone()
        };
        let ends = LayerEnds::of_file(ByteLen(12288))?;
        Layout::parse(ends, &header.encode(), &trailer.encode())
    }

    #[test]
    fn an_index_outside_the_file_is_refused_before_it_is_read() {
        let cases = [
            (4096, 256, None),
            (8192, 0, None),
            (4096, 257, Some(ErrorKind::Corrupt)),
            (0, 1, Some(ErrorKind::Corrupt)),
            (4104, 1, Some(ErrorKind::Corrupt)),
            (12288, 0, Some(ErrorKind::Corrupt)),
            (u64::MAX - 511, 256, Some(ErrorKind::Corrupt)),
            (4096, 1 << 59, Some(ErrorKind::TooLarge)),
            (4096, LAYER_RECORDS_MAX + 1, Some(ErrorKind::TooLarge)),
        ];
        for (offset, size, want) in cases {
            let got = layout(&trailer(offset, size));
            assert_eq!(got.err().map(|e| e.kind), want, "{offset} {size}");
        }
    }

    #[test]
    fn a_file_too_short_for_two_blocks_is_truncated() {
        for len in [0, 100, 4096, 8191] {
            let error = LayerEnds::of_file(ByteLen(len)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Truncated);
        }
        let ends = LayerEnds::of_file(ByteLen(8192)).unwrap();
        assert_eq!(ends.trailer.offset, ByteOffset(4096));
    }

    #[test]
    fn an_error_names_the_record_and_its_place() {
        let extent = Extent {
            start: Sectors(0),
            len: Sectors(9),
        };
        let outside = Segment::data(extent, Sectors(8)).unwrap();
        let mut loader = layout(&trailer(8192 - 512, 2)).unwrap().loader();
        loader.push(&Record::Padding.encode()).unwrap();
        let error = loader.push(&outside.encode()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "index record 1 at byte 7696: sectors 8 to 17 of the file, whose data end at 15"
        );
    }
}
