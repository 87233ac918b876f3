//! Sealing an upper in place: what to append to its data file to make it a layer.
//!
//! The index file is of no use afterwards. Sectors that were overwritten stay in the file; a commit leaves them out. The
//! header stays as it was: the trailer says that the file is sealed.

use block::{ByteLen, ByteOffset, SECTOR_BYTES};

use super::header::{HEADER_LEN, Header};
use super::index::{Index, LAYER_RECORDS_MAX};
use super::record::Record;
use crate::{Error, ErrorKind};

/// Bytes to append, in one go or not: without the last 4096 the file is still an unsealed upper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealPlan {
    /// Where: the end of the data.
    pub offset: ByteOffset,
    /// Records, filler up to a multiple of 4096, trailer.
    pub bytes: Vec<u8>,
}

impl SealPlan {
    /// For an upper with this header and index, whose data file has `data_len`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond [`LAYER_RECORDS_MAX`] records, [`ErrorKind::Corrupt`] if the data are not whole
    /// sectors, [`ErrorKind::Unsupported`] if the header is of a sealed file.
    pub fn build(header: &Header, data_len: ByteLen, index: &Index) -> Result<Self, Error> {
        let offset = ByteOffset(data_len.0);
        let error = |kind, detail| Error::new(kind, "upper", offset, detail);
        if header.flags.is_sealed() {
            let detail = "sealed already".to_owned();
            return Err(error(ErrorKind::Unsupported, detail));
        }
        if data_len < HEADER_LEN || !data_len.0.is_multiple_of(SECTOR_BYTES) {
            let detail = format!("data file of {data_len}, not whole sectors");
            return Err(error(ErrorKind::Corrupt, detail));
        }
        let records = index.len() as u64;
        if records > LAYER_RECORDS_MAX {
            let detail = format!("{records} records, at most {LAYER_RECORDS_MAX}");
            return Err(error(ErrorKind::TooLarge, detail));
        }
        let mut bytes: Vec<u8> = index.segments().flat_map(|s| s.encode()).collect();
        while !(data_len.0 + bytes.len() as u64).is_multiple_of(HEADER_LEN.0) {
            bytes.extend(Record::Padding.encode());
        }
        let trailer = Header {
            flags: header.flags.sealed_in_place(),
            index_offset: offset,
            index_size: records,
            ..header.clone()
        };
        bytes.extend(trailer.encode());
        Ok(Self { offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use block::Sectors;

    use super::*;
    use crate::lsmt::{Flags, UserTag};

    fn header(flags: Flags) -> Header {
        Header {
            flags,
            index_offset: ByteOffset(0),
            index_size: 0,
            virtual_size: Sectors(100),
            uuid: None,
            parent_uuid: None,
            user_tag: UserTag::new(b"kept").unwrap(),
        }
    }

    #[test]
    fn an_upper_of_nothing_seals_to_a_trailer() {
        let upper = header(Flags::LOG_DATA);
        let plan = SealPlan::build(&upper, ByteLen(4096), &Index::default()).unwrap();
        let trailer = Header::parse(&plan.bytes, "trailer", plan.offset).unwrap();
        assert_eq!(trailer.flags, Flags::LAYER_TRAILER);
        assert_eq!(trailer.user_tag, upper.user_tag);
        assert_eq!(plan.bytes.len(), 4096);
    }

    #[test]
    fn sealing_twice_or_a_torn_file_is_refused() {
        let seal = |flags, len| SealPlan::build(&header(flags), ByteLen(len), &Index::default());
        let sealed = seal(Flags::LAYER_HEADER, 4096).unwrap_err();
        assert_eq!(sealed.kind, ErrorKind::Unsupported);
        for len in [0, 4095, 5000] {
            let torn = seal(Flags::LOG_DATA, len).unwrap_err();
            assert_eq!(torn.kind, ErrorKind::Corrupt);
        }
    }
}
