//! What to run in a machine, and in which one.

use std::path::PathBuf;
use std::time::Duration;

/// How time passes in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestClock {
    /// As on the wall; emulated CPUs run in parallel.
    Wall,
    /// One nanosecond per executed instruction: figures repeat within about 1 % however busy the host is. Emulated CPUs
    /// take turns; use one CPU, so that the sum is that of client, kernel and daemon.
    Instructions,
}

/// Who looks after device nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceManager {
    /// devtmpfs alone: nodes appear at once, nobody opens them.
    KernelOnly,
    /// systemd-udevd with the host's rules.
    Udevd,
}

/// A file of the host that the guest sees as a virtio disk, `/dev/vda` on.
///
/// Every flushed write reaches the file before it is acknowledged, and none waits in QEMU: what is in the file after
/// QEMU was killed is what a power cut leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// A raw image.
    pub path: PathBuf,
    /// The disk's serial number in the guest: `/dev/disk/by-id/virtio-SERIAL` where udev runs. At most 20 characters.
    pub serial: String,
}

/// A command and the machine for it.
#[derive(Clone, Debug)]
pub struct GuestJob {
    /// Program and arguments; the program is found by PATH.
    pub argv: Vec<String>,
    /// Variables of the command, besides PATH and HOME.
    pub env: Vec<(String, String)>,
    /// Where the command starts. Seen in the guest even below `/tmp`.
    pub dir: PathBuf,
    /// Further directories of the host that must be seen at the same path, even where the guest has a tmpfs.
    pub keep: Vec<PathBuf>,
    /// Emulated CPUs.
    pub cpus: u16,
    /// Memory of the guest in MiB; its tmpfs file systems live in it.
    pub memory_mib: u32,
    /// The machine is killed after this time.
    pub timeout: Duration,
    /// How time passes.
    pub clock: GuestClock,
    /// Who looks after device nodes.
    pub device_manager: DeviceManager,
    /// Modules to load first, each with its options, such as `null_blk nr_devices=0`.
    pub modules: Vec<String>,
    /// Disks.
    pub disks: Vec<Disk>,
}

/// Modules that nearly every test needs. The kernel's own limit on ublk devices is 64 and counts all of them on 6.12,
/// so it is raised here; the highest that tests use is 2,000.
const MODULES: [&str; 5] = [
    "ublk_drv ublks_max=4096",
    "loop max_loop=0",
    "dm-mod",
    "null_blk nr_devices=0",
    "mq-deadline",
];

impl GuestJob {
    /// A job with two CPUs, 3 GiB and 15 minutes that starts in the current directory's root `/`.
    #[must_use]
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            dir: PathBuf::from("/"),
            keep: Vec::new(),
            cpus: 2,
            memory_mib: 3072,
            timeout: Duration::from_secs(15 * 60),
            clock: GuestClock::Wall,
            device_manager: DeviceManager::KernelOnly,
            modules: MODULES.iter().map(|module| (*module).to_owned()).collect(),
            disks: Vec::new(),
        }
    }

    /// Every directory that must be seen at its own path.
    pub(crate) fn kept_dirs(&self) -> impl Iterator<Item = &PathBuf> {
        self.keep.iter().chain(std::iter::once(&self.dir))
    }
}
