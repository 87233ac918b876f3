//! What the shard's callbacks tell control.

use std::sync::mpsc;

use dataplane::{DeviceKey, Released, ShardEvent};

use crate::file::SimFile;
use crate::port::SimQueue;

/// What the shard's callbacks report.
#[derive(Debug)]
pub(crate) enum Notice {
    Attached(DeviceKey, bool),
    Drained(DeviceKey),
    Abandoned(DeviceKey, usize),
    /// With the number of queues and files that came back, and whether the kernel had given up every tag.
    Released(DeviceKey, Option<(usize, usize, bool)>),
    Event(ShardEvent),
}

pub(crate) fn tell(notify: &mpsc::Sender<Notice>, notice: Notice) {
    // Only a shard that outlives its world talks to nobody, and then nobody asks.
    drop(notify.send(notice));
}

pub(crate) fn released_notice(
    key: DeviceKey,
    released: Option<Released<SimQueue, SimFile>>,
) -> Notice {
    let found = released.map(|released| {
        let is_aborted = released.queues.iter().all(SimQueue::is_aborted);
        (released.queues.len(), released.files.len(), is_aborted)
    });
    Notice::Released(key, found)
}
