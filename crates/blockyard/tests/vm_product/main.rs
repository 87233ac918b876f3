//! The whole product on real kernels: the daemon's binary, the kernel's block devices, real tools.
//!
//! Every test runs inside a machine, once per kernel series (`testvm`). One file per promise; `guest/` is what they stand on.
//!
//! Not here: a target that panics. Nothing outside the daemon can make one panic, so `sim` covers it
//! (`crates/sim/tests/isolation.rs`); figures, which `cargo xtask bench` measures.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "what tests stand on fails the test, like the tests themselves"
)]

mod disks;
mod ends;
mod fairness;
mod files;
mod full;
mod guest;
mod hang;
mod hostile;
mod images;
mod images_refused;
mod images_shared;
mod io;
mod readme;
mod refused;
mod restart;
mod rounds;
mod shared_files;
mod start;
mod zero_copy;
