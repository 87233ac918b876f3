//! What a device holds at a moment, in the kernel, in the daemon and in the journal.
//!
//! Whether a create is unwound or a live device is stopped, the way out is the same: give up what is held, in order.
//! So the way out is computed from this record and cannot forget a step that the way in has taken.

use block::{DeviceId, Geometry};

/// What the journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordMark {
    /// Nothing.
    None,
    /// A record of a device that a restart removes.
    Written,
    /// A record of a complete device, which a restart may adopt one day.
    Live,
}

/// What must happen to I/O in flight before the kernel may be told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// There is none.
    None,
    /// It is to be finished.
    Drain,
    /// It is to be answered with EIO.
    Abandon,
}

/// What the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelHold {
    /// No device.
    Nothing,
    /// Perhaps a device with our stamp.
    Unknown,
    /// This device.
    Added(DeviceId),
    /// This device, which was deleted but may still have openers.
    Deleting(DeviceId),
}

impl KernelHold {
    /// The kernel's number, if it is known.
    pub(crate) const fn id(self) -> Option<DeviceId> {
        match self {
            Self::Nothing | Self::Unknown => None,
            Self::Added(id) | Self::Deleting(id) => Some(id),
        }
    }
}

/// What a device holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) record: RecordMark,
    /// A link under `/dev/blockyard` may exist.
    pub(crate) link: bool,
    pub(crate) traffic: Traffic,
    /// A disk may exist or tags may be fetched: `STOP_DEV` must come before `DEL_DEV`, which would otherwise stop the
    /// device under the driver's global mutex.
    pub(crate) disk: bool,
    /// The shards may hold queue maps and the char device.
    pub(crate) queues: bool,
    pub(crate) kernel: KernelHold,
    /// The backing files are open and locked.
    pub(crate) files: bool,
    pub(crate) geometry: Option<Geometry>,
}

impl Held {
    /// A device that holds nothing yet.
    pub(crate) const NOTHING: Self = Self {
        record: RecordMark::None,
        link: false,
        traffic: Traffic::None,
        disk: false,
        queues: false,
        kernel: KernelHold::Nothing,
        files: false,
        geometry: None,
    };

    /// Whether anything but the journal record is left, so that giving it up is work that is done in turns.
    pub(crate) fn is_work_left(&self) -> bool {
        self.link
            || self.traffic != Traffic::None
            || self.disk
            || self.queues
            || self.kernel != KernelHold::Nothing
            || self.files
    }
}
