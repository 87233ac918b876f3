//! What can go wrong with a ring or its memory; only at set-up, never per I/O.

use std::io;

/// The stable kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The ring could not be set up: io_uring is disabled, or a limit is reached.
    Setup,
    /// Memory for buffers could not be mapped.
    Memory,
    /// The kernel refused to take or deliver operations.
    Enter,
}

/// A failed ring operation with its cause.
#[derive(Debug, thiserror::Error)]
#[error("{op} failed; {advice}")]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// The system call.
    pub op: &'static str,
    /// What the operator can do.
    pub advice: &'static str,
    /// The system's answer.
    #[source]
    pub source: io::Error,
}

impl Error {
    /// A shard thread could not be started.
    #[must_use]
    pub const fn thread(source: io::Error) -> Self {
        Self {
            kind: ErrorKind::Setup,
            op: "starting a shard thread",
            advice: "check `ulimit -u` and memory limits",
            source,
        }
    }

    pub(crate) const fn setup(source: io::Error) -> Self {
        Self {
            kind: ErrorKind::Setup,
            op: "io_uring_setup",
            advice: "check `sysctl kernel.io_uring_disabled` (must be 0), `ulimit -n` and memory limits",
            source,
        }
    }

    pub(crate) const fn workers(source: io::Error) -> Self {
        Self {
            kind: ErrorKind::Setup,
            op: "io_uring_register of worker threads",
            advice: "check `ulimit -u` and the task limit of the service",
            source,
        }
    }

    pub(crate) const fn memory(source: io::Error) -> Self {
        Self {
            kind: ErrorKind::Memory,
            op: "mmap of the buffer pool",
            advice: "check the memory limits of the service",
            source,
        }
    }

    pub(crate) const fn enter(source: io::Error) -> Self {
        Self {
            kind: ErrorKind::Enter,
            op: "io_uring_enter",
            advice: "the shard cannot go on; its devices need recovery",
            source,
        }
    }
}
