//! Which slots of the ring's table the queues of zero-copy devices use.
//!
//! A tag has one slot for as long as its queue is attached, the tags of a queue have consecutive ones. A new queue gets slots
//! that the fewest others have: its own ones while there are any, then it shares. The driver registers a request only in a
//! slot that is empty, and says so when it was not; that request goes by user copy. So sharing costs speed and nothing else.

use std::ops::Range;

use ublk::Registration;

/// Slots are counted by groups of so many, to keep the search for a place short.
const GROUP: usize = 16;

/// How often each group of slots is in use.
#[derive(Debug)]
pub(crate) struct SlotTable {
    users: Box<[u16]>,
    /// Tags that have a slot.
    tags: u64,
}

/// The slots of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRun {
    first: u16,
    depth: u16,
}

impl SlotTable {
    /// The table of a ring with so many slots.
    pub(crate) fn new(slots: u16) -> Self {
        Self {
            users: vec![0; usize::from(slots) / GROUP].into_boxed_slice(),
            tags: 0,
        }
    }

    /// Slots for the tags of a queue; `None` when the table has fewer than that.
    pub(crate) fn try_take(&mut self, depth: u16) -> Option<SlotRun> {
        let groups = usize::from(depth).div_ceil(GROUP).max(1);
        let most = |users: &[u16]| users.iter().copied().max();
        let (first, _) = self
            .users
            .windows(groups)
            .enumerate()
            .min_by_key(|(_, users)| most(users))?;
        let run = SlotRun {
            first: u16::try_from(first * GROUP).ok()?,
            depth,
        };
        for users in self.users.get_mut(run.groups())? {
            *users = users.saturating_add(1);
        }
        self.tags += u64::from(depth);
        Some(run)
    }

    /// A queue whose tags were all given up by the kernel needs its slots no more.
    pub(crate) fn give_back(&mut self, run: SlotRun) {
        for users in self.users.get_mut(run.groups()).into_iter().flatten() {
            *users = users.saturating_sub(1);
        }
        self.tags = self.tags.saturating_sub(run.depth.into());
    }

    /// Tags that have a slot.
    pub(crate) const fn tags(&self) -> u64 {
        self.tags
    }
}

impl SlotRun {
    /// The slot of a tag.
    #[inline]
    pub(crate) const fn slot(self, tag: block::Tag) -> u16 {
        self.first.saturating_add(tag.0)
    }

    fn groups(self) -> Range<usize> {
        let first = usize::from(self.first) / GROUP;
        first..first + usize::from(self.depth).div_ceil(GROUP).max(1)
    }
}

/// Whether the tags of one queue ask for registration: as long as some of the latest requests were reads.
///
/// Only reads use what is registered, and registering costs a request about 2 % of a small write. So a queue that sees writes
/// and no reads stops asking; its next read goes by user copy and lets it ask again.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    others_in_row: u8,
}

impl Asking {
    /// Requests in a row that are no reads, after which the queue stops asking.
    const OTHERS_MAX: u8 = 32;

    /// A request of the queue was looked at.
    #[inline]
    pub(crate) const fn on_request(&mut self, op: block::Op) {
        self.others_in_row = match op {
            block::Op::Read => 0,
            block::Op::Write | block::Op::Flush | block::Op::Discard | block::Op::WriteZeroes => {
                self.others_in_row.saturating_add(1)
            }
        };
    }

    /// What to ask for with the next command of a tag.
    #[inline]
    pub(crate) const fn registration(
        &self,
        slots: Option<SlotRun>,
        tag: block::Tag,
    ) -> Registration {
        match slots {
            Some(slots) if self.others_in_row < Self::OTHERS_MAX => {
                Registration::Slot(slots.slot(tag))
            }
            Some(_) | None => Registration::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use block::{Op, Tag};

    use super::*;

    #[test]
    fn queues_have_slots_of_their_own_until_there_are_none_and_share_then() {
        let mut table = SlotTable::new(128);
        let runs: Vec<_> = (0..4).map(|_| table.try_take(30).unwrap()).collect();
        let firsts: Vec<_> = runs.iter().map(|run| run.first).collect();
        assert_eq!((firsts, table.tags()), (vec![0, 32, 64, 96], 120));
        // The fifth shares; what comes back is taken before anything is shared further.
        let fifth = table.try_take(30).unwrap();
        assert_eq!(fifth.first, 0);
        table.give_back(runs[2]);
        assert_eq!(table.try_take(30).unwrap().first, 64);
        assert_eq!(runs[1].slot(Tag(29)), 61);
    }

    #[test]
    fn a_queue_deeper_than_the_table_has_none() {
        assert!(SlotTable::new(0).try_take(1).is_none());
        assert!(SlotTable::new(64).try_take(65).is_none());
        assert!(SlotTable::new(64).try_take(64).is_some());
    }

    #[test]
    fn what_was_taken_and_given_back_leaves_nothing() {
        let mut table = SlotTable::new(256);
        let runs: Vec<_> = (1..100)
            .map(|depth| table.try_take(depth).unwrap())
            .collect();
        for run in runs {
            table.give_back(run);
        }
        assert!(table.users.iter().all(|users| *users == 0));
        assert_eq!(table.tags(), 0);
    }

    #[test]
    fn a_queue_without_reads_stops_asking_until_the_next_one() {
        let slots = SlotTable::new(16).try_take(4);
        let mut asking = Asking::default();
        assert_eq!(asking.registration(None, Tag(1)), Registration::Nowhere);
        for _ in 0..1000 {
            asking.on_request(Op::Write);
        }
        assert_eq!(asking.registration(slots, Tag(1)), Registration::Nowhere);
        asking.on_request(Op::Read);
        for _ in 1..Asking::OTHERS_MAX {
            asking.on_request(Op::Flush);
            assert_eq!(asking.registration(slots, Tag(1)), Registration::Slot(1));
        }
    }
}
