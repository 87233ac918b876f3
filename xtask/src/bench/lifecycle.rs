//! How long do devices take to be created and stopped, what does each cost, and what is the kernel's share?
//!
//! In one machine per kernel, interleaved: the bare program (the kernel's own limit) and `blockyard serve` with sparse
//! files on tmpfs, filled by many clients at once. Several builds of the daemon, and several values of
//! `--stop-concurrency`, can be compared in one run.

use anyhow::Result;
use clap::Parser;
use testvm::host;

use super::guest;
use super::machine::{self, GuestSide};
use super::options::Options;
use crate::{cargo, console};

/// The programs are built, machines booted, rounds run.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = "cargo xtask bench lifecycle".to_owned();
    let options = Options::parse_from(std::iter::once(&name).chain(arguments));
    if let [bare, daemon] = options.in_guest.as_slice() {
        return guest::run(&options, bare, daemon);
    }
    host::ensure_packages(&mut console::output())?;
    let side = GuestSide {
        name: "lifecycle",
        arguments,
        programs: &[
            cargo::build_binary("bare", "release")?,
            cargo::build_binary("blockyard", "release")?,
        ],
    };
    for series in machine::series(&options.kernels) {
        machine::run(series, &side, |job| job.memory_mib = options.memory)?;
    }
    Ok(())
}
