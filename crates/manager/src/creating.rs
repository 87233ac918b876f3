//! The way in: one step after the other; any failure turns round and gives up exactly what is held.
//!
//! A step of the way in that exceeds its time without an answer may still succeed in the kernel. Nothing that
//! conflicts with it may be tried meanwhile (a stop must not overlap a start or a fetch), so the device is quarantined,
//! the request is answered, and the answer, when it comes, says what there is to take down.

use crate::event::Output;
use crate::fault::{Fault, FaultKind, KernelTrace, StepFailure};
use crate::held::{Held, KernelHold, RecordMark, Traffic};
use crate::state::{Action, Awaited, Creating, Ended, Quarantined, Rules, State};
use crate::step::{CreateStep, Step};
use crate::teardown;

/// Begins the way in.
pub(crate) fn begin(held: Held) -> (State, Vec<Action>) {
    enter(held, CreateStep::Open)
}

/// The step that runs has ended.
pub(crate) fn on_answer(
    creating: Creating,
    result: Result<Output, Fault>,
    rules: &Rules,
) -> (State, Vec<Action>) {
    let Creating {
        step,
        mut held,
        cancelled,
    } = creating;
    let failure = match apply_answer(&mut held, step, result) {
        Err(fault) => Some(fault),
        Ok(()) => cancelled,
    };
    if let Some(fault) = failure {
        let cause = failure_of(step, fault, rules);
        return teardown::begin(held, Some(cause), rules);
    }
    match following(step) {
        Some(step) => enter(held, step),
        None => (State::Live(held), vec![Action::Born]),
    }
}

/// The step that runs has exceeded its time.
pub(crate) fn on_overdue(creating: Creating, rules: &Rules) -> (State, Vec<Action>) {
    let Creating { step, mut held, .. } = creating;
    let cause = failure_of(step, teardown::overdue(step.into()), rules);
    match step {
        CreateStep::RecordCreating | CreateStep::RecordAdded | CreateStep::RecordLive => {
            // The write may still become durable; journal writes keep their order, so removing the record works.
            held.record = RecordMark::Written;
            teardown::begin(held, Some(cause), rules)
        }
        CreateStep::Open
        | CreateStep::Add
        | CreateStep::Attach
        | CreateStep::Start
        | CreateStep::Publish => {
            let quarantined = Quarantined {
                step: step.into(),
                awaited: Awaited::Answer,
                held,
                ended: Ended {
                    cause: Some(cause),
                    failures: Vec::new(),
                },
            };
            (State::Quarantined(quarantined), vec![Action::Ended])
        }
    }
}

/// Notes in `held` what the step has brought, or what it may have left when it failed.
///
/// # Errors
/// The step's fault, or that its output is another step's.
pub(crate) fn apply_answer(
    held: &mut Held,
    step: CreateStep,
    result: Result<Output, Fault>,
) -> Result<(), Fault> {
    let result = result.and_then(|output| apply_done(held, step, output));
    if let Err(fault) = &result {
        apply_failed(held, step, fault);
    }
    result
}

fn apply_done(held: &mut Held, step: CreateStep, output: Output) -> Result<(), Fault> {
    match (step, output) {
        (CreateStep::Open, Output::Opened { geometry }) => {
            held.files = true;
            held.geometry = Some(geometry);
        }
        (CreateStep::Add, Output::Added { id }) => held.kernel = KernelHold::Added(id),
        (CreateStep::RecordCreating | CreateStep::RecordAdded, Output::Done) => {
            held.record = RecordMark::Written;
        }
        (CreateStep::Attach, Output::Done) => {
            held.queues = true;
            held.disk = true;
        }
        (CreateStep::Start, Output::Done) => held.traffic = Traffic::Drain,
        (CreateStep::Publish, Output::Done) => held.link = true,
        (CreateStep::RecordLive, Output::Done) => held.record = RecordMark::Live,
        (
            step,
            Output::Done | Output::Opened { .. } | Output::Added { .. } | Output::Found { .. },
        ) => return Err(teardown::wrong_output(step.into())),
    }
    Ok(())
}

fn apply_failed(held: &mut Held, step: CreateStep, fault: &Fault) {
    match step {
        CreateStep::Open => held.files = fault.kind == FaultKind::Internal,
        // A transaction that failed has changed nothing.
        CreateStep::RecordCreating | CreateStep::RecordAdded | CreateStep::RecordLive => {}
        CreateStep::Add => {
            held.kernel = match fault.trace {
                KernelTrace::Nothing => KernelHold::Nothing,
                KernelTrace::Device(id) => KernelHold::Added(id),
                KernelTrace::Unknown => KernelHold::Unknown,
            };
        }
        // Some queues may be attached, and stopping is what takes their fetched tags back.
        CreateStep::Attach => {
            held.queues = true;
            held.disk = true;
        }
        // The partition scan may be what hangs: it ends when its I/O is answered.
        CreateStep::Start => held.traffic = Traffic::Abandon,
        CreateStep::Publish => held.link = true,
    }
}

const fn following(step: CreateStep) -> Option<CreateStep> {
    match step {
        CreateStep::Open => Some(CreateStep::RecordCreating),
        CreateStep::RecordCreating => Some(CreateStep::Add),
        CreateStep::Add => Some(CreateStep::RecordAdded),
        CreateStep::RecordAdded => Some(CreateStep::Attach),
        CreateStep::Attach => Some(CreateStep::Start),
        CreateStep::Start => Some(CreateStep::Publish),
        CreateStep::Publish => Some(CreateStep::RecordLive),
        CreateStep::RecordLive => None,
    }
}

fn enter(held: Held, step: CreateStep) -> (State, Vec<Action>) {
    let state = State::Creating(Creating {
        step,
        held,
        cancelled: None,
    });
    (state, vec![Action::Issue(Step::Create(step))])
}

fn failure_of(step: CreateStep, fault: Fault, rules: &Rules) -> StepFailure {
    StepFailure {
        step: step.into(),
        elapsed: rules.elapsed,
        fault,
    }
}
