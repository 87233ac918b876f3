//! Turns: how many devices stop at a time. First come, first served.

use std::collections::{BTreeSet, VecDeque};

use crate::ticket::DeviceKey;

/// How a device asks for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// In the order of asking, within the limit.
    Queued,
    /// At once, over the limit if need be: removing one device never waits for others.
    AtOnce,
}

/// Who stops now and who waits. Bounded by the number of devices.
#[derive(Debug)]
pub(crate) struct Turns {
    /// 0 is no limit.
    max: usize,
    holders: BTreeSet<DeviceKey>,
    waiting: VecDeque<DeviceKey>,
}

impl Turns {
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            max,
            holders: BTreeSet::new(),
            waiting: VecDeque::new(),
        }
    }

    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn held(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Queues the device, or gives it a turn out of order. Then call [`Turns::poll_granted`].
    pub(crate) fn on_wanted(&mut self, key: DeviceKey, urgency: Urgency) -> Option<DeviceKey> {
        match urgency {
            Urgency::AtOnce => {
                self.holders.insert(key);
                Some(key)
            }
            Urgency::Queued => {
                self.waiting.push_back(key);
                None
            }
        }
    }

    /// Gives a waiting device its turn at once; `None` if it does not wait.
    pub(crate) fn try_promote(&mut self, key: DeviceKey) -> Option<DeviceKey> {
        let index = self.waiting.iter().position(|waiting| *waiting == key)?;
        self.waiting.remove(index)?;
        self.holders.insert(key);
        Some(key)
    }

    /// The device has done its work.
    pub(crate) fn on_left(&mut self, key: DeviceKey) {
        self.holders.remove(&key);
    }

    /// The next device whose turn has come.
    pub(crate) fn poll_granted(&mut self) -> Option<DeviceKey> {
        if self.max != 0 && self.holders.len() >= self.max {
            return None;
        }
        let key = self.waiting.pop_front()?;
        self.holders.insert(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_given_in_order_and_within_the_limit() {
        let mut turns = Turns::new(2);
        for key in 1..=4 {
            assert_eq!(turns.on_wanted(DeviceKey(key), Urgency::Queued), None);
        }
        assert_eq!(turns.poll_granted(), Some(DeviceKey(1)));
        assert_eq!(turns.poll_granted(), Some(DeviceKey(2)));
        assert_eq!(turns.poll_granted(), None);
        turns.on_left(DeviceKey(2));
        assert_eq!(turns.poll_granted(), Some(DeviceKey(3)));
        assert_eq!((turns.held(), turns.waiting()), (2, 1));
    }

    #[test]
    fn the_urgent_do_not_wait_but_count() {
        let mut turns = Turns::new(1);
        assert_eq!(
            turns.on_wanted(DeviceKey(1), Urgency::AtOnce),
            Some(DeviceKey(1))
        );
        assert_eq!(
            turns.on_wanted(DeviceKey(2), Urgency::AtOnce),
            Some(DeviceKey(2))
        );
        turns.on_wanted(DeviceKey(3), Urgency::Queued);
        turns.on_wanted(DeviceKey(4), Urgency::Queued);
        assert_eq!(turns.try_promote(DeviceKey(4)), Some(DeviceKey(4)));
        assert_eq!(turns.try_promote(DeviceKey(4)), None);
        for key in [1, 2] {
            turns.on_left(DeviceKey(key));
            assert_eq!(turns.poll_granted(), None);
        }
        turns.on_left(DeviceKey(4));
        assert_eq!(turns.poll_granted(), Some(DeviceKey(3)));
    }

    #[test]
    fn zero_is_no_limit() {
        let mut turns = Turns::new(0);
        for key in 0..100 {
            turns.on_wanted(DeviceKey(key), Urgency::Queued);
            assert_eq!(turns.poll_granted(), Some(DeviceKey(key)));
        }
    }
}
