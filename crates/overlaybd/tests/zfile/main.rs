//! Tar wrapper and ZFile against the reference's files, damaged files and random ones.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, also outside of its own function"
)]

mod allocations;
mod damaged;
mod files;
mod random;
mod reference;
