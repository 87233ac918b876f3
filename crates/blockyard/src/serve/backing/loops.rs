//! Loop devices that serve a file or a disk: they read and write it beside everybody else and take no lock.
//!
//! Found by what the path in sysfs leads to. A file whose name was deleted, that has another name, or whose name is in another
//! mount namespace is not found; what holds for those is in `lease.rs`.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::disk::sysfs;

/// Where the kernel lists block devices.
const BLOCK: &str = "/sys/block";
/// There while the driver is.
const MODULE: &str = "/sys/module/loop";

/// A loop device that serves a file or disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Serving {
    /// Its node.
    pub(super) device: String,
    pub(super) is_read_only: bool,
}

/// What a path leads to: a file by its inode, a disk by its number, for it may have many nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    File { file_system: u64, inode: u64 },
    Disk { number: u64, whole: u64 },
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            let number = metadata.rdev();
            return Self::Disk {
                number,
                whole: whole_disk(number).unwrap_or(number),
            };
        }
        Self::File {
            file_system: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    /// Whether some byte belongs to both: partitions of one disk have none in common, a disk and its partition do.
    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Disk {
                    number: a,
                    whole: of_a,
                },
                Self::Disk {
                    number: b,
                    whole: of_b,
                },
            ) => a == b || a == of_b || b == of_a,
            (Self::File { .. }, Self::File { .. }) => self == other,
            (Self::File { .. }, Self::Disk { .. }) | (Self::Disk { .. }, Self::File { .. }) => {
                false
            }
        }
    }
}

/// The loop device that serves the file or disk, or a part of it, if there is one.
pub(super) fn serving(file: &Metadata) -> Option<Serving> {
    if !Path::new(MODULE).exists() {
        return None;
    }
    let wanted = Identity::of(file);
    // What cannot be read is not there any more.
    let entries = std::fs::read_dir(BLOCK).ok()?;
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("loop"))
        .find_map(|name| serves(&name, wanted))
}

fn serves(name: &str, wanted: Identity) -> Option<Serving> {
    let device = Path::new(BLOCK).join(name);
    let line = std::fs::read(device.join("loop/backing_file")).ok()?;
    // A name need not be text, and may end like a line.
    let path = line.strip_suffix(b"\n").unwrap_or(&line);
    let backing = std::fs::metadata(OsStr::from_bytes(path)).ok()?;
    if !Identity::of(&backing).overlaps(wanted) {
        return None;
    }
    let protected = std::fs::read_to_string(device.join("ro")).ok()?;
    Some(Serving {
        device: format!("/dev/{name}"),
        is_read_only: protected.trim() != "0",
    })
}

/// The number of the disk that a partition is of; `None` for what is no partition.
fn whole_disk(number: u64) -> Option<u64> {
    let sysfs = sysfs(number);
    if !sysfs.join("partition").exists() {
        return None;
    }
    let text = std::fs::read_to_string(sysfs.join("../dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_overlaps_its_partitions_and_these_do_not_overlap_each_other() {
        let disk = |number, whole| Identity::Disk { number, whole };
        let (whole, first, second, other) = (disk(8, 8), disk(9, 8), disk(10, 8), disk(24, 24));
        let file = |inode| Identity::File {
            file_system: 8,
            inode,
        };
        for (one, two, expected) in [
            (whole, whole, true),
            (whole, first, true),
            (first, whole, true),
            (first, first, true),
            (first, second, false),
            (whole, other, false),
            (file(8), file(8), true),
            (file(8), file(9), false),
            (file(8), whole, false),
        ] {
            assert_eq!(one.overlaps(two), expected, "{one:?} {two:?}");
        }
    }
}
