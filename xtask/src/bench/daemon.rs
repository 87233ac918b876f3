//! A daemon under measurement: started on a scratch directory, filled by many clients, weighed, stopped.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::Signal;
use testvm::{Child, Deadline, Waited};

use super::client::Client;
use super::figures::Weight;

/// Tags of each device, as in the reference figures.
const DEPTH: u16 = 16;
/// Size of the sparse files.
const FILE_BYTES: u64 = 8 << 30;
/// How long the daemon may take to open its socket.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks for the socket.
const START_STEP: Duration = Duration::from_millis(20);
/// How long it may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(600);
/// Names in sysfs of ublk devices that exist.
const DEVICES: &str = "/sys/class/ublk-char";

/// A running daemon.
pub(crate) struct Daemon {
    process: Child,
    scratch: tempfile::TempDir,
    created: u32,
}

/// How a number of creates went.
pub(crate) struct Created {
    /// From the first request to the last answer.
    pub(crate) total: Duration,
    /// Of each request.
    pub(crate) each: Vec<Duration>,
}

impl Daemon {
    pub(crate) fn start(binary: &Path, arguments: &[String]) -> Result<Self> {
        let scratch = tempfile::tempdir().context("make a scratch directory")?;
        let log = File::create(scratch.path().join("log")).context("create the log")?;
        let mut command = Command::new(binary);
        command
            .arg("serve")
            .arg("--socket")
            .arg(scratch.path().join("socket"))
            .arg("--state-dir")
            .arg(scratch.path().join("state"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let mut daemon = Self {
            process: Child::spawn(&mut command)?,
            scratch,
            created: 0,
        };
        let limit = Deadline::after(START_LIMIT);
        while UnixStream::connect(daemon.socket()).is_err() {
            if let Waited::Ended(status) = daemon.process.wait(Deadline::after(START_STEP))? {
                bail!("the daemon ended with {status}: {}", daemon.log());
            }
            ensure!(!limit.remaining().is_zero(), "the daemon made no socket");
        }
        // The socket is there before the rest: what is weighed is a daemon that is up.
        Client::connect(&daemon.socket())?.ask_status()?;
        Ok(daemon)
    }

    /// Creates devices on sparse files until there are `total`, from `clients` threads at once.
    pub(crate) fn fill(&mut self, total: u32, clients: u32) -> Result<Created> {
        let first = self.created;
        for index in first..total {
            let file = File::create(self.file(index)).context("create a file")?;
            file.set_len(FILE_BYTES).context("size a file")?;
        }
        let next = AtomicU32::new(first);
        let clock = Deadline::after(Duration::MAX);
        let each = std::thread::scope(|scope| {
            let work = || self.create_some(&next, total);
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
            let mut each = Vec::new();
            for thread in threads {
                let some = thread.join().map_err(|_| anyhow!("a client panicked"))?;
                each.extend(some?);
            }
            anyhow::Ok(each)
        })
        .with_context(|| self.log())?;
        self.created = total;
        let total = clock.elapsed();
        Ok(Created { total, each })
    }

    fn create_some(&self, next: &AtomicU32, total: u32) -> Result<Vec<Duration>> {
        let mut client = Client::connect(&self.socket())?;
        let mut each = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total {
                return Ok(each);
            }
            each.push(client.create(&format!("d{index}"), &self.file(index), DEPTH)?);
        }
    }

    /// What it weighs now.
    pub(crate) fn weigh(&self) -> Result<Weight> {
        Weight::of(self.process.id())
    }

    /// SIGTERM; the time to its end. Fails unless it ends well and leaves no device.
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let clock = Deadline::after(STOP_LIMIT);
        self.process.signal(Signal::TERM)?;
        let Waited::Ended(status) = self.process.wait(clock)? else {
            bail!(
                "the daemon did not end within {STOP_LIMIT:?}: {}",
                self.log()
            );
        };
        let elapsed = clock.elapsed();
        let left = device_count()?;
        ensure!(
            status.success() && left == 0,
            "ended with {status}, {left} devices are left: {}",
            self.log()
        );
        Ok(elapsed)
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path().join("socket")
    }

    fn file(&self, index: u32) -> PathBuf {
        self.scratch.path().join(format!("disk{index}"))
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// How many ublk devices the kernel has.
pub(crate) fn device_count() -> Result<usize> {
    match fs::read_dir(DEVICES) {
        Ok(entries) => Ok(entries.count()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).context("read the devices in sysfs"),
    }
}
