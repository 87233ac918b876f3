//! How long do devices take to be created and stopped, what does each cost, and what is the kernel's share?
//!
//! In one machine per kernel, interleaved: the bare program (the kernel's own limit) and `blockyard serve` with sparse
//! files on tmpfs, filled by many clients at once. Several builds of the daemon, and several values of
//! `--stop-concurrency`, can be compared in one run.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use testvm::{GUEST_VARIABLE, GuestJob, KernelSeries, host, kernel};

use super::guest;
use super::options::Options;
use crate::cargo::{self, Metadata};
use crate::console::{self, say};

/// The programs are built, machines booted, rounds run.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = "lifecycle".to_owned();
    let options = Options::try_parse_from(std::iter::once(&name).chain(arguments))?;
    if let [bare, daemon] = options.in_guest.as_slice() {
        return guest::run(&options, bare, daemon);
    }
    host::ensure_packages(&mut console::output())?;
    let bare = cargo::build_binary("bare", "release")?;
    let daemon = cargo::build_binary("blockyard", "release")?;
    let all = KernelSeries::ALL.to_vec();
    let series = if options.kernel.is_empty() {
        all
    } else {
        options.kernel.clone()
    };
    for series in series {
        run_on(series, &options, arguments, [&bare, &daemon])?;
    }
    Ok(())
}

fn run_on(
    series: KernelSeries,
    options: &Options,
    arguments: &[String],
    [bare, daemon]: [&Path; 2],
) -> Result<()> {
    let kernel = kernel::ensure(series)?;
    say(&format!("== Linux {}", kernel.release()));
    let own = std::env::current_exe().context("find this program")?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![text(&own), "bench".to_owned(), "lifecycle".to_owned()];
    argv.extend_from_slice(arguments);
    argv.extend(["--in-guest".to_owned(), text(bare), text(daemon)]);
    let mut job = GuestJob::new(argv);
    job.memory_mib = options.memory;
    job.timeout = Duration::from_secs(60 * 60);
    let target_dir = Metadata::load()?.target_directory;
    job.keep = vec![target_dir.clone()];
    job.env = vec![(GUEST_VARIABLE.to_owned(), "1".to_owned())];
    let out = target_dir.join("testvm").join("bench");
    let outcome = testvm::run(&kernel, &job, &out, &mut console::output())?;
    for complaint in outcome.kernel_log.complaints() {
        console::complain(&format!("kernel: {}", complaint.text));
    }
    if outcome.status != 0 {
        bail!("the benchmark ended with status {}", outcome.status);
    }
    Ok(())
}
