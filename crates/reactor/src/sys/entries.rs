//! Entries of the ring and entering the kernel.

use std::io;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::buffer::Buffer;
use crate::file::{NowMode, RingFile};
use crate::op::{Op, WriteMode};

/// The entry for an operation, and the buffer it must own while in flight.
pub(crate) fn entry(op: Op<'_, RingFile>) -> (squeue::Entry, Option<Buffer>) {
    match op {
        Op::Command {
            file,
            code,
            payload,
            address,
        } => (
            opcode::UringCmd16::new(types::Fd(file.raw_fd()), code)
                .cmd(payload)
                .addr(Some(address))
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
            let entry = opcode::Read::new(types::Fd(file.raw_fd()), buffer.address(), len)
                .offset(offset_bytes)
                .build();
            (entry, Some(buffer))
        }
        Op::ReadRegistered {
            file,
            offset_bytes,
            len_bytes,
            slot,
            start_bytes,
        } => (
            read_registered(file, (offset_bytes, len_bytes), (slot, start_bytes)),
            None,
        ),
        Op::Write {
            file,
            offset_bytes,
            len_bytes,
            buffer,
            mode,
        } => {
            let entry = write(file, (offset_bytes, len_bytes), &buffer, mode);
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

fn write(
    file: &RingFile,
    (offset_bytes, len_bytes): (u64, u32),
    buffer: &Buffer,
    mode: WriteMode,
) -> squeue::Entry {
    let len = len_bytes.min(buffer.capacity_bytes());
    let flags = match mode {
        WriteMode::Volatile => 0,
        WriteMode::Durable => RWF_DSYNC,
    };
    opcode::Write::new(types::Fd(file.raw_fd()), buffer.address(), len)
        .offset(offset_bytes)
        .rw_flags(flags)
        .build()
}

fn read_registered(
    file: &RingFile,
    (offset_bytes, len_bytes): (u64, u32),
    (slot, start_bytes): (u16, u32),
) -> squeue::Entry {
    // Not a pointer: memory that a driver registers begins at 0 (`io_kernel_buffer_init`, Linux 7.3).
    let start = usize::try_from(start_bytes).unwrap_or(usize::MAX);
    let flags = match file.read_mode() {
        NowMode::Plain => 0,
        NowMode::NoWait | NowMode::Never => RWF_NOWAIT,
    };
    let start = std::ptr::without_provenance_mut(start);
    opcode::ReadFixed::new(types::Fd(file.raw_fd()), start, len_bytes, slot)
        .offset(offset_bytes)
        .rw_flags(flags)
        .build()
}

/// `RWF_DSYNC` of linux/fs.h.
const RWF_DSYNC: i32 = 0x2;
/// `RWF_NOWAIT` of linux/fs.h.
const RWF_NOWAIT: i32 = 0x8;
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
    // SAFETY: all memory of this process that the entry points to lies in the buffer that the caller stores until the
    // completion, also when the ring is dropped before (see `Uring`'s Drop); commands carry their payload inside the
    // entry, and a slot holds memory of the kernel's own: this ring registers none of this process.
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
