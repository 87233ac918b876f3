//! The way out: gives up what a device holds, in order, and climbs to the next means when one fails.
//!
//! ```text
//!  RecordStopping -> Turn -> Unpublish -> [Find] -> Drain -> (Abandon) -> Stop -+
//!                                                                               |
//!   CloseThenDelete: Release -> Delete -+                                       |
//!   DeleteThenClose: Delete -> Release -+-> AwaitGone -> Close -> RecordRemoved-+-> Gone
//! ```
//!
//! A step whose object is not held is left out. The record comes before the turn, so that the records of
//! a whole shutdown share one transaction; a device that waits for its turn goes on serving. The turn ends before
//! AwaitGone: what is left then is waiting.
//!
//! When a step fails or exceeds its time, the failure is kept for the report, and:
//!
//! | step | what follows |
//! |---|---|
//! | RecordStopping, Unpublish, Close, RecordRemoved | the next step: nothing in the kernel depends on it |
//! | Drain | Abandon: what is in flight is answered with EIO |
//! | Abandon | Stop, whose own deadline decides |
//! | Stop | Release (the kernel then takes its requests back), Stop again; then quarantine |
//! | Release | the next step; AwaitGone shows whether it matters |
//! | Delete | Release, Delete again; then quarantine |
//! | Find, AwaitGone | quarantine |
//!
//! A device that is not stopped is never deleted: `DEL_DEV` would stop it under the driver's global mutex, and a stop
//! that hangs would then hang every create and delete of the host (drivers/block/ublk_drv.c, Linux 6.8 to 7.3).

use crate::event::Output;
use crate::fault::{Fault, FaultKind, StepFailure};
use crate::held::{Held, KernelHold, RecordMark, Traffic};
use crate::settings::TeardownOrder;
use crate::state::{
    Action, Awaited, Ended, Ladder, Patience, Quarantined, Rules, State, Stopping, Tries, TurnMark,
};
use crate::step::{Step, StopStep};

/// What comes next on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Step(StopStep),
    Quarantine(StopStep),
    Gone,
}

/// Begins the way out of a device that holds `held`; `cause` is why a create is unwound.
pub(crate) fn begin(held: Held, cause: Option<StepFailure>, rules: &Rules) -> (State, Vec<Action>) {
    let stopping = Stopping {
        // Replaced at once by what is to be done first.
        step: StopStep::Turn,
        turn: TurnMark::Wanted,
        held,
        tries: Tries::default(),
        cause,
        failures: Vec::new(),
    };
    proceed(stopping, None, rules)
}

/// The step that runs has ended.
pub(crate) fn on_answer(
    mut stopping: Stopping,
    result: Result<Output, Fault>,
    rules: &Rules,
) -> (State, Vec<Action>) {
    let step = stopping.step;
    match result.and_then(|output| apply_done(&mut stopping.held, step, output)) {
        Ok(()) => {
            if step == StopStep::Release {
                lift(&mut stopping.tries);
            }
            proceed(stopping, None, rules)
        }
        Err(fault) => fail(stopping, fault, None, rules),
    }
}

/// The step that runs has exceeded its time.
pub(crate) fn on_overdue(stopping: Stopping, rules: &Rules) -> (State, Vec<Action>) {
    let step = stopping.step;
    fail(stopping, overdue(step.into()), Some(step), rules)
}

/// I/O in flight is not waited for any more.
pub(crate) fn on_hurry(mut stopping: Stopping, rules: &Rules) -> (State, Vec<Action>) {
    if stopping.step != StopStep::Drain {
        return (State::Stopping(stopping), Vec::new());
    }
    stopping.held.traffic = Traffic::Abandon;
    proceed(stopping, None, rules)
}

/// The turn has come.
pub(crate) fn on_turn(mut stopping: Stopping, rules: &Rules) -> (State, Vec<Action>) {
    if stopping.step != StopStep::Turn {
        return (State::Stopping(stopping), Vec::new());
    }
    stopping.turn = TurnMark::Held;
    proceed(stopping, None, rules)
}

/// The fault of a step that nobody answered in time.
pub(crate) fn overdue(step: Step) -> Fault {
    Fault::new(
        FaultKind::DeadlineExceeded,
        format!("step {step} was not done in time; see the log for what it waits on"),
    )
}

/// Takes out of `held` what the successful step has given up.
///
/// # Errors
/// The output is not the step's.
pub(crate) fn apply_done(held: &mut Held, step: StopStep, output: Output) -> Result<(), Fault> {
    match step {
        StopStep::RecordStopping => held.record = RecordMark::Written,
        StopStep::Turn => {}
        StopStep::Unpublish => held.link = false,
        StopStep::Find => match output {
            // A device that is found this way was never attached or started.
            Output::Found { id: Some(id) } => held.kernel = KernelHold::Added(id),
            Output::Found { id: None } => held.kernel = KernelHold::Nothing,
            Output::Done | Output::Opened { .. } | Output::Added { .. } => {
                return Err(wrong_output(step.into()));
            }
        },
        StopStep::Drain | StopStep::Abandon => held.traffic = Traffic::None,
        StopStep::Stop => {
            held.traffic = Traffic::None;
            held.disk = false;
        }
        StopStep::Release => held.queues = false,
        StopStep::Delete => {
            if let KernelHold::Added(id) = held.kernel {
                held.kernel = KernelHold::Deleting(id);
            }
        }
        StopStep::AwaitGone => {
            // The kernel frees the number only when nothing refers to the device any more.
            held.kernel = KernelHold::Nothing;
            held.queues = false;
        }
        StopStep::Close => held.files = false,
        StopStep::RecordRemoved => held.record = RecordMark::None,
    }
    Ok(())
}

/// The fault of a driver that answered a step with another step's output.
pub(crate) fn wrong_output(step: Step) -> Fault {
    Fault::new(
        FaultKind::Internal,
        format!("step {step} was answered with the output of another step; this is a bug"),
    )
}

fn fail(
    mut stopping: Stopping,
    fault: Fault,
    unanswered: Option<StopStep>,
    rules: &Rules,
) -> (State, Vec<Action>) {
    let step = stopping.step;
    stopping.failures.push(StepFailure {
        step: step.into(),
        elapsed: rules.elapsed,
        fault,
    });
    let Stopping { held, tries, .. } = &mut stopping;
    match step {
        StopStep::RecordStopping => held.record = RecordMark::Written,
        StopStep::Turn => {}
        StopStep::Unpublish => held.link = false,
        StopStep::Find => tries.find_failed = true,
        StopStep::Drain => held.traffic = Traffic::Abandon,
        StopStep::Abandon => held.traffic = Traffic::None,
        StopStep::Stop => tries.stop.failures += 1,
        StopStep::Release => tries.release_failed = true,
        StopStep::Delete => tries.delete.failures += 1,
        StopStep::AwaitGone => tries.gone_failed = true,
        StopStep::Close => held.files = false,
        StopStep::RecordRemoved => held.record = RecordMark::None,
    }
    proceed(stopping, unanswered, rules)
}

/// Closing the char device makes the kernel take its requests back: what failed before may succeed now.
fn lift(tries: &mut Tries) {
    for ladder in [&mut tries.stop, &mut tries.delete] {
        ladder.lifted = ladder.failures > 0;
    }
}

/// Enters the next step. `unanswered` is the step that has just exceeded its time.
fn proceed(
    mut stopping: Stopping,
    unanswered: Option<StopStep>,
    rules: &Rules,
) -> (State, Vec<Action>) {
    let next = next(&stopping, rules);
    let mut actions = Vec::with_capacity(2);
    let is_turn_over = match next {
        Next::Step(step) => is_light(step),
        Next::Quarantine(_) | Next::Gone => true,
    };
    if is_turn_over && stopping.turn == TurnMark::Held {
        stopping.turn = TurnMark::Returned;
        actions.push(Action::LeaveTurn);
    }
    let ended = |stopping: Stopping| Ended {
        cause: stopping.cause,
        failures: stopping.failures,
    };
    let state = match next {
        Next::Step(step) => {
            stopping.step = step;
            actions.push(Action::Issue(step.into()));
            State::Stopping(stopping)
        }
        Next::Quarantine(step) => {
            actions.push(Action::Ended);
            State::Quarantined(Quarantined {
                step: step.into(),
                awaited: if unanswered == Some(step) {
                    Awaited::Answer
                } else {
                    Awaited::Nothing
                },
                held: stopping.held,
                ended: ended(stopping),
            })
        }
        Next::Gone => {
            actions.push(Action::Ended);
            State::Gone(ended(stopping))
        }
    };
    (state, actions)
}

/// Whether only waiting and closing are left, from this step on: nothing that a limit would spare the host. A device
/// that somebody else keeps open does not keep others from their turn.
const fn is_light(step: StopStep) -> bool {
    match step {
        StopStep::AwaitGone | StopStep::Close | StopStep::RecordRemoved => true,
        StopStep::RecordStopping
        | StopStep::Turn
        | StopStep::Unpublish
        | StopStep::Find
        | StopStep::Drain
        | StopStep::Abandon
        | StopStep::Stop
        | StopStep::Release
        | StopStep::Delete => false,
    }
}

fn next(stopping: &Stopping, rules: &Rules) -> Next {
    let held = &stopping.held;
    if held.record == RecordMark::Live {
        return Next::Step(StopStep::RecordStopping);
    }
    if stopping.turn == TurnMark::Wanted && held.is_work_left() {
        return Next::Step(StopStep::Turn);
    }
    if held.link {
        return Next::Step(StopStep::Unpublish);
    }
    match (held.traffic, rules.patience) {
        (Traffic::None, _) => {}
        (Traffic::Drain, Patience::Wait) => return Next::Step(StopStep::Drain),
        (Traffic::Drain, Patience::Hurry) | (Traffic::Abandon, _) => {
            return Next::Step(StopStep::Abandon);
        }
    }
    if let Some(next) = next_in_kernel(held, &stopping.tries, rules.order) {
        return next;
    }
    if held.files {
        return Next::Step(StopStep::Close);
    }
    match held.record {
        RecordMark::Written | RecordMark::Live => Next::Step(StopStep::RecordRemoved),
        RecordMark::None => Next::Gone,
    }
}

/// The next step that frees the kernel device and what the shards hold of it; `None` when all is free.
fn next_in_kernel(held: &Held, tries: &Tries, order: TeardownOrder) -> Option<Next> {
    let is_releasable = held.queues && !tries.release_failed;
    if held.disk {
        return Some(climb(tries.stop, StopStep::Stop, is_releasable));
    }
    match held.kernel {
        KernelHold::Nothing => is_releasable.then_some(Next::Step(StopStep::Release)),
        KernelHold::Unknown if tries.find_failed => Some(Next::Quarantine(StopStep::Find)),
        KernelHold::Unknown => Some(Next::Step(StopStep::Find)),
        KernelHold::Added(_) if is_releasable && order == TeardownOrder::CloseThenDelete => {
            Some(Next::Step(StopStep::Release))
        }
        KernelHold::Added(_) => Some(climb(tries.delete, StopStep::Delete, is_releasable)),
        KernelHold::Deleting(_) if is_releasable => Some(Next::Step(StopStep::Release)),
        KernelHold::Deleting(_) if tries.gone_failed => Some(Next::Quarantine(StopStep::AwaitGone)),
        KernelHold::Deleting(_) => Some(Next::Step(StopStep::AwaitGone)),
    }
}

/// Try; when that fails close the char device and try once more; then give up.
fn climb(ladder: Ladder, step: StopStep, is_releasable: bool) -> Next {
    match ladder.failures {
        0 => Next::Step(step),
        1 if ladder.lifted => Next::Step(step),
        1 if is_releasable => Next::Step(StopStep::Release),
        _ => Next::Quarantine(step),
    }
}
