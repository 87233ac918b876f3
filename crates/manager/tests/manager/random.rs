//! Random histories: requests, answers, failures, panics, silence and late answers in any order.
//!
//! The rig checks at every effect that the journal knows what the kernel is about to see, that nothing is deleted
//! before it was stopped, that a stop never runs beside a start or an attach, that no reply comes twice, and that no
//! more devices than allowed stop at a time. Here: every history comes to its end, every request is answered,
//! and what is left in the kernel is live or quarantined and in the journal.

use std::collections::BTreeSet;

use manager::{Event, FaultKind, Phase, Settings, TeardownOrder, Ticket};
use proptest::prelude::*;

use crate::rig::{Reply, Rig, params, settings};

#[derive(Clone, Debug)]
enum Op {
    Create {
        name: u8,
        depth: u16,
    },
    Remove {
        name: u8,
    },
    RemoveAll,
    Shutdown,
    Hurry,
    Answer {
        pick: prop::sample::Index,
        reply: Reply,
    },
    AnswerWrite {
        reply: Reply,
    },
    /// The answer to a step that was answered before comes once more.
    Repeat {
        pick: prop::sample::Index,
    },
    /// Any answer of the kernel or the journal goes through, a few times.
    Progress {
        steps: u8,
    },
    Tick,
}

fn reply() -> impl Strategy<Value = Reply> {
    let kind = prop::sample::select(vec![
        FaultKind::Io,
        FaultKind::DeadlineExceeded,
        FaultKind::Stuck,
        FaultKind::LimitReached,
    ]);
    // Only where the end of a command is unknown may it have left something without saying so.
    let hidden = prop::sample::select(vec![FaultKind::DeadlineExceeded, FaultKind::Stuck]);
    prop_oneof![
        12 => Just(Reply::Done),
        2 => kind.prop_map(Reply::Fail),
        1 => hidden.prop_map(Reply::FailHiding),
        1 => Just(Reply::FailLeaving),
        1 => Just(Reply::Panic),
        1 => Just(Reply::Silent),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let pick = any::<prop::sample::Index>;
    prop_oneof![
        6 => (0..6u8, 1..3u16).prop_map(|(name, depth)| Op::Create { name, depth }),
        4 => (0..6u8).prop_map(|name| Op::Remove { name }),
        1 => Just(Op::RemoveAll),
        1 => Just(Op::Shutdown),
        1 => Just(Op::Hurry),
        16 => (pick(), reply()).prop_map(|(pick, reply)| Op::Answer { pick, reply }),
        8 => reply().prop_map(|reply| Op::AnswerWrite { reply }),
        2 => pick().prop_map(|pick| Op::Repeat { pick }),
        6 => (1..12u8).prop_map(|steps| Op::Progress { steps }),
        3 => Just(Op::Tick),
    ]
}

/// What happens to everything that is still open at the end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Answered,
    Silent,
}

struct History {
    rig: Rig,
    answered: Vec<Ticket>,
}

impl History {
    fn answer_any(&mut self, pick: prop::sample::Index, reply: Reply) {
        if self.rig.orders.is_empty() {
            return;
        }
        let ticket = self.rig.orders[pick.index(self.rig.orders.len())].ticket;
        self.answered.push(ticket);
        self.rig.answer(ticket, reply);
    }

    fn progress(&mut self) -> bool {
        if let Some(order) = self.rig.orders.first() {
            self.rig.answer(order.ticket, Reply::Done);
        } else if self.rig.writes.is_empty() {
            return false;
        } else {
            self.rig.answer_write(Reply::Done);
        }
        true
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Create { name, depth } => {
                let request = manager::CreateRequest::new(manager::CreateParams {
                    depth: Some(depth),
                    ..params(&format!("d{name}"))
                });
                self.rig.create(request.unwrap());
            }
            Op::Remove { name } => {
                self.rig.remove(&format!("d{name}"));
            }
            Op::RemoveAll => {
                self.rig.remove_all();
            }
            Op::Shutdown => self.rig.tell(Event::Shutdown),
            Op::Hurry => self.rig.tell(Event::Hurry),
            Op::Answer { pick, reply } => self.answer_any(pick, reply),
            Op::AnswerWrite { reply } => {
                if !self.rig.writes.is_empty() {
                    self.rig.answer_write(reply);
                }
            }
            Op::Repeat { pick } => {
                if !self.answered.is_empty() {
                    let ticket = self.answered[pick.index(self.answered.len())];
                    if self.rig.orders.iter().all(|order| order.ticket != ticket) {
                        self.repeat(ticket);
                    }
                }
            }
            Op::Progress { steps } => {
                for _ in 0..steps {
                    self.progress();
                }
            }
            Op::Tick => {
                self.rig.tick();
            }
        }
    }

    /// A step that was told as silent may answer after all; one that was answered moves nothing.
    fn repeat(&mut self, ticket: Ticket) {
        let result = Err(manager::Fault::new(FaultKind::Io, "once more"));
        self.rig.tell(Event::Stepped { ticket, result });
    }

    fn finish(&mut self, ending: Ending) {
        self.rig.tell(Event::Shutdown);
        for _ in 0..10_000 {
            // A device that comes back from quarantine after the shutdown may have waiters of its own.
            if self.rig.report.is_some() && self.rig.asked.len() == self.rig.replies.len() {
                break;
            }
            let is_moved = match ending {
                Ending::Answered => self.progress(),
                Ending::Silent => false,
            };
            if !is_moved && !self.rig.tick() {
                break;
            }
        }
        assert!(
            self.rig.report.is_some(),
            "the shutdown does not end: {:?}",
            self.rig.trace
        );
        assert_eq!(self.rig.asked.len(), self.rig.replies.len());
    }

    fn check(&self) {
        let views: Vec<_> = self.rig.manager.devices().collect();
        let known: BTreeSet<_> = views.iter().map(|view| view.serial).collect();
        for device in self.rig.kernel.values() {
            let serial = device.stamp.serial;
            assert!(known.contains(&serial), "{serial} is in the kernel only");
            assert!(
                self.rig.journal.contains_key(&format!("device/{serial}")),
                "{serial} is not in the journal"
            );
        }
        let names: BTreeSet<_> = views.iter().map(|view| view.name.clone()).collect();
        assert_eq!(names.len(), views.len(), "two devices of one name");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_invariants_and_ends(
        ops in prop::collection::vec(op(), 1..120),
        order in prop::sample::select(vec![
            TeardownOrder::CloseThenDelete,
            TeardownOrder::DeleteThenClose,
        ]),
        stop_concurrency in 0..4usize,
        ending in prop::sample::select(vec![Ending::Answered, Ending::Silent]),
    ) {
        let settings = Settings {
            teardown_order: order,
            stop_concurrency,
            devices_max: 5,
            ..settings()
        };
        let mut history = History { rig: Rig::new(settings), answered: Vec::new() };
        for op in ops {
            history.apply(op);
            history.check();
        }
        history.finish(ending);
        history.check();
        for view in history.rig.manager.devices() {
            prop_assert!(
                matches!(view.phase, Phase::Quarantined | Phase::Stopping),
                "{view:?} after the end"
            );
        }
        if matches!(ending, Ending::Answered) {
            // What is open answers late: whatever was quarantined for that reason goes away.
            history.rig.run();
            history.check();
        }
    }
}
