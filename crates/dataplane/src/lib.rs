//! Shard threads: the only place where a queue, a target and a ring meet.
//!
//! ```text
//!   kernel --CQE--> tag ready --> run list --> request --> target plans --> steps on the ring --> commit --> kernel
//!                   (per queue)   (fair turns)                             (buffers per I/O)
//! ```
//!
//! One thread and one ring serve the queues of many devices. After attach the I/O path allocates nothing, takes no
//! lock, writes no log and waits for nobody; control talks to it by messages ([`message`]) and is answered by callbacks.
#![forbid(unsafe_code)]

mod admit;
mod buffers;
mod counters;
mod device;
mod exchange;
mod handing;
mod in_kernel;
mod lifecycle;
pub mod message;
mod paused;
mod plane;
mod port;
mod recorded;
mod shard;
mod slots;
mod steps;
mod token;
mod transfer;
mod ublk_queue;

pub use counters::{Counters, CountersSnapshot, ShardGauges};
pub use in_kernel::OperationLimits;
pub use message::{Attachment, DeviceKey, Released, ShardEvent};
pub use plane::{Dataplane, DataplaneConfig, Part, Placement, Spread};
pub use port::{CopyMode, QueuePort};
pub use shard::{EventSink, Shard, ShardLimits, Turn};
pub use ublk_queue::{QueueShape, UblkQueue};
