//! The shard's table of steps that are under way: those that did not end at once.

use block::{Status, Step};
use reactor::Ring;

use crate::device::{IoRef, StepRun, Way};
use crate::port::QueuePort;
use crate::shard::Shard;

/// How often in a row a step that made no progress (EINTR, EAGAIN) is tried again before it fails.
pub(crate) const RETRIES_MAX: u8 = 16;

/// What became of a step.
pub(crate) enum Progress {
    /// It is on the ring, or waits for a buffer or for operations to end.
    Pending,
    /// It has ended.
    Ended(Status),
}

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    pub(crate) fn record_step(&mut self, io: IoRef, step: Step) -> u32 {
        if let Some(device) = self.devices.get_mut(io.device as usize) {
            device.steps += 1;
            device.allocating += u32::from(is_allocation(&step));
        }
        let run = StepRun {
            io: Some(io),
            step,
            done: 0,
            retries: 0,
            way: Way::Buffered,
        };
        u32::try_from(self.steps.insert(run)).unwrap_or(u32::MAX)
    }

    pub(crate) fn forget_step(&mut self, index: u32) {
        let run = self.steps.remove(index as usize);
        if let Some(device) = run
            .io
            .and_then(|io| self.devices.get_mut(io.device as usize))
        {
            device.steps = device.steps.saturating_sub(1);
            let allocations = u32::from(is_allocation(&run.step));
            device.allocating = device.allocating.saturating_sub(allocations);
        }
        if let Some(io) = run.io {
            self.on_room(io.device);
        }
    }
}

/// Whether a step holds its file's lock for as long as it takes.
const fn is_allocation(step: &Step) -> bool {
    matches!(
        step,
        Step::Punch { .. } | Step::ZeroRange { .. } | Step::Allocate { .. }
    )
}
