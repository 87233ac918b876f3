//! The tag protocol of one queue, as a pure state machine.
//!
//! ```text
//!            try_fetch            completion 0
//!   Idle ---------------> Armed -----------------> Owned
//!                         |  ^                       |
//!        completion ABORT |  |      try_commit       |
//!              or a fault |  +-----------------------+
//!                         v
//!                      Aborted        (never submitted again)
//! ```
//!
//! Armed: a FETCH or a COMMIT_AND_FETCH is with the kernel. Owned: a request is with the server, which must commit it.
//! Every edge belongs to the thread that serves the queue. Nothing survives that thread: the next server starts with
//! Idle tags.
//!
//! Invariants: each fetched tag is completed exactly once (`armed` falls by one with each completion); a request is
//! committed exactly once; an aborted tag is never submitted again. An answer the driver gives only to a broken server
//! (`-EBUSY`, `-EINVAL`, ...) is a fault: the queue must be torn down, since its request will not complete.

use block::Tag;

use crate::abi::control::UBLK_MAX_QUEUE_DEPTH;
use crate::abi::io::{UBLK_IO_RES_ABORT, UBLK_IO_RES_OK};

/// What a completion of the kernel means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TagEvent {
    /// There is a request in the tag's descriptor; it must be committed.
    Serve,
    /// The kernel has given up the tag; it must not be submitted again.
    Aborted,
    /// The protocol is broken.
    Fault(TagFault),
}

/// A broken protocol, by the kernel or by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagFault {
    /// The queue has no such tag.
    #[error("tag {0} does not exist in this queue")]
    OutOfRange(Tag),
    /// A completion of a tag that is not with the kernel.
    #[error("tag {0} was completed without being with the kernel")]
    NotArmed(Tag),
    /// A fetch of a tag that was fetched before.
    #[error("tag {0} was fetched twice")]
    NotIdle(Tag),
    /// A commit of a tag without a request.
    #[error("tag {0} was committed without a request")]
    NotOwned(Tag),
    /// A submission of a tag that the kernel gave up.
    #[error("tag {0} was submitted after its abort")]
    Aborted(Tag),
    /// The kernel refused a fetch or a commit; this is its answer, a negative errno or an unknown code.
    #[error("the kernel refused tag {0} with {1}")]
    Refused(Tag, i32),
}

/// Where a tag is. One byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TagState {
    /// Not fetched yet.
    Idle,
    /// With the kernel.
    Armed,
    /// With the server.
    Owned,
    /// Given up.
    Aborted,
}

/// The tags of one queue.
#[derive(Debug)]
pub struct TagTable {
    states: Box<[TagState]>,
    armed: u16,
    owned: u16,
    aborted: u16,
}

impl TagTable {
    /// `depth` idle tags, or `None` unless `depth` is 1 to 4096.
    #[must_use]
    pub fn new(depth: u16) -> Option<Self> {
        if depth == 0 || u32::from(depth) > UBLK_MAX_QUEUE_DEPTH {
            return None;
        }
        Some(Self {
            states: vec![TagState::Idle; usize::from(depth)].into_boxed_slice(),
            armed: 0,
            owned: 0,
            aborted: 0,
        })
    }

    /// Records that a FETCH of the tag is about to be submitted.
    ///
    /// # Errors
    /// [`TagFault::NotIdle`], [`TagFault::Aborted`] or [`TagFault::OutOfRange`]; then it must not be submitted.
    #[inline]
    pub fn try_fetch(&mut self, tag: Tag) -> Result<(), TagFault> {
        let state = self.state_mut(tag)?;
        match *state {
            TagState::Idle => {
                *state = TagState::Armed;
                self.armed += 1;
                Ok(())
            }
            TagState::Armed | TagState::Owned => Err(TagFault::NotIdle(tag)),
            TagState::Aborted => Err(TagFault::Aborted(tag)),
        }
    }

    /// Records that a COMMIT_AND_FETCH of the tag's request is about to be submitted.
    ///
    /// # Errors
    /// [`TagFault::NotOwned`], [`TagFault::Aborted`] or [`TagFault::OutOfRange`]; then it must not be submitted.
    #[inline]
    pub fn try_commit(&mut self, tag: Tag) -> Result<(), TagFault> {
        let state = self.state_mut(tag)?;
        match *state {
            TagState::Owned => {
                *state = TagState::Armed;
                self.owned -= 1;
                self.armed += 1;
                Ok(())
            }
            TagState::Idle | TagState::Armed => Err(TagFault::NotOwned(tag)),
            TagState::Aborted => Err(TagFault::Aborted(tag)),
        }
    }

    /// Takes the kernel's completion of a FETCH or a COMMIT_AND_FETCH. `result` is the completion's.
    ///
    /// After a fault the tag counts as aborted if it was with the kernel, and is unchanged otherwise.
    #[inline]
    pub fn handle_completion(&mut self, tag: Tag, result: i32) -> TagEvent {
        let state = match self.state_mut(tag) {
            Ok(state) => state,
            Err(fault) => return TagEvent::Fault(fault),
        };
        if *state != TagState::Armed {
            return TagEvent::Fault(TagFault::NotArmed(tag));
        }
        if result == UBLK_IO_RES_OK {
            *state = TagState::Owned;
            self.armed -= 1;
            self.owned += 1;
            return TagEvent::Serve;
        }
        *state = TagState::Aborted;
        self.armed -= 1;
        self.aborted += 1;
        if result == UBLK_IO_RES_ABORT {
            TagEvent::Aborted
        } else {
            TagEvent::Fault(TagFault::Refused(tag, result))
        }
    }

    /// Where the tag is, or `None` if there is no such tag.
    #[must_use]
    pub fn state(&self, tag: Tag) -> Option<TagState> {
        self.states.get(usize::from(tag.0)).copied()
    }

    /// Number of tags.
    #[must_use]
    pub fn depth(&self) -> u16 {
        // Made from a u16 in `new`.
        u16::try_from(self.states.len()).unwrap_or(u16::MAX)
    }

    /// Tags that are with the kernel.
    #[must_use]
    pub const fn armed(&self) -> u16 {
        self.armed
    }

    /// Tags that are with the server.
    #[must_use]
    pub const fn owned(&self) -> u16 {
        self.owned
    }

    /// Tags that the kernel gave up.
    #[must_use]
    pub const fn aborted(&self) -> u16 {
        self.aborted
    }

    /// Whether nothing is with the kernel or the server: the char device may be closed.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.armed == 0 && self.owned == 0
    }

    #[inline]
    fn state_mut(&mut self, tag: Tag) -> Result<&mut TagState, TagFault> {
        self.states
            .get_mut(usize::from(tag.0))
            .ok_or(TagFault::OutOfRange(tag))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ABORT: i32 = -19;

    #[test]
    fn a_tag_goes_round_and_ends_with_an_abort() {
        let mut table = TagTable::new(2).unwrap();
        let tag = Tag(1);
        table.try_fetch(tag).unwrap();
        for _ in 0..3 {
            assert_eq!(table.handle_completion(tag, 0), TagEvent::Serve);
            assert_eq!((table.armed(), table.owned()), (0, 1));
            table.try_commit(tag).unwrap();
        }
        assert_eq!(table.handle_completion(tag, ABORT), TagEvent::Aborted);
        assert!(table.is_quiet());
        assert_eq!(table.aborted(), 1);
        assert_eq!(table.try_fetch(tag), Err(TagFault::Aborted(tag)));
        assert_eq!(table.try_commit(tag), Err(TagFault::Aborted(tag)));
    }

    #[test]
    fn answers_for_broken_servers_are_faults() {
        for result in [-16, -22, -14, -125, 1, 2, i32::MIN, i32::MAX] {
            let mut table = TagTable::new(1).unwrap();
            table.try_fetch(Tag(0)).unwrap();
            assert_eq!(
                table.handle_completion(Tag(0), result),
                TagEvent::Fault(TagFault::Refused(Tag(0), result))
            );
            assert!(table.is_quiet());
            assert_eq!(table.try_fetch(Tag(0)), Err(TagFault::Aborted(Tag(0))));
        }
    }

    #[test]
    fn tags_outside_the_queue_are_faults() {
        let mut table = TagTable::new(4).unwrap();
        let tag = Tag(4);
        assert_eq!(table.try_fetch(tag), Err(TagFault::OutOfRange(tag)));
        assert_eq!(table.try_commit(tag), Err(TagFault::OutOfRange(tag)));
        assert_eq!(
            table.handle_completion(tag, 0),
            TagEvent::Fault(TagFault::OutOfRange(tag))
        );
        assert_eq!(table.state(tag), None);
    }

    #[test]
    fn depths_outside_the_drivers_limits_are_refused() {
        assert!(TagTable::new(0).is_none());
        assert!(TagTable::new(4097).is_none());
        assert_eq!(TagTable::new(4096).unwrap().depth(), 4096);
        assert_eq!(size_of::<TagState>(), 1);
    }

    #[derive(Clone, Debug)]
    enum Action {
        Fetch(u16),
        Commit(u16),
        Complete(u16, i32),
    }

    fn action() -> impl Strategy<Value = Action> {
        // Depth is 6; 6 and 7 are out of range. Legal results are frequent so that histories get long.
        let result = prop_oneof![4 => Just(0), 1 => Just(ABORT), 1 => Just(-16), 1 => any::<i32>()];
        prop_oneof![
            (0_u16..8).prop_map(Action::Fetch),
            (0_u16..8).prop_map(Action::Commit),
            (0_u16..8, result).prop_map(|(tag, result)| Action::Complete(tag, result)),
        ]
    }

    proptest! {
        #[test]
        fn any_history_keeps_the_books_and_completes_each_submission_once(
            actions in prop::collection::vec(action(), 0..200)
        ) {
            let mut table = TagTable::new(6).unwrap();
            // The model counts: submissions and completions of each tag, requests taken and committed, and the end.
            let (mut submitted, mut completed) = ([0_u32; 8], [0_u32; 8]);
            let (mut taken, mut committed) = ([0_u32; 8], [0_u32; 8]);
            let mut ended = [false; 8];
            for action in actions {
                match action {
                    Action::Fetch(tag) => {
                        let slot = usize::from(tag);
                        let legal = slot < 6 && submitted[slot] == 0;
                        prop_assert_eq!(table.try_fetch(Tag(tag)).is_ok(), legal);
                        submitted[slot] += u32::from(legal);
                    }
                    Action::Commit(tag) => {
                        let slot = usize::from(tag);
                        let legal = slot < 6 && taken[slot] > committed[slot];
                        prop_assert_eq!(table.try_commit(Tag(tag)).is_ok(), legal);
                        committed[slot] += u32::from(legal);
                        submitted[slot] += u32::from(legal);
                    }
                    Action::Complete(tag, result) => {
                        let slot = usize::from(tag);
                        let legal = slot < 6 && submitted[slot] > completed[slot];
                        let event = table.handle_completion(Tag(tag), result);
                        if legal {
                            completed[slot] += 1;
                            taken[slot] += u32::from(result == 0);
                            ended[slot] = result != 0;
                            let expected = match result {
                                0 => TagEvent::Serve,
                                ABORT => TagEvent::Aborted,
                                _ => TagEvent::Fault(TagFault::Refused(Tag(tag), result)),
                            };
                            prop_assert_eq!(event, expected);
                        } else {
                            prop_assert!(matches!(event, TagEvent::Fault(_)));
                        }
                    }
                }
                let sum = |counts: [u32; 8]| counts.iter().sum::<u32>();
                prop_assert_eq!(u32::from(table.armed()), sum(submitted) - sum(completed));
                prop_assert_eq!(u32::from(table.owned()), sum(taken) - sum(committed));
                let ends = ended.iter().filter(|ended| **ended).count();
                prop_assert_eq!(usize::from(table.aborted()), ends);
            }
        }
    }
}
