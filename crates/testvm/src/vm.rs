//! One machine from boot to result.
//!
//! The output directory holds afterwards: `log` (the job's output), `kernel.log` (the kernel's log at the end), `console`
//! (what the kernel wrote to its console, which survives a panic), and whatever the job wrote to `/out`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::child::{Child, Waited};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::job::GuestJob;
use crate::kernel::Kernel;
use crate::kernel_log::KernelLog;
use crate::qemu::Wiring;
use crate::virtiofs::{Caching, SharedDir};
use crate::{initramfs, program, qemu};

/// How often a machine is booted whose kernel dies before the job begins. Emulation with several CPUs sometimes loses a race that
/// hardware does not have: `Oops: int3` while the kernel patches its own code, 1.5 s after power-on.
const BOOTS_MAX: u32 = 3;
/// Written by init when the job begins.
const BEGUN: &str = "begun";
/// One read of the job's output.
const READ_BYTES: usize = 64 << 10;

/// What a job left behind.
#[derive(Debug)]
pub struct Outcome {
    /// The command's exit status as a shell sees it: 128 + N when signal N ended it, 125 when the job could not begin.
    pub status: i32,
    /// The kernel's log.
    pub kernel_log: KernelLog,
    /// From power-on to power-off.
    pub elapsed: Duration,
}

/// A running machine. Dropping it kills it, as a power cut would.
#[derive(Debug)]
pub struct Vm {
    qemu: Child,
    output: ChildStdout,
    deadline: Deadline,
    out_dir: PathBuf,
    // Dropped after QEMU: the servers of its file systems, then the directory of their sockets.
    _dirs: [SharedDir; 2],
    _scratch: tempfile::TempDir,
}

/// Boots the kernel, runs the job and waits for its end; the job's output goes to `sink` as it appears. A kernel that dies
/// before the job begins is booted again, and `sink` told so: nothing of the job has happened.
///
/// # Errors
/// As [`Vm::boot`] and [`Vm::wait`]. A command that fails is no error: see [`Outcome::status`].
pub fn run(
    kernel: &Kernel,
    job: &GuestJob,
    out_dir: &Path,
    sink: &mut dyn Write,
) -> Result<Outcome, Error> {
    let mut boots = 1;
    loop {
        let ended = Vm::boot(kernel, job, out_dir)?.wait(sink);
        let Err(error) = &ended else { return ended };
        let has_begun = out_dir.join(BEGUN).exists();
        if error.kind() != ErrorKind::GuestDied || has_begun || boots == BOOTS_MAX {
            return ended;
        }
        boots += 1;
        writeln!(
            sink,
            "the kernel died before the job began, boot {boots} of {BOOTS_MAX} follows: {error}"
        )
        .map_err(|error| Error::io("write the job's output", out_dir.display(), error))?;
    }
}

impl Vm {
    /// Starts the machine. `out_dir` is created; it is the guest's `/out`.
    ///
    /// # Errors
    /// A program is missing, a file cannot be written.
    pub fn boot(kernel: &Kernel, job: &GuestJob, out_dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(out_dir)
            .and_then(|()| remove_results(out_dir))
            .map_err(|error| Error::io("prepare the output directory", out_dir.display(), error))?;
        let out_dir = fs::canonicalize(out_dir)
            .map_err(|error| Error::io("prepare the output directory", out_dir.display(), error))?;
        let scratch = tempfile::Builder::new()
            .prefix("testvm-")
            .tempdir()
            .map_err(|error| {
                Error::io(
                    "create a scratch directory",
                    "in the temporary directory",
                    error,
                )
            })?;
        let file = |name: &str| scratch.path().join(name);
        let initramfs = file("initramfs");
        fs::write(&initramfs, initramfs::build(kernel, job)?)
            .map_err(|error| Error::io("write the initramfs", initramfs.display(), error))?;
        let root = SharedDir::serve(Path::new("/"), file("root.sock"), Caching::Always)?;
        let out = SharedDir::serve(&out_dir, file("out.sock"), Caching::Auto)?;
        let wiring = Wiring {
            image: &kernel.image(),
            initramfs: &initramfs,
            console: &out_dir.join("console"),
            root_socket: root.socket(),
            out_socket: out.socket(),
        };
        let arguments = qemu::arguments(job, &wiring);
        let errors = fs::File::create(out_dir.join("qemu.log"))
            .map_err(|error| Error::io("create QEMU's log", out_dir.display(), error))?;
        let deadline = Deadline::after(job.timeout);
        let mut qemu = Child::spawn_tied("qemu-system-x86_64", |command| {
            command
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::from(errors));
        })?;
        let output = qemu
            .take_stdout()
            .ok_or_else(|| Error::new(ErrorKind::Program, "start QEMU", "it has no output"))?;
        Ok(Self {
            qemu,
            output,
            deadline,
            out_dir,
            _dirs: [root, out],
            _scratch: scratch,
        })
    }

    /// Waits for the machine to power off; copies the job's output to `sink` and to the file `log`.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] when the job's time is over, [`ErrorKind::GuestDied`] when the machine ended without a
    /// result; both carry the end of the kernel's console.
    pub fn wait(mut self, sink: &mut dyn Write) -> Result<Outcome, Error> {
        let path = self.out_dir.join("log");
        let mut log = fs::File::create(&path)
            .map_err(|error| Error::io("create the job's log", path.display(), error))?;
        let mut buffer = vec![0; READ_BYTES];
        while self.output_is_there()? {
            let count = match rustix::io::read(&self.output, &mut buffer[..]) {
                Ok(0) => break,
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    return Err(Error::io("read the job's output", path.display(), error));
                }
            };
            let bytes = buffer.get(..count).unwrap_or_default();
            log.write_all(bytes)
                .and_then(|()| sink.write_all(bytes))
                .and_then(|()| sink.flush())
                .map_err(|error| Error::io("write the job's output", path.display(), error))?;
        }
        match self.qemu.wait(self.deadline)? {
            Waited::Ended(_) => self.outcome(),
            Waited::DeadlinePassed => Err(self.timed_out()),
        }
    }

    /// Cuts the power. What the guest had flushed to its disks is in their files; nothing else is.
    pub fn cut_power(mut self) {
        self.qemu.kill();
    }

    /// Waits until the output has something to read or has ended.
    fn output_is_there(&self) -> Result<bool, Error> {
        let end = self.qemu.end();
        loop {
            let mut fds = [
                PollFd::new(&self.output, PollFlags::IN),
                PollFd::new(&end, PollFlags::IN),
            ];
            let left = self.deadline.remaining();
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) => return Err(self.timed_out()),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(Error::io(
                        "wait for the guest",
                        self.out_dir.display(),
                        error,
                    ));
                }
            }
        }
    }

    fn outcome(&self) -> Result<Outcome, Error> {
        let read = |name: &str| fs::read(self.out_dir.join(name)).unwrap_or_default();
        let status = String::from_utf8_lossy(&read("rc"))
            .trim()
            .parse()
            .map_err(|_| {
                Error::new(
                    ErrorKind::GuestDied,
                    "run a guest",
                    format!("the machine ended without a result; {}", self.last_words()),
                )
            })?;
        Ok(Outcome {
            status,
            kernel_log: KernelLog::new(String::from_utf8_lossy(&read("kernel.log"))),
            elapsed: self.deadline.elapsed(),
        })
    }

    fn timed_out(&self) -> Error {
        let limit_s = self.deadline.limit().as_secs();
        Error::new(
            ErrorKind::TimedOut,
            "run a guest",
            format!(
                "the job did not end within {limit_s} s; {}",
                self.last_words()
            ),
        )
    }

    /// What the kernel complained of first, the end of its console, and QEMU's own messages.
    fn last_words(&self) -> String {
        let read = |name: &str| {
            let bytes = fs::read(self.out_dir.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).trim().to_owned()
        };
        let console = KernelLog::new(read("console"));
        let first = console.complaints().into_iter().next();
        format!(
            "kernel's first complaint: {}; end of {}: {}; qemu: {}",
            first.map_or_else(|| "none".to_owned(), |complaint| complaint.text),
            self.out_dir.join("console").display(),
            program::tail(console.text()),
            program::tail(&read("qemu.log"))
        )
    }
}

/// Results of an earlier run must not be taken for this one's.
fn remove_results(dir: &Path) -> std::io::Result<()> {
    for name in ["rc", "log", "kernel.log", "console", BEGUN] {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
