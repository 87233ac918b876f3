//! The only unsafe code of the crate: submissions to the control ring, and the mapping of descriptors.

mod command_ring;
mod mapping;

pub(crate) use command_ring::{CommandRing, RingEvent, Token};
pub use mapping::DescriptorMap;
