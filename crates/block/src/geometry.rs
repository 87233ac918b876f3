//! What a target tells the kernel about its device.

use crate::request::Access;
use crate::units::Sectors;

/// How the backing store can zero a range without writing zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// It cannot; the kernel writes zeros itself and discards are not offered.
    Unsupported,
    /// It can deallocate; deallocated ranges read as zeros.
    Deallocate {
        /// The unit of allocation in bytes, a power of two of at least 512.
        granularity_bytes: u32,
    },
}

/// The properties of a device that its target decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the device. Never 0.
    pub size: Sectors,
    /// Whether the device may be written to.
    pub access: Access,
    /// `log2` of the logical block size in bytes: 9 to 12.
    pub logical_block_shift: u8,
    /// `log2` of the physical block size in bytes, at least the logical one.
    pub physical_block_shift: u8,
    /// Whether completed writes may be lost by a power cut until the next flush.
    pub volatile_cache: bool,
    /// Whether discard and write-zeroes are offered.
    pub zeroing: Zeroing,
}
