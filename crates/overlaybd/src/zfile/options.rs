//! What a writer may choose: how blocks are stored and how a file is completed.

use std::fmt;

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// LZ4 blocks, without a frame.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

/// Bytes of a block before compression: a power of two from [`BlockSize::BYTES_MIN`] to [`BlockSize::BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(u32);

/// Whether a checksum follows each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockChecksums {
    /// None: damage shows only if decompression notices it.
    Absent,
    /// Four bytes behind each block, over its compressed bytes.
    Crc32c,
}

/// How a file is completed, and so what a reader must read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// The header is written again with the final values. A reader needs nothing of the file's tail.
    HeaderOverwritten,
    /// The header stays as it was at first; only the trailer has the final values. For outputs that cannot seek.
    TrailerOnly,
}

/// How the blocks of a file are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockFormat {
    /// How blocks are compressed.
    pub algorithm: Algorithm,
    /// Bytes of every block but the last.
    pub block_size: BlockSize,
    /// Whether a checksum follows each block.
    pub checksums: BlockChecksums,
}

/// Everything that a writer may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// How blocks are stored.
    pub blocks: BlockFormat,
    /// How the file is completed.
    pub completion: Completion,
}

impl Algorithm {
    /// The number in a header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }
}

impl BlockSize {
    /// The smallest: a sector.
    pub const BYTES_MIN: u32 = 512;
    /// The largest that the reference takes.
    pub const BYTES_MAX: u32 = 64 << 10;
    /// What the reference's tools take unless told otherwise.
    pub const DEFAULT: Self = Self(4096);

    /// A block size, if there may be blocks of `bytes`.
    #[must_use]
    pub const fn try_new(bytes: u32) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= Self::BYTES_MIN && bytes <= Self::BYTES_MAX {
            Some(Self(bytes))
        } else {
            None
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// `log2` of the bytes.
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.0.trailing_zeros()
    }
}

impl BlockChecksums {
    /// Bytes that follow each block.
    #[must_use]
    pub const fn len_bytes(self) -> u32 {
        match self {
            Self::Absent => 0,
            Self::Crc32c => 4,
        }
    }
}

impl BlockFormat {
    /// The most bytes that one block can take in a file, its checksum counted: blocks that do not compress grow.
    ///
    /// More than 64 KiB for blocks of 64 KiB. The reference writes such files and cannot read them.
    #[must_use]
    pub const fn stored_len_max(self) -> u32 {
        let raw = self.block_size.0;
        let compressed = match self.algorithm {
            // LZ4_COMPRESSBOUND (lz4.h, 1.10).
            Algorithm::Lz4 => raw + raw / 255 + 16,
            // ZSTD_COMPRESSBOUND (zstd.h, 1.5.7): small inputs get a margin that shrinks up to 128 KiB.
            Algorithm::Zstd => raw + (raw >> 8) + (((128 << 10) - raw) >> 11),
        };
        compressed + self.checksums.len_bytes()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_powers_of_two_within_limits() {
        for bytes in [512, 1024, 4096, 65536] {
            assert_eq!(BlockSize::try_new(bytes).map(BlockSize::bytes), Some(bytes));
        }
        for bytes in [0, 1, 256, 6144, 131_072, u32::MAX] {
            assert_eq!(BlockSize::try_new(bytes), None);
        }
    }

    #[test]
    fn the_largest_stored_block_is_what_the_compressors_say() {
        for shift in 9..=16 {
            let raw = 1_usize << shift;
            let blocks = |algorithm| BlockFormat {
                algorithm,
                block_size: BlockSize::try_new(1 << shift).unwrap(),
                checksums: BlockChecksums::Absent,
            };
            let lz4 = blocks(Algorithm::Lz4).stored_len_max() as usize;
            assert_eq!(lz4, lz4::block::compress_bound(raw).unwrap());
            let zstd = blocks(Algorithm::Zstd).stored_len_max() as usize;
            assert_eq!(zstd, zstd::zstd_safe::compress_bound(raw));
        }
    }
}
