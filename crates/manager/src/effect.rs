//! What the manager wants done.

use std::sync::Arc;
use std::time::Instant;

use block::{DeviceId, Geometry};

use crate::campaign::Report;
use crate::denied::Denied;
use crate::fault::Failure;
use crate::name::DeviceName;
use crate::request::CreateRequest;
use crate::stamp::Stamp;
use crate::step::Step;
use crate::ticket::{ReplyId, Ticket};
use crate::view::DeviceView;

/// One thing to do. Effects may run in any order and in parallel, except journal writes: those keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run a step; answer with [`crate::Event::Stepped`] or [`crate::Event::Panicked`].
    Step(Box<StepOrder>),
    /// Make changes of the journal durable, all or none, after those of every earlier effect; answer with
    /// [`crate::Event::Journaled`]. Several effects may share one transaction.
    Journal {
        /// What to answer with.
        ticket: Ticket,
        /// The changes, in order.
        changes: Vec<Change>,
    },
    /// Answer a request.
    Reply {
        /// Which.
        id: ReplyId,
        /// The answer.
        result: Result<Answer, Refusal>,
    },
    /// Every device has ended; the process may end. Comes once, after every reply to requests about devices.
    ShutdownDone {
        /// How it went.
        report: Report,
    },
}

/// A step to run. Until it is answered no other step of the device is issued, except after its deadline, and except
/// that a hurried drain is followed by an abandon at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOrder {
    /// What to answer with.
    pub ticket: Ticket,
    /// The device, for logs and messages.
    pub name: DeviceName,
    /// The step, for logs and messages.
    pub step: Step,
    /// When to give up: take back the kernel command and answer [`crate::FaultKind::DeadlineExceeded`], or
    /// [`crate::FaultKind::Stuck`] if it cannot be taken back.
    pub deadline: Instant,
    /// What to do.
    pub command: Command,
}

/// What a step does. The driver keeps handles under the ticket's device key.
///
/// Every command on the way out succeeds when there is nothing (left) to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Open and lock the backing. Answer [`crate::Output::Opened`]. A failure leaves nothing open.
    Open {
        /// The device.
        request: Arc<CreateRequest>,
    },
    /// `ADD_DEV` with any free id, `SET_PARAMS`. Answer [`crate::Output::Added`]; a fault says what is left.
    Add {
        /// What the kernel device must carry.
        stamp: Stamp,
        /// The device.
        request: Arc<CreateRequest>,
        /// Its properties.
        geometry: Geometry,
    },
    /// Open the char device, map the queues, fetch every tag. After a failure parts may be attached.
    Attach {
        /// The kernel's number.
        id: DeviceId,
        /// The device.
        request: Arc<CreateRequest>,
        /// Its properties.
        geometry: Geometry,
    },
    /// `START_DEV`.
    Start {
        /// The kernel's number.
        id: DeviceId,
    },
    /// Make the link.
    Publish {
        /// The kernel's number.
        id: DeviceId,
    },
    /// Remove the link of the order's name, if there is one.
    Unpublish,
    /// Look for a kernel device with the stamp. Answer [`crate::Output::Found`].
    Find {
        /// What it carries.
        stamp: Stamp,
    },
    /// Wait until nothing is in flight.
    Drain,
    /// Answer with EIO what is in flight and what still comes.
    Abandon,
    /// `STOP_DEV`.
    Stop {
        /// The kernel's number.
        id: DeviceId,
    },
    /// Have the shards give up queues, maps and char device.
    Release,
    /// Delete without waiting for the id, where the kernel can.
    Delete {
        /// The kernel's number.
        id: DeviceId,
    },
    /// Wait until the kernel has no device of this number and stamp.
    AwaitGone {
        /// The kernel's number.
        id: DeviceId,
        /// What it carries: another device may get the number.
        stamp: Stamp,
    },
    /// Close and unlock the backing.
    Close,
}

/// One change of the journal, a map from keys to values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Set the value of a key.
    Put {
        /// The key.
        key: String,
        /// The value: JSON.
        value: Vec<u8>,
    },
    /// Remove a key; it need not exist.
    Delete {
        /// The key.
        key: String,
    },
}

/// A request that was fulfilled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The device is live because of this request.
    Created(Box<DeviceView>),
    /// The device was live, or became live because of an earlier request.
    Existing(Box<DeviceView>),
    /// The device is gone.
    Removed {
        /// Its name.
        name: DeviceName,
    },
    /// Every device has ended; the report says how.
    RemovedAll(Report),
}

/// A request that was not fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Refused at once; nothing was done.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Tried, and something failed.
    #[error(transparent)]
    Failed(Box<Failure>),
}
