//! How a request ended, and the errno the kernel is told.

/// How a request, or one step of it, ended. `Copy`, so that the I/O path never allocates for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Done.
    Ok,
    /// The backing store failed, or the target did.
    Io,
    /// Stored data does not match its checksum or its format.
    Corrupt,
    /// The medium below reports lost data.
    Media,
    /// The backing store is full.
    NoSpace,
    /// A quota below is used up.
    Quota,
    /// The operation is not offered by this device.
    Unsupported,
    /// The extent does not lie on the device.
    OutOfRange,
    /// A modifying request on a read-only device.
    ReadOnly,
    /// The device is going away or its backing store is gone.
    Gone,
    /// Something below did not answer in time.
    TimedOut,
    /// Not enough memory now.
    NoMemory,
}

// Linux errno values, x86-64 and every other architecture that uses asm-generic/errno.h.
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENODATA: i32 = 61;
const EILSEQ: i32 = 84;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;
const EDQUOT: i32 = 122;

impl Status {
    /// The positive errno that stands for this status; 0 for [`Status::Ok`].
    ///
    /// The values are those that `errno_to_blk_status` (block/blk-core.c, Linux 6.8 to 7.3) keeps apart;
    /// any other becomes `BLK_STS_IOERR` there.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::Io => EIO,
            Self::Corrupt => EILSEQ,
            Self::Media => ENODATA,
            Self::NoSpace => ENOSPC,
            Self::Quota => EDQUOT,
            Self::Unsupported => EOPNOTSUPP,
            Self::OutOfRange => EINVAL,
            Self::ReadOnly => EROFS,
            Self::Gone => ENODEV,
            Self::TimedOut => ETIMEDOUT,
            Self::NoMemory => ENOMEM,
        }
    }

    /// The status for a positive errno of a failed system call or ring completion.
    #[must_use]
    pub const fn from_errno(errno: i32) -> Self {
        match errno {
            0 => Self::Ok,
            // A file at its size limit is as full as a disk that is.
            ENOSPC | EFBIG => Self::NoSpace,
            EDQUOT => Self::Quota,
            EOPNOTSUPP => Self::Unsupported,
            EROFS => Self::ReadOnly,
            ENODEV => Self::Gone,
            ETIMEDOUT => Self::TimedOut,
            ENOMEM | EAGAIN => Self::NoMemory,
            ENODATA => Self::Media,
            EILSEQ => Self::Corrupt,
            _ => Self::Io,
        }
    }

    /// Whether the request succeeded.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// The first failure of the two, in this order.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        if self.is_ok() { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_stays_a_full_disk() {
        assert_eq!(Status::from_errno(28), Status::NoSpace);
        assert_eq!(Status::NoSpace.errno(), 28);
    }

    #[test]
    fn every_status_but_ok_has_an_errno_that_maps_back_to_a_failure() {
        for status in [
            Status::Io,
            Status::Corrupt,
            Status::Media,
            Status::NoSpace,
            Status::Quota,
            Status::Unsupported,
            Status::OutOfRange,
            Status::ReadOnly,
            Status::Gone,
            Status::TimedOut,
            Status::NoMemory,
        ] {
            assert!(status.errno() > 0);
            assert!(!Status::from_errno(status.errno()).is_ok());
        }
        assert_eq!(Status::from_errno(0), Status::Ok);
    }

    #[test]
    fn the_first_failure_is_kept() {
        assert_eq!(Status::Ok.and(Status::Io), Status::Io);
        assert_eq!(Status::NoSpace.and(Status::Io), Status::NoSpace);
        assert_eq!(Status::Ok.and(Status::Ok), Status::Ok);
    }
}
