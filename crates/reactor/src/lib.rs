//! One io_uring with many users: operations that own their buffers, a bounded buffer pool and a mailbox.
//!
//! The [`Ring`] trait is the seam between the data plane and the kernel: [`uring::Uring`] is the real one, the simulator
//! brings another. Limits: one thread per ring; operations that carry a buffer are bounded by the pool.
#![deny(unsafe_code)]

pub mod buffer;
mod error;
mod file;
pub mod lease;
pub mod mailbox;
mod op;
mod ring;
mod sys;
pub mod uring;

pub use error::{Error, ErrorKind};
pub use file::{NowMode, NowModes, RingFile};
pub use op::{Completion, Op, Token, WriteMode};
pub use ring::{Ring, Wait};
