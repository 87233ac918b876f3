//! What `cargo xtask bench lifecycle` can be told.

use std::path::PathBuf;

use clap::Parser;
use testvm::KernelSeries;

/// What to compare, and where.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench lifecycle")]
pub(crate) struct Options {
    /// Devices of each round
    #[arg(long, default_value_t = 300)]
    pub(crate) devices: u32,
    /// Clients that create at once
    #[arg(long, default_value_t = 8)]
    pub(crate) clients: u32,
    /// Rounds of everything
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: u32,
    /// Weigh the daemon at these numbers of devices, in a round of its own; 0 for no such round
    #[arg(long, value_delimiter = ',', default_value = "100,500")]
    pub(crate) weigh_at: Vec<u32>,
    /// Values of the daemon's --stop-concurrency
    #[arg(long, value_delimiter = ',', default_value = "16")]
    pub(crate) stop_concurrency: Vec<u32>,
    /// Another build of the daemon to compare with; may be given several times
    #[arg(long)]
    pub(crate) against: Vec<PathBuf>,
    /// Kernel series: "6.12,latest" or one of them; both when not given
    #[arg(long, visible_alias = "kernel", value_delimiter = ',')]
    pub(super) kernels: Vec<KernelSeries>,
    /// Memory of the machine in MiB
    #[arg(long, value_name = "MIB", default_value_t = 3072)]
    pub(super) memory: u32,
    /// The guest's side: the bare program and the daemon to run here
    #[arg(long, hide = true, num_args = 2)]
    pub(crate) in_guest: Vec<PathBuf>,
}
