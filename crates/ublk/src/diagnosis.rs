//! What an errno of a control command means, and what to do about it. One table, no I/O.
//!
//! Sources: drivers/block/ublk_drv.c of Linux 6.12.117, 7.2.13 and 7.3.4. The same errno means different things to
//! different commands: `EACCES` from `ADD_DEV` is a limit, from `SET_PARAMS` a matter of order.

use crate::command_kind::CommandKind;
use crate::errno::Errno;

/// What kind of failure it is; what callers decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The driver is not in this kernel or not loaded.
    Missing,
    /// The process may not do this.
    Permission,
    /// Something still holds what the command needs; it may work later.
    Busy,
    /// The id is taken.
    Exists,
    /// There is no such device, or it has no disk.
    NotFound,
    /// This kernel cannot do it.
    Unsupported,
    /// A limit of the host or of this process is reached.
    LimitReached,
    /// The command did not end in time and was cancelled; it had no effect or is being undone.
    DeadlineExceeded,
    /// The command did not end in time and the kernel does not let go of it: whether it takes effect is unknown.
    Stuck,
    /// The kernel refused the arguments.
    Invalid,
    /// The kernel, or the caller, broke the protocol.
    Protocol,
    /// Anything else.
    Other,
}

/// Kind and advice. `{id}` in the advice stands for the device.
pub(crate) type Diagnosis = (ErrorKind, &'static str);

/// What `errno` means as the result of `command`.
pub(crate) const fn diagnose(command: CommandKind, errno: Errno) -> Diagnosis {
    match specific(command, errno) {
        Some(diagnosis) => diagnosis,
        None => general(errno),
    }
}

const fn specific(command: CommandKind, errno: Errno) -> Option<Diagnosis> {
    use CommandKind as C;
    use ErrorKind as K;
    Some(match (command, errno) {
        (C::AddDev, _) => return add_dev(errno),
        (C::StartDev | C::EndUserRecovery | C::StartUserRecovery, _) => {
            return going_live(command, errno);
        }
        (C::SetParams, Errno::EACCES) => (
            K::Busy,
            "parameters can be set before the start only: stop device {id} first",
        ),
        (C::SetParams, Errno::EINVAL) => (
            K::Invalid,
            "the kernel refuses this size, block size or limit",
        ),
        (C::TryStopDev, Errno::EBUSY) => (
            K::Busy,
            "the disk is open: see `lsof /dev/ublkb{id}`, close it and try again",
        ),
        (C::TryStopDev | C::UpdateSize, Errno::ENODEV) => (
            K::NotFound,
            "there is no such device, or it has no disk: start it first",
        ),
        (C::QuiesceDev, Errno::EBUSY) => (
            K::Busy,
            "every tag is with the server: finish requests and try again, or close /dev/ublkc{id}",
        ),
        (C::DelDevAsync, Errno::EINVAL) => (
            K::Unsupported,
            "unprivileged devices cannot be deleted asynchronously: use DEL_DEV",
        ),
        (C::GetFeatures, Errno::EINVAL | Errno::EOPNOTSUPP) => {
            (K::Unsupported, "the driver is older than Linux 6.5")
        }
        _ => return None,
    })
}

const fn add_dev(errno: Errno) -> Option<Diagnosis> {
    use ErrorKind as K;
    Some(match errno {
        // Not a permission: the driver answers EACCES when ublks_max is reached.
        Errno::EACCES => (
            K::LimitReached,
            "the driver's limit of devices is reached: remove some, or raise \
             /sys/module/ublk_drv/parameters/ublks_max",
        ),
        Errno::EEXIST => (
            K::Exists,
            "the id is taken, or an opener still holds its last disk: see `lsof /dev/ublkb{id}`, \
             or let the kernel choose an id",
        ),
        Errno::ENOSPC => (K::LimitReached, "every device id of the kernel is in use"),
        Errno::EPERM => (
            K::Permission,
            "CAP_SYS_ADMIN in the initial user namespace is needed",
        ),
        Errno::EINVAL => (
            K::Invalid,
            "the kernel refuses this combination of features, queues and depth",
        ),
        _ => return None,
    })
}

const fn going_live(command: CommandKind, errno: Errno) -> Option<Diagnosis> {
    use CommandKind as C;
    use ErrorKind as K;
    Some(match (command, errno) {
        (C::StartDev, Errno::EEXIST) => (
            K::Busy,
            "a previous opener still holds the disk: see `lsof /dev/ublkb{id}`",
        ),
        // From 7.3.4 on: STOPPING lasts until the server closes its char device.
        (C::StartDev, Errno::EBUSY) => (
            K::Busy,
            "the device is being stopped until its server closes /dev/ublkc{id}: see \
             `lsof /dev/ublkc{id}`",
        ),
        (C::StartDev, Errno::EINVAL) => (
            K::Invalid,
            "parameters are missing, or the process that starts is not the one that opened \
             /dev/ublkc{id}",
        ),
        (C::StartUserRecovery | C::EndUserRecovery, Errno::EBUSY) => (
            K::Busy,
            "the device is not quiesced yet; its old server may still hold /dev/ublkc{id}: see \
             `lsof /dev/ublkc{id}`",
        ),
        (C::StartUserRecovery | C::EndUserRecovery, Errno::EINVAL) => (
            K::Invalid,
            "the device was added without user recovery, was never started, or the process that \
             recovers is not the one that opened /dev/ublkc{id}",
        ),
        _ => return None,
    })
}

const fn general(errno: Errno) -> Diagnosis {
    use ErrorKind as K;
    match errno {
        Errno::EPERM => (
            K::Permission,
            "CAP_SYS_ADMIN is needed for devices that were added with it",
        ),
        Errno::EACCES => (
            K::Permission,
            "read and write access to /dev/ublkc{id} is needed",
        ),
        Errno::EBUSY => (
            K::Busy,
            "something still uses the device: see `lsof /dev/ublkb{id} /dev/ublkc{id}`",
        ),
        Errno::EEXIST => (K::Exists, "the id is taken"),
        Errno::ENODEV => (
            K::NotFound,
            "there is no such device: see `ls /sys/class/ublk-char`",
        ),
        Errno::EOPNOTSUPP | Errno::ENOTTY => (
            K::Unsupported,
            "this kernel does not have the command: a newer one is needed",
        ),
        Errno::EINVAL => (K::Invalid, "the kernel refuses the arguments"),
        Errno::ENFILE | Errno::EMFILE | Errno::ENOSPC => {
            (K::LimitReached, "a limit of the host is reached")
        }
        Errno::ENOMEM | Errno::EAGAIN => (K::LimitReached, "the host is short of memory"),
        Errno::EINTR | Errno::ECANCELED => (
            K::Other,
            "the kernel gave up waiting; the command may be repeated",
        ),
        _ => (K::Other, "see the kernel's log (`dmesg`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_errno_means_what_the_command_means_by_it() {
        use CommandKind as C;
        let table = [
            (C::AddDev, Errno::EACCES, ErrorKind::LimitReached),
            (C::AddDev, Errno::EEXIST, ErrorKind::Exists),
            (C::AddDev, Errno::EPERM, ErrorKind::Permission),
            (C::SetParams, Errno::EACCES, ErrorKind::Busy),
            (C::StartDev, Errno::EEXIST, ErrorKind::Busy),
            (C::StartDev, Errno::EBUSY, ErrorKind::Busy),
            (C::StartDev, Errno::EINVAL, ErrorKind::Invalid),
            (C::StartDev, Errno::ENODEV, ErrorKind::NotFound),
            (C::TryStopDev, Errno::EBUSY, ErrorKind::Busy),
            (C::TryStopDev, Errno::EOPNOTSUPP, ErrorKind::Unsupported),
            (C::StartUserRecovery, Errno::EBUSY, ErrorKind::Busy),
            (C::DelDev, Errno::EACCES, ErrorKind::Permission),
            (C::DelDevAsync, Errno::EINVAL, ErrorKind::Unsupported),
            (C::DelDevAsync, Errno::ENODEV, ErrorKind::NotFound),
            (C::GetFeatures, Errno::EINVAL, ErrorKind::Unsupported),
            (C::GetDevInfo, Errno(4095), ErrorKind::Other),
        ];
        for (command, errno, kind) in table {
            assert_eq!(diagnose(command, errno).0, kind, "{command} {errno}");
        }
    }

    #[test]
    fn every_command_has_advice_for_every_errno() {
        for command in CommandKind::ALL {
            for errno in (0..200).map(Errno) {
                assert!(!diagnose(command, errno).1.is_empty());
            }
        }
    }
}
