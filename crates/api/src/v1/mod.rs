//! The wire types of version 1: what is sent and received as JSON, with units in the names.
//!
//! Requests refuse unknown fields, so that a misspelt option is never ignored. Answers may gain fields in later
//! releases: clients ignore what they do not know. Nothing is renamed or removed within version 1.

mod code;
mod device;
mod problem;
mod size;
mod status;

pub use code::Code;
pub use device::{
    Device, DeviceList, DeviceRequest, DeviceState, DeviceStats, FailedRemoval, Failure, Removal,
    RemovalReport,
};
pub use problem::{PROBLEM_JSON, Problem};
pub use size::{ByteSize, SizeError};
pub use status::{
    DeviceCounts, Finding, Kernel, Limit, Shard, Status, StepInProgress, StopProgress,
    TeardownOrder, Usage,
};
