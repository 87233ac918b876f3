//! Boots real kernels with ublk under QEMU's software emulation and runs commands and tests inside.
//!
//! The guest's root is this machine's own file system, read-only under a tmpfs overlay, so whatever is installed or
//! built here runs there at the same path. Nothing has to be prepared by hand: [`host::ensure_packages`] installs what
//! is missing, [`kernel::ensure`] fetches the kernels and keeps them in a cache.
//!
//! Non-goals: architectures other than x86-64, hosts other than Debian 12 and 13.
#![forbid(unsafe_code)]

mod apt;
mod archive;
mod cache;
mod child;
mod clock;
mod error;
mod guest;
pub mod host;
mod initramfs;
mod job;
pub mod kernel;
mod kernel_log;
mod mirror;
mod modules;
mod program;
mod qemu;
mod script;
mod series;
mod virtiofs;
mod vm;

pub use child::{Child, Waited};
pub use clock::Deadline;
pub use error::{Error, ErrorKind};
pub use guest::{GUEST_VARIABLE, KERNELS_VARIABLE, VM_VARIABLE, in_guest, is_guest, skip};
pub use job::{DeviceManager, Disk, GuestClock, GuestJob};
pub use kernel_log::{Complaint, KernelLog};
pub use program::find_program;
pub use script::quote;
pub use series::{KernelSeries, Place};
pub use vm::{Outcome, Vm, run};
