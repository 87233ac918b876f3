//! The vocabulary every other crate speaks: units, ids, requests, plans and the [`Target`] trait.
//!
//! Invariants: no I/O, no clock, no unsafe code, no knowledge of rings, kernels or formats.
#![forbid(unsafe_code)]

mod extent;
mod geometry;
pub mod holes;
mod ids;
mod null;
mod plan;
mod raw;
mod request;
mod status;
mod target;
mod units;

pub use extent::Extent;
pub use geometry::{Geometry, Zeroing};
pub use ids::{DeviceId, FileIndex, QueueId, Tag};
pub use null::NullTarget;
pub use plan::{
    DataRange, Durability, HANDOVER_BYTES_MAX, Handover, Plan, PlanFull, STEPS_MAX, Step,
};
pub use raw::{RawFeatures, RawTarget};
pub use request::{Access, Op, Request};
pub use status::Status;
pub use target::{RequestData, Target, Verdict};
pub use units::{ByteLen, ByteOffset, SECTOR_BYTES, SECTOR_SHIFT, Sectors};
