//! Devices on the wire: the request, the device, and what a removal reports.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::size::ByteSize;

/// The body of `PUT /v1/devices/{name}`. The same request again is answered with the existing device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceRequest {
    /// What backs the device: `null:SIZE`, or `raw:PATH` with an absolute path to a file or block device.
    pub spec: String,
    /// Size of the device in bytes, a multiple of 512. Absent: as large as what backs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Whether writes are refused. Absent: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Number of hardware queues, 1 to 64. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 64)]
    pub queues: Option<u16>,
    /// Requests in flight per queue, 1 to 1024. Absent: 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub depth: Option<u16>,
}

/// Where a device is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// Being made; `step` says how far.
    Creating,
    /// Serving I/O.
    Live,
    /// Being taken down; `step` says how far.
    Stopping,
    /// A step of its removal failed and what is left of it is kept aside; `failure` says why. Removing it tries again.
    Quarantined,
}

impl DeviceState {
    /// The state on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Live => "live",
            Self::Stopping => "stopping",
            Self::Quarantined => "quarantined",
        }
    }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Device {
    /// The name it was created by.
    pub name: String,
    /// What backs it, as requested.
    pub spec: String,
    /// Where it is in its life.
    pub state: DeviceState,
    /// The step in progress, while it is created or stopped, or the step it is stuck in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The block device, `/dev/ublkbN`. Absent until the kernel has given it a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The stable link, `/dev/blockyard/NAME`. It exists while the device is live.
    pub link: String,
    /// The kernel's number of the device, the `N` of its path. Absent until the kernel has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Size in bytes. Absent until what backs it has been opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Number of hardware queues.
    pub queues: u16,
    /// Requests in flight per queue, at most.
    pub depth: u16,
    /// How the data of its requests travels: `zero-copy`, where reads that need not wait go from the file into the request
    /// without a copy, or `user-copy`. Absent until the kernel has the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_mode: Option<String>,
    /// The shards that serve its queues, by index; entry `q` serves queue `q`.
    pub shards: Vec<u32>,
    /// When it became live: RFC 3339, UTC. Absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// What it has done since it became live.
    pub stats: DeviceStats,
    /// The first failure of its life cycle. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// Counters of a device. They only grow, but for `in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceStats {
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Completed flushes.
    pub flushes: u64,
    /// Completed discards.
    pub discards: u64,
    /// Completed write-zeroes requests.
    pub write_zeroes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes of reads that went from the file into the request without a copy. The others were copied.
    #[serde(default)]
    pub zero_copy_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests being served now.
    pub in_flight: u64,
}

/// A step of a device's life cycle that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// The step; `serve` for a live device that has to be removed.
    pub step: String,
    /// One line on what failed.
    pub error: String,
    /// How long the step took until it failed, in milliseconds; 0 for `serve`.
    pub elapsed_ms: u64,
}

/// The answer to `GET /v1/devices`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceList {
    /// Every device, sorted by name.
    pub devices: Vec<Device>,
}

/// The answer to `DELETE /v1/devices/{name}`: the device is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Removal {
    /// The name it had.
    pub name: String,
    /// The kernel's number it had. Absent if it never got one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// From the request to the end, in milliseconds.
    pub elapsed_ms: u64,
    /// Steps that failed although the device is gone, such as in-flight I/O that was abandoned at its deadline.
    #[serde(default)]
    pub failures: Vec<Failure>,
}

/// The answer to `DELETE /v1/devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovalReport {
    /// Devices that are gone without a failure, sorted by name.
    pub removed: Vec<String>,
    /// Devices of which a step failed.
    pub failed: Vec<FailedRemoval>,
}

/// A device that could not be taken down in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedRemoval {
    /// The device.
    pub name: String,
    /// The step that failed.
    pub step: String,
    /// One line on what failed.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_a_spec_and_refuses_what_it_does_not_know() {
        let request: DeviceRequest =
            serde_json::from_str(r#"{"spec":"null:8G","size":"8G"}"#).unwrap();
        assert_eq!(request.size, Some(ByteSize(8 << 30)));
        assert_eq!(request.read_only, None);
        for (body, word) in [
            (r#"{}"#, "spec"),
            (r#"{"spec":"null:1M","deep":1}"#, "deep"),
            (r#"{"spec":"null:1M","depth":70000}"#, "70000"),
            (r#"{"spec":"null:1M","spec":"null:2M"}"#, "duplicate"),
            (r#"{"spec":7}"#, "string"),
        ] {
            let error = serde_json::from_str::<DeviceRequest>(body).unwrap_err();
            assert!(error.to_string().contains(word), "{body}: {error}");
        }
    }

    #[test]
    fn an_answer_with_more_fields_is_still_read() {
        let removal: Removal =
            serde_json::from_str(r#"{"name":"a","elapsed_ms":3,"later":true}"#).unwrap();
        assert_eq!(removal.elapsed_ms, 3);
    }
}
