//! One device with those who wait for it: what the state machine does not need to know.

use std::sync::Arc;
use std::time::Instant;

use crate::effect::Command;
use crate::event::Output;
use crate::fault::{Failure, Fate, Fault, FaultKind, StepFailure};
use crate::held::KernelHold;
use crate::name::DeviceName;
use crate::record::RecordState;
use crate::request::CreateRequest;
use crate::stamp::Stamp;
use crate::state::{Action, Ended, Input, Rules, State};
use crate::step::{CreateStep, Step, StopStep};
use crate::ticket::{DeviceKey, ReplyId, Ticket};
use crate::view::{DeviceView, Phase};

/// A request that waits for the device to be live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creator {
    /// The one that made it.
    First(ReplyId),
    /// One that asked for the same while it was being made.
    Joined(ReplyId),
}

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) key: DeviceKey,
    pub(crate) name: DeviceName,
    pub(crate) stamp: Stamp,
    pub(crate) request: Option<Arc<CreateRequest>>,
    pub(crate) state: State,
    pub(crate) since: Instant,
    pub(crate) creators: Vec<Creator>,
    pub(crate) removers: Vec<ReplyId>,
    attempt: u32,
    /// Whether the current attempt has not been answered.
    is_pending: bool,
}

impl Device {
    pub(crate) const fn new(
        key: DeviceKey,
        name: DeviceName,
        stamp: Stamp,
        state: State,
        now: Instant,
    ) -> Self {
        Self {
            key,
            name,
            stamp,
            request: None,
            state,
            since: now,
            creators: Vec::new(),
            removers: Vec::new(),
            attempt: 0,
            is_pending: false,
        }
    }

    /// Moves the state machine.
    pub(crate) fn transition(&mut self, input: Input, rules: &Rules) -> Vec<Action> {
        let state = std::mem::replace(&mut self.state, State::Gone(Ended::default()));
        let (state, actions) = state.transition(input, rules);
        self.state = state;
        actions
    }

    /// A step is issued: the ticket that its answer must carry.
    pub(crate) fn on_issued(&mut self, now: Instant) -> Ticket {
        self.attempt += 1;
        self.is_pending = true;
        self.since = now;
        Ticket {
            device: self.key,
            attempt: self.attempt,
        }
    }

    /// A step without an answer of its own is entered: an answer to an earlier one is late from now on.
    pub(crate) const fn on_entered(&mut self, now: Instant) {
        self.is_pending = false;
        self.since = now;
    }

    /// Whether the answer is the one that is waited for; each is taken once.
    pub(crate) const fn try_accept(&mut self, ticket: Ticket) -> bool {
        let is_current = self.is_pending && ticket.attempt == self.attempt;
        if is_current {
            self.is_pending = false;
        }
        is_current
    }

    /// How many requests wait for it.
    pub(crate) fn waiters(&self) -> usize {
        self.creators.len() + self.removers.len()
    }

    /// What to journal in this step; `None` removes the record.
    ///
    /// # Errors
    /// The step needs what the device does not have, which is a bug.
    pub(crate) fn record_state(&self, step: Step) -> Result<Option<RecordState>, Fault> {
        let id = self.kernel().id();
        match (step, id) {
            (Step::Create(CreateStep::RecordCreating), _) => Ok(Some(RecordState::Creating)),
            (Step::Create(CreateStep::RecordAdded), Some(id)) => {
                Ok(Some(RecordState::Added { id }))
            }
            (Step::Create(CreateStep::RecordLive), Some(id)) => Ok(Some(RecordState::Live { id })),
            (Step::Stop(StopStep::RecordStopping), id) => Ok(Some(RecordState::Stopping { id })),
            (Step::Stop(StopStep::RecordRemoved), _) => Ok(None),
            (step, _) => Err(impossible(step)),
        }
    }

    /// What to do in this step.
    ///
    /// # Errors
    /// The step needs what the device does not have, which is a bug.
    pub(crate) fn command(&self, step: Step) -> Result<Command, Fault> {
        let missing = || impossible(step);
        let id = || self.kernel().id().ok_or_else(missing);
        let request = || self.request.clone().ok_or_else(missing);
        let geometry = || {
            let held = self.state.held().ok_or_else(missing)?;
            held.geometry.ok_or_else(missing)
        };
        let stamp = self.stamp;
        let command = match step {
            Step::Create(step) => match step {
                CreateStep::Open => Command::Open {
                    request: request()?,
                },
                CreateStep::Add => Command::Add {
                    stamp,
                    request: request()?,
                    geometry: geometry()?,
                },
                CreateStep::Attach => Command::Attach {
                    id: id()?,
                    request: request()?,
                    geometry: geometry()?,
                },
                CreateStep::Start => Command::Start { id: id()? },
                CreateStep::Publish => Command::Publish { id: id()? },
                CreateStep::RecordCreating | CreateStep::RecordAdded | CreateStep::RecordLive => {
                    return Err(missing());
                }
            },
            Step::Stop(step) => match step {
                StopStep::Unpublish => Command::Unpublish,
                StopStep::Find => Command::Find { stamp },
                StopStep::Drain => Command::Drain,
                StopStep::Abandon => Command::Abandon,
                StopStep::Stop => Command::Stop { id: id()? },
                StopStep::Release => Command::Release,
                StopStep::Delete => Command::Delete { id: id()? },
                StopStep::AwaitGone => Command::AwaitGone { id: id()?, stamp },
                StopStep::Close => Command::Close,
                StopStep::Turn | StopStep::RecordStopping | StopStep::RecordRemoved => {
                    return Err(missing());
                }
            },
        };
        Ok(command)
    }

    /// How the device can be seen.
    pub(crate) fn view(&self) -> DeviceView {
        let held = self.state.held();
        DeviceView {
            key: self.key,
            name: self.name.clone(),
            serial: self.stamp.serial,
            request: self.request.clone(),
            geometry: held.and_then(|held| held.geometry),
            id: self.kernel().id(),
            phase: self.phase(),
            step: self.state.step(),
            since: self.since,
            failures: self.failures().cloned().collect(),
        }
    }

    /// The coarse state.
    pub(crate) const fn phase(&self) -> Phase {
        match &self.state {
            State::Creating(_) => Phase::Creating,
            State::Live(_) => Phase::Live,
            State::Stopping(_) | State::Gone(_) => Phase::Stopping,
            State::Quarantined(_) => Phase::Quarantined,
        }
    }

    /// What those are told who wanted the device, when it has ended.
    pub(crate) fn failed_create(&self, fate: Fate) -> Failure {
        let first = self.failures().next().cloned();
        self.failure(fate, first, self.failures().skip(1))
    }

    /// What those are told who wanted the device gone, when it has ended.
    ///
    /// # Errors
    /// Something failed on the way out, or something is left.
    pub(crate) fn removed(&self, fate: Fate) -> Result<DeviceName, Failure> {
        let (cause, failures) = self.history();
        match (fate, failures.first()) {
            (Fate::Gone, None) => Ok(self.name.clone()),
            (_, Some(first)) => {
                Err(self.failure(fate, Some(first.clone()), failures.iter().skip(1)))
            }
            (Fate::Quarantined, None) => Err(self.failure(fate, cause.cloned(), failures.iter())),
        }
    }

    fn failure<'a>(
        &self,
        fate: Fate,
        first: Option<StepFailure>,
        others: impl Iterator<Item = &'a StepFailure>,
    ) -> Failure {
        let unknown = || StepFailure {
            step: self.state.step().unwrap_or(Step::Stop(StopStep::Turn)),
            elapsed: std::time::Duration::ZERO,
            fault: Fault::new(FaultKind::Internal, "ended without a reason; this is a bug"),
        };
        Failure {
            name: self.name.clone(),
            fate,
            first: first.unwrap_or_else(unknown),
            others: others.cloned().collect(),
        }
    }

    fn failures(&self) -> impl Iterator<Item = &StepFailure> {
        let (cause, failures) = self.history();
        cause.into_iter().chain(failures)
    }

    fn history(&self) -> (Option<&StepFailure>, &[StepFailure]) {
        match &self.state {
            State::Creating(_) | State::Live(_) => (None, &[]),
            State::Stopping(stopping) => (stopping.cause.as_ref(), &stopping.failures),
            State::Quarantined(quarantined) => {
                let ended = &quarantined.ended;
                (ended.cause.as_ref(), &ended.failures)
            }
            State::Gone(ended) => (ended.cause.as_ref(), &ended.failures),
        }
    }

    fn kernel(&self) -> KernelHold {
        self.state
            .held()
            .map_or(KernelHold::Nothing, |held| held.kernel)
    }
}

/// Whether the step writes the journal.
pub(crate) const fn is_record(step: Step) -> bool {
    matches!(
        step,
        Step::Create(CreateStep::RecordCreating | CreateStep::RecordAdded | CreateStep::RecordLive)
            | Step::Stop(StopStep::RecordStopping | StopStep::RecordRemoved)
    )
}

/// The answer of a journal write as that of a step.
pub(crate) fn output_of_write(result: Result<(), Fault>) -> Result<Output, Fault> {
    result.map(|()| Output::Done)
}

fn impossible(step: Step) -> Fault {
    Fault::new(
        FaultKind::Internal,
        format!("step {step} lacks what it works on; this is a bug"),
    )
}
