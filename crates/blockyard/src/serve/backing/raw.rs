//! The file or block device behind `raw:`.
//!
//! A file that is served for writing is locked exclusively (`flock`), one that is served read-only is locked shared, so that no
//! second writer, of this daemon or another, can be. The lock lives as long as the open file. A regular file that is
//! smaller than the asked size grows (sparsely); nothing shrinks it, except that a creation which fails undoes its own growing. A loop
//! device takes no lock: one that serves the file already is looked for; one that is attached later is the operator's mistake, but
//! what it writes is seen: see `lease.rs`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use block::holes::HoleMap;
use block::{
    Access, ByteLen, ByteOffset, Geometry, RawFeatures, RawTarget, Sectors, Target, Zeroing,
};
use reactor::{NowMode, NowModes, RingFile};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::disk::Disk;
use super::error::BackingError;
use super::lease::{Lease, Leases};
use super::open::{lock, lock_disk, open, refuse_behind_loop};
use super::size::{Settled, settle_size};

/// The most data ranges that are looked up in a sparse file; what lies behind them counts as data. Bounds the time to open a
/// file in many pieces; 65,536 is also the most chunks that a hole map tells apart.
const RANGES_MAX: usize = 1 << 16;

/// An opened file or block device. Holds the lock.
#[derive(Debug)]
pub(crate) struct RawFile {
    geometry: Geometry,
    file: Arc<File>,
    holes: Arc<HoleMap>,
    features: RawFeatures,
    modes: NowModes,
    /// How long it was, if it was extended to the asked size.
    extended_from: Option<u64>,
    /// Keeps what is known of its holes true.
    _lease: Option<Arc<Lease>>,
}

impl RawFile {
    /// Opens and locks a file or block device. Blocks for as long as the file system takes.
    pub(super) fn open(
        path: &Path,
        asked: Option<Sectors>,
        access: Access,
        leases: &Leases,
    ) -> Result<Self, BackingError> {
        let file = open(path, access)?;
        refuse_behind_loop(&file, path, access)?;
        if let Some(disk) = Disk::probe(&file, path)? {
            lock_disk(&file, path, access)?;
            return Self::disk(file, path, (asked, access), &disk);
        }
        lock(&file, path, access)?;
        let Settled {
            size,
            extended_from,
        } = settle_size(&file, path, asked, access)?;
        let (zeroing, features) = probe_zeroing(&file, size, access);
        let holes = Arc::new(HoleMap::all_holes(size.len_bytes()));
        let file = Arc::new(file);
        // First the lease: what is found after that stays true.
        let lease = leases.take(&file, path, access, &holes);
        if lease.is_some() {
            map_holes(&file, size, &holes);
        }
        let geometry = Geometry {
            size,
            access,
            logical_block_shift: 9,
            physical_block_shift: 12,
            volatile_cache: access == Access::ReadWrite,
            zeroing,
        };
        Ok(Self {
            geometry,
            modes: NowModes::probe(&file),
            file,
            holes,
            features,
            extended_from,
            _lease: lease,
        })
    }

    /// A block device: by direct I/O, so that nothing is cached twice and no page of its cache can differ from the disk. Through
    /// the cache it could: `blkdev_fallocate` drops a range's pages, dirty ones too, before it knows whether the disk zeroes the range.
    fn disk(
        file: File,
        path: &Path,
        (asked, access): (Option<Sectors>, Access),
        disk: &Disk,
    ) -> Result<Self, BackingError> {
        if access == Access::ReadWrite && disk.is_protected {
            return Err(BackingError::ReadOnly {
                path: path.to_owned(),
            });
        }
        let Settled { size, .. } = settle_size(&file, path, asked, access)?;
        let block_bytes = 1 << disk.logical_block_shift;
        if !size.len_bytes().0.is_multiple_of(block_bytes) {
            // Some disks (loop devices) end anywhere; the last part of a block cannot be read directly.
            return Err(BackingError::NotBlocks {
                path: path.to_owned(),
                size_bytes: size.len_bytes().0,
                block_bytes,
            });
        }
        let is_zeroing = access == Access::ReadWrite && disk.has_write_zeroes;
        let geometry = Geometry {
            size,
            access,
            logical_block_shift: disk.logical_block_shift,
            physical_block_shift: disk.physical_block_shift,
            volatile_cache: access == Access::ReadWrite,
            zeroing: if is_zeroing {
                Zeroing::Deallocate {
                    granularity_bytes: disk.granularity_bytes,
                }
            } else {
                Zeroing::Unsupported
            },
        };
        Ok(Self {
            geometry,
            modes: NowModes::probe(&file),
            file: Arc::new(file),
            holes: Arc::new(HoleMap::all_data(size.len_bytes())),
            // The kernel zeroes in place or writes zeros (blkdev_fallocate).
            features: RawFeatures {
                zero_range: is_zeroing,
            },
            extended_from: None,
            _lease: None,
        })
    }

    /// Makes a file that was extended for a device which never lived as long as it was, unless something was written to it.
    pub(super) fn undo_extension(&self) -> io::Result<()> {
        let extended = self.geometry.size.len_bytes().0;
        match self.extended_from {
            Some(len) if !self.holes.is_written() && self.file.metadata()?.len() == extended => {
                self.file.set_len(len)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Size and limits of the device.
    pub(super) const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether reads can go at once from the file into the request.
    pub(super) fn is_read_at_once(&self) -> bool {
        self.modes.read() != NowMode::Never
    }

    /// One instance of the target, for one shard, with its file. Does not wait for the file system.
    pub(super) fn instance(&self) -> io::Result<(Box<dyn Target>, Vec<RingFile>)> {
        let target = RawTarget::new(self.geometry, self.features, Arc::clone(&self.holes));
        let file = RingFile::data(self.file.try_clone()?.into(), self.modes);
        Ok((Box::new(target), vec![file]))
    }
}

/// Finds out whether ranges can be deallocated and zeroed, by asking for a range behind the end of the file: nothing is there.
fn probe_zeroing(file: &File, size: Sectors, access: Access) -> (Zeroing, RawFeatures) {
    if access == Access::ReadOnly {
        return (Zeroing::Unsupported, RawFeatures { zero_range: false });
    }
    let beyond = size.len_bytes().0.next_multiple_of(4096);
    let try_flags =
        |flags| rustix::fs::fallocate(file, flags | FallocateFlags::KEEP_SIZE, beyond, 4096);
    // A range behind the largest file that the file system can hold.
    let works = |result: rustix::io::Result<()>| matches!(result, Ok(()) | Err(Errno::FBIG));
    let punch = works(try_flags(FallocateFlags::PUNCH_HOLE));
    let zero_range = punch && works(try_flags(FallocateFlags::ZERO_RANGE));
    if zero_range {
        // Zeroing behind the end may have allocated there: give it back. It is harmless if that fails.
        let _ = try_flags(FallocateFlags::PUNCH_HOLE);
    }
    let zeroing = if punch {
        Zeroing::Deallocate {
            granularity_bytes: 4096,
        }
    } else {
        Zeroing::Unsupported
    };
    (zeroing, RawFeatures { zero_range })
}

/// Asks the file system where the data is.
fn map_holes(file: &File, size: Sectors, map: &HoleMap) {
    let len_bytes = size.len_bytes().0;
    let mut position = 0;
    for _ in 0..RANGES_MAX {
        let data = match rustix::fs::seek(file, SeekFrom::Data(position)) {
            Ok(data) if data < len_bytes => data,
            // Only holes from here on.
            Ok(_) | Err(Errno::NXIO) => return,
            // The file system does not tell.
            Err(_) => return map.mark_data(ByteOffset(0), ByteLen(len_bytes)),
        };
        let Ok(hole) = rustix::fs::seek(file, SeekFrom::Hole(data)) else {
            return map.mark_data(ByteOffset(0), ByteLen(len_bytes));
        };
        map.mark_data(ByteOffset(data), ByteLen(hole.min(len_bytes) - data));
        // The rest of a chunk that holds data need not be looked at.
        position = hole.next_multiple_of(map.chunk_bytes());
    }
    map.mark_data(
        ByteOffset(position),
        ByteLen(len_bytes.saturating_sub(position)),
    );
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn file_of(len_bytes: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(len_bytes).unwrap();
        file
    }

    #[test]
    fn bad_files_are_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let open = |path: &Path, asked| {
            RawFile::open(path, asked, Access::ReadWrite, &Leases::default()).unwrap_err()
        };
        let missing = directory.path().join("missing");
        assert!(matches!(open(&missing, None), BackingError::Missing { .. }));
        assert!(matches!(
            open(directory.path(), None),
            BackingError::Directory { .. }
        ));
        assert!(matches!(
            open(Path::new("/dev/null"), None),
            BackingError::WrongType { .. }
        ));
        assert!(matches!(
            open(file_of(0).path(), None),
            BackingError::Empty { .. }
        ));
        assert!(matches!(
            open(file_of(1000).path(), None),
            BackingError::NotSectors {
                size_bytes: 1000,
                ..
            }
        ));
        let file = file_of(4096);
        let error = open(file.path(), Some(Sectors(1)));
        assert!(matches!(
            error,
            BackingError::TooLarge {
                size_bytes: 4096,
                asked_bytes: 512,
                ..
            }
        ));
        assert_eq!(file.as_file().metadata().unwrap().len(), 4096);
    }

    #[test]
    fn a_writer_is_alone_and_readers_share() {
        let file = file_of(4096);
        let open = |access| RawFile::open(file.path(), None, access, &Leases::default());
        let writer = open(Access::ReadWrite).unwrap();
        assert!(matches!(
            open(Access::ReadWrite),
            Err(BackingError::InUse { .. })
        ));
        assert!(matches!(
            open(Access::ReadOnly),
            Err(BackingError::InUse { .. })
        ));
        drop(writer);
        let readers = [
            open(Access::ReadOnly).unwrap(),
            open(Access::ReadOnly).unwrap(),
        ];
        assert!(matches!(
            open(Access::ReadWrite),
            Err(BackingError::InUse { .. })
        ));
        drop(readers);
        assert!(open(Access::ReadWrite).is_ok());
    }

    #[test]
    fn a_file_grows_to_the_asked_size_only_when_writable() {
        let file = file_of(4096);
        let open =
            |access| RawFile::open(file.path(), Some(Sectors(16)), access, &Leases::default());
        let refused = open(Access::ReadOnly);
        assert!(matches!(refused, Err(BackingError::TooSmall { .. })));
        let grown = open(Access::ReadWrite).unwrap();
        assert_eq!(grown.geometry().size, Sectors(16));
        assert_eq!(file.as_file().metadata().unwrap().len(), 8192);
    }

    #[test]
    fn the_holes_of_a_sparse_file_are_known_and_its_data_is_not_missed() {
        let mut file = file_of(16 << 20);
        file.as_file_mut()
            .seek(io::SeekFrom::Start(5 << 20))
            .unwrap();
        file.as_file_mut().write_all(&[1; 4096]).unwrap();
        file.as_file().sync_all().unwrap();
        let map = HoleMap::all_holes(ByteLen(16 << 20));
        map_holes(file.as_file(), Sectors(32768), &map);
        assert!(!map.is_hole(ByteOffset(5 << 20), ByteLen(4096)));
        // True on every file system with holes; the test's own file system is one (ext4, tmpfs, xfs, btrfs).
        assert!(map.is_hole(ByteOffset(0), ByteLen(1 << 20)));
        assert!(map.is_hole(ByteOffset(8 << 20), ByteLen(8 << 20)));
    }
}
