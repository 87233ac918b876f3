//! One timer per device, soonest first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::ticket::DeviceKey;

/// The timers that are armed. Bounded by the number of devices.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Instant, DeviceKey)>,
    by_device: BTreeMap<DeviceKey, Instant>,
}

impl Timers {
    /// Arms the device's timer, in place of an earlier one.
    pub(crate) fn arm(&mut self, key: DeviceKey, at: Instant) {
        self.disarm(key);
        self.by_device.insert(key, at);
        self.by_time.insert((at, key));
    }

    /// Takes the device's timer away, if it is armed.
    pub(crate) fn disarm(&mut self, key: DeviceKey) {
        if let Some(at) = self.by_device.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// When the first timer is due.
    pub(crate) fn poll_deadline(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes away a timer that is due at `now`.
    pub(crate) fn poll_due(&mut self, now: Instant) -> Option<DeviceKey> {
        let (at, key) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.disarm(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_soonest_comes_first_and_rearming_replaces() {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.arm(DeviceKey(1), at(30));
        timers.arm(DeviceKey(2), at(20));
        timers.arm(DeviceKey(1), at(10));
        timers.arm(DeviceKey(3), at(40));
        timers.disarm(DeviceKey(3));
        assert_eq!(timers.poll_deadline(), Some(at(10)));
        assert_eq!(timers.poll_due(at(9)), None);
        assert_eq!(timers.poll_due(at(25)), Some(DeviceKey(1)));
        assert_eq!(timers.poll_due(at(25)), Some(DeviceKey(2)));
        assert_eq!(timers.poll_due(at(99)), None);
        assert_eq!(timers.poll_deadline(), None);
    }
}
