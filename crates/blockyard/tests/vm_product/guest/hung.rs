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

/// Something to serve, of 64 MiB. Works until [`HungStore::hang`].
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

    /// From now on I/O does not come back.
    pub(crate) fn hang(&self) {
        self.switch("dmsetup suspend --noflush --nolockfs hung", "fsfreeze -f");
    }

    /// Lets I/O go.
    pub(crate) fn let_go(&self) {
        self.switch("dmsetup resume hung", "fsfreeze -u");
    }

    fn switch(&self, device: &str, file_system: &str) {
        match self.hang {
            Hang::SuspendedDevice => sh(&format!("export DM_DISABLE_UDEV=1; {device}")),
            Hang::FrozenFileSystem => sh(&format!(
                "{file_system} {}/frozen",
                self.directory.display()
            )),
        };
    }
}

impl Drop for HungStore {
    fn drop(&mut self) {
        // Let go first: a failed test must not leave a hang behind. It fails where that was done already.
        match self.hang {
            Hang::SuspendedDevice => {
                run(&["dmsetup", "resume", "hung"]);
                run(&["dmsetup", "remove", "--retry", "--noudevsync", "hung"]);
            }
            Hang::FrozenFileSystem => {
                let mnt = self.directory.join("frozen");
                run(&["fsfreeze", "-u", mnt.to_str().unwrap_or_default()]);
                run(&["umount", mnt.to_str().unwrap_or_default()]);
            }
        }
        run(&["losetup", "-d", &self.loop_device]);
    }
}
