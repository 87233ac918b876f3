//! One request of the kernel, as a target sees it.

use crate::extent::Extent;

/// What the kernel wants done. Targets never see any other operation: the data plane answers those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Fill the request's data from the extent.
    Read,
    /// Store the request's data in the extent.
    Write,
    /// Make every write that was completed before durable.
    Flush,
    /// The content of the extent is no longer needed; it may be given back and reads as zeros or as before.
    Discard,
    /// The extent must read as zeros afterwards.
    WriteZeroes,
}

/// Whether a device may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Every write, discard and write-zeroes is refused.
    ReadOnly,
    /// All operations.
    ReadWrite,
}

/// One request. `extent` is empty for [`Op::Flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Where.
    pub extent: Extent,
    /// Force unit access: the data must be durable before the request completes.
    pub fua: bool,
    /// Write-zeroes only: the space should stay allocated.
    pub no_unmap: bool,
}

impl Request {
    /// Bytes of data that travel with the request: the extent of a read or a write, else 0.
    #[must_use]
    pub const fn data_len_bytes(&self) -> u64 {
        match self.op {
            Op::Read | Op::Write => self.extent.len_bytes().0,
            Op::Flush | Op::Discard | Op::WriteZeroes => 0,
        }
    }

    /// Whether the request changes what later reads return.
    #[must_use]
    pub const fn is_modifying(&self) -> bool {
        matches!(self.op, Op::Write | Op::Discard | Op::WriteZeroes)
    }
}
