//! Who may take a buffer: a device without any always can, so that no device starves another.
//!
//! The pool holds one small buffer for every device that can be attached, plus the buffers all share. As many as there are
//! devices without a buffer, attached or to come, are kept for them, of whatever size: the small ones may have
//! gone to others while a device held a large one. A device that holds one already waits when only those are left. A
//! hung backing store therefore costs its own device's progress and no other's.
//!
//! What must be in one buffer cannot make do with a small one: a device with such steps has one of its own beside, of the size
//! it needs. It is taken last, and costs no memory until then.

use reactor::buffer::{Buffer, BufferPool, PoolLimits};

use crate::counters::ShardGauges;

/// The pool of a shard with its rule.
#[derive(Debug)]
pub(crate) struct SharedBuffers {
    pool: BufferPool,
    devices_max: u32,
    /// Devices that hold a buffer.
    holders: u32,
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
            devices_max: u32::from(devices_max),
            holders: 0,
            returned: false,
        })
    }

    /// Whether one more device, beside `attached` ones, can be promised a buffer. Not while operations that hang hold the
    /// buffers of devices that are gone.
    pub(crate) fn has_one_for_another(&self, attached: usize) -> bool {
        let attached = u32::try_from(attached).unwrap_or(u32::MAX);
        self.pool.free() > attached.saturating_sub(self.holders)
    }

    /// A device disowns the `held` buffers it holds: they come back by [`SharedBuffers::drop_disowned`], and until then others
    /// are more careful.
    pub(crate) fn disown(&mut self, held: &mut u32) {
        if std::mem::take(held) > 0 {
            self.holders = self.holders.saturating_sub(1);
        }
    }

    /// A buffer for `len_bytes` for a device that holds `*held`, or `None` when it must wait.
    #[inline]
    pub(crate) fn try_take(&mut self, held: &mut u32, len_bytes: u32) -> Option<Buffer> {
        let buffer = if *held > 0 {
            let kept = self.devices_max.saturating_sub(self.holders);
            if self.pool.free() <= kept {
                return None;
            }
            self.pool.try_take(len_bytes)?
        } else {
            let fitting = self.pool.try_take(len_bytes);
            let buffer = fitting.or_else(|| self.pool.try_take(u32::MAX))?;
            self.holders += 1;
            buffer
        };
        *held += 1;
        Some(buffer)
    }

    /// As [`SharedBuffers::try_take`], but a buffer that holds all of it: of the shared ones, or else of the device's `own`.
    pub(crate) fn try_take_whole(
        &mut self,
        held: &mut u32,
        own: &BufferPool,
        len_bytes: u32,
    ) -> Option<Buffer> {
        let kept = self.devices_max.saturating_sub(self.holders);
        // One without a buffer may take one of those that are kept.
        let is_shared = *held == 0 || self.pool.free() > kept;
        let shared = if is_shared {
            self.pool.try_take_whole(len_bytes)
        } else {
            None
        };
        if shared.is_some() {
            self.holders += u32::from(*held == 0);
            *held += 1;
        }
        shared.or_else(|| own.try_take_whole(len_bytes))
    }

    /// A buffer of a device that is still attached goes back.
    #[inline]
    pub(crate) fn give_back(&mut self, held: &mut u32, buffer: Buffer) {
        let is_shared = self.pool.is_of(&buffer);
        self.drop_disowned(buffer);
        if !is_shared {
            return;
        }
        *held = held.saturating_sub(1);
        if *held == 0 {
            self.holders = self.holders.saturating_sub(1);
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
    fn a_greedy_device_leaves_one_buffer_for_every_other_that_is_or_comes() {
        let mut buffers = SharedBuffers::new(PoolLimits([4, 0, 0]), 3).unwrap();
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

    #[test]
    fn a_device_that_held_a_large_buffer_finds_one_when_the_small_ones_are_gone() {
        let mut buffers = SharedBuffers::new(PoolLimits([0, 0, 1]), 2).unwrap();
        let (mut first, mut second) = (0, 0);
        let large = buffers.try_take(&mut first, 1 << 20).unwrap();
        let small = [(); 2].map(|()| buffers.try_take(&mut second, 512).unwrap());
        buffers.give_back(&mut first, large);
        assert!(buffers.try_take(&mut second, 512).is_none());
        let kept = buffers.try_take(&mut first, 512).unwrap();
        assert_eq!(kept.capacity_bytes(), 1 << 20);
        drop((small, kept));
    }

    /// It was looked for among those of its own size only, and the device waited for ever.
    #[test]
    fn a_short_piece_finds_the_devices_own_buffer_though_that_is_a_large_one() {
        let mut buffers = SharedBuffers::new(PoolLimits([0, 0, 0]), 1).unwrap();
        let own = BufferPool::new(PoolLimits([0, 0, 1])).unwrap();
        let mut held = 0;
        let shared = buffers.try_take(&mut held, 512).unwrap();
        let piece = buffers.try_take_whole(&mut held, &own, 512).unwrap();
        assert!(own.is_of(&piece));
        drop((shared, piece));
    }

    #[test]
    fn what_must_be_in_one_buffer_finds_the_devices_own_when_the_others_are_gone() {
        let mut buffers = SharedBuffers::new(PoolLimits([0, 1, 0]), 2).unwrap();
        let own = BufferPool::new(PoolLimits([0, 1, 0])).unwrap();
        let (mut first, mut second) = (0, 0);
        let shared = buffers.try_take_whole(&mut first, &own, 5000).unwrap();
        assert_eq!(first, 1);
        // Small ones are left, and are of no use.
        let of_its_own = buffers.try_take_whole(&mut second, &own, 5000).unwrap();
        assert!(own.is_of(&of_its_own) && second == 0);
        assert!(buffers.try_take_whole(&mut second, &own, 5000).is_none());
        buffers.give_back(&mut second, of_its_own);
        assert!(buffers.take_returned() && second == 0 && first == 1);
        assert!(own.is_of(&buffers.try_take_whole(&mut second, &own, 5000).unwrap()));
        buffers.give_back(&mut first, shared);
        assert_eq!(first, 0);
    }
}
