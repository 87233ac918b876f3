//! What the control ring promises and refuses: its limits, the callback's type, and the reasons not to send a command.

use std::time::Duration;

use crate::diagnosis::ErrorKind;
use crate::error::Error;
use crate::reply::Reply;

/// With so many commands stuck the host is beyond help, and each costs a kernel thread.
pub const STUCK_MAX: usize = 1024;
/// No command may take longer; a larger deadline is cut.
pub(super) const DEADLINE_MAX: Duration = Duration::from_secs(3600);
/// Kind, problem and advice.
pub(super) type Because = (ErrorKind, &'static str, &'static str);
pub(super) const CLOSING: Because = (
    ErrorKind::Other,
    "the control ring is closing",
    "the process is going down",
);
pub(super) const FULL: Because = (
    ErrorKind::LimitReached,
    "too many control commands are queued",
    "try again when some have ended",
);
pub(super) const WEDGED: Because = (
    ErrorKind::LimitReached,
    "too many control commands are stuck in the kernel",
    "see the kernel's log (`dmesg`) and reboot the host",
);
pub(super) const REENTRANT: Because = (
    ErrorKind::Protocol,
    "a callback of the control ring waits for the control ring",
    "use `submit` in callbacks",
);

/// Called once with the outcome of a command.
pub type Done = Box<dyn FnOnce(Result<Reply, Error>) + Send>;

/// The limits of a control ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlLimits {
    /// Commands in the kernel at once. 256: enough to keep every worker busy.
    pub in_flight_max: u16,
    /// Kernel threads that execute them. 64: teardown waits for RCU grace periods that commands share, and
    /// gains nothing from more (measured with 1000 devices).
    pub workers_max: u16,
    /// Commands that wait to be sent. 16384: a few for each of several thousand devices.
    pub queued_max: usize,
}

impl Default for ControlLimits {
    fn default() -> Self {
        Self {
            in_flight_max: 256,
            workers_max: 64,
            queued_max: 16384,
        }
    }
}
