//! Why a backing store cannot be served: which file, what is wrong, what to do.

use std::io;
use std::path::{Path, PathBuf};

use block::SECTOR_BYTES;
use rustix::io::Errno;

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
        "the size of {path}, {size_bytes} bytes, is not a multiple of its blocks of {block_bytes}; resize it, or serve a file on a file system on it"
    )]
    NotBlocks {
        path: PathBuf,
        size_bytes: u64,
        block_bytes: u64,
    },
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
        "{path} has logical blocks of {block_bytes} bytes, and 512 to 4096 can be served; put a file on a file system on it"
    )]
    BlockSize { path: PathBuf, block_bytes: u64 },
    #[error(
        "{path} is behind loop device {device}, which reads and writes it too; detach that first: losetup -d {device}"
    )]
    BehindLoop { path: PathBuf, device: String },
    #[error(
        "{path} is mounted or in use by another device or process; a disk is served to one device at a time (see `findmnt`, `lsblk`)"
    )]
    DiskInUse { path: PathBuf },
    #[error("{path} cannot be a path of a file: {why}; check the spec")]
    BadPath { path: PathBuf, why: &'static str },
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

impl BackingError {
    /// What the failure of a call on `path` means.
    pub(super) fn of_open(op: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            io::ErrorKind::PermissionDenied => Self::Permission { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            // Somebody holds a lease and is asked to give it back.
            io::ErrorKind::ResourceBusy
            | io::ErrorKind::ExecutableFileBusy
            | io::ErrorKind::WouldBlock => Self::InUse { path },
            io::ErrorKind::NotADirectory => Self::BadPath {
                path,
                why: "something before its last part is no directory",
            },
            io::ErrorKind::InvalidFilename => Self::BadPath {
                path,
                why: "it, or a name in it, is too long",
            },
            _ if source.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Self::BadPath {
                path,
                why: "its symbolic links lead in a circle",
            },
            _ => Self::Io { op, path, source },
        }
    }
}
