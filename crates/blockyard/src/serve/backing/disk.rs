//! What a block device can do, by its queue's limits in sysfs (Documentation/ABI/stable/sysfs-block of Linux 6.12).

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::BackingError;

/// The largest unit that a ublk device tells (`ublk_validate_params`, Linux 7.3); larger ones say nothing useful to a file system.
const GRANULARITY_BYTES_MAX: u64 = 1 << 30;
/// Logical blocks that ublk can serve, as shifts: a sector to a page (`ublk_validate_params`, Linux 6.8 to 7.3).
const BLOCK_SHIFTS: std::ops::RangeInclusive<u8> = 9..=12;

/// A block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) logical_block_shift: u8,
    pub(super) physical_block_shift: u8,
    /// Whether it is write-protected.
    pub(super) is_protected: bool,
    /// Whether it zeroes ranges by itself. Discards are offered exactly then, because `blkdev_fallocate` zeroes with
    /// deallocation: a disk that can discard but promises no zeros offers neither.
    pub(super) has_write_zeroes: bool,
    /// In what units it gives space back.
    pub(super) granularity_bytes: u32,
}

impl Disk {
    /// Looks at a block device; `None` for a regular file.
    pub(super) fn probe(file: &File, path: &Path) -> Result<Option<Self>, BackingError> {
        let failed = |op| {
            move |source| BackingError::Io {
                op,
                path: path.to_owned(),
                source,
            }
        };
        let metadata = file.metadata().map_err(failed("stat"))?;
        if !metadata.file_type().is_block_device() {
            return Ok(None);
        }
        let sysfs = sysfs(metadata.rdev());
        let protected = read_number(&sysfs.join("ro")).map_err(failed("reading its mode"))?;
        // A partition's queue is that of its disk.
        let queue = [sysfs.join("queue"), sysfs.join("../queue")]
            .into_iter()
            .find(|queue| queue.is_dir())
            .unwrap_or_else(|| sysfs.clone());
        let limit = |name: &str| {
            read_number(&queue.join(name)).map_err(failed("reading a limit of its queue"))
        };
        let logical = limit("logical_block_size")?;
        let logical_block_shift = shift(logical)
            .filter(|shift| BLOCK_SHIFTS.contains(shift))
            .ok_or_else(|| BackingError::BlockSize {
                path: path.to_owned(),
                block_bytes: logical,
            })?;
        let physical = shift(limit("physical_block_size")?).unwrap_or(12);
        // Of a partition, how far its start is from the unit of its disk.
        let alignment = read_number(&sysfs.join("discard_alignment")).unwrap_or(0);
        Ok(Some(Self {
            logical_block_shift,
            physical_block_shift: physical.clamp(logical_block_shift, 16),
            is_protected: protected != 0,
            has_write_zeroes: limit("write_zeroes_max_bytes")? > 0,
            granularity_bytes: granularity_bytes(limit("discard_granularity")?, alignment, logical),
        }))
    }
}

/// Where sysfs tells about the block device of a number. Of a partition, the folder above is its disk's.
pub(super) fn sysfs(number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// In what units to give space back: those of the disk if they can be told, else blocks. It is a hint for file systems; the
/// disk takes any range of blocks and keeps what it cannot give back.
fn granularity_bytes(of_disk: u64, alignment: u64, logical: u64) -> u32 {
    let is_told = of_disk.is_power_of_two() && alignment == 0 && of_disk <= GRANULARITY_BYTES_MAX;
    let chosen = if is_told {
        of_disk.max(logical)
    } else {
        logical
    };
    u32::try_from(chosen).unwrap_or(4096)
}

fn read_number(path: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    text.trim().parse().map_err(io::Error::other)
}

fn shift(bytes: u64) -> Option<u8> {
    bytes
        .is_power_of_two()
        .then(|| u8::try_from(bytes.trailing_zeros()).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk whose unit was no power of two (thin pools, erase blocks of 3 pages) could not be served at all.
    #[test]
    fn units_that_cannot_be_told_become_blocks() {
        for (of_disk, alignment, logical, expected) in [
            (4096, 0, 512, 4096),
            (1 << 20, 0, 4096, 1 << 20),
            (512, 0, 4096, 4096),
            (0, 0, 512, 512),
            (1536, 0, 512, 512),
            (192 << 10, 0, 4096, 4096),
            (1 << 20, 512, 512, 512),
            (1 << 31, 0, 512, 512),
            (1 << 40, 0, 4096, 4096),
        ] {
            assert_eq!(
                granularity_bytes(of_disk, alignment, logical),
                expected,
                "{of_disk} {alignment} {logical}"
            );
        }
    }
}
