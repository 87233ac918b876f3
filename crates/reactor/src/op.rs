//! Operations and their completions. An operation owns its buffer until its completion gives it back.

use crate::buffer::Buffer;

/// What a completion is found again by; chosen by the ring's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// When the file has taken it.
    Volatile,
    /// When data and the metadata to read it back are durable (`RWF_DSYNC`).
    Durable,
}

/// One operation on a ring. `F` is what the ring understands as a file: a file descriptor, or a simulated file.
///
/// The file must stay open until the ring was entered once after the push; from then on the kernel holds it.
#[derive(Debug)]
pub enum Op<'a, F> {
    /// A 16-byte command to a driver, on a ring with 64-byte entries.
    Command {
        /// The driver's file.
        file: &'a F,
        /// The driver's command number.
        code: u32,
        /// The command's payload.
        payload: [u8; 16],
        /// The submission's address field, for commands that have one; others ignore it.
        address: u64,
    },
    /// Read into the buffer's first `len_bytes`.
    Read {
        /// The file.
        file: &'a F,
        /// Position in the file.
        offset_bytes: u64,
        /// How much; at most the buffer's capacity.
        len_bytes: u32,
        /// Where to.
        buffer: Buffer,
    },
    /// Read into memory that a driver has registered in a slot of the ring's table, without waiting: where it would have to,
    /// it fails. Only of a file that [`crate::Ring::may_read_registered`] was asked about.
    ///
    /// The ring looks the slot up in the order of the pushes: a command that empties it must be pushed later.
    ReadRegistered {
        /// The file.
        file: &'a F,
        /// Position in the file.
        offset_bytes: u64,
        /// How much.
        len_bytes: u32,
        /// The slot.
        slot: u16,
        /// Where in the slot's memory, from its beginning.
        start_bytes: u32,
    },
    /// Write the buffer's first `len_bytes`.
    Write {
        /// The file.
        file: &'a F,
        /// Position in the file.
        offset_bytes: u64,
        /// How much; at most the buffer's capacity.
        len_bytes: u32,
        /// Where from.
        buffer: Buffer,
        /// When it counts as done.
        mode: WriteMode,
    },
    /// `fdatasync`.
    Sync {
        /// The file.
        file: &'a F,
    },
    /// `fallocate`.
    Allocate {
        /// The file.
        file: &'a F,
        /// First byte.
        offset_bytes: u64,
        /// Number of bytes.
        len_bytes: u64,
        /// The `FALLOC_FL_*` flags of linux/falloc.h.
        mode: i32,
    },
    /// Completes once when the file is readable.
    Poll {
        /// The file.
        file: &'a F,
    },
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The token of the operation.
    pub token: Token,
    /// The count of bytes or another non-negative answer; a negative errno on failure.
    pub result: i32,
    /// The buffer of a read or write.
    pub buffer: Option<Buffer>,
}
