//! What the driver tells the manager.

use block::{DeviceId, Geometry};

use crate::fault::Fault;
use crate::name::DeviceName;
use crate::reconcile::KernelDevice;
use crate::request::CreateRequest;
use crate::ticket::{ReplyId, Ticket};

/// What a step that succeeded has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing but success: every step that is not named below.
    Done,
    /// Of [`crate::Command::Open`].
    Opened {
        /// The properties of the device, as the backing decides them.
        geometry: Geometry,
    },
    /// Of [`crate::Command::Add`].
    Added {
        /// The kernel's number.
        id: DeviceId,
    },
    /// Of [`crate::Command::Find`].
    Found {
        /// The device that carries the stamp, if there is one.
        id: Option<DeviceId>,
    },
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Someone wants a device.
    Create {
        /// Where the reply goes.
        reply: ReplyId,
        /// The device.
        request: CreateRequest,
    },
    /// Someone wants a device gone.
    Remove {
        /// Where the reply goes.
        reply: ReplyId,
        /// The device.
        name: DeviceName,
    },
    /// Someone wants a ublk device of another installation gone.
    RemoveStray {
        /// Where the reply goes.
        reply: ReplyId,
        /// The device as the kernel lists it now.
        found: KernelDevice,
    },
    /// Someone wants every device gone that exists now.
    RemoveAll {
        /// Where the reply goes.
        reply: ReplyId,
    },
    /// The process is to end: no more creates, every device goes. Saying it again changes nothing.
    Shutdown,
    /// No more waiting for I/O in flight. Begins the shutdown if there is none.
    Hurry,
    /// A step has ended.
    Stepped {
        /// Which.
        ticket: Ticket,
        /// How.
        result: Result<Output, Fault>,
    },
    /// The task that ran a step panicked.
    Panicked {
        /// Which step.
        ticket: Ticket,
        /// What the panic said.
        message: String,
    },
    /// A journal write is durable, or has failed and changed nothing.
    Journaled {
        /// Which.
        ticket: Ticket,
        /// How.
        result: Result<(), Fault>,
    },
    /// The time of [`crate::Manager::poll_deadline`] has come, or any other time.
    Tick,
}
