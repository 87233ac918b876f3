//! Opening a backing for one owner: what it is, whether others have it, and the lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use block::Access;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::error::BackingError;
use super::loops;

pub(super) fn open(path: &Path, access: Access) -> Result<File, BackingError> {
    let metadata =
        std::fs::metadata(path).map_err(|error| BackingError::of_open("stat", path, error))?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(BackingError::Directory {
            path: path.to_owned(),
        });
    }
    // Checked before the open, which would wait for ever on a FIFO; O_NONBLOCK covers a swap in between.
    if !kind.is_file() && !kind.is_block_device() {
        return Err(BackingError::WrongType {
            path: path.to_owned(),
        });
    }
    let flags = if kind.is_block_device() {
        // O_EXCL fails while it is mounted or otherwise claimed, by whatever node; it holds for as long as the file is open.
        OFlags::NONBLOCK | OFlags::EXCL | OFlags::DIRECT
    } else {
        OFlags::NONBLOCK
    };
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
        .map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy if kind.is_block_device() => BackingError::DiskInUse {
                path: path.to_owned(),
            },
            _ => BackingError::of_open("open", path, error),
        })?;
    // What the kernel tells as files there has no blocks.
    if kind.is_file() && is_of_kernel(&file) {
        return Err(BackingError::WrongType {
            path: path.to_owned(),
        });
    }
    Ok(file)
}

fn is_of_kernel(file: &File) -> bool {
    /// The super block magics of linux/magic.h.
    const PROC: i64 = 0x9fa0;
    const SYSFS: i64 = 0x6265_6572;
    rustix::fs::fstatfs(file).is_ok_and(|found| [PROC, SYSFS].contains(&found.f_type))
}

/// Refuses a file or disk that a loop device serves too, unless both only read it. A lock does not tell: loop devices take none.
pub(super) fn refuse_behind_loop(
    file: &File,
    path: &Path,
    access: Access,
) -> Result<(), BackingError> {
    let metadata = file.metadata().map_err(|source| BackingError::Io {
        op: "stat",
        path: path.to_owned(),
        source,
    })?;
    match loops::serving(&metadata) {
        Some(found) if access == Access::ReadWrite || !found.is_read_only => {
            Err(BackingError::BehindLoop {
                path: path.to_owned(),
                device: found.device,
            })
        }
        Some(_) | None => Ok(()),
    }
}

/// Locks the node of a disk. What keeps others away is `O_EXCL`; the lock tells programs that look at disks or partition them
/// (<https://systemd.io/BLOCK_DEVICE_LOCKING>). The device manager takes a shared one for moments while it looks: no reason to refuse.
pub(super) fn lock_disk(file: &File, path: &Path, access: Access) -> Result<(), BackingError> {
    match lock(file, path, access) {
        Err(BackingError::InUse { .. }) if access == Access::ReadWrite => {
            lock(file, path, Access::ReadOnly)
        }
        locked => locked,
    }
}

pub(super) fn lock(file: &File, path: &Path, access: Access) -> Result<(), BackingError> {
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(file, operation).map_err(|errno| match errno {
        Errno::WOULDBLOCK => BackingError::InUse {
            path: path.to_owned(),
        },
        errno => BackingError::Io {
            op: "flock",
            path: path.to_owned(),
            source: errno.into(),
        },
    })
}
