//! Handles that pair an answer with what it answers.

use std::fmt;

/// A device inside one run of the manager. Never used twice in a run, also when a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey(pub u64);

/// One step of one device. The answer carries it back; an answer to an older attempt is late and moves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// Which device.
    pub device: DeviceKey,
    /// Which step of it, counted from 1.
    pub attempt: u32,
}

/// A request that waits for its reply; chosen by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyId(pub u64);

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
