//! The states of a device, with what each knows; `lifecycle.rs` has the diagram.

use std::time::Duration;

use crate::event::Output;
use crate::fault::{Fault, StepFailure};
use crate::held::Held;
use crate::settings::TeardownOrder;
use crate::step::{CreateStep, Step, StopStep};

/// Where a device is in its life.
#[derive(Debug)]
pub(crate) enum State {
    /// On its way in.
    Creating(Creating),
    /// Serving.
    Live(Held),
    /// On its way out.
    Stopping(Stopping),
    /// Could not be taken down; waits for a new try or for the answer that is missing.
    Quarantined(Quarantined),
    /// Nothing is left.
    Gone(Ended),
}

/// On the way in: the step that runs.
#[derive(Debug)]
pub(crate) struct Creating {
    pub(crate) step: CreateStep,
    pub(crate) held: Held,
    /// Why nobody wants the device any more. The running step ends first.
    pub(crate) cancelled: Option<Fault>,
}

/// Whether a device that is on its way out holds one of the limited turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnMark {
    /// Not yet.
    Wanted,
    /// Yes.
    Held,
    /// Not any more.
    Returned,
}

/// How often a command of the way out has failed, and whether closing the char device has changed its odds since.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ladder {
    pub(crate) failures: u8,
    pub(crate) lifted: bool,
}

/// What has failed so far on the way out; it decides what is tried next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tries {
    pub(crate) stop: Ladder,
    pub(crate) delete: Ladder,
    pub(crate) find_failed: bool,
    pub(crate) release_failed: bool,
    pub(crate) gone_failed: bool,
}

/// On the way out: the step that runs.
#[derive(Debug)]
pub(crate) struct Stopping {
    pub(crate) step: StopStep,
    pub(crate) turn: TurnMark,
    pub(crate) held: Held,
    pub(crate) tries: Tries,
    /// Why a create is being unwound.
    pub(crate) cause: Option<StepFailure>,
    /// What has failed on the way out.
    pub(crate) failures: Vec<StepFailure>,
}

/// Whether the step that failed may still answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// It has answered.
    Nothing,
    /// It has not; its answer, when it comes, says what is held.
    Answer,
}

/// Could not be taken down.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pub(crate) step: Step,
    pub(crate) awaited: Awaited,
    pub(crate) held: Held,
    pub(crate) ended: Ended,
}

/// How the way in and the way out went.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) cause: Option<StepFailure>,
    pub(crate) failures: Vec<StepFailure>,
}

/// What can happen to a device.
#[derive(Debug)]
pub(crate) enum Input {
    /// The step that runs has ended.
    Answer(Result<Output, Fault>),
    /// The step that runs has exceeded its time.
    Overdue,
    /// Nobody wants the device any more; the fault is what those are told who wait for it.
    Remove(Fault),
    /// I/O in flight is not waited for any more.
    Hurry,
    /// The turn that the device waits for has come.
    Turn,
}

/// What a transition wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Issue the step that the device is now in.
    Issue(Step),
    /// Another device may have the turn.
    LeaveTurn,
    /// The device is live: answer those who wait for it.
    Born,
    /// The device is gone or quarantined: answer everyone.
    Ended,
}

/// What a transition depends on beside state and input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) order: TeardownOrder,
    pub(crate) patience: Patience,
    /// How long the step that runs has been running.
    pub(crate) elapsed: Duration,
}

/// Whether I/O in flight is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Up to the deadline.
    Wait,
    /// Not at all.
    Hurry,
}

impl State {
    /// The step that the device is in, or that has failed for good; `None` when live or gone.
    pub(crate) const fn step(&self) -> Option<Step> {
        match self {
            Self::Creating(creating) => Some(Step::Create(creating.step)),
            Self::Stopping(stopping) => Some(Step::Stop(stopping.step)),
            Self::Quarantined(quarantined) => Some(quarantined.step),
            Self::Live(_) | Self::Gone(_) => None,
        }
    }

    /// What the device holds; `None` when it is gone.
    pub(crate) const fn held(&self) -> Option<&Held> {
        match self {
            Self::Creating(creating) => Some(&creating.held),
            Self::Live(held) => Some(held),
            Self::Stopping(stopping) => Some(&stopping.held),
            Self::Quarantined(quarantined) => Some(&quarantined.held),
            Self::Gone(_) => None,
        }
    }
}
