//! The Linux ublk driver as user space sees it: structures, commands, parameters, the tag protocol, enumeration.
//!
//! ```text
//!   pure   abi        kernel structures and numbers, in kernel spelling
//!          features   the feature mask        kernel   release numbers, the floor
//!          quirks     what this kernel gets wrong, and the order of teardown
//!          stamp      whose device it is      params   SET_PARAMS / GET_PARAMS
//!          command    one control command and its reply
//!          request    a descriptor becomes a `block::Request`
//!          io_command what travels in a FETCH or a COMMIT
//!          tag        the protocol of one queue's tags
//! ```
//!
//! Invariants: no I/O and no clock; no module knows a format or a policy.
#![deny(unsafe_code)]

pub mod abi;
mod command;
mod command_kind;
mod device;
mod diagnosis;
mod errno;
mod error;
mod features;
mod io_command;
mod kernel;
mod params;
mod quirks;
mod reply;
mod request;
mod stamp;
pub mod tag;

pub use command::{Command, NewDevice};
pub use command_kind::CommandKind;
pub use device::{DeviceInfo, DeviceState};
pub use diagnosis::ErrorKind;
pub use errno::Errno;
pub use error::Error;
pub use features::Features;
pub use io_command::{IoCommand, commit_result};
pub use kernel::{KernelRelease, ReleaseError};
pub use params::{DeviceNumbers, DeviceParams, DiscardLimits, ParamsError, TransferLimits};
pub use quirks::{Quirk, Quirks, TeardownOrder};
pub use reply::{CpuSet, Reply};
pub use request::{IoDescriptor, IoFlags};
pub use stamp::OwnerStamp;
