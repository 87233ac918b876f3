//! Which commands wait, run, are being cancelled or are stuck, and what is due when. Pure: `now` is a parameter.
//!
//! ```text
//!   admit --> Waiting --poll_start--> Running --deadline--> Cancelling --grace--> Stuck
//!                |                       |                      |                   |
//!                v deadline              v completion           v completion        v completion
//!             Expired                  Ended                 EndedLate           Released
//! ```
//!
//! Invariant: each admitted item is given back exactly once: by `Expired`, `Ended`, `EndedLate` or `Stuck`. A stuck
//! command keeps its token until its completion, so that the token, and the buffer behind it, are not reused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::sys::Token;

/// How long a cancelled command may take to come back.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// What has to be done because time has passed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due<T> {
    /// The command waited until its deadline and was never sent.
    Expired(T),
    /// Cancel the command.
    Cancel(Token),
    /// The command did not come back after its cancellation.
    Stuck(T),
}

/// What the completion of a command means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Completed<T> {
    /// It ended before its deadline.
    Ended(T),
    /// It ended after its cancellation was requested.
    EndedLate(T),
    /// A stuck command has ended after all.
    Released,
    /// No such command.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Cancelling,
    Stuck,
}

struct Entry<T> {
    phase: Phase,
    due: Instant,
    /// `None` once stuck.
    item: Option<T>,
}

/// The commands under way.
pub(super) struct Flight<T> {
    entries: BTreeMap<Token, Entry<T>>,
    due: BTreeSet<(Instant, Token)>,
    /// First come, first served: tokens ascend.
    waiting: BTreeSet<Token>,
    next_token: u64,
    running: usize,
    running_max: usize,
    stuck: usize,
}

impl<T> Flight<T> {
    /// Nothing under way; at most `running_max` commands will run at once.
    pub(super) fn new(running_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            waiting: BTreeSet::new(),
            next_token: Token::FIRST.0,
            running: 0,
            running_max,
            stuck: 0,
        }
    }

    /// Takes a command that must end by `deadline`.
    pub(super) fn admit(&mut self, deadline: Instant, item: T) {
        let token = Token(self.next_token);
        self.next_token += 1;
        self.entries.insert(
            token,
            Entry {
                phase: Phase::Waiting,
                due: deadline,
                item: Some(item),
            },
        );
        self.due.insert((deadline, token));
        self.waiting.insert(token);
    }

    /// The next command to send, if the limit allows one more.
    pub(super) fn poll_start(&mut self) -> Option<(Token, &T)> {
        if self.running >= self.running_max {
            return None;
        }
        let token = self.waiting.pop_first()?;
        let entry = self.entries.get_mut(&token)?;
        entry.phase = Phase::Running;
        self.running += 1;
        entry.item.as_ref().map(|item| (token, item))
    }

    /// What is due at `now`. Call until it returns `None`.
    pub(super) fn poll_due(&mut self, now: Instant) -> Option<Due<T>> {
        loop {
            let (due, token) = *self.due.first()?;
            if due > now {
                return None;
            }
            self.due.remove(&(due, token));
            let Some(entry) = self.entries.get_mut(&token) else {
                continue;
            };
            match entry.phase {
                Phase::Waiting => {
                    self.waiting.remove(&token);
                    let item = self.entries.remove(&token).and_then(|entry| entry.item);
                    return item.map(Due::Expired);
                }
                Phase::Running => {
                    entry.phase = Phase::Cancelling;
                    entry.due = now + CANCEL_GRACE;
                    self.due.insert((entry.due, token));
                    return Some(Due::Cancel(token));
                }
                Phase::Cancelling => {
                    entry.phase = Phase::Stuck;
                    self.running -= 1;
                    self.stuck += 1;
                    return entry.item.take().map(Due::Stuck);
                }
                Phase::Stuck => {}
            }
        }
    }

    /// Takes the completion of a command.
    pub(super) fn handle_completion(&mut self, token: Token) -> Completed<T> {
        let Some(entry) = self.entries.remove(&token) else {
            return Completed::Unknown;
        };
        self.due.remove(&(entry.due, token));
        match (entry.phase, entry.item) {
            (Phase::Running, Some(item)) => {
                self.running -= 1;
                Completed::Ended(item)
            }
            (Phase::Cancelling, Some(item)) => {
                self.running -= 1;
                Completed::EndedLate(item)
            }
            (Phase::Stuck, _) => {
                self.stuck -= 1;
                Completed::Released
            }
            (Phase::Waiting | Phase::Running | Phase::Cancelling, _) => Completed::Unknown,
        }
    }

    /// Makes everything that waits or runs due at `now`.
    pub(super) fn expire_all(&mut self, now: Instant) {
        for (token, entry) in &mut self.entries {
            if matches!(entry.phase, Phase::Waiting | Phase::Running) && entry.due > now {
                self.due.remove(&(entry.due, *token));
                entry.due = now;
                self.due.insert((now, *token));
            }
        }
    }

    /// Gives back every item that has not been given back. Nothing may be asked of the flight afterwards.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.due.clear();
        self.waiting.clear();
        let entries = std::mem::take(&mut self.entries);
        entries
            .into_values()
            .filter_map(|entry| entry.item)
            .collect()
    }

    /// When [`Flight::poll_due`] has something next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Commands that run or are being cancelled.
    pub(super) const fn running(&self) -> usize {
        self.running
    }

    /// Commands that the kernel does not let go of.
    pub(super) const fn stuck(&self) -> usize {
        self.stuck
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests need one point in time")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn start(flight: &mut Flight<u32>) -> Token {
        flight.poll_start().unwrap().0
    }

    #[test]
    fn a_command_that_ends_in_time_is_given_back_once() {
        let now = Instant::now();
        let mut flight = Flight::new(1);
        flight.admit(now + SECOND, 7);
        let token = start(&mut flight);
        assert_eq!(flight.poll_due(now), None);
        assert_eq!(flight.handle_completion(token), Completed::Ended(7));
        assert_eq!(flight.handle_completion(token), Completed::Unknown);
        assert_eq!(flight.poll_due(now + 10 * SECOND), None);
        assert_eq!((flight.running(), flight.next_due()), (0, None));
    }

    #[test]
    fn a_late_command_is_cancelled_then_stuck_and_at_last_released() {
        let now = Instant::now();
        let mut flight = Flight::new(1);
        flight.admit(now + SECOND, 7);
        let token = start(&mut flight);
        let late = now + SECOND;
        assert_eq!(flight.poll_due(late), Some(Due::Cancel(token)));
        assert_eq!(flight.poll_due(late), None);
        assert_eq!(flight.next_due(), Some(late + CANCEL_GRACE));
        let over = late + CANCEL_GRACE;
        assert_eq!(flight.poll_due(over), Some(Due::Stuck(7)));
        assert_eq!((flight.running(), flight.stuck()), (0, 1));
        assert_eq!(flight.poll_due(over + 10 * SECOND), None);
        assert_eq!(flight.handle_completion(token), Completed::Released);
        assert_eq!(flight.stuck(), 0);
    }

    #[test]
    fn the_limit_holds_and_those_who_wait_expire() {
        let now = Instant::now();
        let mut flight = Flight::new(2);
        for item in 0..4 {
            flight.admit(now + SECOND * (item + 1), item);
        }
        let first = start(&mut flight);
        start(&mut flight);
        assert!(flight.poll_start().is_none());
        assert_eq!(flight.handle_completion(first), Completed::Ended(0));
        let third = start(&mut flight);
        assert!(flight.poll_start().is_none());
        let mut due = Vec::new();
        while let Some(next) = flight.poll_due(now + 4 * SECOND) {
            due.push(next);
        }
        assert_eq!(due.len(), 3, "{due:?}");
        assert!(due.contains(&Due::Cancel(third)));
        assert_eq!(due.last(), Some(&Due::Expired(3)));
    }

    #[test]
    fn closing_makes_everything_due() {
        let now = Instant::now();
        let mut flight = Flight::new(1);
        flight.admit(now + 100 * SECOND, 1);
        flight.admit(now + 100 * SECOND, 2);
        let token = start(&mut flight);
        flight.expire_all(now);
        assert_eq!(flight.poll_due(now), Some(Due::Cancel(token)));
        assert_eq!(flight.poll_due(now), Some(Due::Expired(2)));
        assert_eq!(flight.handle_completion(token), Completed::EndedLate(1));
    }

    proptest! {
        #[test]
        fn every_item_is_given_back_exactly_once(
            steps in prop::collection::vec((0_u8..5, 0_u64..3000), 1..200)
        ) {
            let begin = Instant::now();
            let mut now = begin;
            let mut flight = Flight::new(3);
            let (mut admitted, mut returned) = (0_u32, Vec::new());
            let mut live: Vec<Token> = Vec::new();
            for (step, amount) in steps {
                match step {
                    0 | 1 => {
                        flight.admit(now + Duration::from_millis(amount), admitted);
                        admitted += 1;
                    }
                    2 => live.extend(flight.poll_start().map(|(token, _)| token)),
                    3 if !live.is_empty() => {
                        let index = usize::try_from(amount).unwrap() % live.len();
                        match flight.handle_completion(live.swap_remove(index)) {
                            Completed::Ended(item) | Completed::EndedLate(item) => returned.push(item),
                            Completed::Released => {}
                            Completed::Unknown => prop_assert!(false, "a live token is known"),
                        }
                    }
                    _ => {
                        now += Duration::from_millis(amount);
                        while let Some(due) = flight.poll_due(now) {
                            match due {
                                Due::Expired(item) | Due::Stuck(item) => returned.push(item),
                                Due::Cancel(token) => prop_assert!(live.contains(&token)),
                            }
                        }
                    }
                }
                prop_assert!(flight.running() <= 3);
                prop_assert_eq!(flight.running() + flight.stuck(), live.len());
            }
            returned.extend(flight.drain());
            returned.sort_unstable();
            prop_assert_eq!(returned, (0..admitted).collect::<Vec<_>>());
        }
    }
}
