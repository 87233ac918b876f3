//! Opening what a device is made of: the file or block device behind `raw:`, or nothing behind `null:`.
//!
//! A file that is served for writing is locked exclusively (`flock`), one that is served read-only is locked shared, so that no
//! second writer, of this daemon or another, can be. The lock lives as long as the open file. A regular file that is
//! smaller than the asked size grows (sparsely); nothing ever shrinks it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::holes::HoleMap;
use block::{
    Access, ByteLen, ByteOffset, Geometry, NullTarget, RawFeatures, RawTarget, SECTOR_BYTES,
    Sectors, Target, Zeroing,
};
use reactor::{NowModes, RingFile};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::Errno;

/// The most data ranges that are looked up in a sparse file; what lies behind them counts as data. Bounds the time to open a
/// file in many pieces; 65,536 is also the most chunks that a hole map tells apart.
const RANGES_MAX: usize = 1 << 16;

/// Why a backing store cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackingError {
    #[error("{path} does not exist; create it first, for example with `truncate -s 8G {path}`")]
    Missing { path: PathBuf },
    #[error("{path} is a directory; name a regular file or a block device")]
    Directory { path: PathBuf },
    #[error("{path} is neither a regular file nor a block device; name one of those")]
    WrongType { path: PathBuf },
    #[error("{path} is empty; give it a size with `truncate -s SIZE {path}` or pass --size")]
    Empty { path: PathBuf },
    #[error(
        "the size of {path}, {size_bytes} bytes, is not a multiple of {SECTOR_BYTES}; pass --size or resize the file"
    )]
    NotSectors { path: PathBuf, size_bytes: u64 },
    #[error(
        "{path} holds {size_bytes} bytes, more than the asked size of {asked_bytes}; nothing is cut off: pass the right size or none"
    )]
    TooLarge {
        path: PathBuf,
        size_bytes: u64,
        asked_bytes: u64,
    },
    #[error("{path} holds {size_bytes} bytes and cannot grow to {asked_bytes}; {why}")]
    TooSmall {
        path: PathBuf,
        size_bytes: u64,
        asked_bytes: u64,
        why: &'static str,
    },
    #[error(
        "{path} is in use by another device or process; a writer needs the file alone (see `lslocks`)"
    )]
    InUse { path: PathBuf },
    #[error(
        "{path} may not be opened by this daemon; check its mode and owner, and those of the directories above"
    )]
    Permission { path: PathBuf },
    #[error(
        "{path} has sectors of {block_size} bytes and only 512 can be served; put a file on a file system on it"
    )]
    BlockSize { path: PathBuf, block_size: String },
    #[error("{path} is on a read-only file system or device; pass --read-only")]
    ReadOnly { path: PathBuf },
    #[error("{op} of {path} failed")]
    Io {
        op: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// An opened backing store. Holds the lock.
#[derive(Debug)]
pub(crate) struct Backing {
    geometry: Geometry,
    file: Option<RawFile>,
}

#[derive(Debug)]
struct RawFile {
    file: File,
    holes: Arc<HoleMap>,
    features: RawFeatures,
    modes: NowModes,
}

impl Backing {
    /// A null device. It has nothing to open.
    pub(crate) const fn null(size: Sectors, access: Access) -> Self {
        Self {
            geometry: null_geometry(size, access),
            file: None,
        }
    }

    /// Opens and locks a file or block device. Blocks for as long as the file system takes.
    pub(crate) fn raw(
        path: &Path,
        asked: Option<Sectors>,
        access: Access,
    ) -> Result<Self, BackingError> {
        let file = open(path, access)?;
        lock(&file, path, access)?;
        let is_device = is_block_device(&file, path)?;
        if is_device {
            check_device(&file, path, access)?;
        }
        let size = settle_size(&file, path, asked, access)?;
        let (zeroing, features) = if is_device {
            // What a device refuses in part has already changed its page cache, and with it what is read until the cache is
            // dropped. The kernel writes zeros instead.
            (Zeroing::Unsupported, RawFeatures { zero_range: false })
        } else {
            probe_zeroing(&file, size, access)
        };
        let holes = if is_device {
            HoleMap::all_data(size.len_bytes())
        } else {
            map_holes(&file, size)
        };
        let modes = NowModes::probe(&file);
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
            file: Some(RawFile {
                file,
                holes: Arc::new(holes),
                features,
                modes,
            }),
        })
    }

    /// Size and limits of the device.
    pub(crate) const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// One instance of the target, for one shard, with its files. Does not wait for the file system.
    pub(crate) fn instance(&self) -> io::Result<(Box<dyn Target>, Vec<RingFile>)> {
        let Some(raw) = &self.file else {
            return Ok((
                Box::new(NullTarget::new(self.geometry.size, self.geometry.access)),
                Vec::new(),
            ));
        };
        let target = RawTarget::new(self.geometry, raw.features, Arc::clone(&raw.holes));
        let file = RingFile::data(raw.file.try_clone()?.into(), raw.modes);
        Ok((Box::new(target), vec![file]))
    }
}

const fn null_geometry(size: Sectors, access: Access) -> Geometry {
    Geometry {
        size,
        access,
        logical_block_shift: 9,
        physical_block_shift: 12,
        volatile_cache: false,
        zeroing: Zeroing::Deallocate {
            granularity_bytes: 4096,
        },
    }
}

fn open(path: &Path, access: Access) -> Result<File, BackingError> {
    let owned = || path.to_owned();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(BackingError::Missing { path: owned() });
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(BackingError::Permission { path: owned() });
        }
        Err(source) => {
            return Err(BackingError::Io {
                op: "stat",
                path: owned(),
                source,
            });
        }
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(BackingError::Directory { path: owned() });
    }
    // Checked before the open, which would wait for ever on a FIFO; O_NONBLOCK covers a swap in between.
    if !kind.is_file() && !kind.is_block_device() {
        return Err(BackingError::WrongType { path: owned() });
    }
    // O_EXCL on a block device fails while it is mounted or otherwise claimed.
    let exclusive = kind.is_block_device() && access == Access::ReadWrite;
    let flags = rustix::fs::OFlags::NONBLOCK
        | if exclusive {
            rustix::fs::OFlags::EXCL
        } else {
            rustix::fs::OFlags::empty()
        };
    OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => BackingError::Permission { path: owned() },
            io::ErrorKind::ReadOnlyFilesystem => BackingError::ReadOnly { path: owned() },
            io::ErrorKind::ResourceBusy | io::ErrorKind::ExecutableFileBusy => {
                BackingError::InUse { path: owned() }
            }
            io::ErrorKind::NotFound => BackingError::Missing { path: owned() },
            _ => BackingError::Io {
                op: "open",
                path: owned(),
                source,
            },
        })
}

fn is_block_device(file: &File, path: &Path) -> Result<bool, BackingError> {
    let metadata = file.metadata().map_err(|source| BackingError::Io {
        op: "stat",
        path: path.to_owned(),
        source,
    })?;
    Ok(metadata.file_type().is_block_device())
}

/// Refuses a device that is write-protected, or whose sectors are larger than those that are served.
fn check_device(file: &File, path: &Path, access: Access) -> Result<(), BackingError> {
    let failed = |op| {
        move |source| BackingError::Io {
            op,
            path: path.to_owned(),
            source,
        }
    };
    let number = file.metadata().map_err(failed("stat"))?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let sysfs = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition's queue is that of its disk.
    let block_size = std::fs::read_to_string(sysfs.join("queue/logical_block_size"))
        .or_else(|_| std::fs::read_to_string(sysfs.join("../queue/logical_block_size")))
        .map_err(failed("reading the block size"))?;
    if block_size.trim() != "512" {
        return Err(BackingError::BlockSize {
            path: path.to_owned(),
            block_size: block_size.trim().to_owned(),
        });
    }
    let protected =
        std::fs::read_to_string(sysfs.join("ro")).map_err(failed("reading its mode"))?;
    if access == Access::ReadWrite && protected.trim() != "0" {
        return Err(BackingError::ReadOnly {
            path: path.to_owned(),
        });
    }
    Ok(())
}

fn lock(file: &File, path: &Path, access: Access) -> Result<(), BackingError> {
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

/// The size to serve: the file's own, or the asked one after growing the file to it.
fn settle_size(
    file: &File,
    path: &Path,
    asked: Option<Sectors>,
    access: Access,
) -> Result<Sectors, BackingError> {
    let io = |op| {
        move |source| BackingError::Io {
            op,
            path: path.to_owned(),
            source,
        }
    };
    // Works for block devices too, whose metadata has no size.
    let size_bytes =
        rustix::fs::seek(file, SeekFrom::End(0)).map_err(|errno| io("lseek")(errno.into()))?;
    let path_owned = || path.to_owned();
    let Some(asked) = asked else {
        if size_bytes == 0 {
            return Err(BackingError::Empty { path: path_owned() });
        }
        return Sectors::try_from_bytes(ByteLen(size_bytes)).ok_or_else(|| {
            BackingError::NotSectors {
                path: path_owned(),
                size_bytes,
            }
        });
    };
    let asked_bytes = asked.len_bytes().0;
    if size_bytes > asked_bytes {
        return Err(BackingError::TooLarge {
            path: path_owned(),
            size_bytes,
            asked_bytes,
        });
    }
    if size_bytes < asked_bytes {
        let refuse = |why| BackingError::TooSmall {
            path: path_owned(),
            size_bytes,
            asked_bytes,
            why,
        };
        if access == Access::ReadOnly {
            return Err(refuse("it is served read-only"));
        }
        if is_block_device(file, path)? {
            return Err(refuse("a block device has the size it has"));
        }
        file.set_len(asked_bytes)
            .map_err(|source| match source.kind() {
                io::ErrorKind::FileTooLarge => {
                    refuse("its file system does not hold files of that size")
                }
                io::ErrorKind::StorageFull => refuse("its file system is full"),
                _ => io("ftruncate")(source),
            })?;
    }
    Ok(asked)
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
fn map_holes(file: &File, size: Sectors) -> HoleMap {
    let len_bytes = size.len_bytes().0;
    let map = HoleMap::all_holes(ByteLen(len_bytes));
    let mut position = 0;
    for _ in 0..RANGES_MAX {
        let data = match rustix::fs::seek(file, SeekFrom::Data(position)) {
            Ok(data) if data < len_bytes => data,
            // Only holes from here on.
            Ok(_) | Err(Errno::NXIO) => return map,
            // The file system does not tell.
            Err(_) => return HoleMap::all_data(ByteLen(len_bytes)),
        };
        let Ok(hole) = rustix::fs::seek(file, SeekFrom::Hole(data)) else {
            return HoleMap::all_data(ByteLen(len_bytes));
        };
        map.mark_data(ByteOffset(data), ByteLen(hole.min(len_bytes) - data));
        // The rest of a chunk that holds data need not be looked at.
        position = hole.next_multiple_of(map.chunk_bytes());
    }
    map.mark_data(
        ByteOffset(position),
        ByteLen(len_bytes.saturating_sub(position)),
    );
    map
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
        let open = |path: &Path, asked| Backing::raw(path, asked, Access::ReadWrite).unwrap_err();
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
        let open = |access| Backing::raw(file.path(), None, access);
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
        let refused = Backing::raw(file.path(), Some(Sectors(16)), Access::ReadOnly);
        assert!(matches!(refused, Err(BackingError::TooSmall { .. })));
        let grown = Backing::raw(file.path(), Some(Sectors(16)), Access::ReadWrite).unwrap();
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
        let map = map_holes(file.as_file(), Sectors(32768));
        assert!(!map.is_hole(ByteOffset(5 << 20), ByteLen(4096)));
        // True on every file system with holes; the test's own file system is one (ext4, tmpfs, xfs, btrfs).
        assert!(map.is_hole(ByteOffset(0), ByteLen(1 << 20)));
        assert!(map.is_hole(ByteOffset(8 << 20), ByteLen(8 << 20)));
    }
}
