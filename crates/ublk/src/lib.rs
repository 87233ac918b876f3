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
//!   I/O    control    the ring on /dev/ublk-control, a thread of its own
//!          char_device  /dev/ublkcN: descriptors and user copy
//!          enumerate, probe
//!   unsafe sys        the ring's submissions and the mapping; nowhere else
//! ```
//!
//! Invariants: control and data never share a ring; every control submission is forced to a worker thread; a payload
//! belongs to its command until the completion; no module knows a format or a policy.
#![deny(unsafe_code)]

pub mod abi;
mod char_device;
mod command;
mod command_kind;
mod control;
mod device;
mod diagnosis;
mod enumerate;
mod errno;
mod error;
mod features;
mod io_command;
mod kernel;
mod params;
mod probe;
mod quirks;
mod reply;
mod request;
mod stamp;
mod sys;
pub mod tag;

pub use char_device::{CharDevice, block_node, char_node, user_copy_position};
pub use command::{Command, NewDevice};
pub use command_kind::CommandKind;
pub use control::{CONTROL_NODE, ControlLimits, ControlRing, Done, STUCK_MAX};
pub use device::{DeviceInfo, DeviceState};
pub use diagnosis::ErrorKind;
pub use enumerate::{SYSFS_CLASS, Surveyed, list_devices, survey_devices};
pub use errno::Errno;
pub use error::Error;
pub use features::Features;
pub use io_command::{IoCommand, Registration, commit_result};
pub use kernel::{KernelRelease, ReleaseError};
pub use params::{DeviceNumbers, DeviceParams, DiscardLimits, ParamsError, TransferLimits};
pub use probe::{Probe, check_kernel, probe};
pub use quirks::{Quirk, Quirks, TeardownOrder};
pub use reply::{CpuSet, Reply};
pub use request::{IoDescriptor, IoFlags};
pub use stamp::OwnerStamp;
pub use sys::DescriptorMap;
