//! The commands of fcntl(2) for leases, which rustix does not offer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) use libc::{F_GETLEASE, F_RDLCK, F_SETLEASE, F_SETOWN, F_UNLCK, F_WRLCK};

/// Runs one of these commands; returns its answer.
pub(crate) fn command(file: BorrowedFd<'_>, command: i32, argument: i32) -> io::Result<i32> {
    debug_assert!([F_GETLEASE, F_SETLEASE, F_SETOWN].contains(&command));
    // SAFETY: the descriptor is open for as long as it is borrowed; these commands take a number and touch no memory.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}
