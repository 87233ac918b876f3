//! Requests that are refused at once, each with a named reason.

use block::DeviceId;

use crate::name::DeviceName;
use crate::request::Difference;
use crate::step::Step;

/// Why a request was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// The name belongs to a device that was asked for differently.
    #[error(
        "the name {name} is taken by another device: {}; choose another name, or remove it first: blockyard remove {name}",
        describe(differences)
    )]
    NameTaken {
        /// The name.
        name: DeviceName,
        /// Where the requests differ. Never empty.
        differences: Vec<Difference>,
    },
    /// No such device.
    #[error("there is no device {name}; see the list of devices")]
    NotFound {
        /// The name.
        name: DeviceName,
    },
    /// The daemon takes all devices down.
    #[error("{what}: the daemon is shutting down; ask again when it runs again")]
    ShuttingDown {
        /// What is not done.
        what: String,
    },
    /// There are as many devices as there may be, or every serial is in use.
    #[error(
        "device {name} is not created: the limit of {limit} devices (limits.devices_max) is reached; remove some, or raise it in the configuration file"
    )]
    LimitReached {
        /// The device that was asked for.
        name: DeviceName,
        /// How many there may be.
        limit: usize,
    },
    /// Too many requests wait for the same thing.
    #[error("{limit} requests wait for the same outcome already; wait for one of them")]
    TooManyRequests {
        /// How many may wait.
        limit: usize,
    },
    /// The device is on its way out.
    #[error("device {name} is being removed (step {step}); ask again when it is gone")]
    Busy {
        /// The device.
        name: DeviceName,
        /// What it does now.
        step: Step,
    },
    /// The device could not be taken down; its name is not free.
    #[error(
        "device {name} is quarantined since step {step} failed; remove it again once the cause is gone"
    )]
    Quarantined {
        /// The device.
        name: DeviceName,
        /// The step that failed.
        step: Step,
    },
    /// The step that failed has not even answered; until then nothing may be done to the device.
    #[error(
        "device {name}: step {step} has not come back yet; it is taken down as soon as it does"
    )]
    Unanswered {
        /// The device.
        name: DeviceName,
        /// The step.
        step: Step,
    },
    /// A ublk device that is not left over.
    #[error("ublk device {} is not removed: {why}", id.0)]
    NotStray {
        /// The kernel's number of the device.
        id: DeviceId,
        /// Why not.
        why: NotStray,
    },
}

/// Why a ublk device may not be removed as a stray.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStray {
    /// No Blockyard made it.
    #[error("no Blockyard made it; remove it with the program that did")]
    Foreign,
    /// A living process serves it.
    #[error("a living process serves it; remove it with that daemon, or end that first")]
    Served,
    /// It is a device of this daemon.
    #[error("it is device {0} of this daemon; remove it by its name")]
    Known(DeviceName),
}

impl Denied {
    /// The stable code of the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NameTaken { .. } => "name_taken",
            Self::NotFound { .. } => "not_found",
            Self::ShuttingDown { .. } => "shutting_down",
            Self::LimitReached { .. } => "limit_reached",
            Self::TooManyRequests { .. } => "too_many_requests",
            Self::Busy { .. } => "busy",
            Self::Quarantined { .. } => "quarantined",
            Self::Unanswered { .. } => "unanswered",
            Self::NotStray { .. } => "busy",
        }
    }
}

fn describe(differences: &[Difference]) -> String {
    let parts: Vec<_> = differences
        .iter()
        .map(|d| format!("it {}, you asked for {}", d.existing, d.requested))
        .collect();
    parts.join("; ")
}
