//! A sparse upper: one file in which sector x of the disk is sector 8 + x, and a hole of the file is a hole of the layer.
//!
//! ```text
//!   0      header   flags 0x13
//!   4096   the disk, virtual_size bytes
//! ```
//!
//! There is no index: the file system's extents are it. So the format forgets, on reopening, a discard over lower data (the
//! hole shows what is below) and the exact range of a write smaller than a block of the file system (the rest of the block
//! reads as zeros). Only writes aligned to blocks survive as they were.

use block::{ByteLen, Extent, Sectors};

use super::header::{self, HEADER_LEN, HEADER_SECTORS, Header, Place};
use super::index::INDEX_RECORDS_MAX;
use super::log::Appended;
use super::mutable::MutableIndex;
use crate::{Error, ErrorKind, FileRange};

/// The header of a sparse upper, of a file that is long enough.
#[derive(Clone, Debug)]
pub struct SparseLayout {
    header: Header,
}

impl SparseLayout {
    /// From the first block of a file of `file_len`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not an unsealed sparse upper, [`ErrorKind::Truncated`] if the file is too short for
    /// the virtual size; and as [`Header::parse`].
    pub fn parse(block: &[u8], file_len: ByteLen) -> Result<Self, Error> {
        let place = Place::start("header");
        let header = Header::parse(block, place.part, place.offset)?;
        if header.flags != super::Flags::SPARSE_DATA {
            let detail = format!("flags {:#x}: not of a sparse upper", header.flags.bits());
            return Err(place.error(ErrorKind::Corrupt, header::FLAGS_AT, detail));
        }
        let want = Self::file_len_for(header.virtual_size);
        if file_len < want {
            let detail = format!("{file_len} of {want} for the virtual size");
            return Err(place.error(ErrorKind::Truncated, header::VIRTUAL_SIZE_AT, detail));
        }
        Ok(Self { header })
    }

    /// The length of the file of a sparse upper of `virtual_size`.
    #[must_use]
    pub const fn file_len_for(virtual_size: Sectors) -> ByteLen {
        Sectors(virtual_size.0.saturating_add(HEADER_SECTORS.0)).len_bytes()
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The index, given the ranges of the file that have data (`SEEK_DATA` to `SEEK_HOLE`). The part in the header counts
    /// as none, and so does what is behind the disk's end.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a range that is not whole sectors, [`ErrorKind::TooLarge`] beyond [`INDEX_RECORDS_MAX`].
    pub fn index(&self, data: impl IntoIterator<Item = FileRange>) -> Result<MutableIndex, Error> {
        let mut index = MutableIndex::new();
        let end = HEADER_SECTORS.0 + self.header.virtual_size.0;
        for range in data {
            let (first, behind) = sectors_of(range)?;
            let (first, behind) = (first.max(HEADER_SECTORS.0), behind.min(end));
            let extent = Extent {
                start: Sectors(first.saturating_sub(HEADER_SECTORS.0)),
                len: Sectors(behind.saturating_sub(first)),
            };
            for segment in Appended::written(extent, Sectors(first)) {
                let corrupt = |fault: super::SegmentFault| error_at(range, fault.to_string());
                index.insert(segment.map_err(corrupt)?);
            }
            if index.len() as u64 > INDEX_RECORDS_MAX {
                let detail = format!("more than {INDEX_RECORDS_MAX} segments");
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    "extents",
                    range.offset,
                    detail,
                ));
            }
        }
        Ok(index)
    }
}

/// The first sector of a range and the first one behind it.
fn sectors_of(range: FileRange) -> Result<(u64, u64), Error> {
    let end = ByteLen(range.offset.0.saturating_add(range.len.0));
    let first = Sectors::try_from_bytes(ByteLen(range.offset.0));
    match (first, Sectors::try_from_bytes(end)) {
        (Some(first), Some(end)) => Ok((first.0, end.0)),
        _ => Err(error_at(range, "not whole sectors".to_owned())),
    }
}

fn error_at(range: FileRange, detail: String) -> Error {
    let what = format!("extent of {}", range.len);
    Error::new(ErrorKind::Corrupt, what, range.offset, detail)
}

const _: () = assert!(HEADER_LEN.0 == HEADER_SECTORS.len_bytes().0);

#[cfg(test)]
mod tests {
    use block::ByteOffset;

    use super::*;
    use crate::lsmt::{Flags, UserTag};

    fn header(flags: Flags) -> Header {
        Header {
            flags,
            index_offset: ByteOffset(0),
            index_size: 0,
            virtual_size: Sectors(40000),
            uuid: None,
            parent_uuid: None,
            user_tag: UserTag::default(),
        }
    }

    fn range(offset: u64, len: u64) -> FileRange {
        FileRange {
            offset: ByteOffset(offset),
            len: ByteLen(len),
        }
    }

    #[test]
    fn extents_of_the_file_are_segments_of_the_disk() {
        let len = SparseLayout::file_len_for(Sectors(40000));
        let layout = SparseLayout::parse(&header(Flags::SPARSE_DATA).encode(), len).unwrap();
        let extents = [
            range(0, 4096),
            range(8192, 512),
            range(40960, 16384 * 512),
            range(4096 + 39999 * 512, 1 << 20),
        ];
        let index = layout.index(extents).unwrap();
        let lines: Vec<_> = index.segments().map(|s| s.to_string()).collect();
        let want = [
            "8 1 16 0 0",
            "72 16383 80 0 0",
            "16455 1 16463 0 0",
            "39999 1 40007 0 0",
        ];
        assert_eq!(lines, want);
        assert!(layout.index([]).unwrap().is_empty());
        let odd = layout.index([range(4096, 100)]).unwrap_err();
        assert_eq!(odd.kind, ErrorKind::Corrupt);
    }

    #[test]
    fn a_short_file_and_another_kind_are_refused() {
        let len = SparseLayout::file_len_for(Sectors(40000));
        let kind = |flags, len| {
            let layout = SparseLayout::parse(&header(flags).encode(), len);
            layout.map_err(|error| error.kind).err()
        };
        assert_eq!(kind(Flags::SPARSE_DATA, len), None);
        let short = ByteLen(len.0 - 1);
        assert_eq!(kind(Flags::SPARSE_DATA, short), Some(ErrorKind::Truncated));
        assert_eq!(kind(Flags::LOG_DATA, len), Some(ErrorKind::Corrupt));
    }
}
