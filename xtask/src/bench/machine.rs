//! The machine of a benchmark: this program, started again as the guest's side.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testvm::{GUEST_VARIABLE, GuestJob, KernelSeries, kernel};

use crate::cargo::Metadata;
use crate::console::{self, say};

/// The most time for one kernel.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// A benchmark's guest side.
pub(crate) struct GuestSide<'a> {
    /// The benchmark's name.
    pub(crate) name: &'a str,
    /// What the user gave it.
    pub(crate) arguments: &'a [String],
    /// Behind `--in-guest`: the programs that were built for it.
    pub(crate) programs: &'a [PathBuf],
}

/// Boots a kernel of the series and runs the guest's side there; `shape` changes the machine.
pub(crate) fn run(
    series: KernelSeries,
    side: &GuestSide<'_>,
    shape: impl FnOnce(&mut GuestJob),
) -> Result<()> {
    let kernel = kernel::ensure(series)?;
    say(&format!("== Linux {}", kernel.release()));
    let own = std::env::current_exe().context("find this program")?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![text(&own), "bench".to_owned(), side.name.to_owned()];
    argv.extend_from_slice(side.arguments);
    argv.push("--in-guest".to_owned());
    argv.extend(side.programs.iter().map(|program| text(program)));
    let mut job = GuestJob::new(argv);
    job.timeout = LIMIT;
    let target_dir = Metadata::load()?.target_directory;
    job.keep = vec![target_dir.clone()];
    job.env = vec![(GUEST_VARIABLE.to_owned(), "1".to_owned())];
    shape(&mut job);
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

/// The series that were asked for, or every one.
pub(crate) fn series(asked: &[KernelSeries]) -> Vec<KernelSeries> {
    if asked.is_empty() {
        KernelSeries::ALL.to_vec()
    } else {
        asked.to_vec()
    }
}
