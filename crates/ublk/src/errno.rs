//! Errno values as people know them: name and text, without a C library.

use std::fmt;

/// A positive Linux errno (asm-generic/errno.h, the same on x86-64 and arm64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Operation not permitted.
    pub const EPERM: Self = Self(1);
    /// No such file or directory.
    pub const ENOENT: Self = Self(2);
    /// Interrupted.
    pub const EINTR: Self = Self(4);
    /// Input/output error.
    pub const EIO: Self = Self(5);
    /// No such device or address.
    pub const ENXIO: Self = Self(6);
    /// Try again.
    pub const EAGAIN: Self = Self(11);
    /// Out of memory.
    pub const ENOMEM: Self = Self(12);
    /// Permission denied.
    pub const EACCES: Self = Self(13);
    /// Bad address.
    pub const EFAULT: Self = Self(14);
    /// Busy.
    pub const EBUSY: Self = Self(16);
    /// Exists.
    pub const EEXIST: Self = Self(17);
    /// No such device.
    pub const ENODEV: Self = Self(19);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// Too many open files on the host.
    pub const ENFILE: Self = Self(23);
    /// Too many open files in the process.
    pub const EMFILE: Self = Self(24);
    /// Not a command of this device.
    pub const ENOTTY: Self = Self(25);
    /// No space left.
    pub const ENOSPC: Self = Self(28);
    /// No such system call.
    pub const ENOSYS: Self = Self(38);
    /// Not supported.
    pub const EOPNOTSUPP: Self = Self(95);
    /// Timed out.
    pub const ETIMEDOUT: Self = Self(110);
    /// Cancelled.
    pub const ECANCELED: Self = Self(125);

    /// The errno of a failed system call, or `EIO` if the error carries none.
    #[must_use]
    pub(crate) fn from_io(error: &std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(Self::EIO.0))
    }

    /// Symbol and text, or `None` for a value that no call of this crate is known to return.
    const fn describe(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::EPERM => ("EPERM", "Operation not permitted"),
            Self::ENOENT => ("ENOENT", "No such file or directory"),
            Self::EINTR => ("EINTR", "Interrupted system call"),
            Self::EIO => ("EIO", "Input/output error"),
            Self::ENXIO => ("ENXIO", "No such device or address"),
            Self::EAGAIN => ("EAGAIN", "Resource temporarily unavailable"),
            Self::ENOMEM => ("ENOMEM", "Cannot allocate memory"),
            Self::EACCES => ("EACCES", "Permission denied"),
            Self::EFAULT => ("EFAULT", "Bad address"),
            Self::EBUSY => ("EBUSY", "Device or resource busy"),
            Self::EEXIST => ("EEXIST", "File exists"),
            Self::ENODEV => ("ENODEV", "No such device"),
            Self::EINVAL => ("EINVAL", "Invalid argument"),
            Self::ENFILE => ("ENFILE", "Too many open files in system"),
            Self::EMFILE => ("EMFILE", "Too many open files"),
            Self::ENOTTY => ("ENOTTY", "Inappropriate ioctl for device"),
            Self::ENOSPC => ("ENOSPC", "No space left on device"),
            Self::ENOSYS => ("ENOSYS", "Function not implemented"),
            Self::EOPNOTSUPP => ("EOPNOTSUPP", "Operation not supported"),
            Self::ETIMEDOUT => ("ETIMEDOUT", "Connection timed out"),
            Self::ECANCELED => ("ECANCELED", "Operation canceled"),
            _ => return None,
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.describe() {
            Some((symbol, text)) => write!(f, "{text} ({symbol})"),
            None => write!(f, "errno {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_show_text_and_symbol_and_others_their_number() {
        assert_eq!(Errno(16).to_string(), "Device or resource busy (EBUSY)");
        assert_eq!(Errno(4095).to_string(), "errno 4095");
    }

    #[test]
    fn the_values_are_those_of_the_running_system() {
        for (ours, theirs) in [
            (Errno::EBUSY, rustix::io::Errno::BUSY),
            (Errno::ENODEV, rustix::io::Errno::NODEV),
            (Errno::EOPNOTSUPP, rustix::io::Errno::OPNOTSUPP),
            (Errno::ECANCELED, rustix::io::Errno::CANCELED),
            (Errno::EACCES, rustix::io::Errno::ACCESS),
            (Errno::ENOSYS, rustix::io::Errno::NOSYS),
        ] {
            assert_eq!(ours.0, theirs.raw_os_error());
        }
    }
}
