//! An image that is served, without a data plane: plans are executed step by step in any order, on files of which it is known what
//! would survive a power cut, and what is read is held against a model.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's fixtures are small and as they are; a panic is its failure, and figures are printed"
)]

mod crash;
mod executor;
mod failures;
mod faults;
mod history;
mod images;
mod model;
mod store;
