//! Why a step failed, and how a failed life or end of a device is reported: the first error, the others beside it.

use std::fmt;
use std::time::Duration;

use block::DeviceId;

use crate::name::DeviceName;
use crate::step::{CreateStep, Step};

/// The kinds of a failed step. Control flow and API codes depend on these only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The backing file does not exist.
    BackingMissing,
    /// The backing is neither a regular file nor a block device.
    BackingKind,
    /// The backing's size cannot be a device's, or is not the one that was asked for.
    SizeInvalid,
    /// The backing is in use by another device or process.
    InUse,
    /// Not allowed.
    Permission,
    /// No space left.
    NoSpace,
    /// A limit of the host or the kernel is reached.
    LimitReached,
    /// The kernel lacks what is needed.
    Unsupported,
    /// Not done in time; the kernel has taken the command back, or nobody answered.
    DeadlineExceeded,
    /// Not done in time, and the kernel still works on it.
    Stuck,
    /// The task that ran the step panicked.
    Panicked,
    /// Nobody wants the device any more.
    Cancelled,
    /// The daemon goes down.
    ShuttingDown,
    /// The journal could not be written.
    Journal,
    /// An I/O error or an error of the kernel with no kind of its own.
    Io,
    /// The driver broke the protocol.
    Internal,
}

impl FaultKind {
    /// Whether a step that failed so was refused what it was asked for: the mistake is the user's, nothing is broken.
    #[must_use]
    pub fn is_refusal_of(self, step: Step) -> bool {
        step == CreateStep::Open.into()
            && matches!(
                self,
                Self::BackingMissing
                    | Self::BackingKind
                    | Self::SizeInvalid
                    | Self::InUse
                    | Self::Permission
            )
    }

    /// The stable code of the API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::BackingMissing => "backing_missing",
            Self::BackingKind => "backing_kind",
            Self::SizeInvalid => "invalid_size",
            Self::InUse => "in_use",
            Self::Permission => "permission_denied",
            Self::NoSpace => "no_space",
            Self::LimitReached => "limit_reached",
            Self::Unsupported => "unsupported",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Stuck => "stuck",
            Self::Panicked => "panicked",
            Self::Cancelled => "cancelled",
            Self::ShuttingDown => "shutting_down",
            Self::Journal => "journal_failed",
            Self::Io => "io_error",
            Self::Internal => "internal",
        }
    }
}

/// What a failed [`crate::Command::Add`] left in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelTrace {
    /// No device.
    Nothing,
    /// This device, for instance when `ADD_DEV` succeeded and `SET_PARAMS` did not.
    Device(DeviceId),
    /// Nobody knows; the manager has the driver look for the stamp.
    Unknown,
}

/// The error of one step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What kind of error.
    pub kind: FaultKind,
    /// One line: what failed, on which object, and what to do.
    pub message: String,
    /// For the step `add`: what is in the kernel now. Of no meaning for other steps.
    pub trace: KernelTrace,
}

impl Fault {
    /// A fault. The trace is unknown where the kind does not tell that the command came to its end.
    #[must_use]
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        let trace = match kind {
            FaultKind::DeadlineExceeded
            | FaultKind::Stuck
            | FaultKind::Panicked
            | FaultKind::Internal => KernelTrace::Unknown,
            FaultKind::BackingMissing
            | FaultKind::BackingKind
            | FaultKind::SizeInvalid
            | FaultKind::InUse
            | FaultKind::Permission
            | FaultKind::NoSpace
            | FaultKind::LimitReached
            | FaultKind::Unsupported
            | FaultKind::Cancelled
            | FaultKind::ShuttingDown
            | FaultKind::Journal
            | FaultKind::Io => KernelTrace::Nothing,
        };
        Self {
            kind,
            message: message.into(),
            trace,
        }
    }

    /// The same fault of an `add` that left this device behind.
    #[must_use]
    pub fn leaving(self, id: DeviceId) -> Self {
        Self {
            trace: KernelTrace::Device(id),
            ..self
        }
    }
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    /// Which step.
    pub step: Step,
    /// How long it had been running.
    pub elapsed: Duration,
    /// Why.
    pub fault: Fault,
}

/// Where a device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Nothing of it is left.
    Gone,
    /// Something of it is left in the kernel or in the daemon; it stays listed and can be removed again.
    Quarantined,
}

/// A create or remove that did not go as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// Which device.
    pub name: DeviceName,
    /// What became of it.
    pub fate: Fate,
    /// What failed first.
    pub first: StepFailure,
    /// What failed afterwards, while cleaning up.
    pub others: Vec<StepFailure>,
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {} failed after {} ms: {}",
            self.step,
            self.elapsed.as_millis(),
            self.fault
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}: {}", self.name, self.first)?;
        for other in &self.others {
            write!(f, "; then {other}")?;
        }
        match self.fate {
            Fate::Gone => Ok(()),
            Fate::Quarantined => {
                write!(
                    f,
                    "; it is quarantined: remove it again once the cause is gone"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{CreateStep, StopStep};

    #[test]
    fn a_failure_names_device_steps_and_what_to_do_in_one_line() {
        let failure = |step: Step, kind, message: &str| StepFailure {
            step,
            elapsed: Duration::from_millis(1500),
            fault: Fault::new(kind, message),
        };
        let text = Failure {
            name: "a".parse().unwrap(),
            fate: Fate::Quarantined,
            first: failure(
                CreateStep::Start.into(),
                FaultKind::Stuck,
                "START_DEV hangs",
            ),
            others: vec![failure(StopStep::Stop.into(), FaultKind::Io, "EIO")],
        }
        .to_string();
        assert_eq!(
            text,
            "device a: step start failed after 1500 ms: START_DEV hangs; then step stop failed after 1500 ms: EIO; \
             it is quarantined: remove it again once the cause is gone"
        );
    }

    #[test]
    fn only_the_opening_of_a_backing_is_refused_by_the_users_mistake() {
        let (open, add) = (CreateStep::Open.into(), CreateStep::Add.into());
        assert!(FaultKind::BackingMissing.is_refusal_of(open));
        assert!(FaultKind::Permission.is_refusal_of(open));
        assert!(!FaultKind::Permission.is_refusal_of(add));
        assert!(!FaultKind::Io.is_refusal_of(open));
    }

    #[test]
    fn only_a_command_that_ended_leaves_a_known_trace() {
        let trace = |kind| Fault::new(kind, "").trace;
        assert_eq!(trace(FaultKind::Io), KernelTrace::Nothing);
        assert_eq!(trace(FaultKind::Panicked), KernelTrace::Unknown);
        assert_eq!(trace(FaultKind::DeadlineExceeded), KernelTrace::Unknown);
        assert_eq!(
            Fault::new(FaultKind::Io, "").leaving(DeviceId(3)).trace,
            KernelTrace::Device(DeviceId(3))
        );
    }
}
