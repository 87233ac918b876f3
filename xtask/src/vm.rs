//! `cargo xtask vm`: any command in a machine.

use std::time::Duration;

use anyhow::{Result, bail};
use testvm::{DeviceManager, GUEST_VARIABLE, GuestClock, GuestJob, KernelSeries, host, kernel};

use crate::cargo::{self, Metadata};
use crate::console;

/// Which machine, and what in it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Kernel series: "6.12" or "latest"
    #[arg(long, default_value = "latest")]
    kernel: KernelSeries,
    /// One emulated instruction is one nanosecond; use it with one CPU
    #[arg(long)]
    icount: bool,
    /// Start systemd-udevd first
    #[arg(long)]
    udev: bool,
    /// Emulated CPUs (default 2; 1 with --icount)
    #[arg(long)]
    cpus: Option<u16>,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 3072)]
    memory: u32,
    /// Time limit in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,
    /// The command and its arguments; it starts in the current directory
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command; fails when it fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    host::ensure_packages(&mut console::output())?;
    let kernel = kernel::ensure(options.kernel)?;
    let mut job = GuestJob::new(options.command.clone());
    (job.clock, job.cpus) = if options.icount {
        (GuestClock::Instructions, options.cpus.unwrap_or(1))
    } else {
        (GuestClock::Wall, options.cpus.unwrap_or(2))
    };
    if options.udev {
        job.device_manager = DeviceManager::Udevd;
    }
    job.memory_mib = options.memory;
    job.timeout = Duration::from_secs(options.timeout);
    job.dir = std::env::current_dir()?;
    let target_dir = Metadata::load()?.target_directory;
    job.keep = vec![target_dir.clone(), cargo::workspace_root().to_owned()];
    job.env = vec![(GUEST_VARIABLE.to_owned(), "1".to_owned())];
    let out = target_dir.join("testvm").join("vm");
    let outcome = testvm::run(&kernel, &job, &out, &mut console::output())?;
    for complaint in outcome.kernel_log.complaints() {
        console::complain(&format!("kernel: {}", complaint.text));
    }
    if outcome.status != 0 {
        bail!("the command ended with status {}", outcome.status);
    }
    Ok(())
}
