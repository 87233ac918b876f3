//! Units that must not be swapped: sectors (always 512 B), byte offsets and byte lengths.

use std::fmt;

/// Bytes in a sector. Linux counts block I/O in 512-byte sectors whatever the logical block size is.
pub const SECTOR_BYTES: u64 = 512;
/// `log2(SECTOR_BYTES)`.
pub const SECTOR_SHIFT: u32 = 9;

/// A count of 512-byte sectors, or a position in sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sectors(pub u64);

/// A position in bytes, in a file or on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

/// A length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteLen(pub u64);

impl Sectors {
    /// The whole sectors that `len` holds, or `None` if it is not a multiple of a sector.
    #[must_use]
    pub const fn try_from_bytes(len: ByteLen) -> Option<Self> {
        if len.0.is_multiple_of(SECTOR_BYTES) {
            Some(Self(len.0 >> SECTOR_SHIFT))
        } else {
            None
        }
    }

    /// The length in bytes; saturates at `u64::MAX`, far beyond any device (2^55 sectors).
    #[must_use]
    pub const fn len_bytes(self) -> ByteLen {
        ByteLen(self.0.saturating_mul(SECTOR_BYTES))
    }

    /// The position in bytes; saturates like [`Sectors::len_bytes`].
    #[must_use]
    pub const fn offset_bytes(self) -> ByteOffset {
        ByteOffset(self.0.saturating_mul(SECTOR_BYTES))
    }
}

impl ByteOffset {
    /// The position `len` bytes further on; saturates.
    #[must_use]
    pub const fn advanced(self, len: u64) -> Self {
        Self(self.0.saturating_add(len))
    }
}

impl fmt::Display for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sectors", self.0)
    }
}

impl fmt::Display for ByteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}", self.0)
    }
}

impl fmt::Display for ByteLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sectors_convert() {
        assert_eq!(Sectors::try_from_bytes(ByteLen(4096)), Some(Sectors(8)));
        assert_eq!(Sectors::try_from_bytes(ByteLen(0)), Some(Sectors(0)));
        assert_eq!(Sectors::try_from_bytes(ByteLen(511)), None);
        assert_eq!(Sectors::try_from_bytes(ByteLen(4097)), None);
        assert_eq!(Sectors(8).len_bytes(), ByteLen(4096));
    }

    #[test]
    fn overflowing_positions_saturate() {
        assert_eq!(Sectors(u64::MAX).offset_bytes(), ByteOffset(u64::MAX));
        assert_eq!(ByteOffset(u64::MAX).advanced(1), ByteOffset(u64::MAX));
    }
}
