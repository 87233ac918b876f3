//! Requests that wait: for another one of their device, or for room for more steps.
//!
//! A device has a limited number of steps under way, so that one whose backing store hangs costs its own progress only. No phase
//! begins without room for the longest plan: neither a new request, which stays in its queue, nor the next phase of one under way.
//! A request that waits here has no step under way, so whoever has some ends, and makes room.

use reactor::Ring;

use crate::device::{IoRef, Phase};
use crate::port::QueuePort;
use crate::shard::Shard;

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    /// Lets a request wait until another one of its device calls [`block::Plan::wake_waiting`].
    pub(crate) fn pause_for_others(&mut self, io: IoRef) {
        if let Some(device) = self.devices.get_mut(io.device as usize) {
            device.paused.for_others.push_back(io);
        }
    }

    /// Lets a request whose phase has ended wait for room, if there is none.
    pub(crate) fn is_paused_for_room(&mut self, io: IoRef) -> bool {
        match self.devices.get_mut(io.device as usize) {
            Some(device) if !device.has_room() => {
                device.paused.for_room.push_back(io);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether a queue's requests must stay there for want of room. Those that the target does not see need none.
    pub(crate) fn holds_queue(&mut self, queue: u32) -> bool {
        let device = self.queues.get(queue as usize).map(|queue| queue.device);
        let device = device.and_then(|device| self.devices.get_mut(device as usize));
        let Some(device) = device else {
            return false;
        };
        let holds = device.phase == Phase::Serving && !device.poisoned && !device.has_room();
        device.paused.holds_queues |= holds;
        holds
    }

    /// A request lets the others of its device go on.
    pub(crate) fn wake_others(&mut self, device: u32) {
        if let Some(found) = self.devices.get_mut(device as usize) {
            found.paused.is_woken = true;
        }
        self.list(device);
    }

    /// A step of a device has ended.
    pub(crate) fn on_room(&mut self, device: u32) {
        let waits = self.devices.get(device as usize).is_some_and(|device| {
            let paused = &device.paused;
            (paused.holds_queues || !paused.for_room.is_empty()) && device.has_room()
        });
        if waits {
            self.list(device);
        }
    }

    /// Puts a device on the list of those whose requests may go on.
    fn list(&mut self, index: u32) {
        if let Some(device) = self.devices.get_mut(index as usize)
            && !std::mem::replace(&mut device.paused.is_listed, true)
        {
            self.woken.push(index);
        }
    }

    /// Lets requests go on that have nothing to wait for any more.
    pub(crate) fn resume_paused(&mut self) {
        for _ in 0..self.woken.len() {
            let Some(index) = self.woken.pop() else {
                return;
            };
            let Some(device) = self.devices.get_mut(index as usize) else {
                continue;
            };
            device.paused.is_listed = false;
            let is_woken = std::mem::take(&mut device.paused.is_woken);
            let for_others = if is_woken {
                device.paused.for_others.len()
            } else {
                0
            };
            self.resume_for_room(index);
            for _ in 0..for_others {
                let device = self.devices.get_mut(index as usize);
                let Some(io) = device.and_then(|device| device.paused.for_others.pop_front())
                else {
                    break;
                };
                self.go_on_after_phase(io);
            }
            self.release_queues(index);
        }
    }

    fn resume_for_room(&mut self, index: u32) {
        let count = self
            .devices
            .get(index as usize)
            .map(|device| device.paused.for_room.len());
        for _ in 0..count.unwrap_or(0) {
            let device = self.devices.get_mut(index as usize);
            let device = device.filter(|device| device.has_room());
            let Some(io) = device.and_then(|device| device.paused.for_room.pop_front()) else {
                return;
            };
            self.go_on_after_phase(io);
        }
    }

    /// Lets the queues of a device run again if there is room.
    pub(crate) fn release_queues(&mut self, index: u32) {
        let Some(device) = self.devices.get_mut(index as usize) else {
            return;
        };
        let may = device.has_room() || device.phase != Phase::Serving || device.poisoned;
        if !may || !std::mem::take(&mut device.paused.holds_queues) {
            return;
        }
        for index in device.queues.iter().copied() {
            if let Some(queue) = self.queues.get_mut(index as usize)
                && !queue.is_runnable
                && !queue.ready.is_empty()
            {
                queue.is_runnable = true;
                self.run_list.push_back(index);
            }
        }
    }
}
