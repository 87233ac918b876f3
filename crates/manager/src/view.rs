//! What can be seen of the devices and of the manager.

use std::sync::Arc;
use std::time::Instant;

use block::{DeviceId, Geometry};

use crate::fault::{Failure, StepFailure};
use crate::name::DeviceName;
use crate::request::CreateRequest;
use crate::stamp::Serial;
use crate::step::Step;
use crate::ticket::DeviceKey;

/// The coarse state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// On its way in.
    Creating,
    /// Serving.
    Live,
    /// On its way out.
    Stopping,
    /// Could not be taken down.
    Quarantined,
}

impl Phase {
    /// The stable name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Live => "live",
            Self::Stopping => "stopping",
            Self::Quarantined => "quarantined",
        }
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// Its key in this run.
    pub key: DeviceKey,
    /// Its name.
    pub name: DeviceName,
    /// Its serial in the stamp.
    pub serial: Serial,
    /// What was asked for; `None` for a stray without a readable record.
    pub request: Option<Arc<CreateRequest>>,
    /// Its properties, once its backing was opened.
    pub geometry: Option<Geometry>,
    /// The kernel's number, once known.
    pub id: Option<DeviceId>,
    /// Its coarse state.
    pub phase: Phase,
    /// The step that runs, or for a quarantined device the one that failed; `None` when live.
    pub step: Option<Step>,
    /// Since when it is in this step, or live.
    pub since: Instant,
    /// What has failed so far.
    pub failures: Vec<StepFailure>,
}

/// How many devices are in which phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// On their way in.
    pub creating: usize,
    /// Serving.
    pub live: usize,
    /// On their way out.
    pub stopping: usize,
    /// Could not be taken down.
    pub quarantined: usize,
}

/// A device that a shutdown waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressEntry {
    /// The device.
    pub name: DeviceName,
    /// The step it is in.
    pub step: Step,
    /// Since when.
    pub since: Instant,
}

/// How far a shutdown is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Devices when it began.
    pub total: usize,
    /// Devices that have ended, failed ones included.
    pub done: usize,
    /// The failures of those that ended with one.
    pub failed: Vec<Failure>,
    /// Devices that still take steps, without those that wait for their turn.
    pub in_progress: Vec<ProgressEntry>,
}

/// The manager as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusView {
    /// Devices by phase.
    pub devices: DeviceCounts,
    /// The most devices.
    pub devices_max: usize,
    /// Devices that hold a turn to stop.
    pub turns_held: usize,
    /// Devices that wait for a turn to stop.
    pub turns_waiting: usize,
    /// The most turns at a time for shutdown, `remove --all` and start; 0 is no limit.
    pub turns_max: usize,
    /// Answers that came after their step had been given up, since start.
    pub late_answers: u64,
    /// Journal records that could not be removed yet; the next write tries again.
    pub records_owed: usize,
    /// The shutdown, once it has begun.
    pub shutdown: Option<Progress>,
}
