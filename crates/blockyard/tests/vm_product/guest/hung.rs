//! Backing stores whose I/O does not come back until it is let go: what a dead path, a lost server or a frozen file
//! system look like to the daemon.

use std::path::{Path, PathBuf};

use super::tools::{run, sh, succeeds};

/// What hangs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hang {
    /// A device-mapper device that is suspended: reads wait.
    SuspendedDevice,
    /// An ext4 file system that is frozen: writes wait.
    FrozenFileSystem,
}

/// Something to serve, of 64 MiB. Works until [`HungStore::hang`], and again afterwards.
pub(crate) struct HungStore {
    hang: Hang,
    directory: PathBuf,
    loop_device: String,
}

impl HungStore {
    /// Makes it; all its parts are below `directory`.
    pub(crate) fn new(hang: Hang, directory: &Path) -> Self {
        let directory = directory.to_owned();
        let file = directory.join("below.img");
        let file = file.to_str().unwrap();
        let mnt = directory.join("frozen");
        succeeds(&["truncate", "-s", "96M", file]);
        if matches!(hang, Hang::FrozenFileSystem) {
            succeeds(&["mke2fs", "-q", "-t", "ext4", file]);
        }
        let loop_device = succeeds(&["losetup", "-f", "--show", file])
            .trim()
            .to_owned();
        match hang {
            Hang::SuspendedDevice => {
                sh(&format!(
                    "export DM_DISABLE_UDEV=1; dmsetup create hung --table '0 131072 linear {loop_device} 0'"
                ));
            }
            Hang::FrozenFileSystem => {
                std::fs::create_dir(&mnt).unwrap();
                sh(&format!(
                    "mount {loop_device} {mnt}; truncate -s 64M {mnt}/disk.img; sync",
                    mnt = mnt.display()
                ));
            }
        }
        Self {
            hang,
            directory,
            loop_device,
        }
    }

    /// What to serve.
    pub(crate) fn spec(&self) -> String {
        match self.hang {
            Hang::SuspendedDevice => "raw:/dev/mapper/hung".to_owned(),
            Hang::FrozenFileSystem => format!("raw:{}/frozen/disk.img", self.directory.display()),
        }
    }

    /// The arguments of a dd whose I/O to the device waits.
    pub(crate) fn io(&self, device: &Path) -> Vec<String> {
        let device = device.display();
        let words = match self.hang {
            Hang::SuspendedDevice => {
                format!("if={device} of=/dev/null iflag=direct bs=4k count=1 skip=4096")
            }
            Hang::FrozenFileSystem => {
                format!("if=/dev/zero of={device} oflag=direct bs=4k count=1 seek=4096")
            }
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// From now on I/O does not come back, until the value is dropped.
    #[must_use]
    pub(crate) fn hang(&self) -> Hanging<'_> {
        let frozen = self.directory.join("frozen");
        match self.hang {
            Hang::SuspendedDevice => succeeds(&[
                "env",
                "DM_DISABLE_UDEV=1",
                "dmsetup",
                "suspend",
                "--noflush",
                "--nolockfs",
                "hung",
            ]),
            Hang::FrozenFileSystem => succeeds(&["fsfreeze", "-f", frozen.to_str().unwrap()]),
        };
        Hanging(self)
    }
}

/// Dropped before its daemon, also by a test that fails: the kernel does not let go of a process whose I/O hangs.
pub(crate) struct Hanging<'a>(&'a HungStore);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        let frozen = self.0.directory.join("frozen");
        match self.0.hang {
            Hang::SuspendedDevice => {
                run(&["env", "DM_DISABLE_UDEV=1", "dmsetup", "resume", "hung"])
            }
            Hang::FrozenFileSystem => run(&["fsfreeze", "-u", frozen.to_str().unwrap_or_default()]),
        };
    }
}

impl Drop for HungStore {
    fn drop(&mut self) {
        // Errors leave a loop device in a machine that is about to end.
        match self.hang {
            Hang::SuspendedDevice => {
                run(&["dmsetup", "remove", "--retry", "--noudevsync", "hung"]);
            }
            Hang::FrozenFileSystem => {
                let mnt = self.directory.join("frozen");
                run(&["umount", mnt.to_str().unwrap_or_default()]);
            }
        }
        run(&["losetup", "-d", &self.loop_device]);
    }
}
