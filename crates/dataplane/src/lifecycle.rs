//! Attach, drain, abandon and release: the edges of a device's life on a shard. These may allocate; they are not I/O.
//!
//! ```text
//!   Attach --> Serving --Drain--> Draining --(none in flight)--> [STOP by control] --(every tag aborted)--> Release
//!                 |                  |
//!                 +-----Abandon------+--> Abandoned (in flight answered with EIO) ------^
//! ```

use std::collections::VecDeque;

use block::{Status, Tag};
use reactor::buffer::{BufferPool, PoolLimits, SIZES_BYTES};
use reactor::{Op, Ring, Wait};
use ublk::IoCommand;

use crate::device::{Device, IoRef, Paused, Phase, Queue, STEPS_EXTRA};
use crate::message::{Attachment, DeviceKey, Done, Message, Released};
use crate::port::QueuePort;
use crate::shard::Shard;
use crate::token::Owner;

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    pub(crate) fn handle_message(&mut self, message: Message<Q, R::File>) {
        match message {
            Message::Attach(attachment, done) => {
                let attached = self.attach(attachment);
                done(attached);
            }
            Message::Drain(key, done) => self.drain(key, done),
            Message::Abandon(key, done) => {
                let count = self.abandon(key);
                done(count);
            }
            Message::Release(key, done) => self.release(key, done),
            Message::Exit => self.exit = true,
        }
        self.gauges.devices.set(self.devices.len() as u64);
    }

    fn attach(&mut self, attachment: Attachment<Q, R::File>) -> bool {
        let Attachment {
            key,
            queues,
            target,
            files,
            counters,
        } = attachment;
        if self.keys.contains_key(&key) || !self.has_room_for_another() {
            return false;
        }
        let Some(own_buffers) = own_buffers(target.handover_bytes_max()) else {
            return false;
        };
        // One that hands nothing over needs no room for it.
        let hands_over = target.handover_bytes_max() > 0;
        let tags: usize = queues.iter().map(|queue| usize::from(queue.depth())).sum();
        let steps_max = tags + STEPS_EXTRA;
        let fetched_max = if hands_over { steps_max } else { 0 };
        // All that the device's I/O will ever need, now: the I/O path does not allocate.
        // Reserving counts from what is in use now, which may be nothing: so for all devices, not for this one.
        self.steps_max += steps_max;
        self.steps.reserve(self.steps_max);
        self.waiting.reserve(self.steps_max);
        self.run_list.reserve(self.queues.len() + queues.len());
        self.woken.reserve(self.devices.len() + 1);
        self.handing.reserve(self.devices.len() + 1);
        let device = Device {
            key,
            geometry: target.geometry(),
            target,
            files,
            queues: Vec::with_capacity(queues.len()),
            phase: Phase::Serving,
            poisoned: false,
            in_flight: 0,
            steps: 0,
            steps_max,
            allocating: 0,
            buffers: 0,
            own_buffers,
            fetched: VecDeque::with_capacity(fetched_max),
            paused: Paused::new(tags),
            in_kernel: 0,
            counters,
            drained: Vec::new(),
            released: None,
        };
        let device = self.devices.insert(device);
        self.keys.insert(key, index_of(device));
        for port in queues {
            let Some(queue) = Queue::new(index_of(device), port, &mut self.slots) else {
                debug_assert!(
                    false,
                    "the kernel gave a queue a depth that it does not allow"
                );
                continue;
            };
            let queue = index_of(self.queues.insert(queue));
            if let Some(device) = self.devices.get_mut(device) {
                device.queues.push(queue);
            }
            self.fetch_all(queue);
        }
        true
    }

    /// Whether the limits, the buffers and the workers allow one more device.
    fn has_room_for_another(&mut self) -> bool {
        let attached = self.devices.len();
        if attached >= usize::from(self.limits.devices_max)
            || !self.buffers.has_one_for_another(attached)
        {
            return false;
        }
        let provided = self.in_kernel.provide(&mut self.ring, attached + 1);
        if let Err(error) = &provided {
            tracing::error!(%error, "no worker for another device");
        }
        provided.is_ok()
    }

    /// Hands every tag of a queue to the kernel. The commands go out at the next entry of the ring.
    fn fetch_all(&mut self, index: u32) {
        let Some(queue) = self.queues.get_mut(index as usize) else {
            return;
        };
        for tag in (0..queue.port.depth()).map(Tag) {
            if queue.tags.try_fetch(tag).is_err() {
                debug_assert!(false, "a tag of a new queue is idle");
                continue;
            }
            let IoCommand {
                opcode: code,
                payload,
                address,
            } = IoCommand::fetch(queue.port.id(), tag, queue.registration(tag));
            let owner = Owner::Tag { queue: index, tag };
            self.ring.push(
                Op::Command {
                    file: queue.port.file(),
                    code,
                    payload,
                    address,
                },
                owner.pack(),
            );
        }
    }

    fn drain(&mut self, key: DeviceKey, done: Done<()>) {
        let Some(index) = self.keys.get(&key).copied() else {
            return done(());
        };
        let Some(device) = self.devices.get_mut(index as usize) else {
            return done(());
        };
        if device.phase == Phase::Serving {
            device.phase = Phase::Draining;
        }
        device.drained.push(done);
        self.try_finish_drain(index);
    }

    /// Calls those that wait for the drain, if it is over. Cheap: runs after every request.
    pub(crate) fn try_finish_drain(&mut self, index: u32) {
        let Some(device) = self.devices.get_mut(index as usize) else {
            return;
        };
        if device.phase == Phase::Serving || device.in_flight > 0 {
            return;
        }
        for done in device.drained.drain(..) {
            done(());
        }
    }

    fn abandon(&mut self, key: DeviceKey) -> usize {
        let Some(index) = self.keys.get(&key).copied() else {
            return 0;
        };
        let Some(device) = self.devices.get_mut(index as usize) else {
            return 0;
        };
        device.phase = Phase::Abandoned;
        self.drop_fetched(index);
        // Disown the steps first: their completions only free them from now on.
        for (_, run) in &mut self.steps {
            if run.io.is_some_and(|io| io.device == index) {
                run.io = None;
            }
        }
        let Some(device) = self.devices.get_mut(index as usize) else {
            return 0;
        };
        device.steps = 0;
        device.paused.clear();
        self.buffers.disown(&mut device.buffers);
        self.in_kernel.disown(&mut device.in_kernel);
        let mut active = Vec::new();
        for queue in device.queues.iter().copied() {
            let ios = self.queues.get(queue as usize).map(|queue| &queue.ios);
            let tags = ios
                .into_iter()
                .flatten()
                .zip(0..)
                .filter(|(io, _)| io.is_active);
            active.extend(tags.map(|(_, tag)| IoRef {
                device: index,
                queue,
                tag: Tag(tag),
            }));
        }
        let count = active.len();
        for io in active {
            self.complete(io, Status::TimedOut);
        }
        // What was not started is refused.
        self.release_queues(index);
        self.try_finish_drain(index);
        count
    }

    fn release(&mut self, key: DeviceKey, done: Done<Option<Released<Q, R::File>>>) {
        let Some(index) = self.keys.get(&key).copied() else {
            return done(None);
        };
        if let Some(device) = self.devices.get_mut(index as usize) {
            // A later request replaces an earlier one whose asker has given up waiting.
            if let Some(earlier) = device.released.replace(done) {
                earlier(None);
            }
        }
        self.try_finish_release(index);
    }

    /// Gives the device's resources back if that was asked for and the kernel holds none of its tags.
    pub(crate) fn try_finish_release(&mut self, index: u32) {
        let Some(device) = self.devices.get(index as usize) else {
            return;
        };
        if device.released.is_none() || device.in_flight > 0 {
            return;
        }
        let is_busy = |queue: &u32| {
            self.queues
                .get(*queue as usize)
                .is_some_and(|queue| !queue.tags.is_quiet())
        };
        if device.queues.iter().any(is_busy) {
            return;
        }
        // Disowned steps may have been pushed in this turn: their files must not be closed before the kernel knows them.
        if let Err(error) = self.ring.enter(Wait::Poll) {
            tracing::error!(error = %error, "the ring failed while a device was released");
        }
        let device = self.devices.remove(index as usize);
        self.keys.remove(&device.key);
        self.steps_max = self.steps_max.saturating_sub(device.steps_max);
        debug_assert!(
            device.buffers == 0 && device.in_kernel == 0,
            "a device without requests holds no buffer and has no operation in the kernel"
        );
        self.run_list.retain(|queue| !device.queues.contains(queue));
        self.woken.retain(|woken| *woken != index);
        let queues = device
            .queues
            .iter()
            .map(|queue| {
                let queue = self.queues.remove(*queue as usize);
                if let Some(slots) = queue.slots {
                    self.slots.give_back(slots);
                }
                queue.port
            })
            .collect();
        self.gauges.devices.set(self.devices.len() as u64);
        if let Some(done) = device.released {
            done(Some(Released {
                queues,
                target: device.target,
                files: device.files,
            }));
        }
    }
}

fn index_of(slot: usize) -> u32 {
    // Bounded by the limit on devices times the kernel's limit on queues, far below 2^32.
    u32::try_from(slot).unwrap_or(u32::MAX)
}

/// A pool of one buffer that holds `len_bytes`, of none for 0.
fn own_buffers(len_bytes: u32) -> Option<BufferPool> {
    let mut limits = [0; SIZES_BYTES.len()];
    let mut fitting = SIZES_BYTES.iter().zip(&mut limits);
    if len_bytes > 0 {
        let (_, count) = fitting.find(|(size, _)| **size >= len_bytes)?;
        *count = 1;
    }
    let pool = BufferPool::new(PoolLimits(limits));
    if let Err(error) = &pool {
        tracing::error!(%error, "no buffer for another device");
    }
    pool.ok()
}
