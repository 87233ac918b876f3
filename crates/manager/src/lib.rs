//! Device life cycle, journal and reconciliation as a pure core: events in, effects out.
//!
//! ```text
//!    requests, answers, ticks              effects: steps, journal writes, replies
//!   driver ------------------> Manager ------------------------------------> driver
//!           handle_event(now)            poll_effect / poll_deadline
//! ```
//!
//! Invariants: no I/O, no clock, no unsafe code, no await. Device state changes only inside
//! [`Manager::handle_event`]. A step that the kernel can see while a device is made is issued only after its journal
//! record was acknowledged. Every request is answered exactly once.
//!
//! Start with [`Manager`]; the state diagram is in the header of `lifecycle.rs`.
#![forbid(unsafe_code)]

mod campaign;
mod creating;
mod denied;
mod device;
mod effect;
mod endings;
mod event;
mod fault;
mod held;
mod intake;
mod ledger;
mod lifecycle;
mod manager;
mod name;
mod overview;
mod reconcile;
mod record;
mod request;
mod settings;
mod size;
mod spec;
mod stamp;
mod state;
mod step;
mod strays;
mod teardown;
mod ticket;
mod timers;
mod turns;
mod view;

pub use campaign::Report;
pub use denied::{Denied, NotStray};
pub use effect::{Answer, Change, Command, Effect, Refusal, StepOrder};
pub use event::{Event, Output};
pub use fault::{Failure, Fate, Fault, FaultKind, KernelTrace, StepFailure};
pub use manager::{Inventory, Manager};
pub use name::{DeviceName, NAME_CHARS_MAX, NameError};
pub use reconcile::{Finding, KernelDevice, KernelState, ReportReason, StrayReason, reconcile};
pub use record::{DeviceRecord, RECORD_VERSION, Record, RecordError, RecordState, StoredRecord};
pub use request::{
    CreateParams, CreateRequest, DEPTH_DEFAULT, DEPTH_MAX, Difference, QUEUES_DEFAULT, QUEUES_MAX,
    RequestError,
};
pub use settings::{Deadlines, Settings, TeardownOrder};
pub use size::{SIZE_BYTES_MAX, SizeError, parse_size};
pub use spec::{KNOWN_SPECS, Spec, SpecError};
pub use stamp::{Instance, STAMP_FIELD_MAX, Serial, Stamp, StampFieldError};
pub use step::{CreateStep, Step, StopStep};
pub use ticket::{DeviceKey, ReplyId, Ticket};
pub use view::{DeviceCounts, DeviceView, Phase, Progress, ProgressEntry, StatusView};
