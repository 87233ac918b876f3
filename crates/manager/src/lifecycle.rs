//! The life cycle of one device: states, inputs, transitions, and which requests a state admits.
//!
//! ```text
//!            Create                                       all steps done
//!   (none) ---------> Creating ------------------------------------------------> Live
//!                      |    |                                                     |
//!        step failed,  |    | step unanswered                                     | Remove, RemoveAll,
//!        or cancelled  |    v                                                     | Shutdown
//!                      |  Quarantined <------ means exhausted ------+             |
//!                      |    |    late answer, or                    |             |
//!                      v    v    Remove once answered               |             v
//!                     Stopping -------------------------------------+---------> Gone
//! ```
//!
//! Creating: Open, RecordCreating, Add, RecordAdded, Attach, Start, Publish, RecordLive. Stopping: see `teardown.rs`.
//!
//! Who owns an edge: requests (API) begin and cancel; answers come from the driver's task of the step (kernel
//! commands: control ring; Attach, Drain, Abandon, Release: shards; Record*: journal); deadlines and turns are the
//! manager's. All of them act through one task, which calls the manager.
//!
//! What a crash leaves in each state, and what the next start makes of it (`reconcile.rs`):
//!
//! | state and step | in the journal | in the kernel | next start |
//! |---|---|---|---|
//! | Creating: Open | nothing | nothing | nothing |
//! | Creating: RecordCreating, Add | nothing or creating | nothing, or a device with our stamp | removes device and record |
//! | Creating: from RecordAdded on | creating or added | a device with our stamp, perhaps started | removes device and record; nobody was told of it |
//! | Live | live | a live device, which the kernel parks | removes device and record; later: adopts it |
//! | Stopping, before RecordStopping is durable | live | as Live | as Live: the removal was not answered |
//! | Stopping, later | stopping or added | less and less of a device | removes what is left |
//! | Quarantined | as it was | as it was | removes or reports what is left |
//!
//! The rule behind the table: the journal knows of a device before the kernel does, and forgets it after.

use crate::creating;
use crate::event::Output;
use crate::fault::{Fault, StepFailure};
use crate::state::{Action, Awaited, Creating, Input, Quarantined, Rules, State};
use crate::step::Step;
use crate::teardown;

/// What a request to remove meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It begins the removal.
    Begin,
    /// The device is on its way out already; the outcome is shared.
    Join,
    /// Nothing may be done: the step has not come back.
    Unanswered(Step),
}

impl State {
    /// Moves on. Inputs that mean nothing in a state leave it as it is.
    pub(crate) fn transition(self, input: Input, rules: &Rules) -> (Self, Vec<Action>) {
        match self {
            Self::Creating(creating) => match input {
                Input::Answer(result) => creating::on_answer(creating, result, rules),
                Input::Overdue => creating::on_overdue(creating, rules),
                Input::Remove(fault) => (Self::Creating(cancel(creating, fault)), Vec::new()),
                Input::Hurry | Input::Turn => (Self::Creating(creating), Vec::new()),
            },
            Self::Live(held) => match input {
                Input::Remove(_) => teardown::begin(held, None, rules),
                Input::Answer(_) | Input::Overdue | Input::Hurry | Input::Turn => {
                    (Self::Live(held), Vec::new())
                }
            },
            Self::Stopping(stopping) => match input {
                Input::Answer(result) => teardown::on_answer(stopping, result, rules),
                Input::Overdue => teardown::on_overdue(stopping, rules),
                Input::Hurry => teardown::on_hurry(stopping, rules),
                Input::Turn => teardown::on_turn(stopping, rules),
                Input::Remove(_) => (Self::Stopping(stopping), Vec::new()),
            },
            Self::Quarantined(quarantined) => match input {
                Input::Answer(result) => match quarantined.awaited {
                    Awaited::Answer => on_late_answer(quarantined, result, rules),
                    // Of a step tried in vain before the one that counts.
                    Awaited::Nothing => (Self::Quarantined(quarantined), Vec::new()),
                },
                Input::Remove(_) => match quarantined.admission() {
                    Admission::Begin => teardown::begin(quarantined.held, None, rules),
                    Admission::Join | Admission::Unanswered(_) => {
                        (Self::Quarantined(quarantined), Vec::new())
                    }
                },
                Input::Overdue | Input::Hurry | Input::Turn => {
                    (Self::Quarantined(quarantined), Vec::new())
                }
            },
            Self::Gone(ended) => match input {
                Input::Answer(_)
                | Input::Overdue
                | Input::Remove(_)
                | Input::Hurry
                | Input::Turn => (Self::Gone(ended), Vec::new()),
            },
        }
    }

    /// What a request to remove meets in this state.
    pub(crate) const fn admission(&self) -> Admission {
        match self {
            Self::Creating(creating) => match creating.cancelled {
                None => Admission::Begin,
                Some(_) => Admission::Join,
            },
            Self::Live(_) => Admission::Begin,
            Self::Stopping(_) | Self::Gone(_) => Admission::Join,
            Self::Quarantined(quarantined) => quarantined.admission(),
        }
    }
}

impl Quarantined {
    const fn admission(&self) -> Admission {
        match (self.step, self.awaited) {
            (Step::Create(_), Awaited::Answer) => Admission::Unanswered(self.step),
            // Every step of the way out may be repeated beside itself.
            (Step::Create(_), Awaited::Nothing) | (Step::Stop(_), _) => Admission::Begin,
        }
    }
}

fn cancel(creating: Creating, fault: Fault) -> Creating {
    Creating {
        cancelled: creating.cancelled.or(Some(fault)),
        ..creating
    }
}

/// The answer that a quarantined device waited for: it says what is held now.
fn on_late_answer(
    quarantined: Quarantined,
    result: Result<Output, Fault>,
    rules: &Rules,
) -> (State, Vec<Action>) {
    let Quarantined {
        step,
        mut held,
        ended,
        ..
    } = quarantined;
    match step {
        // Whether it succeeded or failed, it came to an end, and what it left can be taken down.
        Step::Create(create) => {
            let cause = creating::apply_answer(&mut held, create, result)
                .err()
                .map(|fault| StepFailure {
                    step,
                    elapsed: rules.elapsed,
                    fault,
                });
            teardown::begin(held, cause, rules)
        }
        Step::Stop(stop) => {
            match result.and_then(|output| teardown::apply_done(&mut held, stop, output)) {
                Ok(()) => teardown::begin(held, None, rules),
                // Nothing has changed but that the kernel has let go of the command.
                Err(_) => {
                    let state = State::Quarantined(Quarantined {
                        step,
                        awaited: Awaited::Nothing,
                        held,
                        ended,
                    });
                    (state, Vec::new())
                }
            }
        }
    }
}
