//! What a shard keeps per device, queue, tag and step. Everything is allocated at attach.

use std::collections::VecDeque;
use std::sync::Arc;

use block::{Geometry, Request, STEPS_MAX, Status, Step, Tag, Target};
use reactor::buffer::{Buffer, BufferPool};
use ublk::Registration;
use ublk::tag::TagTable;

use crate::counters::Counters;
use crate::message::{DeviceKey, Done, Released};
use crate::port::{CopyMode, QueuePort};
use crate::slots::{Asking, SlotRun, SlotTable};

/// The most steps one device may have in flight beyond one per tag; see [`crate::paused`]. At least `STEPS_MAX`, or a request with
/// that many could never start, and more, or plans of several steps would wait though the disk has nothing to do.
pub(crate) const STEPS_EXTRA: usize = 64;

/// How a device treats new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// They are served.
    Serving,
    /// They are answered with "gone"; those in flight finish.
    Draining,
    /// As `Draining`, and those that were in flight have been answered with an error.
    Abandoned,
}

/// One device on this shard.
pub(crate) struct Device<Q, F> {
    pub(crate) key: DeviceKey,
    pub(crate) target: Box<dyn Target>,
    pub(crate) geometry: Geometry,
    pub(crate) files: Vec<F>,
    /// Indices of its queues on this shard.
    pub(crate) queues: Vec<u32>,
    pub(crate) phase: Phase,
    /// The target panicked: its state cannot be trusted, so it is not called again.
    pub(crate) poisoned: bool,
    /// Requests being worked on.
    pub(crate) in_flight: usize,
    /// Steps in flight, and how many there may be.
    pub(crate) steps: usize,
    pub(crate) steps_max: usize,
    /// Steps in flight that hold their file's lock for long.
    pub(crate) allocating: u32,
    /// Buffers it holds.
    pub(crate) buffers: u32,
    /// For what must be in one buffer; see [`crate::buffers`].
    pub(crate) own_buffers: BufferPool,
    pub(crate) paused: Paused,
    /// Steps whose bytes are there and that the target has not seen, oldest first; see [`crate::handing`].
    pub(crate) fetched: VecDeque<(u32, Buffer)>,
    /// Operations it has in the kernel.
    pub(crate) in_kernel: u32,
    pub(crate) counters: Arc<Counters>,
    pub(crate) drained: Vec<Done<()>>,
    pub(crate) released: Option<Done<Option<Released<Q, F>>>>,
}

/// The requests of a device that wait, each in one list; see [`crate::paused`].
#[derive(Debug)]
pub(crate) struct Paused {
    /// For another request of the device, oldest first.
    pub(crate) for_others: VecDeque<IoRef>,
    /// For room for the steps of their next phase, oldest first.
    pub(crate) for_room: VecDeque<IoRef>,
    /// Whether requests in queues were not started for want of room.
    pub(crate) holds_queues: bool,
    /// A request let those that wait for others go on.
    pub(crate) is_woken: bool,
    /// Whether the device is on the shard's list of those to look at.
    pub(crate) is_listed: bool,
}

impl Paused {
    /// For as many requests as there are tags.
    pub(crate) fn new(tags: usize) -> Self {
        Self {
            for_others: VecDeque::with_capacity(tags),
            for_room: VecDeque::with_capacity(tags),
            holds_queues: false,
            is_woken: false,
            is_listed: false,
        }
    }

    /// Forgets the requests; they are answered otherwise.
    pub(crate) fn clear(&mut self) {
        self.for_others.clear();
        self.for_room.clear();
    }
}

impl<Q, F> Device<Q, F> {
    /// Whether there is room for another plan.
    pub(crate) const fn has_room(&self) -> bool {
        self.steps + STEPS_MAX <= self.steps_max
    }
}

/// One queue of a device.
pub(crate) struct Queue<Q> {
    /// Index of the device.
    pub(crate) device: u32,
    pub(crate) port: Q,
    pub(crate) tags: TagTable,
    /// Where the driver registers the data of its requests; none with user copy.
    pub(crate) slots: Option<SlotRun>,
    pub(crate) asking: Asking,
    pub(crate) ios: Box<[Io]>,
    /// Tags with a request that was not started yet, oldest first.
    pub(crate) ready: VecDeque<Tag>,
    /// Whether the queue is on the run list.
    pub(crate) is_runnable: bool,
}

/// The request in one tag, from the moment that it must wait for something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Io {
    pub(crate) request: Request,
    /// Steps of the current phase that have not ended; none while it waits for another request.
    pub(crate) outstanding: u16,
    /// The first failure of the current phase.
    pub(crate) status: Status,
    /// The target's note to itself.
    pub(crate) cookie: u64,
    /// Whether the tag holds a request that waits and was not answered.
    pub(crate) is_active: bool,
}

impl Io {
    pub(crate) const fn idle() -> Self {
        let extent = block::Extent {
            start: block::Sectors(0),
            len: block::Sectors(0),
        };
        Self {
            request: Request {
                op: block::Op::Flush,
                extent,
                fua: false,
                no_unmap: false,
            },
            outstanding: 0,
            status: Status::Ok,
            cookie: 0,
            is_active: false,
        }
    }
}

/// Where a request lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IoRef {
    pub(crate) device: u32,
    pub(crate) queue: u32,
    pub(crate) tag: Tag,
}

/// How the operation of a step moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through a buffer, or the step moves none. It may take as long as the disk takes.
    Buffered,
    /// Into what the driver has registered. It never waits, and what it does not do is done the other way.
    Registered,
}

/// One step in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRun {
    /// The request; `None` once it was answered without waiting for this step.
    pub(crate) io: Option<IoRef>,
    pub(crate) step: Step,
    /// Bytes done so far.
    pub(crate) done: u32,
    /// Times in a row that the kernel asked to try again.
    pub(crate) retries: u8,
    pub(crate) way: Way,
}

impl<Q: QueuePort> Queue<Q> {
    /// A queue of idle tags; `None` for a depth that the kernel does not allow.
    pub(crate) fn new(device: u32, port: Q, table: &mut SlotTable) -> Option<Self> {
        let depth = port.depth();
        let tags = TagTable::new(depth)?;
        let slots = match port.copy_mode() {
            CopyMode::ZeroCopy => table.try_take(depth),
            CopyMode::UserCopy => None,
        };
        Some(Self {
            device,
            tags,
            slots,
            asking: Asking::default(),
            ios: vec![Io::idle(); usize::from(depth)].into_boxed_slice(),
            ready: VecDeque::with_capacity(usize::from(depth)),
            is_runnable: false,
            port,
        })
    }

    /// What to ask for with the next command of a tag.
    pub(crate) const fn registration(&self, tag: Tag) -> Registration {
        self.asking.registration(self.slots, tag)
    }
}
