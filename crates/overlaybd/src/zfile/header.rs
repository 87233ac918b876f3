//! The header block, and the trailer block that has the same fields.
//!
//! All integers are little-endian. The bytes from 96 on are zero; the digest covers them.
//!
//! | byte | size | field | |
//! |---|---|---|---|
//! | 0 | 8 | magic0 | `5A 46 69 6C 65 00 01 00`, "ZFile" and a version |
//! | 8 | 16 | magic1 | `74 75 6A 69 2E 79 79 66 40 41 6C 69 62 61 62 61` |
//! | 24 | 4 | size | 96; not looked at |
//! | 28 | 4 | digest | checksum of all 512 bytes with this field as zero, if the flag says so |
//! | 32 | 8 | flags | see [`Flags`] |
//! | 40 | 8 | index_offset | where the jump table begins, in bytes |
//! | 48 | 8 | index_size | entries of the jump table: the number of blocks |
//! | 56 | 8 | original_file_size | bytes before compression |
//! | 64 | 4 | index_crc | checksum of the jump table, if the flags say that there is a digest |
//! | 68 | 4 | – | 0 |
//! | 72 | 4 | block_size | bytes of a block before compression |
//! | 76 | 1 | algorithm | 1 LZ4, 2 Zstandard; 0 was minilzo and was never usable |
//! | 77 | 1 | level | 0; Zstandard is used at level 3 whatever it says |
//! | 78 | 1 | use_dict | 0 |
//! | 79 | 5 | – | 0 |
//! | 84 | 4 | dict_size | 0 |
//! | 88 | 1 | verify | 1: a checksum follows each block |
//! | 89 | 7 | – | 0 |
//!
//! Source: containerd/overlaybd, `src/overlaybd/zfile/zfile.cpp` at 063821f, and files that it wrote.

use ::block::{ByteLen, ByteOffset};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use super::options::{Algorithm, BlockChecksums, BlockFormat, BlockSize};
use crate::error::{Error, ErrorKind};
use crate::range::FileRange;

/// Bytes of a header block and of a trailer block.
pub const HEADER_BYTES: usize = 512;
/// The same as a length in a file.
pub(super) const HEADER_LEN: u64 = HEADER_BYTES as u64;
/// Bytes of an entry of the jump table.
pub(super) const ENTRY_BYTES: u64 = 4;
/// The most blocks of a file; the reference refuses more (`MAX_INDEX_SIZE`). 4 TiB in blocks of 4 KiB.
pub const BLOCKS_MAX: u64 = 1_000_000_000;

const MAGIC0: [u8; 8] = *b"ZFile\0\x01\0";
const MAGIC1: [u8; 16] = *b"tuji.yyf@Alibaba";
/// What the reference writes as the size of the fields.
const FIELDS_BYTES: u32 = 96;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic0: [u8; 8],
    magic1: [u8; 16],
    size: U32,
    digest: U32,
    flags: U64,
    index_offset: U64,
    index_size: U64,
    original_file_size: U64,
    index_crc: U32,
    zero_68: [u8; 4],
    block_size: U32,
    algorithm: u8,
    level: u8,
    use_dict: u8,
    zero_79: [u8; 5],
    dict_size: U32,
    verify: u8,
    zero_89: [u8; 423],
}

const _: () = assert!(size_of::<Wire>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(Wire, digest) == 28);
const _: () = assert!(std::mem::offset_of!(Wire, index_crc) == 64);
const _: () = assert!(std::mem::offset_of!(Wire, verify) == 88);

/// The flags of a header block. Bits from 6 on are ignored: files of 2021 have whatever was in memory there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    /// A header, not a trailer.
    pub const HEADER: u64 = 1 << 0;
    /// Of a file with data, not of an index alone.
    pub const DATA: u64 = 1 << 1;
    /// The values are final; only trailers have it.
    pub const SEALED: u64 = 1 << 2;
    /// The header was written again with final values.
    pub const HEADER_OVERWRITTEN: u64 = 1 << 3;
    /// `digest` and `index_crc` are there. Files from before the end of 2023 lack them.
    pub const DIGEST: u64 = 1 << 4;
    /// The jump table is compressed. No program writes it.
    pub const INDEX_COMPRESSED: u64 = 1 << 5;

    /// Whether all of these bits are set.
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
}

/// Which of the two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first block of a file.
    Header,
    /// The last one.
    Trailer,
}

/// The fields of a header or trailer as they are in the file; magic and digest were right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the table in the module's header documents the fields"
)]
pub struct HeaderBlock {
    pub part: Part,
    pub size: u32,
    pub digest: u32,
    pub flags: Flags,
    pub index_offset: u64,
    pub index_size: u64,
    pub original_file_size: u64,
    pub index_crc: u32,
    pub block_size: u32,
    pub algorithm: u8,
    pub level: u8,
    pub use_dict: u8,
    pub dict_size: u32,
    pub verify: u8,
}

/// What the final block of a file says: values that agree with each other and fit into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// How the blocks are stored.
    pub blocks: BlockFormat,
    /// The blocks, back to back.
    pub data: FileRange,
    /// The jump table.
    pub index: FileRange,
    /// Number of blocks.
    pub index_size: u64,
    /// Bytes before compression.
    pub original_file_size: ByteLen,
    /// The jump table's checksum; older files have none.
    pub index_crc: Option<u32>,
}

/// Whether bytes begin with ZFile's magic.
pub(crate) fn has_magic(first: &[u8]) -> bool {
    first
        .strip_prefix(&MAGIC0)
        .is_some_and(|rest| rest.starts_with(&MAGIC1))
}

impl Part {
    /// As it is called in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "ZFile header",
            Self::Trailer => "ZFile trailer",
        }
    }

    fn fault(self, at: ByteOffset, kind: ErrorKind, detail: impl Into<String>) -> Error {
        Error::new(kind, self.name(), at, detail)
    }
}

impl HeaderBlock {
    /// Fields of a block that a writer of `blocks` writes, everything that is not known yet zero.
    pub(super) const fn begun(part: Part, flags: u64, blocks: BlockFormat) -> Self {
        Self {
            part,
            size: FIELDS_BYTES,
            digest: 0,
            flags: Flags(flags | Flags::DATA | Flags::DIGEST),
            index_offset: 0,
            index_size: 0,
            original_file_size: 0,
            index_crc: 0,
            block_size: blocks.block_size.bytes(),
            algorithm: blocks.algorithm.number(),
            level: 0,
            use_dict: 0,
            dict_size: 0,
            verify: match blocks.checksums {
                BlockChecksums::Absent => 0,
                BlockChecksums::Crc32c => 1,
            },
        }
    }

    /// The fields of the block `bytes`, which is the `part` of a file that begins at `at`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotThisFormat`] for a header with another magic, [`ErrorKind::Corrupt`] for such a trailer and for
    /// a block that says it is the other part, [`ErrorKind::Checksum`] for a wrong digest.
    pub fn parse(bytes: &[u8; HEADER_BYTES], part: Part, at: ByteOffset) -> Result<Self, Error> {
        let wire: &Wire = zerocopy::transmute_ref!(bytes);
        let flags = Flags(wire.flags.get());
        if wire.magic0 != MAGIC0 || wire.magic1 != MAGIC1 {
            let kind = match part {
                Part::Header => ErrorKind::NotThisFormat,
                Part::Trailer => ErrorKind::Corrupt,
            };
            return Err(part.fault(at, kind, "the magic is another one"));
        }
        let digest = digest(bytes);
        if flags.has(Flags::DIGEST) && digest != wire.digest.get() {
            let detail = format!("digest {:#010x}, found {digest:#010x}", wire.digest.get());
            return Err(part.fault(at, ErrorKind::Checksum, detail));
        }
        let says_it_is_part = match part {
            Part::Header => flags.has(Flags::HEADER),
            Part::Trailer => !flags.has(Flags::HEADER) && flags.has(Flags::DATA | Flags::SEALED),
        };
        if !says_it_is_part {
            let detail = format!("flags {:#x} are not those of this part", flags.0);
            return Err(part.fault(at, ErrorKind::Corrupt, detail));
        }
        Ok(Self {
            part,
            size: wire.size.get(),
            digest: wire.digest.get(),
            flags,
            index_offset: wire.index_offset.get(),
            index_size: wire.index_size.get(),
            original_file_size: wire.original_file_size.get(),
            index_crc: wire.index_crc.get(),
            block_size: wire.block_size.get(),
            algorithm: wire.algorithm,
            level: wire.level,
            use_dict: wire.use_dict,
            dict_size: wire.dict_size.get(),
            verify: wire.verify,
        })
    }

    /// The bytes of the block, with its digest if its flags say that there is one.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut wire = Wire {
            magic0: MAGIC0,
            magic1: MAGIC1,
            size: self.size.into(),
            flags: self.flags.0.into(),
            index_offset: self.index_offset.into(),
            index_size: self.index_size.into(),
            original_file_size: self.original_file_size.into(),
            index_crc: self.index_crc.into(),
            block_size: self.block_size.into(),
            algorithm: self.algorithm,
            level: self.level,
            use_dict: self.use_dict,
            dict_size: self.dict_size.into(),
            verify: self.verify,
            ..Wire::new_zeroed()
        };
        if self.flags.has(Flags::DIGEST) {
            wire.digest = checksum::metadata(wire.as_bytes()).into();
        }
        zerocopy::transmute!(wire)
    }

    /// Whether this block has the final values, so that no other one has to be read.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self.part {
            Part::Header => self.flags.has(Flags::HEADER_OVERWRITTEN),
            Part::Trailer => true,
        }
    }

    /// What the final block of a file of `file_len` means. The block begins at `at`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for an algorithm, a block size or a dictionary that nothing reads,
    /// [`ErrorKind::TooLarge`] for more than [`BLOCKS_MAX`] blocks, [`ErrorKind::Truncated`] when the table does not
    /// fit into the file, [`ErrorKind::Corrupt`] when fields contradict each other.
    pub fn to_header(&self, at: ByteOffset, file_len: ByteLen) -> Result<Header, Error> {
        let fault = |kind, detail: String| Err(self.part.fault(at, kind, detail));
        let blocks = self
            .block_format()
            .map_err(|(kind, detail)| self.part.fault(at, kind, detail))?;
        let (blocks_count, offset) = (self.index_size, self.index_offset);
        if blocks_count > BLOCKS_MAX {
            let detail = format!("{blocks_count} blocks, at most {BLOCKS_MAX}");
            return fault(ErrorKind::TooLarge, detail);
        }
        let size = self.original_file_size;
        if blocks_count != size.div_ceil(blocks.block_size.bytes().into()) {
            let detail = format!(
                "{blocks_count} blocks of {} bytes cannot hold {size} bytes",
                self.block_size
            );
            return fault(ErrorKind::Corrupt, detail);
        }
        let Some(data_len) = offset.checked_sub(HEADER_LEN) else {
            return fault(
                ErrorKind::Corrupt,
                format!("the jump table begins in the header, at {offset}"),
            );
        };
        let index = FileRange::new(offset, blocks_count * ENTRY_BYTES);
        // The trailer is always there, also when nobody needs it.
        if index.end().advanced(HEADER_LEN).0 > file_len.0 {
            let detail = format!(
                "the jump table, {index}, does not fit into {} bytes",
                file_len.0
            );
            return fault(ErrorKind::Truncated, detail);
        }
        Ok(Header {
            blocks,
            data: FileRange::new(HEADER_LEN, data_len),
            index,
            index_size: blocks_count,
            original_file_size: ByteLen(size),
            index_crc: self.flags.has(Flags::DIGEST).then_some(self.index_crc),
        })
    }

    fn block_format(&self) -> Result<BlockFormat, (ErrorKind, String)> {
        let algorithm = match self.algorithm {
            1 => Algorithm::Lz4,
            2 => Algorithm::Zstd,
            other => return Err((ErrorKind::Unsupported, format!("algorithm {other}"))),
        };
        let Some(block_size) = BlockSize::try_new(self.block_size) else {
            let detail = format!(
                "blocks of {} bytes; a power of two from {} to {} is read",
                self.block_size,
                BlockSize::BYTES_MIN,
                BlockSize::BYTES_MAX
            );
            return Err((ErrorKind::Unsupported, detail));
        };
        let checksums = match self.verify {
            0 => BlockChecksums::Absent,
            1 => BlockChecksums::Crc32c,
            other => return Err((ErrorKind::Corrupt, format!("verify is {other}, not 0 or 1"))),
        };
        if self.use_dict != 0 || self.dict_size != 0 {
            let detail = format!("a dictionary of {} bytes", self.dict_size);
            return Err((ErrorKind::Unsupported, detail));
        }
        if self.flags.has(Flags::INDEX_COMPRESSED) {
            let detail = "a compressed jump table".to_owned();
            return Err((ErrorKind::Unsupported, detail));
        }
        Ok(BlockFormat {
            algorithm,
            block_size,
            checksums,
        })
    }
}

/// The digest that the block should have: over its bytes, with the digest itself as zero.
fn digest(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut bytes = *bytes;
    let wire: &mut Wire = zerocopy::transmute_mut!(&mut bytes);
    wire.digest = U32::ZERO;
    checksum::metadata(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ByteLen = ByteLen(10_000);

    fn valid() -> HeaderBlock {
        let blocks = BlockFormat {
            algorithm: Algorithm::Lz4,
            block_size: BlockSize::DEFAULT,
            checksums: BlockChecksums::Crc32c,
        };
        HeaderBlock {
            index_offset: 900,
            index_size: 3,
            original_file_size: 2 * 4096 + 1,
            index_crc: 7,
            ..HeaderBlock::begun(
                Part::Header,
                Flags::HEADER | Flags::HEADER_OVERWRITTEN,
                blocks,
            )
        }
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<HeaderBlock, ErrorKind> {
        HeaderBlock::parse(bytes, Part::Header, ByteOffset(0)).map_err(|error| error.kind)
    }

    #[test]
    fn a_block_comes_back_as_it_was_encoded() {
        let parsed = parse(&valid().encode()).unwrap();
        let digest = parsed.digest;
        assert_eq!(parsed, HeaderBlock { digest, ..valid() });
        let header = parsed.to_header(ByteOffset(0), FILE).unwrap();
        assert_eq!(header.index, FileRange::new(900, 12));
        assert_eq!(header.data, FileRange::new(512, 388));
        assert_eq!(header.index_crc, Some(7));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let encoded = valid().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = encoded;
            bytes[bit / 8] ^= 1 << (bit % 8);
            match parse(&bytes) {
                Err(ErrorKind::NotThisFormat) => assert!(bit < 24 * 8),
                Err(ErrorKind::Checksum) => {}
                // Without its flag nobody looks at the digest: an old file.
                Ok(parsed) => assert_eq!(parsed.flags.0 ^ valid().flags.0, Flags::DIGEST),
                other => panic!("bit {bit}: {other:?}"),
            }
        }
    }

    #[test]
    fn fields_that_contradict_each_other_are_refused_by_kind() {
        let refused = |change: fn(&mut HeaderBlock)| {
            let mut block = valid();
            change(&mut block);
            block.to_header(ByteOffset(0), FILE).unwrap_err().kind
        };
        use ErrorKind::{Corrupt, TooLarge, Truncated, Unsupported};
        assert_eq!(refused(|block| block.algorithm = 0), Unsupported);
        assert_eq!(refused(|block| block.algorithm = 9), Unsupported);
        assert_eq!(refused(|block| block.block_size = 6144), Unsupported);
        assert_eq!(refused(|block| block.block_size = 128 << 10), Unsupported);
        assert_eq!(refused(|block| block.use_dict = 1), Unsupported);
        assert_eq!(refused(|block| block.dict_size = 1), Unsupported);
        assert_eq!(refused(|block| block.flags.0 |= 1 << 5), Unsupported);
        assert_eq!(refused(|block| block.verify = 2), Corrupt);
        assert_eq!(refused(|block| block.index_offset = 511), Corrupt);
        assert_eq!(refused(|block| block.index_size = 2), Corrupt);
        assert_eq!(
            refused(|block| block.original_file_size = u64::MAX),
            Corrupt
        );
        assert_eq!(refused(|block| block.index_size = 1 << 60), TooLarge);
        assert_eq!(refused(|block| block.index_offset = u64::MAX), Truncated);
        assert_eq!(
            refused(|block| block.index_offset = 10_000 - 512 - 11),
            Truncated
        );
    }
}
