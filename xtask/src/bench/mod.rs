//! Benchmarks, by name. Each has a question, runs what it compares interleaved in one machine, and prints raw figures
//! before medians.

mod client;
mod daemon;
mod figures;
mod guest;
pub(crate) mod lifecycle;
mod options;
