//! Handing over what was fetched, in turns: a target may decompress it, which takes a hundred times as long as to start a request.
//!
//! A turn of the shard hands over [`crate::ShardLimits::handed_bytes`] worth of requests' data. What comes beyond that waits in its buffer, in a queue
//! for each device, and is handed over in the next turns, one piece of each device after the other. A device that decompresses all
//! the time therefore delays another by a piece for each turn, not by all that it has fetched.

use reactor::Ring;
use reactor::buffer::Buffer;

use crate::device::IoRef;
use crate::exchange::Exchange;
use crate::port::QueuePort;
use crate::shard::Shard;

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    /// Whether bytes of a device may be handed over in this turn, and none of its own wait.
    pub(crate) fn may_hand_over(&self, io: IoRef) -> bool {
        let device = self.devices.get(io.device as usize);
        self.handed_bytes < self.limits.handed_bytes
            && device.is_none_or(|device| device.fetched.is_empty())
    }

    /// Keeps the bytes of a step for a later turn.
    pub(crate) fn put_off(&mut self, index: u32, io: IoRef, buffer: Buffer) {
        if let Some(device) = self.devices.get_mut(io.device as usize) {
            if device.fetched.is_empty() {
                self.handing.push_back(io.device);
            }
            device.fetched.push_back((index, buffer));
        }
    }

    /// Hands over what waits, as much as a turn may.
    pub(crate) fn hand_over_waiting(&mut self) {
        self.handed_bytes = 0;
        while self.handed_bytes < self.limits.handed_bytes {
            let Some(index) = self.handing.pop_front() else {
                return;
            };
            let Some(device) = self.devices.get_mut(index as usize) else {
                continue;
            };
            let Some((step, buffer)) = device.fetched.pop_front() else {
                continue;
            };
            if !device.fetched.is_empty() {
                self.handing.push_back(index);
            }
            let run = self.steps.get(step as usize).copied();
            let fetched = run.and_then(|run| {
                let (io, exchange) = (run.io?, Exchange::of(&run.step)?);
                Some((io, self.io(io)?.request, exchange))
            });
            let Some((io, request, exchange)) = fetched else {
                debug_assert!(false, "fetched bytes of a request that is gone");
                self.buffers.drop_disowned(buffer);
                continue;
            };
            self.forget_step(step);
            let status = self.end_with_buffer((io, &request), &exchange, buffer);
            self.end_step(io, status);
        }
    }

    /// Forgets what a device has fetched and the target has not seen. Its requests are answered otherwise.
    pub(crate) fn drop_fetched(&mut self, index: u32) {
        self.handing.retain(|device| *device != index);
        while let Some(device) = self.devices.get_mut(index as usize) {
            let Some((step, buffer)) = device.fetched.pop_front() else {
                return;
            };
            self.buffers.give_back(&mut device.buffers, buffer);
            self.forget_step(step);
        }
    }
}
