//! The seam: what the data plane needs of a ring.

use crate::error::Error;
use crate::op::{Completion, Op, Token};

/// Whether [`Ring::enter`] may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Submit and collect what is there.
    Poll,
    /// Sleep until at least one completion is there.
    One,
}

/// A submission and a completion queue, used by one thread.
pub trait Ring {
    /// What stands for a file in this ring.
    type File;

    /// Takes an operation; it starts at the next [`Ring::enter`] at the latest. Never fails: what does not fit is kept
    /// aside and submitted first.
    fn push(&mut self, op: Op<'_, Self::File>, token: Token);

    /// Submits everything pushed and makes completions available.
    ///
    /// # Errors
    /// Only when the ring itself is broken; failures of operations are completions.
    fn enter(&mut self, wait: Wait) -> Result<(), Error>;

    /// The next completion that is available without entering the kernel.
    fn poll_completion(&mut self) -> Option<Completion>;

    /// Reads into `bytes` here and now and returns how many bytes there are, at least one; `None` when that could wait for
    /// anything, or did not work: then the operation must be pushed, and its completion tells.
    fn try_read(&mut self, file: &Self::File, offset_bytes: u64, bytes: &mut [u8]) -> Option<u32> {
        let _ = (file, offset_bytes, bytes);
        None
    }

    /// Writes `bytes` here and now, volatile. Otherwise as [`Ring::try_read`].
    fn try_write(&mut self, file: &Self::File, offset_bytes: u64, bytes: &[u8]) -> Option<u32> {
        let _ = (file, offset_bytes, bytes);
        None
    }

    /// Slots of the ring's table, in which drivers register memory. Their numbers begin at 0.
    fn slots(&self) -> u16 {
        0
    }

    /// Whether an [`Op::ReadRegistered`] of the file is worth a try now. Ask before each one, and tell its result by
    /// [`Ring::on_read_registered`]: a file whose content must be waited for is tried less and less often.
    fn may_read_registered(&mut self, _file: &Self::File) -> bool {
        false
    }

    /// An [`Op::ReadRegistered`] of the file ended with this result.
    fn on_read_registered(&mut self, _file: &Self::File, _result: i32) {}

    /// Makes sure that `operations` which block below can be under way at once without delaying any other. Only ever more:
    /// a smaller number changes nothing. A system call, not for every operation.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn allow_blocking(&mut self, operations: u32) -> Result<(), Error>;

    /// Operations pushed and not yet completed that hold a buffer.
    fn buffers_in_flight(&self) -> usize;
}
