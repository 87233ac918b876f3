//! The server and the client over real unix sockets, with an in-memory service behind them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests fail the test, like the tests themselves"
)]

mod client;
mod ending;
mod harness;
mod hostile;
mod memory;
mod routes;
mod starved;
