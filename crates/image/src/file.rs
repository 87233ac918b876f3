//! An open file of an image: who it is, how long it is, and a lock that ends with its holder.
//!
//! A sealed layer is locked shared, an upper exclusively (`flock`): the kernel drops the lock when the last descriptor of
//! the open file is gone, so it survives nothing but its holder.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use block::ByteLen;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::Error;

/// Which file it is, whatever its name, and whether it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

/// How often a lock is tried, and how long it is waited for in between.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// An open, locked file.
#[derive(Debug)]
pub struct LayerFile {
    file: File,
    path: PathBuf,
    id: FileId,
}

impl LayerFile {
    /// Opens a sealed layer for reading; others may read it too, and nobody may write it as an upper.
    ///
    /// # Errors
    /// When it is missing, no regular file, not readable, or an upper in use.
    pub fn open_sealed(path: &Path) -> Result<Self, Error> {
        Self::open(path, Access::Read)
    }

    /// Opens a file of an upper for its only owner.
    ///
    /// # Errors
    /// As [`LayerFile::open_sealed`]; [`Error::InUse`] if anybody else has it open.
    pub fn open_upper(path: &Path) -> Result<Self, Error> {
        Self::open(path, Access::Write)
    }

    fn open(path: &Path, access: Access) -> Result<Self, Error> {
        let metadata = std::fs::metadata(path).map_err(|error| open_error(path, access, error))?;
        check_type(path, metadata.file_type())?;
        let mut options = File::options();
        options.read(true).write(access == Access::Write);
        let file = options
            .open(path)
            .map_err(|error| open_error(path, access, error))?;
        let operation = match access {
            Access::Read => FlockOperation::NonBlockingLockShared,
            Access::Write => FlockOperation::NonBlockingLockExclusive,
        };
        lock(&file, path, operation)?;
        let metadata = file
            .metadata()
            .map_err(|error| Error::io("stat", path, error))?;
        // The name may mean something else by now.
        check_type(path, metadata.file_type())?;
        Ok(Self {
            id: FileId {
                device: metadata.dev(),
                inode: metadata.ino(),
                len: metadata.len(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
            },
            file,
            path: path.to_owned(),
        })
    }

    /// Which file it is.
    #[must_use]
    pub const fn id(&self) -> FileId {
        self.id
    }

    /// Its length when it was opened.
    #[must_use]
    pub const fn len(&self) -> ByteLen {
        ByteLen(self.id.len)
    }

    /// Whether it was empty when it was opened.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.id.len == 0
    }

    /// The name that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// When the file ends before, or the read fails.
    pub fn read_exact_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|error| Error::io("read", &self.path, error))
    }
}

/// Locks a file. Another holder is given a moment: a lock outlives its holder while a child that was just forked, and is about to
/// become another program, has its descriptors too.
#[expect(
    clippy::disallowed_methods,
    reason = "no event tells when a lock is free that one does not wait for"
)]
fn lock(file: &File, path: &Path, operation: FlockOperation) -> Result<(), Error> {
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(errno) => return Err(Error::io("flock", path, errno)),
        }
    }
    Err(Error::InUse {
        path: path.to_owned(),
    })
}

impl AsFd for LayerFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn check_type(path: &Path, kind: std::fs::FileType) -> Result<(), Error> {
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_block_device() {
        "a block device"
    } else {
        "no regular file"
    };
    Err(Error::WrongType {
        path: path.to_owned(),
        what,
    })
}

fn open_error(path: &Path, access: Access, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::Missing {
            path: path.to_owned(),
            hint: String::new(),
        },
        io::ErrorKind::PermissionDenied => Error::Permission {
            path: path.to_owned(),
            access: match access {
                Access::Read => "reading",
                Access::Write => "writing",
            },
        },
        io::ErrorKind::ReadOnlyFilesystem => Error::Permission {
            path: path.to_owned(),
            access: "writing: its file system is read-only",
        },
        _ => Error::io("open", path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_upper_has_one_owner_and_sealed_layers_are_shared() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let upper = LayerFile::open_upper(path).unwrap();
        let kind = |result: Result<LayerFile, Error>| result.unwrap_err().kind();
        assert_eq!(kind(LayerFile::open_upper(path)), ErrorKind::InUse);
        assert_eq!(kind(LayerFile::open_sealed(path)), ErrorKind::InUse);
        drop(upper);
        let readers = [(); 2].map(|()| LayerFile::open_sealed(path).unwrap());
        assert_eq!(readers[0].id(), readers[1].id());
        assert_eq!(kind(LayerFile::open_upper(path)), ErrorKind::InUse);
    }

    #[test]
    fn what_is_no_file_is_refused_by_what_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let kind = |path: &Path| LayerFile::open_sealed(path).unwrap_err();
        assert_eq!(
            kind(&directory.path().join("none")).kind(),
            ErrorKind::Missing
        );
        assert!(kind(directory.path()).to_string().contains("a directory"));
        assert!(
            kind(Path::new("/dev/null"))
                .to_string()
                .contains("no regular file")
        );
    }
}
