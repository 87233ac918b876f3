//! What control sends to a shard, and what a shard reports on its own.

use std::sync::Arc;

use block::Target;

use crate::counters::Counters;

/// The daemon's own number of a device; never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey(pub u64);

/// A callback that a shard's thread runs once; it must not block.
pub type Done<T> = Box<dyn FnOnce(T) + Send>;

/// Everything a shard needs to serve its part of a device. It comes back in [`Released`].
pub struct Attachment<Q, F> {
    /// The device.
    pub key: DeviceKey,
    /// The queues that this shard serves.
    pub queues: Vec<Q>,
    /// The content.
    pub target: Box<dyn Target>,
    /// The files that the target's plans name by index.
    pub files: Vec<F>,
    /// Where to count.
    pub counters: Arc<Counters>,
}

/// What a shard gives back; dropping it closes the files, so control does that, not the shard.
pub struct Released<Q, F> {
    /// The queues.
    pub queues: Vec<Q>,
    /// The content.
    pub target: Box<dyn Target>,
    /// The files.
    pub files: Vec<F>,
}

/// A request of control.
pub enum Message<Q, F> {
    /// Serve a device: issues the fetch command of every tag, then calls back. `false` when the shard is full.
    Attach(Attachment<Q, F>, Done<bool>),
    /// Answer new requests with "gone" and call back when none is in flight any more. At once for an unknown device.
    Drain(DeviceKey, Done<()>),
    /// Answer everything, in flight too, with an error now; what still runs below is disowned. Calls back with the number of
    /// requests that were in flight.
    Abandon(DeviceKey, Done<usize>),
    /// Call back with the device's resources once the kernel has aborted every tag. `None` for an unknown device.
    Release(DeviceKey, Done<Option<Released<Q, F>>>),
    /// End the thread. Devices still attached are dropped with it.
    Exit,
}

/// What a shard reports on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardEvent {
    /// A target panicked; the device answers everything with EIO from now on.
    TargetPanicked {
        /// The device.
        key: DeviceKey,
        /// What the panic said.
        message: String,
    },
    /// The kernel refused a fetch or commit, or broke the tag protocol. The tag is lost; the device must be removed.
    ProtocolFault {
        /// The device.
        key: DeviceKey,
        /// Queue, tag and answer.
        detail: String,
    },
}
