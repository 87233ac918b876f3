//! Benchmarks, by name. Each has a question, runs what it compares interleaved in one machine, and prints raw figures
//! before medians.

mod client;
mod daemon;
pub(crate) mod data_path;
mod figures;
mod guest;
pub(crate) mod lifecycle;
mod machine;
mod options;
