//! The unsafe part: the buffer arena, pushing entries to the ring, entering the kernel.
#![expect(
    unsafe_code,
    reason = "the ring and its memory are shared with the kernel; every block states why it is sound"
)]

use std::io;
use std::ptr::{self, NonNull};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::mm::{MapFlags, ProtFlags};

use crate::buffer::Buffer;
use crate::error::Error;
use crate::file::RingFile;
use crate::op::{Op, WriteMode};

/// One anonymous mapping that is cut into buffers.
#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
}

impl Arena {
    pub(crate) fn map(len: usize) -> Result<Self, Error> {
        let len = len.max(1);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                protection,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|errno| Error::memory(errno.into()))?;
        let base = NonNull::new(base.cast())
            .ok_or_else(|| Error::memory(io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self { base, len })
    }

    fn address(&self, offset: u32) -> *mut u8 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        debug_assert!(offset < self.len);
        // SAFETY: the pool cuts buffers out of `len` bytes, so the offset lies in the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

/// The first `len` bytes of a buffer.
pub(crate) fn bytes(buffer: &Buffer, len: u32) -> &[u8] {
    let len = usize::try_from(len.min(buffer.capacity_bytes())).unwrap_or(0);
    let address = buffer.arena().address(buffer.offset_bytes());
    // SAFETY: `len` is at most the buffer's capacity, the mapping is initialised memory that lives as long as the
    // buffer, and the shared borrow of the unique handle excludes writers and operations in flight, because an
    // operation owns the handle.
    unsafe { std::slice::from_raw_parts(address, len) }
}

/// The first `len` bytes of a buffer, to be changed.
pub(crate) fn bytes_mut(buffer: &mut Buffer, len: u32) -> &mut [u8] {
    let len = usize::try_from(len.min(buffer.capacity_bytes())).unwrap_or(0);
    let address = buffer.arena().address(buffer.offset_bytes());
    // SAFETY: as in `bytes`; buffers are disjoint and the handle is borrowed exclusively.
    unsafe { std::slice::from_raw_parts_mut(address, len) }
}

/// Where a buffer lies, for an operation of the kernel.
fn address(buffer: &Buffer) -> *mut u8 {
    buffer.arena().address(buffer.offset_bytes())
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, no buffer is left (each holds the pool alive), and a ring that dies with
        // operations in flight leaks their buffers, which keeps the pool and this mapping alive.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The entry for an operation, and the buffer it must own while in flight.
pub(crate) fn entry(op: Op<'_, RingFile>) -> (squeue::Entry, Option<Buffer>) {
    match op {
        Op::Command {
            file,
            code,
            payload,
        } => (
            opcode::UringCmd16::new(types::Fd(file.raw_fd()), code)
                .cmd(payload)
                .build(),
            None,
        ),
        Op::Read {
            file,
            offset_bytes,
            len_bytes,
            buffer,
        } => {
            let len = len_bytes.min(buffer.capacity_bytes());
            let entry = opcode::Read::new(types::Fd(file.raw_fd()), address(&buffer), len)
                .offset(offset_bytes)
                .build();
            (entry, Some(buffer))
        }
        Op::Write {
            file,
            offset_bytes,
            len_bytes,
            buffer,
            mode,
        } => {
            let len = len_bytes.min(buffer.capacity_bytes());
            let flags = match mode {
                WriteMode::Volatile => 0,
                WriteMode::Durable => RWF_DSYNC,
            };
            let entry = opcode::Write::new(types::Fd(file.raw_fd()), address(&buffer), len)
                .offset(offset_bytes)
                .rw_flags(flags)
                .build();
            (entry, Some(buffer))
        }
        Op::Sync { file } => {
            let entry = opcode::Fsync::new(types::Fd(file.raw_fd()))
                .flags(types::FsyncFlags::DATASYNC)
                .build();
            (entry, None)
        }
        Op::Allocate {
            file,
            offset_bytes,
            len_bytes,
            mode,
        } => {
            let entry = opcode::Fallocate::new(types::Fd(file.raw_fd()), len_bytes)
                .offset(offset_bytes)
                .mode(mode)
                .build();
            (entry, None)
        }
        Op::Poll { file } => (
            opcode::PollAdd::new(types::Fd(file.raw_fd()), POLLIN).build(),
            None,
        ),
    }
}

/// `RWF_DSYNC` of linux/fs.h.
const RWF_DSYNC: i32 = 0x2;
/// `POLLIN` of asm-generic/poll.h.
const POLLIN: u32 = 0x1;
/// `IORING_ENTER_GETEVENTS` of linux/io_uring.h: without it a ring with deferred task work never runs that work.
const ENTER_GETEVENTS: u32 = 1;

/// Puts an entry into the submission queue; gives it back when the queue is full.
///
/// `buffer` is the buffer that [`entry`] named for it: taking it here by reference makes the caller show that it is still owned.
pub(crate) fn try_push(
    ring: &mut IoUring,
    entry: squeue::Entry,
    _buffer: Option<&Buffer>,
) -> Result<(), squeue::Entry> {
    let mut queue = ring.submission();
    // SAFETY: all memory the entry points to lies in the buffer that the caller stores until the completion, also when
    // the ring is dropped before (see `Uring`'s Drop); commands carry their payload inside the entry.
    let pushed = unsafe { queue.push(&entry) };
    pushed.map_err(|_| entry)
}

/// Submits everything in the submission queue, runs deferred task work and waits for `want` completions.
pub(crate) fn enter(ring: &mut IoUring, want: u32) -> io::Result<()> {
    let pending = {
        let mut queue = ring.submission();
        queue.sync();
        u32::try_from(queue.len()).unwrap_or(u32::MAX)
    };
    // SAFETY: no signal mask is passed, and `pending` entries were published by the sync above.
    unsafe {
        ring.submitter()
            .enter::<()>(pending, want, ENTER_GETEVENTS, None)
    }
    .map(|_| ())
}

/// The next completion that is visible without entering the kernel.
pub(crate) fn next_completion(ring: &mut IoUring) -> Option<cqueue::Entry> {
    ring.completion().next()
}
