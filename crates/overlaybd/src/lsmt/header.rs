//! The block at the start of every LSMT file, and at the end of a sealed one: parse and encode.
//!
//! The header is the first block of a file, the trailer the last one of a sealed layer. Of a sealed layer the trailer
//! counts: its header may be stale. Nothing in LSMT has a checksum.

use block::{ByteLen, ByteOffset, Sectors};

use super::uuid::{self, LayerUuid};
use crate::{Error, ErrorKind};

/// Bytes of a header or trailer block.
pub const HEADER_BYTES: usize = 4096;
/// [`HEADER_BYTES`] as a length.
pub const HEADER_LEN: ByteLen = ByteLen(4096);
/// Sectors of a header: the first data sector of any file.
pub const HEADER_SECTORS: Sectors = Sectors(8);
/// The most bytes of a user tag.
pub const USER_TAG_BYTES_MAX: usize = 256;
/// The largest virtual size: a record's start has 50 bits, the last value means padding.
pub const VIRTUAL_SECTORS_MAX: Sectors = Sectors((1 << 50) - 1);

const MAGIC0: [u8; 8] = *b"LSMT\x00\x01\x02\x00";
const MAGIC1: [u8; 16] = [
    0x65, 0x7E, 0x63, 0xD2, 0x94, 0x44, 0x08, 0x4C, 0xA2, 0xD2, 0xC8, 0xEC, 0x4F, 0xCF, 0xAE, 0x8A,
];
/// Bytes of the structure; the rest of the block is zero.
const STRUCT_BYTES: u32 = 390;
const VERSION: u8 = 1;

const MAGIC1_AT: usize = 8;
const SIZE_AT: usize = 24;
pub(super) const FLAGS_AT: usize = 28;
pub(super) const INDEX_OFFSET_AT: usize = 32;
pub(super) const INDEX_SIZE_AT: usize = 40;
pub(super) const VIRTUAL_SIZE_AT: usize = 48;
pub(super) const UUID_AT: usize = 56;
pub(super) const PARENT_UUID_AT: usize = 93;
const VERSION_AT: usize = 132;
const SUB_VERSION_AT: usize = 133;
const USER_TAG_AT: usize = 134;

/// What a block is and what its file is.
///
/// | bit | set | clear |
/// |---|---|---|
/// | 0 | header | trailer |
/// | 1 | data file | index file of an upper |
/// | 2 | sealed | not sealed, or a header that sealing in place left as it was |
/// | 3 | never used | |
/// | 4 | sparse upper | |
/// | 5 | hybrid upper | |
///
/// Other bits are ignored on read and 0 on write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    const HEADER: u32 = 1 << 0;
    const DATA: u32 = 1 << 1;
    const SEALED: u32 = 1 << 2;
    const SPARSE: u32 = 1 << 4;
    const HYBRID: u32 = 1 << 5;
    const KNOWN: u32 = Self::HEADER | Self::DATA | Self::SEALED | Self::SPARSE | Self::HYBRID;

    /// Header of a committed layer: 0x07.
    pub const LAYER_HEADER: Self = Self(Self::HEADER | Self::DATA | Self::SEALED);
    /// Trailer of a layer: 0x06.
    pub const LAYER_TRAILER: Self = Self(Self::DATA | Self::SEALED);
    /// Header of a log upper's data file: 0x03.
    pub const LOG_DATA: Self = Self(Self::HEADER | Self::DATA);
    /// Header of a log upper's index file: 0x01.
    pub const LOG_INDEX: Self = Self(Self::HEADER);
    /// Header of a hybrid upper's data file: 0x23.
    pub const HYBRID_DATA: Self = Self(Self::HEADER | Self::DATA | Self::HYBRID);
    /// Header of a hybrid upper's index file: 0x21.
    pub const HYBRID_INDEX: Self = Self(Self::HEADER | Self::HYBRID);
    /// Header of a sparse upper: 0x13.
    pub const SPARSE_DATA: Self = Self(Self::HEADER | Self::DATA | Self::SPARSE);

    /// The known bits of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::KNOWN)
    }

    /// As a number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the block is a header, not a trailer.
    #[must_use]
    pub const fn is_header(self) -> bool {
        self.0 & Self::HEADER != 0
    }

    /// Whether the file holds data, not the index of an upper.
    #[must_use]
    pub const fn is_data(self) -> bool {
        self.0 & Self::DATA != 0
    }

    /// Whether the file is sealed. A header may say no where the trailer says yes.
    #[must_use]
    pub const fn is_sealed(self) -> bool {
        self.0 & Self::SEALED != 0
    }

    /// Whether the file is a sparse upper.
    #[must_use]
    pub const fn is_sparse(self) -> bool {
        self.0 & Self::SPARSE != 0
    }

    /// Whether the upper may overwrite data in place.
    #[must_use]
    pub const fn is_hybrid(self) -> bool {
        self.0 & Self::HYBRID != 0
    }

    /// The trailer that sealing in place puts behind an upper whose header, of either file, has these flags: 0x06, 0x16 or
    /// 0x26.
    #[must_use]
    pub const fn sealed_in_place(self) -> Self {
        Self(self.0 & !Self::HEADER | Self::DATA | Self::SEALED)
    }
}

/// Free text that a layer carries: at most [`USER_TAG_BYTES_MAX`] bytes, no NUL at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserTag(Vec<u8>);

impl UserTag {
    /// From bytes; NULs at the end are dropped, as no file can tell them from padding.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if it does not fit the header.
    pub fn new(text: &[u8]) -> Result<Self, Error> {
        let len = text.len() - text.iter().rev().take_while(|byte| **byte == 0).count();
        match text.get(..len) {
            Some(text) if len <= USER_TAG_BYTES_MAX => Ok(Self(text.to_vec())),
            _ => Err(Error::new(
                ErrorKind::TooLarge,
                "user tag",
                ByteOffset(USER_TAG_AT as u64),
                format!("{len} bytes, at most {USER_TAG_BYTES_MAX}"),
            )),
        }
    }

    /// The bytes; not necessarily UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A header or trailer, a block of 4096 bytes. Whether its numbers fit the file is checked where they are used.
///
/// | byte | size | field | rule |
/// |---|---|---|---|
/// | 0 | 8 | magic0 | `4C 53 4D 54 00 01 02 00` |
/// | 8 | 16 | magic1 | `65 7E 63 D2 94 44 08 4C A2 D2 C8 EC 4F CF AE 8A` |
/// | 24 | 4 | size | 390; ignored on read, as by every known reader |
/// | 28 | 4 | flags | see [`Flags`] |
/// | 32 | 8 | index_offset | byte of the first record in this file |
/// | 40 | 8 | index_size | records, not bytes |
/// | 48 | 8 | virtual_size | bytes, a multiple of 512; 0 takes the size of the layer below |
/// | 56 | 37 | uuid | 36 characters and a NUL |
/// | 93 | 37 | parent_uuid | the same |
/// | 130 | 2 | reserved | 0 |
/// | 132 | 1 | version | 1; a larger one is refused |
/// | 133 | 1 | sub_version | 1; ignored |
/// | 134 | 256 | user_tag | free text, filled up with NULs |
/// | 390 | 3706 | padding | 0 |
///
/// All numbers are little endian. Source: containerd/overlaybd at 063821f, `src/overlaybd/lsmt/file.cpp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the block and its file are.
    pub flags: Flags,
    /// Byte of the first record in this file; 0 in most headers.
    pub index_offset: ByteOffset,
    /// Records of the index, padding included; 0 in every header.
    pub index_size: u64,
    /// Size of the virtual disk, or 0 for the size of what is below. At most [`VIRTUAL_SECTORS_MAX`].
    pub virtual_size: Sectors,
    /// The layer's own uuid.
    pub uuid: Option<LayerUuid>,
    /// The uuid of the layer that this one was written on.
    pub parent_uuid: Option<LayerUuid>,
    /// Free text.
    pub user_tag: UserTag,
}

/// Where a block is: what errors name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) part: &'static str,
    pub(super) offset: ByteOffset,
}

impl Place {
    /// The first block of a file.
    pub(super) const fn start(part: &'static str) -> Self {
        let offset = ByteOffset(0);
        Self { part, offset }
    }

    pub(super) fn error(self, kind: ErrorKind, at: usize, detail: impl Into<String>) -> Error {
        Error::new(kind, self.part, self.offset.advanced(at as u64), detail)
    }
}

/// Whether bytes begin with LSMT's magic.
pub(crate) fn has_magic(first: &[u8]) -> bool {
    first
        .strip_prefix(&MAGIC0)
        .is_some_and(|rest| rest.starts_with(&MAGIC1))
}

impl Header {
    /// Parses the block that starts at `offset` of a file; `part` is the name that errors give it.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] for a short block, [`ErrorKind::NotThisFormat`] for another magic,
    /// [`ErrorKind::Unsupported`] for a newer version, [`ErrorKind::Corrupt`] for an impossible virtual size.
    pub fn parse(block: &[u8], part: &'static str, offset: ByteOffset) -> Result<Self, Error> {
        let place = Place { part, offset };
        let flags = parse_flags(block, place)?;
        let virtual_size = ByteLen(read_u64(block, VIRTUAL_SIZE_AT, place)?);
        let virtual_size = Sectors::try_from_bytes(virtual_size)
            .filter(|size| *size <= VIRTUAL_SECTORS_MAX)
            .ok_or_else(|| {
                let detail = format!(
                    "virtual size of {virtual_size}: not whole sectors up to {VIRTUAL_SECTORS_MAX}"
                );
                place.error(ErrorKind::Corrupt, VIRTUAL_SIZE_AT, detail)
            })?;
        let user_tag: [u8; USER_TAG_BYTES_MAX] = read(block, USER_TAG_AT, place)?;
        Ok(Self {
            flags,
            index_offset: ByteOffset(read_u64(block, INDEX_OFFSET_AT, place)?),
            index_size: read_u64(block, INDEX_SIZE_AT, place)?,
            virtual_size,
            uuid: LayerUuid::from_field(&read(block, UUID_AT, place)?),
            parent_uuid: LayerUuid::from_field(&read(block, PARENT_UUID_AT, place)?),
            user_tag: UserTag::new(&user_tag)?,
        })
    }

    /// The block: every byte that the format does not use is zero.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut block = [0; HEADER_BYTES];
        let fields: [(usize, &[u8]); 12] = [
            (0, &MAGIC0),
            (MAGIC1_AT, &MAGIC1),
            (SIZE_AT, &STRUCT_BYTES.to_le_bytes()),
            (FLAGS_AT, &self.flags.bits().to_le_bytes()),
            (INDEX_OFFSET_AT, &self.index_offset.0.to_le_bytes()),
            (INDEX_SIZE_AT, &self.index_size.to_le_bytes()),
            (
                VIRTUAL_SIZE_AT,
                &self.virtual_size.len_bytes().0.to_le_bytes(),
            ),
            (UUID_AT, &uuid::to_field(self.uuid)),
            (PARENT_UUID_AT, &uuid::to_field(self.parent_uuid)),
            (VERSION_AT, &[VERSION]),
            (SUB_VERSION_AT, &[VERSION]),
            (USER_TAG_AT, self.user_tag.as_bytes()),
        ];
        for (at, field) in fields {
            for (to, from) in block.iter_mut().skip(at).zip(field) {
                *to = *from;
            }
        }
        block
    }
}

/// Checks magic and version, and returns the flags: all that counts of a sealed layer's header.
pub(super) fn parse_flags(block: &[u8], place: Place) -> Result<Flags, Error> {
    if block.len() < HEADER_BYTES {
        let detail = format!("{} bytes of {HEADER_BYTES}", block.len());
        return Err(place.error(ErrorKind::Truncated, 0, detail));
    }
    let (magic0, magic1): ([u8; 8], [u8; 16]) =
        (read(block, 0, place)?, read(block, MAGIC1_AT, place)?);
    if magic0 != MAGIC0 || magic1 != MAGIC1 {
        let detail = format!("no LSMT magic: {magic0:02x?} {magic1:02x?}");
        return Err(place.error(ErrorKind::NotThisFormat, 0, detail));
    }
    let [version] = read(block, VERSION_AT, place)?;
    if version > VERSION {
        let detail = format!("version {version}, this program knows {VERSION}");
        return Err(place.error(ErrorKind::Unsupported, VERSION_AT, detail));
    }
    Ok(Flags::from_bits(u32::from_le_bytes(read(
        block, FLAGS_AT, place,
    )?)))
}

fn read_u64(block: &[u8], at: usize, place: Place) -> Result<u64, Error> {
    Ok(u64::from_le_bytes(read(block, at, place)?))
}

fn read<const N: usize>(block: &[u8], at: usize, place: Place) -> Result<[u8; N], Error> {
    block
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .ok_or_else(|| place.error(ErrorKind::Truncated, at, format!("{} bytes", block.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            flags: Flags::LAYER_TRAILER,
            index_offset: ByteOffset(0x0102_0304_0506_0708),
            index_size: 256,
            virtual_size: Sectors(2048),
            uuid: LayerUuid::from_bytes([7; 16]),
            parent_uuid: None,
            user_tag: UserTag::new(b"tag").unwrap(),
        }
    }

    fn parse(block: &[u8]) -> Result<Header, Error> {
        Header::parse(block, "trailer", ByteOffset(8192))
    }

    #[test]
    fn a_header_survives_a_round_trip() {
        let full = Header {
            user_tag: UserTag::new(&[b'x'; USER_TAG_BYTES_MAX]).unwrap(),
            virtual_size: VIRTUAL_SECTORS_MAX,
            ..header()
        };
        for header in [header(), full] {
            assert_eq!(parse(&header.encode()).unwrap(), header);
        }
    }

    #[test]
    fn damage_is_refused_with_its_place() {
        let cases: [(usize, u8, ErrorKind, u64); 6] = [
            (0, 0, ErrorKind::NotThisFormat, 8192),
            (23, 0, ErrorKind::NotThisFormat, 8192),
            (VERSION_AT, 2, ErrorKind::Unsupported, 8192 + 132),
            (VIRTUAL_SIZE_AT, 1, ErrorKind::Corrupt, 8192 + 48),
            (VIRTUAL_SIZE_AT + 7, 0x80, ErrorKind::Corrupt, 8192 + 48),
            (VIRTUAL_SIZE_AT + 7, 0x08, ErrorKind::Corrupt, 8192 + 48),
        ];
        for (at, byte, kind, offset) in cases {
            let mut block = header().encode();
            block[at] = byte;
            let error = parse(&block).unwrap_err();
            assert_eq!((error.kind, error.offset.0), (kind, offset), "{error}");
        }
        for len in [0, 389, HEADER_BYTES - 1] {
            let error = parse(&header().encode()[..len]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Truncated);
        }
    }

    #[test]
    fn unknown_flags_size_and_sub_version_are_ignored() {
        let mut block = header().encode();
        block[SIZE_AT] = 1;
        block[SUB_VERSION_AT] = 9;
        block[FLAGS_AT + 3] = 0xFF;
        assert_eq!(parse(&block).unwrap(), header());
    }

    #[test]
    fn a_long_user_tag_is_refused() {
        let error = UserTag::new(&[b'x'; USER_TAG_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge);
        assert_eq!(UserTag::new(b"a\0b\0\0").unwrap().as_bytes(), b"a\0b");
    }

    #[test]
    fn flags_have_the_values_that_files_have() {
        let values = [
            (Flags::LAYER_HEADER, 0x07),
            (Flags::LAYER_TRAILER, 0x06),
            (Flags::LOG_DATA, 0x03),
            (Flags::LOG_INDEX, 0x01),
            (Flags::HYBRID_DATA, 0x23),
            (Flags::HYBRID_INDEX, 0x21),
            (Flags::SPARSE_DATA, 0x13),
            (Flags::LOG_DATA.sealed_in_place(), 0x06),
            (Flags::SPARSE_DATA.sealed_in_place(), 0x16),
            (Flags::HYBRID_DATA.sealed_in_place(), 0x26),
            (Flags::HYBRID_INDEX.sealed_in_place(), 0x26),
        ];
        for (flags, bits) in values {
            assert_eq!(flags.bits(), bits);
        }
    }
}
