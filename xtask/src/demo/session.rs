//! The demonstration itself: from image to clean end. Needs root and a kernel with ublk.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use testvm::{Child, Deadline, Waited};

use super::files;
use super::show::{narrate, show, text};
use crate::console::say;

/// Size of the image, sparse: at most 128 MiB of files, 32 MiB to write, and room.
const IMAGE: &str = "256M";
/// What is written through the mount.
const WRITTEN_MIB: &str = "32";
/// How long the daemon may take to start and to stop, under emulation.
const DAEMON_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at the socket while the daemon starts.
const START_STEP: Duration = Duration::from_millis(50);

/// A daemon of its own and the files around it, all in one scratch directory.
struct Session {
    binary: String,
    scratch: tempfile::TempDir,
    socket: String,
    daemon: Child,
}

impl Drop for Session {
    /// After a failure, too, the daemon ends in order: killed, it would leave a device whose I/O waits for ever.
    fn drop(&mut self) {
        // Each step fails where a good run has done it already.
        let _ = Command::new("umount")
            .arg("--quiet")
            .arg(self.scratch.path().join("mnt"))
            .status();
        // As above.
        let _ = self.daemon.signal(Signal::TERM);
        // As above; past the deadline the daemon is killed by its own drop.
        let _ = self.daemon.wait(Deadline::after(DAEMON_LIMIT));
    }
}

/// Shows everything; fails at the first step that does not do what it says.
pub(super) fn run(binary: &Path) -> Result<()> {
    let scratch = tempfile::Builder::new()
        .prefix("blockyard-demo-")
        .tempdir()
        .context("create a scratch directory")?;
    let image = make_image(scratch.path())?;
    let before = device_nodes()?;
    let session = Session::start(binary, scratch)?;
    let device = session.create(&image)?;
    let sums = session.use_file_system(&device)?;
    session.remove(&image, &sums)?;
    session.stop()?;
    narrate("Nothing is left: no block device, no character device");
    let left: Vec<String> = device_nodes()?
        .into_iter()
        .filter(|node| !before.contains(node))
        .collect();
    ensure!(left.is_empty(), "left behind: {}", left.join(" "));
    say("no /dev/ublkb* and no /dev/ublkc* of this daemon");
    say("");
    say(
        "Everything shown was checked: checksums, both file system checks, the written file, and that nothing is left.",
    );
    Ok(())
}

/// An ext4 image of real files; their checksums lie beside it.
fn make_image(scratch: &Path) -> Result<PathBuf> {
    let source = scratch.join("files");
    let copied = files::copy(&source)?;
    narrate(&format!(
        "A real ext4 image from {} real files of this machine ({} MiB)",
        copied.files,
        copied.bytes >> 20
    ));
    let image = scratch.join("disk.img");
    show(&[
        "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-d",
        text(&source)?,
        text(&image)?,
        IMAGE,
    ])?;
    let sums = Command::new("sh")
        .args([
            "-c",
            "find . -type f -print0 | sort -z | xargs -0 sha256sum > ../sums",
        ])
        .current_dir(&source)
        .status()
        .context("start sha256sum")?;
    ensure!(sums.success(), "sha256sum ended with {sums}");
    show(&["ls", "-ls", text(&image)?])?;
    Ok(image)
}

/// Nodes of ublk devices.
fn device_nodes() -> Result<Vec<String>> {
    let mut nodes: Vec<String> = fs::read_dir("/dev")
        .context("read /dev")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("ublkb") || name.starts_with("ublkc"))
        .collect();
    nodes.sort();
    Ok(nodes)
}

impl Session {
    fn start(binary: &Path, scratch: tempfile::TempDir) -> Result<Self> {
        let binary = text(binary)?.to_owned();
        let socket = text(&scratch.path().join("blockyard.sock"))?.to_owned();
        let state = text(&scratch.path().join("state"))?.to_owned();
        narrate("One process serves the devices");
        say(&format!(
            "$ blockyard serve --socket {socket} --state-dir {state} &"
        ));
        let log_path = scratch.path().join("daemon.log");
        let log = File::create(&log_path).context("create the daemon's log")?;
        let mut command = Command::new(&binary);
        command
            .args(["serve", "--socket", &socket, "--state-dir", &state])
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the daemon's log")?)
            .stderr(log);
        let mut daemon = Child::spawn(&mut command)?;
        let limit = Deadline::after(DAEMON_LIMIT);
        while UnixStream::connect(&socket).is_err() {
            // Waits for the daemon's end, which would be the reason why the socket never comes.
            if let Waited::Ended(status) = daemon.wait(Deadline::after(START_STEP))? {
                let log = fs::read_to_string(&log_path).unwrap_or_default();
                bail!("blockyard serve ended with {status}: {}", log.trim_end());
            }
            if limit.remaining().is_zero() {
                bail!("blockyard serve made no socket within {DAEMON_LIMIT:?}");
            }
        }
        Ok(Self {
            binary,
            scratch,
            socket,
            daemon,
        })
    }

    /// Runs a client command.
    fn blockyard(&self, words: &[&str]) -> Result<String> {
        let mut line = vec![
            self.binary.as_str(),
            words.first().copied().unwrap_or_default(),
        ];
        line.extend(["--socket", &self.socket]);
        line.extend(words.get(1..).unwrap_or_default());
        show(&line)
    }

    fn create(&self, image: &Path) -> Result<String> {
        narrate("The file becomes a block device");
        let spec = format!("raw:{}", text(image)?);
        let device = self
            .blockyard(&["create", "demo", &spec])?
            .trim()
            .to_owned();
        ensure!(Path::new(&device).exists(), "{device:?} does not exist");
        narrate("The same request again gives the same answer");
        let again = self.blockyard(&["create", "demo", &spec])?;
        ensure!(again.trim() == device, "another device: {again}");
        self.blockyard(&["list"])?;
        show(&["lsblk", "-o", "NAME,SIZE,RO,TYPE", &device])?;
        Ok(device)
    }

    /// Mounts, reads, writes, unmounts. Returns the checksum of what was written.
    fn use_file_system(&self, device: &str) -> Result<String> {
        let mount = self.scratch.path().join("mnt");
        fs::create_dir(&mount).context("create the mount point")?;
        let mount = text(&mount)?;
        narrate("Mounted: the files are there, and every checksum is right");
        show(&["mount", device, mount])?;
        show(&["df", "-h", mount])?;
        show(&["sh", "-c", &format!("find {mount} -type f | head -n 5")])?;
        show(&[
            "sh",
            "-c",
            &format!("cd {mount} && sha256sum --quiet -c ../sums && wc -l < ../sums"),
        ])?;
        narrate(&format!(
            "{WRITTEN_MIB} MiB are written and synced; the file system is unmounted"
        ));
        let new = format!("{mount}/written-by-the-demo");
        show(&[
            "dd",
            "if=/dev/urandom",
            &format!("of={new}"),
            "bs=1M",
            &format!("count={WRITTEN_MIB}"),
            "conv=fsync",
            "status=none",
        ])?;
        let sum = show(&["sha256sum", &new])?;
        show(&["sync", "-f", mount])?;
        show(&["umount", mount])?;
        show(&["e2fsck", "-fn", device])?;
        let sum = sum.split_whitespace().next().unwrap_or_default();
        Ok(sum.to_owned())
    }

    /// Removes the device; the image holds the change.
    fn remove(&self, image: &Path, sum: &str) -> Result<()> {
        narrate("What is served, and then the end of the device");
        self.blockyard(&["list"])?;
        self.blockyard(&["remove", "demo"])?;
        self.blockyard(&["list"])?;
        narrate("The image file is clean and holds what was written");
        show(&["e2fsck", "-fn", text(image)?])?;
        let copy = self.scratch.path().join("copy");
        let request = format!("dump /written-by-the-demo {}", text(&copy)?);
        show(&["debugfs", "-R", &request, text(image)?])?;
        let found = show(&["sha256sum", text(&copy)?])?;
        ensure!(
            found.starts_with(sum),
            "the image holds something else than {sum}"
        );
        Ok(())
    }

    /// SIGTERM with a device still there.
    fn stop(mut self) -> Result<()> {
        narrate("SIGTERM takes down what is still served");
        let spare = format!("raw:{}", text(&self.scratch.path().join("disk.img"))?);
        self.blockyard(&["create", "spare", &spare])?;
        say("$ kill -TERM %1; wait %1");
        let clock = Deadline::after(DAEMON_LIMIT);
        self.daemon.signal(Signal::TERM)?;
        match self.daemon.wait(clock)? {
            Waited::Ended(status) if status.success() => {
                say(&format!(
                    "ended with {status} after {:.2} s",
                    clock.elapsed().as_secs_f64()
                ));
                Ok(())
            }
            Waited::Ended(status) => bail!("blockyard serve ended with {status}"),
            Waited::DeadlinePassed => bail!("blockyard serve did not end within {DAEMON_LIMIT:?}"),
        }
    }
}
