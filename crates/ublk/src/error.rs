//! One error for the crate: what failed, on which object, why, and what to do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use block::DeviceId;

use crate::command_kind::CommandKind;
use crate::diagnosis::{ErrorKind, diagnose};
use crate::errno::Errno;

/// A failure. Shows as one line: operation, object, problem, advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}{object} {problem}; {advice}")]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    object: Object,
    errno: Option<Errno>,
    problem: String,
    advice: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Object {
    Driver,
    Device(DeviceId),
    Path(PathBuf),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver => Ok(()),
            Self::Device(device) => write!(f, " of device {device}"),
            Self::Path(path) => write!(f, " {}", path.display()),
        }
    }
}

impl From<Option<DeviceId>> for Object {
    fn from(device: Option<DeviceId>) -> Self {
        device.map_or(Self::Driver, Self::Device)
    }
}

impl Error {
    /// A control command that the kernel answered with `errno`.
    #[must_use]
    pub fn from_command(command: CommandKind, device: Option<DeviceId>, errno: Errno) -> Self {
        let (kind, advice) = diagnose(command, errno);
        let id = device.map_or_else(|| "N".to_owned(), |device| device.to_string());
        Self {
            kind,
            operation: command.name(),
            object: device.into(),
            errno: Some(errno),
            problem: format!("failed: {errno}"),
            advice: advice.replace("{id}", &id),
        }
    }

    /// A control command that was cancelled at its deadline.
    #[must_use]
    pub fn deadline_exceeded(
        command: CommandKind,
        device: Option<DeviceId>,
        deadline: Duration,
    ) -> Self {
        Self {
            kind: ErrorKind::DeadlineExceeded,
            operation: command.name(),
            object: device.into(),
            errno: None,
            problem: format!("did not end within {deadline:?} and was cancelled"),
            advice: match command {
                CommandKind::StartDev | CommandKind::EndUserRecovery => {
                    "a server must fetch every tag of every queue first: delete the device and \
                     start over"
                        .to_owned()
                }
                _ => "the host is slow or the device's server does not answer".to_owned(),
            },
        }
    }

    /// A control command that neither ended at its deadline nor could be cancelled.
    #[must_use]
    pub fn stuck(command: CommandKind, device: Option<DeviceId>, deadline: Duration) -> Self {
        Self {
            kind: ErrorKind::Stuck,
            operation: command.name(),
            object: device.into(),
            errno: None,
            problem: format!("is stuck in the kernel since more than {deadline:?}"),
            advice: "leave the device alone and see the kernel's log (`dmesg`) for blocked tasks"
                .to_owned(),
        }
    }

    /// A control command that was not sent.
    pub(crate) fn not_sent(
        command: CommandKind,
        device: Option<DeviceId>,
        (kind, problem, advice): (ErrorKind, &str, &str),
    ) -> Self {
        Self {
            kind,
            operation: command.name(),
            object: device.into(),
            errno: None,
            problem: format!("was not sent: {problem}"),
            advice: advice.to_owned(),
        }
    }

    /// An answer of the kernel that makes no sense.
    pub(crate) fn protocol(command: CommandKind, device: Option<DeviceId>, problem: &str) -> Self {
        Self {
            kind: ErrorKind::Protocol,
            operation: command.name(),
            object: device.into(),
            errno: None,
            problem: format!("broke the protocol: {problem}"),
            advice: "this kernel's driver is not understood: report it with the kernel's release"
                .to_owned(),
        }
    }

    /// A system call on a file that failed. `kind` and `advice` are decided by the caller.
    pub(crate) fn on_path(
        operation: &'static str,
        path: &Path,
        errno: Errno,
        (kind, advice): (ErrorKind, &str),
    ) -> Self {
        Self {
            kind,
            operation,
            object: Object::Path(path.to_owned()),
            errno: Some(errno),
            problem: format!("failed: {errno}"),
            advice: advice.to_owned(),
        }
    }

    /// The control ring cannot be made.
    pub(crate) fn ring(operation: &'static str, error: &std::io::Error) -> Self {
        let errno = Errno::from_io(error);
        let (kind, advice) = match errno {
            Errno::EPERM => (
                ErrorKind::Permission,
                "io_uring is forbidden here: see `sysctl kernel.io_uring_disabled` and seccomp",
            ),
            Errno::ENOSYS | Errno::EINVAL => (
                ErrorKind::Unsupported,
                "this kernel's io_uring is too old: Linux 6.8 or newer is needed",
            ),
            Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE => (
                ErrorKind::LimitReached,
                "raise the limits of open files and locked memory (`ulimit -n -l`)",
            ),
            _ => (ErrorKind::Other, "see the kernel's log (`dmesg`)"),
        };
        Self {
            kind,
            operation,
            object: Object::Driver,
            errno: Some(errno),
            problem: format!("failed: {errno}"),
            advice: advice.to_owned(),
        }
    }

    /// The host cannot run this program.
    pub(crate) fn unsupported(operation: &'static str, problem: String, advice: &str) -> Self {
        Self {
            kind: ErrorKind::Unsupported,
            operation,
            object: Object::Driver,
            errno: None,
            problem,
            advice: advice.to_owned(),
        }
    }

    /// What kind of failure it is; decide by this.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The kernel's name of the control command, or the system call.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// The device, if one is concerned.
    #[must_use]
    pub const fn device(&self) -> Option<DeviceId> {
        match self.object {
            Object::Device(device) => Some(device),
            Object::Driver | Object::Path(_) => None,
        }
    }

    /// The kernel's errno, if it gave one.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        self.errno
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_command_device_reason_and_remedy() {
        let error = Error::from_command(CommandKind::StartDev, Some(DeviceId(7)), Errno::EEXIST);
        assert_eq!(
            error.to_string(),
            "START_DEV of device 7 failed: File exists (EEXIST); \
             a previous opener still holds the disk: see `lsof /dev/ublkb7`"
        );
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert_eq!(error.device(), Some(DeviceId(7)));
        assert_eq!(error.errno(), Some(Errno::EEXIST));
    }

    #[test]
    fn a_command_without_a_device_says_so_by_leaving_it_out() {
        let error = Error::from_command(CommandKind::AddDev, None, Errno::EACCES);
        assert_eq!(
            error.to_string(),
            "ADD_DEV failed: Permission denied (EACCES); the driver's limit of devices is \
             reached: remove some, or raise /sys/module/ublk_drv/parameters/ublks_max"
        );
    }

    #[test]
    fn a_missed_deadline_shows_the_deadline() {
        let error = Error::deadline_exceeded(
            CommandKind::StopDev,
            Some(DeviceId(3)),
            Duration::from_secs(5),
        );
        assert_eq!(
            error.to_string(),
            "STOP_DEV of device 3 did not end within 5s and was cancelled; \
             the host is slow or the device's server does not answer"
        );
    }
}
