//! One block: checksum and decompression into the caller's buffer, and the way back.
//!
//! A decoder or encoder is a context that one thread uses for block after block; on success neither allocates.
//! A block's stored bytes are its compressed bytes and, if the file has block checksums, four bytes of checksum.

use super::checksum;
use super::options::{Algorithm, BlockChecksums, BlockFormat};
use crate::error::{Error, ErrorKind};
use ::block::{ByteOffset, Status};

/// The level that the reference compresses at, whatever a header says.
const ZSTD_LEVEL: i32 = 3;

/// Why a block is not read. `Copy`, so that the I/O path never allocates for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The checksum is another one.
    #[error("block checksum {expected:#010x}, found {found:#010x}")]
    Checksum {
        /// What the file says.
        expected: u32,
        /// What its bytes have.
        found: u32,
    },
    /// Fewer bytes than a block has.
    #[error("block cut off")]
    Truncated,
    /// The compressed bytes are not valid, or hold more than the block has.
    #[error("block does not decompress")]
    Undecodable,
    /// The compressed bytes hold less than the block has.
    #[error("block has {found} bytes, not {expected}")]
    Length {
        /// Bytes that the block must have.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
}

impl BlockError {
    /// How a request that needed the block ends.
    #[must_use]
    pub const fn status(self) -> Status {
        Status::Corrupt
    }
}

/// Decompresses the blocks of files of one format.
pub struct BlockDecoder {
    checksums: BlockChecksums,
    context: DecodeContext,
}

enum DecodeContext {
    Lz4,
    Zstd(zstd::bulk::Decompressor<'static>),
}

/// Compresses blocks.
pub struct BlockEncoder {
    blocks: BlockFormat,
    context: EncodeContext,
}

/// Blocks that follow each other in a file, compressed by whichever thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedBlocks {
    /// Their stored bytes.
    pub(super) stored: Vec<u8>,
    /// The length of each.
    pub(super) lens: Vec<u32>,
    /// Their bytes before.
    pub(super) raw_len: u64,
}

enum EncodeContext {
    Lz4,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl BlockDecoder {
    /// A decoder of such blocks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if there is no memory for the context.
    pub fn new(blocks: BlockFormat) -> Result<Self, Error> {
        let context = match blocks.algorithm {
            Algorithm::Lz4 => DecodeContext::Lz4,
            Algorithm::Zstd => {
                DecodeContext::Zstd(zstd::bulk::Decompressor::new().map_err(no_context)?)
            }
        };
        Ok(Self {
            checksums: blocks.checksums,
            context,
        })
    }

    /// Verifies the stored bytes of a block and decompresses them into `raw`, which must be as long as the block is.
    ///
    /// # Errors
    ///
    /// See [`BlockError`]. What is in `raw` is then worthless.
    pub fn decode(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<(), BlockError> {
        let compressed = match self.checksums {
            BlockChecksums::Absent => stored,
            BlockChecksums::Crc32c => verify(stored)?,
        };
        let expected = raw.len();
        let found = match &mut self.context {
            DecodeContext::Lz4 => {
                let len = i32::try_from(expected).map_err(|_| BlockError::Undecodable)?;
                lz4::block::decompress_to_buffer(compressed, Some(len), raw)
            }
            DecodeContext::Zstd(context) => context.decompress_to_buffer(compressed, raw),
        };
        match found {
            Ok(found) if found == expected => Ok(()),
            Ok(found) => Err(BlockError::Length { expected, found }),
            Err(_) => Err(BlockError::Undecodable),
        }
    }
}

impl BlockEncoder {
    /// An encoder of such blocks.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if there is no memory for the context.
    pub fn new(blocks: BlockFormat) -> Result<Self, Error> {
        let context = match blocks.algorithm {
            Algorithm::Lz4 => EncodeContext::Lz4,
            Algorithm::Zstd => {
                EncodeContext::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(no_context)?)
            }
        };
        Ok(Self { blocks, context })
    }

    /// Compresses `raw`, which begins where a block does, block by block; what was in `encoded` is forgotten.
    ///
    /// # Errors
    ///
    /// As [`BlockEncoder::encode`].
    pub fn encode_all(&mut self, raw: &[u8], encoded: &mut EncodedBlocks) -> Result<(), Error> {
        encoded.stored.clear();
        encoded.lens.clear();
        encoded.raw_len = raw.len() as u64;
        for block in raw.chunks(self.blocks.block_size.bytes() as usize) {
            let len = self.encode(block, &mut encoded.stored)?;
            encoded.lens.push(len);
        }
        Ok(())
    }

    /// Appends the stored bytes of the block `raw` to `out` and returns how many they are.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] for more bytes than a block has, or if the compressor has no memory.
    pub fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<u32, Error> {
        let begin = out.len();
        out.resize(begin + self.blocks.stored_len_max() as usize, 0);
        let room = out.get_mut(begin..).unwrap_or_default();
        let compressed = match &mut self.context {
            EncodeContext::Lz4 => lz4::block::compress_to_buffer(raw, None, false, room),
            EncodeContext::Zstd(context) => context.compress_to_buffer(raw, room),
        };
        let len = compressed.map_err(|error| {
            out.truncate(begin);
            let detail = format!("{} bytes do not compress: {error}", raw.len());
            Error::new(ErrorKind::TooLarge, "ZFile block", ByteOffset(0), detail)
        })?;
        out.truncate(begin + len);
        if self.blocks.checksums == BlockChecksums::Crc32c {
            let crc = checksum::block(out.get(begin..).unwrap_or_default());
            out.extend_from_slice(&crc.to_le_bytes());
        }
        // A block and its bound are far below 4 GiB.
        Ok(u32::try_from(out.len() - begin).unwrap_or(u32::MAX))
    }
}

/// The compressed bytes, if the checksum behind them is right.
fn verify(stored: &[u8]) -> Result<&[u8], BlockError> {
    let (compressed, crc) = stored
        .split_last_chunk::<4>()
        .ok_or(BlockError::Truncated)?;
    let (expected, found) = (u32::from_le_bytes(*crc), checksum::block(compressed));
    if expected == found {
        Ok(compressed)
    } else {
        Err(BlockError::Checksum { expected, found })
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn no_context(error: std::io::Error) -> Error {
    let detail = format!("no context: {error}");
    Error::new(ErrorKind::TooLarge, "zstd", ByteOffset(0), detail)
}

#[cfg(test)]
mod tests {
    use super::super::options::BlockSize;
    use super::*;

    #[test]
    fn blocks_come_back_and_damage_is_noticed() {
        for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
            let blocks = BlockFormat {
                algorithm,
                block_size: BlockSize::DEFAULT,
                checksums: BlockChecksums::Crc32c,
            };
            let mut encoder = BlockEncoder::new(blocks).unwrap();
            let mut decoder = BlockDecoder::new(blocks).unwrap();
            let raw: Vec<u8> = (0..4096_u32)
                .flat_map(u32::to_le_bytes)
                .take(4096)
                .collect();
            let mut stored = vec![1, 2, 3];
            let len = encoder.encode(&raw, &mut stored).unwrap();
            let stored = &mut stored[3..];
            assert_eq!(stored.len(), len as usize);
            let mut back = vec![0; raw.len()];
            decoder.decode(stored, &mut back).unwrap();
            assert_eq!(back, raw);
            let mut long = vec![0; raw.len() + 1];
            let short = decoder.decode(stored, &mut long);
            assert!(matches!(short, Err(BlockError::Length { .. })), "{short:?}");
            let too_long = decoder.decode(stored, &mut back[..4095]);
            assert_eq!(too_long, Err(BlockError::Undecodable));
            stored[10] ^= 1;
            let damaged = decoder.decode(stored, &mut back);
            assert!(matches!(damaged, Err(BlockError::Checksum { .. })));
            assert_eq!(
                decoder.decode(&stored[..3], &mut back),
                Err(BlockError::Truncated)
            );
        }
    }
}
