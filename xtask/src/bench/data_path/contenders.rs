//! Who is measured: the kernel's own drivers, and the data path with its targets.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use testvm::{Child, Deadline, Waited};

use super::command::output;
use super::fio::Direction;
use super::images::{self, Image, Programs, Store};
use super::range::FILE_BYTES;

/// How long a server may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Where drivers are configured by directories.
const CONFIGFS: &str = "/sys/kernel/config";
/// The device that is made there: the first, for the machine has none when it boots.
const NULL_BLK: &str = "/sys/kernel/config/nullb/nullb0";

/// Something that is a block device when it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Contender {
    /// The kernel's `null_blk`: the cost of client and block layer.
    NullBlk,
    /// The kernel's loop driver on the file.
    Loop,
    /// Blockyard's null target.
    Null,
    /// Blockyard's raw target on the file.
    Raw,
    /// An image with a sparse upper that has all of the range.
    Sparse,
    /// An image with a log upper that has all of the range, written in order.
    Log,
    /// An image of four zstd layers, each with a quarter of the range, read-only.
    Zstd,
}

/// A contender that is running.
pub(crate) struct Served {
    device: PathBuf,
    by: By,
}

/// Who serves, and thereby how it is stopped.
enum By {
    NullBlk,
    Loop,
    /// The process, and the pipe whose end tells it to stop.
    Server(Child, PipeWriter),
}

impl Contender {
    /// In the order in which they are measured.
    pub(crate) const ALL: [Self; 7] = [
        Self::NullBlk,
        Self::Loop,
        Self::Null,
        Self::Raw,
        Self::Sparse,
        Self::Log,
        Self::Zstd,
    ];

    /// Which ways it is measured.
    pub(crate) const fn directions(self) -> &'static [Direction] {
        match self {
            Self::Zstd => &[Direction::Read],
            _ => &Direction::ALL,
        }
    }

    /// Makes the device.
    pub(crate) fn start(self, store: &Store, programs: &Programs) -> Result<Served> {
        let (file, server) = (store.file.as_path(), programs.server.as_path());
        let size_mib = (FILE_BYTES >> 20).to_string();
        let served = match self {
            Self::NullBlk => start_null_blk(&size_mib)?,
            Self::Loop => start_loop(file)?,
            Self::Null => start_server(server, &["null".as_ref(), size_mib.as_ref()])?,
            Self::Raw => start_server(server, &["raw".as_ref(), file])?,
            Self::Sparse => start_image(Image::Sparse, store, programs)?,
            Self::Log => start_image(Image::Log, store, programs)?,
            Self::Zstd => start_image(Image::Zstd, store, programs)?,
        };
        if self == Self::Log {
            images::fill(&served.device)?;
        }
        let name = served.device.file_name().unwrap_or_default();
        let scheduler = Path::new("/sys/block").join(name).join("queue/scheduler");
        write(&scheduler, "none")?;
        Ok(served)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NullBlk => "null_blk (kernel)",
            Self::Loop => "loop (kernel)",
            Self::Null => "null",
            Self::Raw => "raw",
            Self::Sparse => "sparse upper",
            Self::Log => "log upper",
            Self::Zstd => "4 zstd layers",
        })
    }
}

impl Served {
    pub(crate) fn device(&self) -> &Path {
        &self.device
    }

    /// Takes the device away.
    pub(crate) fn stop(self) -> Result<()> {
        match self.by {
            By::NullBlk => {
                fs::remove_dir(NULL_BLK).with_context(|| format!("remove {NULL_BLK}"))?;
            }
            By::Loop => {
                output(Command::new("losetup").arg("--detach").arg(&self.device))?;
            }
            By::Server(mut process, pipe) => {
                drop(pipe);
                match process.wait(Deadline::after(STOP_LIMIT))? {
                    Waited::Ended(status) if status.success() => {}
                    Waited::Ended(status) => bail!("the server ended with {status}"),
                    Waited::DeadlinePassed => bail!("the server did not end within {STOP_LIMIT:?}"),
                }
            }
        }
        Ok(())
    }
}

/// One hardware queue as deep as the server's; requests are answered at once.
fn start_null_blk(size_mib: &str) -> Result<Served> {
    if !Path::new(CONFIGFS).join("nullb").exists() {
        output(Command::new("mount").args(["-t", "configfs", "none", CONFIGFS]))?;
    }
    fs::create_dir(NULL_BLK).with_context(|| format!("create {NULL_BLK}"))?;
    for (name, value) in [
        ("size", size_mib),
        ("submit_queues", "1"),
        ("hw_queue_depth", "64"),
        ("power", "1"),
    ] {
        write(&Path::new(NULL_BLK).join(name), value)?;
    }
    Ok(Served {
        device: "/dev/nullb0".into(),
        by: By::NullBlk,
    })
}

fn start_loop(file: &Path) -> Result<Served> {
    let device = output(Command::new("losetup").args(["--find", "--show"]).arg(file))?;
    Ok(Served {
        device: device.trim().into(),
        by: By::Loop,
    })
}

fn start_image(image: Image, store: &Store, programs: &Programs) -> Result<Served> {
    let config = images::prepare(image, store, programs)?;
    start_server(&programs.server, &["overlaybd".as_ref(), &config])
}

/// Starts the server, which prints its device's path when that can be used.
fn start_server(server: &Path, arguments: &[&Path]) -> Result<Served> {
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    let mut command = Command::new(server);
    command.args(arguments).stdin(reader).stdout(Stdio::piped());
    let mut process = Child::spawn(&mut command)?;
    let stdout = process.take_stdout().context("the server has no output")?;
    let mut device = String::new();
    BufReader::new(stdout)
        .read_line(&mut device)
        .context("read the device's path")?;
    ensure!(
        device.starts_with("/dev/"),
        "the server named no device; its error is above"
    );
    Ok(Served {
        device: device.trim().into(),
        by: By::Server(process, writer),
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {text} to {}", path.display()))
}
