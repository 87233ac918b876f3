//! The daemon's state on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::device::FailedRemoval;

/// The answer to `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// The kernel and how it is used.
    pub kernel: Kernel,
    /// The threads that serve I/O, by index.
    pub shards: Vec<Shard>,
    /// Everything that is bounded, with its limit and its use, sorted by name.
    pub limits: Vec<Limit>,
    /// Number of devices by state.
    pub devices: DeviceCounts,
    /// How far the end of the daemon, or the removal of all devices, has come. Absent if neither was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown: Option<StopProgress>,
    /// What the comparison with the kernel found at start and left alone.
    pub findings: Vec<Finding>,
}

/// The kernel and how the daemon uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Kernel {
    /// Release, as `uname -r` prints it.
    pub release: String,
    /// ublk features in use, by name.
    pub features: Vec<String>,
    /// The order of the last two steps of a removal.
    pub teardown_order: TeardownOrder,
    /// The best way that the data of requests can travel here: `zero-copy` from Linux 6.18.4 on, else `user-copy`.
    pub copy_mode: String,
}

/// The order of the last two steps of a removal; the faster one for the running kernel is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeardownOrder {
    /// The character device is given up, then the device is deleted (Linux before 6.18).
    CloseThenDelete,
    /// The device is deleted, then its character device is given up (Linux 6.18 and later).
    DeleteThenClose,
}

impl TeardownOrder {
    /// The order on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CloseThenDelete => "close_then_delete",
            Self::DeleteThenClose => "delete_then_close",
        }
    }
}

/// A thread that serves I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shard {
    /// Its index, from 0.
    pub index: u32,
    /// Devices of which it serves at least one queue.
    pub devices: u64,
    /// Requests being served now.
    pub in_flight: u64,
    /// Times its thread came out of the kernel since the start. An idle shard's figure stands still.
    #[serde(default)]
    pub wake_ups: u64,
    /// I/O buffers, by number.
    pub buffers: Usage,
    /// Operations on files and disks below that the kernel works on, by number. At the limit a device has one at a time.
    #[serde(default)]
    pub operations: Usage,
    /// Tags of zero-copy devices, and the slots for them. Tags beyond the limit share slots; who finds its slot taken is
    /// served by user copy.
    #[serde(default)]
    pub slots: Usage,
}

/// How much of something bounded is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// In use now.
    pub in_use: u64,
    /// The most there can be.
    pub limit: u64,
}

/// A limit of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// What is limited; a stable word in snake_case, such as `devices` or `connections`.
    pub name: String,
    /// In use now.
    pub in_use: u64,
    /// The most there can be.
    pub limit: u64,
}

/// Number of devices by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceCounts {
    /// Serving I/O.
    pub live: u64,
    /// Being made.
    pub creating: u64,
    /// Being taken down.
    pub stopping: u64,
    /// Kept aside after a failure.
    pub quarantined: u64,
}

/// How far taking down all devices has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StopProgress {
    /// Devices to take down.
    pub total: u64,
    /// Devices that are gone or have failed.
    pub done: u64,
    /// Devices being taken down now, the longest first.
    pub in_progress: Vec<StepInProgress>,
    /// Devices of which a step failed.
    pub failed: Vec<FailedRemoval>,
}

/// A step that runs now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepInProgress {
    /// The device.
    pub name: String,
    /// The step.
    pub step: String,
    /// For how long the step has been running, in milliseconds.
    pub since_ms: u64,
}

/// A device or record that was found at start and left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// The kernel's number of the device.
    pub id: u32,
    /// One line on what was found and why it was left alone.
    pub what: String,
}
