//! How many operations a device may have in the kernel: one without any can always have one, so that no device starves
//! another.
//!
//! An operation that blocks below takes a worker thread of the ring until it is over, and others that need a worker wait once
//! the ring may start no more. So the ring is allowed as many workers as there can be operations: those that all devices share
//! and one for each attached device. A device may have a limited number, and only its first when the shared ones are
//! gone. Workers exist only while operations block.

use reactor::{Error, Ring};

use crate::counters::ShardGauges;

/// How many operations may be in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationLimits {
    /// Of one device on one shard.
    pub per_device: u32,
    /// Of all devices of a shard together, beyond one for each.
    pub shared: u32,
}

impl Default for OperationLimits {
    fn default() -> Self {
        Self {
            // Enough to keep a fast disk busy.
            per_device: 64,
            // Four devices that hang with all they have leave others more than one each.
            shared: 256,
        }
    }
}

/// A shard's operations in the kernel, with their limits.
#[derive(Debug)]
pub(crate) struct InKernel {
    limits: OperationLimits,
    /// Beyond the first of each device; also all those of devices that disowned them.
    shared: u32,
    /// All of them.
    count: u32,
    /// Whether one ended since the waiting steps were looked at.
    ended: bool,
}

impl InKernel {
    pub(crate) const fn new(limits: OperationLimits) -> Self {
        Self {
            limits,
            shared: 0,
            count: 0,
            ended: false,
        }
    }

    /// Makes the ring ready for `attached` devices.
    pub(crate) fn provide<R: Ring>(&self, ring: &mut R, attached: usize) -> Result<(), Error> {
        let attached = u32::try_from(attached).unwrap_or(u32::MAX);
        // What was disowned can exceed the shared ones.
        let shared = self.shared.max(self.limits.shared);
        ring.allow_blocking(shared.saturating_add(attached))
    }

    /// Whether a device with `held` operations may have one more.
    pub(crate) const fn has_room(&self, held: u32) -> bool {
        held == 0 || (held < self.limits.per_device && self.shared < self.limits.shared)
    }

    /// Whether a device with `held` operations has all it may ever have.
    pub(crate) const fn is_full(&self, held: u32) -> bool {
        held >= self.limits.per_device
    }

    /// Counts one more operation of a device, unless it must wait.
    pub(crate) const fn try_begin(&mut self, held: &mut u32) -> bool {
        if !self.has_room(*held) {
            return false;
        }
        self.shared += (*held > 0) as u32;
        self.count += 1;
        *held += 1;
        true
    }

    /// An operation of a device ended.
    pub(crate) const fn end(&mut self, held: &mut u32) {
        *held = held.saturating_sub(1);
        if *held > 0 {
            self.shared = self.shared.saturating_sub(1);
        }
        self.count = self.count.saturating_sub(1);
        self.ended = true;
    }

    /// A device disowns its operations: each ends by [`InKernel::end_disowned`].
    pub(crate) fn disown(&mut self, held: &mut u32) {
        // Its first was its own; now it is one of those that all share.
        self.shared += u32::from(std::mem::take(held) > 0);
    }

    /// A disowned operation ended.
    pub(crate) const fn end_disowned(&mut self) {
        self.shared = self.shared.saturating_sub(1);
        self.count = self.count.saturating_sub(1);
        self.ended = true;
    }

    /// Whether steps that wait for others to end should be looked at again.
    pub(crate) const fn take_ended(&mut self) -> bool {
        std::mem::replace(&mut self.ended, false)
    }

    pub(crate) fn report(&self, attached: usize, gauges: &ShardGauges) {
        gauges.operations_in_kernel.set(u64::from(self.count));
        let max = u64::from(self.limits.shared).saturating_add(attached as u64);
        gauges.operations_max.set(max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_hang_with_all_they_have_leave_every_other_one() {
        let mut in_kernel = InKernel::new(OperationLimits::default());
        let mut greedy = [0; 8];
        for held in &mut greedy {
            while in_kernel.try_begin(held) {}
        }
        // Four take 64 each, of which 63 are shared; the fifth takes the four that are left, the others have one.
        assert_eq!(greedy, [64, 64, 64, 64, 5, 1, 1, 1]);
        let mut another = 0;
        assert!(in_kernel.try_begin(&mut another));
        assert!(!in_kernel.try_begin(&mut another));
        in_kernel.end(&mut greedy[0]);
        assert!(in_kernel.take_ended() && in_kernel.try_begin(&mut another));
    }

    #[test]
    fn disowned_operations_count_until_they_end() {
        let mut in_kernel = InKernel::new(OperationLimits::default());
        let mut held = 0;
        assert!(in_kernel.try_begin(&mut held) && in_kernel.try_begin(&mut held));
        in_kernel.disown(&mut held);
        assert_eq!((held, in_kernel.shared, in_kernel.count), (0, 2, 2));
        in_kernel.end_disowned();
        in_kernel.end_disowned();
        assert_eq!((in_kernel.shared, in_kernel.count), (0, 0));
    }
}
