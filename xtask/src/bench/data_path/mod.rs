//! How many instructions does one 4 KiB I/O cost, beside the kernel's `null_blk` and its loop driver?
//!
//! In one machine per kernel, with one CPU and a clock that counts instructions: 1e9 / IOPS is then the number of
//! instructions per I/O of client, kernel and server together, within about 1 %, however busy the host is. That is no
//! measure of time: a cache miss costs as much as an addition, and a string move an instruction per byte.
//!
//! Blockyard's data path is served by the example `one_device`, without the control plane.

mod command;
mod contenders;
mod fio;
mod guest;
mod images;
mod range;
mod table;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use testvm::{GuestClock, KernelSeries, host};

use self::contenders::Contender;
use self::images::Programs;
use super::machine::{self, GuestSide};
use crate::{cargo, console};

/// What `cargo xtask bench data-path` can be told.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench data-path")]
pub(crate) struct Options {
    /// Kernel series: "6.12,latest" or one of them; both when not given
    #[arg(long, visible_alias = "kernel", value_delimiter = ',')]
    kernels: Vec<KernelSeries>,
    /// Rounds of everything
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Length of one measurement, in guest seconds of 1e9 instructions
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    runtime: u32,
    /// Requests that the client keeps in flight
    #[arg(long, default_value_t = 16)]
    depth: u32,
    /// Who is measured; everybody when not given. What is above null_blk needs that too
    #[arg(long, value_delimiter = ',')]
    only: Vec<Contender>,
    /// The guest's side: the program that serves, and the daemon's, which makes images
    #[arg(long, hide = true, num_args = 2)]
    in_guest: Vec<PathBuf>,
}

impl Options {
    fn contenders(&self) -> Vec<Contender> {
        if self.only.is_empty() {
            Contender::ALL.to_vec()
        } else {
            self.only.clone()
        }
    }
}

/// The server is built, machines booted, rounds run.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = "cargo xtask bench data-path".to_owned();
    let options = Options::parse_from(std::iter::once(&name).chain(arguments));
    if let [server, daemon] = options.in_guest.as_slice() {
        let programs = Programs {
            server: server.clone(),
            daemon: daemon.clone(),
        };
        return guest::run(&options, &programs);
    }
    host::ensure_packages(&mut console::output())?;
    let side = GuestSide {
        name: "data-path",
        arguments,
        programs: &[
            cargo::build_example("blockyard", "one_device", "release")?,
            cargo::build_binary("blockyard", "release")?,
        ],
    };
    for series in machine::series(&options.kernels) {
        machine::run(series, &side, |job| {
            (job.clock, job.cpus) = (GuestClock::Instructions, 1);
        })?;
    }
    Ok(())
}
