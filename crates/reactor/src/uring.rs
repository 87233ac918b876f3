//! The real ring: io_uring with 64-byte entries, one issuer, deferred task work.
//!
//! Invariant: an operation's buffer stays in `owned` until its completion; a ring that is dropped with operations in flight
//! leaks those buffers, because the kernel may still write to them.

use std::collections::VecDeque;
use std::io;

use io_uring::{IoUring, squeue};

use crate::buffer::Buffer;
use crate::error::Error;
use crate::file::RingFile;
use crate::op::{Completion, Op, Token};
use crate::ring::{Ring, Wait};
use crate::sys::entries;

/// The top bit of `user_data` marks operations whose buffer and token are in the table.
const OWNS_BUFFER: u64 = 1 << 63;

/// The most slots that the kernel gives a ring (`IORING_MAX_REG_BUFFERS`, Linux 5.13 to 7.3).
pub const SLOTS_MAX: u16 = 1 << 14;

/// Workers are allowed so many at a time, to ask the kernel seldom.
const WORKERS_STEP: u32 = 64;
/// Workers for operations on what is neither a file nor a disk, such as pipes.
const WORKERS_FOR_OTHERS_MAX: u32 = 16;

/// Sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringLimits {
    /// Entries of the submission queue, a power of two. More operations than this are submitted in several rounds.
    pub submissions: u32,
    /// Entries of the completion queue, a power of two. The kernel keeps what does not fit on a list of its own.
    pub completions: u32,
    /// Operations with a buffer that can be in flight; at least the buffers of the pool. Costs memory only as far as it is
    /// used.
    pub buffers_in_flight_max: u32,
    /// Slots for memory that drivers register, at most [`SLOTS_MAX`]; 0 for a ring without a table. Each costs 8 bytes in the
    /// kernel.
    pub slots: u16,
}

impl Default for UringLimits {
    fn default() -> Self {
        Self {
            submissions: 512,
            completions: 4096,
            // Above the pool of a shard: its shared buffers and one for each of 16,384 devices.
            buffers_in_flight_max: 1 << 15,
            slots: 0,
        }
    }
}

struct Owned {
    token: Token,
    buffer: Option<Buffer>,
}

/// An io_uring. Not `Send`: the kernel ties it to the thread that made it.
pub struct Uring {
    ring: IoUring,
    owned: Vec<Owned>,
    free: Vec<u32>,
    /// Entries that found the submission queue full, oldest first.
    backlog: VecDeque<squeue::Entry>,
    /// Worker threads that the kernel may start for operations on files and disks that block.
    workers_max: u32,
    slots: u16,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("buffers_in_flight", &self.buffers_in_flight())
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// Sets up a ring for the calling thread.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(limits: UringLimits) -> Result<Self, Error> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_submit_all()
            .setup_cqsize(limits.completions)
            .dontfork()
            .build(limits.submissions)
            .map_err(Error::setup)?;
        if limits.slots > 0 {
            ring.submitter()
                .register_buffers_sparse(limits.slots.into())
                .map_err(Error::setup)?;
        }
        let owned_max = usize::try_from(limits.buffers_in_flight_max).unwrap_or(0);
        let backlog = VecDeque::with_capacity(usize::try_from(limits.completions).unwrap_or(0));
        Ok(Self {
            ring,
            owned: Vec::with_capacity(owned_max),
            free: Vec::with_capacity(owned_max),
            backlog,
            workers_max: 0,
            slots: limits.slots,
        })
    }

    fn push_entry(&mut self, entry: squeue::Entry, slot: Option<u32>) {
        let buffer = slot
            .and_then(|slot| self.owned.get(usize::try_from(slot).ok()?))
            .and_then(|owned| owned.buffer.as_ref());
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
        } else if let Err(entry) = entries::try_push(&mut self.ring, entry, buffer) {
            self.backlog.push_back(entry);
        }
    }

    /// Moves as much of the backlog as fits. Its buffers are in the table already.
    fn refill(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if let Err(entry) = entries::try_push(&mut self.ring, entry, None) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    fn own(&mut self, token: Token, buffer: Buffer) -> u32 {
        let Some(slot) = self.free.pop() else {
            // Within the capacity, because the pool has fewer buffers: no allocation.
            self.owned.push(Owned {
                token,
                buffer: Some(buffer),
            });
            return u32::try_from(self.owned.len() - 1).unwrap_or(u32::MAX);
        };
        if let Some(owned) = usize::try_from(slot)
            .ok()
            .and_then(|slot| self.owned.get_mut(slot))
        {
            *owned = Owned {
                token,
                buffer: Some(buffer),
            };
        }
        slot
    }
}

impl Ring for Uring {
    type File = RingFile;

    fn push(&mut self, op: Op<'_, RingFile>, token: Token) {
        let (entry, buffer) = entries::entry(op);
        match buffer {
            None => self.push_entry(entry.user_data(token.0 & !OWNS_BUFFER), None),
            Some(buffer) => {
                let slot = self.own(token, buffer);
                self.push_entry(entry.user_data(OWNS_BUFFER | u64::from(slot)), Some(slot));
            }
        }
    }

    fn enter(&mut self, wait: Wait) -> Result<(), Error> {
        loop {
            // Sleep only in the last round, when everything is submitted.
            let want = u32::from(wait == Wait::One && self.backlog.is_empty());
            match entries::enter(&mut self.ring, want) {
                Ok(()) => {}
                // A signal, or the kernel's overflow list must be collected first: the caller reaps and comes back.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted
                            | io::ErrorKind::ResourceBusy
                            | io::ErrorKind::WouldBlock
                    ) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(Error::enter(error)),
            }
            if self.backlog.is_empty() {
                return Ok(());
            }
            self.refill();
        }
    }

    fn poll_completion(&mut self) -> Option<Completion> {
        let entry = entries::next_completion(&mut self.ring)?;
        let (user_data, result) = (entry.user_data(), entry.result());
        if user_data & OWNS_BUFFER == 0 {
            return Some(Completion {
                token: Token(user_data),
                result,
                buffer: None,
            });
        }
        let slot = u32::try_from(user_data & !OWNS_BUFFER).ok()?;
        let owned = usize::try_from(slot)
            .ok()
            .and_then(|slot| self.owned.get_mut(slot))?;
        let completion = Completion {
            token: owned.token,
            result,
            buffer: owned.buffer.take(),
        };
        self.free.push(slot);
        Some(completion)
    }

    fn try_read(&mut self, file: &RingFile, offset_bytes: u64, bytes: &mut [u8]) -> Option<u32> {
        file.try_read(offset_bytes, bytes)
    }

    fn try_write(&mut self, file: &RingFile, offset_bytes: u64, bytes: &[u8]) -> Option<u32> {
        file.try_write(offset_bytes, bytes)
    }

    fn slots(&self) -> u16 {
        self.slots
    }

    fn may_read_registered(&mut self, file: &RingFile) -> bool {
        file.may_read_registered()
    }

    fn on_read_registered(&mut self, file: &RingFile, result: i32) {
        file.on_read_registered(result);
    }

    fn allow_blocking(&mut self, operations: u32) -> Result<(), Error> {
        if operations <= self.workers_max {
            return Ok(());
        }
        let wanted = operations.next_multiple_of(WORKERS_STEP);
        let mut workers = [wanted, WORKERS_FOR_OTHERS_MAX];
        self.ring
            .submitter()
            .register_iowq_max_workers(&mut workers)
            .map_err(Error::workers)?;
        self.workers_max = wanted;
        Ok(())
    }

    fn buffers_in_flight(&self) -> usize {
        self.owned.len() - self.free.len()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        for owned in &mut self.owned {
            // The kernel may write to the buffer after the ring's file is closed: leak it, and with it the pool.
            if let Some(buffer) = owned.buffer.take() {
                std::mem::forget(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolLimits};
    use crate::op::WriteMode;

    fn ring() -> Uring {
        Uring::new(UringLimits {
            submissions: 8,
            ..UringLimits::default()
        })
        .unwrap()
    }

    fn complete(ring: &mut Uring, count: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        while done.len() < count {
            ring.enter(Wait::One).unwrap();
            done.extend(std::iter::from_fn(|| ring.poll_completion()));
        }
        done
    }

    #[test]
    fn what_is_written_is_read_back_and_buffers_return() {
        let mut ring = ring();
        let pool = BufferPool::new(PoolLimits([8, 0, 0])).unwrap();
        let file = RingFile::ring_only(tempfile::tempfile().unwrap().into());
        let mut buffer = pool.try_take(4096).unwrap();
        buffer.bytes_mut(4096).fill(7);
        let write = Op::Write {
            file: &file,
            offset_bytes: 8192,
            len_bytes: 4096,
            buffer,
            mode: WriteMode::Durable,
        };
        ring.push(write, Token(1));
        assert_eq!(complete(&mut ring, 1)[0].result, 4096);
        let buffer = pool.try_take(4096).unwrap();
        ring.push(
            Op::Read {
                file: &file,
                offset_bytes: 8192,
                len_bytes: 4096,
                buffer,
            },
            Token(2),
        );
        let done = complete(&mut ring, 1).remove(0);
        assert_eq!((done.token, done.result), (Token(2), 4096));
        assert!(
            done.buffer
                .as_ref()
                .unwrap()
                .bytes(4096)
                .iter()
                .all(|byte| *byte == 7)
        );
        drop(done);
        assert_eq!((pool.in_use(), ring.buffers_in_flight()), (0, 0));
    }

    #[test]
    fn more_operations_than_the_queue_holds_all_complete() {
        let mut ring = ring();
        let file = RingFile::ring_only(tempfile::tempfile().unwrap().into());
        for token in 0..100 {
            ring.push(Op::Sync { file: &file }, Token(token));
        }
        let mut tokens: Vec<_> = complete(&mut ring, 100)
            .into_iter()
            .map(|done| done.token.0)
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_message_wakes_the_ring() {
        let mut ring = ring();
        let (sender, receiver) = crate::mailbox::channel().unwrap();
        let file = RingFile::ring_only(receiver.wake_file().try_clone().unwrap());
        ring.push(Op::Poll { file: &file }, Token(9));
        let thread = std::thread::spawn(move || sender.send(42).unwrap());
        assert_eq!(complete(&mut ring, 1)[0].token, Token(9));
        receiver.clear();
        assert_eq!(receiver.try_receive(), Some(42));
        thread.join().unwrap();
    }

    #[test]
    fn a_read_into_a_slot_that_holds_nothing_fails() {
        let mut ring = Uring::new(UringLimits {
            slots: 16,
            ..UringLimits::default()
        })
        .unwrap();
        let file = RingFile::ring_only(tempfile::tempfile().unwrap().into());
        for slot in [0, 15, 16, u16::MAX] {
            let read = Op::ReadRegistered {
                file: &file,
                offset_bytes: 0,
                len_bytes: 512,
                slot,
                start_bytes: 0,
            };
            ring.push(read, Token(slot.into()));
        }
        let done = complete(&mut ring, 4);
        assert!(done.iter().all(|done| done.result == -14)); // EFAULT
    }

    #[test]
    fn a_failed_operation_is_a_completion_with_its_errno() {
        let mut ring = ring();
        let pool = BufferPool::new(PoolLimits([1, 0, 0])).unwrap();
        let (read_end, _write_end) = std::io::pipe().unwrap();
        let buffer = pool.try_take(512).unwrap();
        let file = RingFile::ring_only(read_end.into());
        let write = Op::Write {
            file: &file,
            offset_bytes: 0,
            len_bytes: 512,
            buffer,
            mode: WriteMode::Volatile,
        };
        ring.push(write, Token(3));
        assert_eq!(complete(&mut ring, 1)[0].result, -9); // EBADF: the read end cannot be written
        assert_eq!(pool.in_use(), 0);
    }
}
