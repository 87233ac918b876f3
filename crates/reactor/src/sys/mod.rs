//! The unsafe part: the memory of buffers, pushing entries to the ring, entering the kernel.
#![expect(
    unsafe_code,
    reason = "the ring and its memory are shared with the kernel; every block states why it is sound"
)]

pub(crate) mod arena;
pub(crate) mod entries;
pub(crate) mod lease;
