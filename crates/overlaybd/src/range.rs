//! A range of a file: what a reader has to read, or where something lies.

use std::fmt;

use block::{ByteLen, ByteOffset};

/// Bytes of a file, from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileRange {
    /// First byte.
    pub offset: ByteOffset,
    /// Number of bytes.
    pub len: ByteLen,
}

impl FileRange {
    /// The range of `len` bytes at `offset`.
    #[must_use]
    pub const fn new(offset: u64, len: u64) -> Self {
        Self {
            offset: ByteOffset(offset),
            len: ByteLen(len),
        }
    }

    /// The first byte behind the range; saturates, so that a range that wraps lies in no file.
    #[must_use]
    pub const fn end(self) -> ByteOffset {
        self.offset.advanced(self.len.0)
    }
}

impl fmt::Display for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}..{}", self.offset.0, self.end().0)
    }
}
