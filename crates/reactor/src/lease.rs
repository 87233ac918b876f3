//! Leases: the kernel tells the holder before somebody else may open its file, and the opener waits for the answer.
//!
//! An opener waits until the lease is given back, but no longer than `/proc/sys/fs/lease-break-time` (45 s). One that asked
//! not to wait (`O_NONBLOCK`) gets `EWOULDBLOCK`. A lease therefore keeps nobody away; it makes known who comes. It ends, unlike
//! a POSIX lock, with the last descriptor of the open file. Sources: fcntl(2); `generic_add_lease`, `__break_lease` of
//! fs/locks.c, Linux 6.12.

use std::io;
use std::os::fd::AsFd;

use crate::sys::lease::{F_GETLEASE, F_RDLCK, F_SETLEASE, F_SETOWN, F_UNLCK, F_WRLCK, command};

/// What ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// Any other open of the file. For a file that is open for writing.
    Sole,
    /// An open for writing. For a file that is open for reading only.
    Unwritten,
}

impl LeaseKind {
    const fn argument(self) -> i32 {
        match self {
            Self::Sole => F_WRLCK,
            Self::Unwritten => F_RDLCK,
        }
    }
}

/// Takes a lease. When it is called back the process gets SIGIO, which kills it unless it is caught.
///
/// # Errors
/// `WouldBlock` when others have the file open already. Others when the file system offers none, or the file has another owner
/// and the process lacks `CAP_LEASE`.
pub fn try_take(file: impl AsFd, kind: LeaseKind) -> io::Result<()> {
    let file = file.as_fd();
    // Else the signal would go to this thread, and to nobody once that has ended.
    let process = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    command(file, F_SETOWN, process)?;
    command(file, F_SETLEASE, kind.argument()).map(drop)
}

/// Whether it has been called back, or was ended by the kernel because it was not given back in time.
///
/// # Errors
/// Of the kernel; none is known.
pub fn is_called_back(file: impl AsFd, kind: LeaseKind) -> io::Result<bool> {
    let left = command(file.as_fd(), F_GETLEASE, 0)?;
    Ok(left != kind.argument())
}

/// Gives it back; who waits may go on.
///
/// # Errors
/// `WouldBlock` when there is none any more.
pub fn give_back(file: impl AsFd) -> io::Result<()> {
    command(file.as_fd(), F_SETLEASE, F_UNLCK).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A file on the test's own file system; `None` where that has no leases.
    fn leased(kind: LeaseKind) -> Option<(tempfile::NamedTempFile, File)> {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, [1; 512]).unwrap();
        let file = match kind {
            LeaseKind::Sole => File::options().read(true).write(true).open(&path),
            LeaseKind::Unwritten => File::open(&path),
        };
        let file = file.unwrap();
        let taken = try_take(&file, kind);
        let named = tempfile::NamedTempFile::from_parts(file.try_clone().unwrap(), path);
        match taken {
            Ok(()) => Some((named, file)),
            Err(error) => {
                assert_ne!(
                    error.kind(),
                    io::ErrorKind::WouldBlock,
                    "nobody else has it"
                );
                None
            }
        }
    }

    #[test]
    fn a_lease_is_there_until_it_is_given_back() {
        for kind in [LeaseKind::Sole, LeaseKind::Unwritten] {
            let Some((_named, file)) = leased(kind) else {
                continue;
            };
            assert!(!is_called_back(&file, kind).unwrap());
            give_back(&file).unwrap();
            assert!(is_called_back(&file, kind).unwrap());
            assert_eq!(
                give_back(&file).unwrap_err().kind(),
                io::ErrorKind::WouldBlock
            );
        }
    }

    #[test]
    fn a_file_that_others_have_open_is_not_leased() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let second = File::options().read(true).write(true).open(named.path());
        let kind = try_take(second.unwrap(), LeaseKind::Sole)
            .unwrap_err()
            .kind();
        assert!(
            kind == io::ErrorKind::WouldBlock || kind == io::ErrorKind::InvalidInput,
            "{kind}"
        );
    }
}
