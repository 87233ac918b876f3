//! Who may take a buffer: a device without any always can, so that no device starves another.
//!
//! The pool holds one small buffer for every device that can be attached, plus the buffers all share. The last small ones are kept
//! for devices that hold none; a device that holds one already waits when only those are left. A hung
//! backing store therefore costs its own device's progress and no other's.

use reactor::buffer::{Buffer, BufferPool, PoolLimits};

use crate::counters::ShardGauges;

/// The pool of a shard with its rule.
#[derive(Debug)]
pub(crate) struct SharedBuffers {
    pool: BufferPool,
    /// Devices attached that hold no buffer.
    without: u32,
    /// Whether a buffer came back since the waiting steps were looked at.
    returned: bool,
}

impl SharedBuffers {
    pub(crate) fn new(limits: PoolLimits, devices_max: u16) -> Result<Self, reactor::Error> {
        let PoolLimits([small, middle, large]) = limits;
        let pool = BufferPool::new(PoolLimits([
            small.saturating_add(devices_max),
            middle,
            large,
        ]))?;
        Ok(Self {
            pool,
            without: 0,
            returned: false,
        })
    }

    /// A device was attached.
    pub(crate) const fn on_attach(&mut self) {
        self.without += 1;
    }

    /// A device that held `held` buffers is gone; what it holds comes back by itself.
    pub(crate) const fn on_detach(&mut self, held: u32) {
        self.returned = true;
        if held == 0 {
            self.without = self.without.saturating_sub(1);
        }
    }

    /// A buffer for `len_bytes` for a device that holds `*held`, or `None` when it must wait.
    pub(crate) fn try_take(&mut self, held: &mut u32, len_bytes: u32) -> Option<Buffer> {
        if *held > 0 && self.pool.small_free() <= self.without {
            return None;
        }
        let buffer = self.pool.try_take(len_bytes)?;
        if *held == 0 {
            self.without = self.without.saturating_sub(1);
        }
        *held += 1;
        Some(buffer)
    }

    /// A buffer of a device that is still attached goes back.
    pub(crate) fn give_back(&mut self, held: &mut u32, buffer: Buffer) {
        self.drop_disowned(buffer);
        *held = held.saturating_sub(1);
        if *held == 0 {
            self.without += 1;
        }
    }

    /// A buffer goes back whose device does not count it any more.
    pub(crate) fn drop_disowned(&mut self, buffer: Buffer) {
        drop(buffer);
        self.returned = true;
    }

    /// Whether steps that wait for a buffer should be looked at again.
    pub(crate) const fn take_returned(&mut self) -> bool {
        std::mem::replace(&mut self.returned, false)
    }

    pub(crate) fn report(&self, gauges: &ShardGauges) {
        gauges.buffers_in_use.set(u64::from(self.pool.in_use()));
        gauges.buffers_max.set(u64::from(self.pool.in_use_max()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greedy_device_leaves_one_buffer_for_every_other() {
        let mut buffers = SharedBuffers::new(PoolLimits([4, 0, 0]), 3).unwrap();
        for _ in 0..3 {
            buffers.on_attach();
        }
        let (mut greedy, mut others) = (0, [0, 0]);
        let mut taken = Vec::new();
        while let Some(buffer) = buffers.try_take(&mut greedy, 4096) {
            taken.push(buffer);
        }
        assert_eq!(taken.len(), 5);
        for held in &mut others {
            taken.push(buffers.try_take(held, 1 << 20).unwrap());
        }
        // What comes back from the greedy one is there for all again.
        buffers.give_back(&mut greedy, taken.remove(0));
        assert!(buffers.try_take(&mut others[0], 512).is_some());
    }
}
