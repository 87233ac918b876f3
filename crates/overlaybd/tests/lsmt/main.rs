//! LSMT against the files that the reference programs wrote, and against a plain map of sectors.
//!
//! Right answers are in `../fixtures`: MANIFEST.md says what each file is.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test's fixtures are small and as they are; a panic is its failure"
)]

mod corrupt;
mod dumps;
mod exceptions;
mod fixture;
mod headers;
mod lifecycle;
mod parents;
mod plans;
mod properties;
mod readable;
mod replay;
