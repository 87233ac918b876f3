//! A range of the virtual disk, in sectors.

use crate::units::{ByteLen, ByteOffset, Sectors};

/// A range of the virtual disk. May be empty (a FLUSH has no extent).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First sector.
    pub start: Sectors,
    /// Number of sectors.
    pub len: Sectors,
}

impl Extent {
    /// The first sector behind the extent, or `None` if that overflows.
    #[must_use]
    pub const fn end(self) -> Option<Sectors> {
        match self.start.0.checked_add(self.len.0) {
            Some(end) => Some(Sectors(end)),
            None => None,
        }
    }

    /// Whether every sector lies on a device of `size`.
    #[must_use]
    pub const fn is_within(self, size: Sectors) -> bool {
        match self.end() {
            Some(end) => end.0 <= size.0,
            None => false,
        }
    }

    /// Where the extent starts, in bytes.
    #[must_use]
    pub const fn offset_bytes(self) -> ByteOffset {
        self.start.offset_bytes()
    }

    /// How long the extent is, in bytes.
    #[must_use]
    pub const fn len_bytes(self) -> ByteLen {
        self.len.len_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked_without_overflow() {
        let extent = |start, len| Extent {
            start: Sectors(start),
            len: Sectors(len),
        };
        assert!(extent(0, 8).is_within(Sectors(8)));
        assert!(extent(8, 0).is_within(Sectors(8)));
        assert!(!extent(1, 8).is_within(Sectors(8)));
        assert!(!extent(u64::MAX, 2).is_within(Sectors(u64::MAX)));
    }
}
