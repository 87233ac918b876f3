//! `cargo xtask demo`: a real ext4 image, served, mounted, read, written, stopped; every command is shown.
//!
//! Runs on the latest kernel in a machine, or on the running kernel when that one has ublk and the user is root.

mod files;
mod session;
mod show;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testvm::{GUEST_VARIABLE, GuestJob, KernelSeries, host, kernel};

use crate::cargo::{self, Metadata};
use crate::console::{self, say};

/// Emulated: reading the files, making the image and checking it take 2 to 3 minutes.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Where to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Kernel series for the machine: "6.12" or "latest"
    #[arg(long, default_value = "latest")]
    kernel: KernelSeries,
    /// Boot a machine even where the running kernel has ublk
    #[arg(long)]
    vm: bool,
    /// The guest's side: run the demonstration here, with this daemon
    #[arg(long, hide = true, value_name = "BINARY")]
    in_guest: Option<PathBuf>,
}

/// Builds the daemon and shows it.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(binary) = &options.in_guest {
        return session::run(binary);
    }
    host::ensure_packages(&mut console::output())?;
    let binary = console::stage("build the daemon", || {
        cargo::build_binary("blockyard", "release")
    })?;
    let here = Path::new("/dev/ublk-control").exists() && rustix::process::geteuid().is_root();
    if here && !options.vm {
        say("This kernel has ublk: the demonstration runs on it.");
        return session::run(&binary);
    }
    let kernel = kernel::ensure(options.kernel)?;
    say(&format!(
        "This kernel has no ublk (or it is not ours to use): the demonstration runs on {} in a machine.",
        kernel.release()
    ));
    let target_dir = Metadata::load()?.target_directory;
    let own = std::env::current_exe().context("find this program")?;
    let mut job = GuestJob::new(
        [
            own.as_path(),
            Path::new("demo"),
            Path::new("--in-guest"),
            &binary,
        ]
        .map(|word| word.to_string_lossy().into_owned()),
    );
    job.timeout = LIMIT;
    job.keep = vec![target_dir.clone()];
    job.env = vec![(GUEST_VARIABLE.to_owned(), "1".to_owned())];
    let out = target_dir.join("testvm").join("demo");
    let outcome = testvm::run(&kernel, &job, &out, &mut console::output())?;
    if outcome.status != 0 {
        bail!("the demonstration ended with status {}", outcome.status);
    }
    if let Some(complaint) = outcome.kernel_log.complaints().first() {
        bail!("the kernel complained: {}", complaint.text);
    }
    Ok(())
}
