//! The owner stamp: which installation made a kernel device, and which of its devices it is.
//!
//! The stamp travels in the kernel device itself, so it names the device even when the journal is lost. A serial is
//! used for one device only, until 2^24 devices later, and never while anything still carries it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest instance and serial: the stamp has 24 bits for each.
pub const STAMP_FIELD_MAX: u32 = (1 << 24) - 1;

/// An installation (a state directory), 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(u32);

/// A device of one installation, 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Serial(u32);

/// What a kernel device of ours carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Which installation made it.
    pub instance: Instance,
    /// Which device it is there.
    pub serial: Serial,
}

/// A number does not fit the 24 bits of a stamp's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not fit the 24 bits of a stamp")]
pub struct StampFieldError(u32);

impl Instance {
    /// The instance with this number, or `None` beyond [`STAMP_FIELD_MAX`].
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= STAMP_FIELD_MAX {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl Serial {
    /// The serial before the first one.
    pub(crate) const LAST: Self = Self(STAMP_FIELD_MAX);

    /// The serial with this number, or `None` beyond [`STAMP_FIELD_MAX`].
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= STAMP_FIELD_MAX {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The serial after this one; the first one after the last.
    pub(crate) const fn following(self) -> Self {
        Self((self.0 + 1) & STAMP_FIELD_MAX)
    }
}

impl TryFrom<u32> for Serial {
    type Error = StampFieldError;

    fn try_from(number: u32) -> Result<Self, StampFieldError> {
        Self::new(number).ok_or(StampFieldError(number))
    }
}

impl From<Serial> for u32 {
    fn from(serial: Serial) -> Self {
        serial.0
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.instance, self.serial)
    }
}

/// Hands out serials. `next` is journaled with every device that takes one.
#[derive(Debug)]
pub(crate) struct SerialSource {
    next: Serial,
    taken: BTreeSet<Serial>,
}

impl SerialSource {
    /// Continues at `next`; `taken` are carried by something that exists.
    pub(crate) const fn new(next: Serial, taken: BTreeSet<Serial>) -> Self {
        Self { next, taken }
    }

    /// The serial to begin with after a restart.
    pub(crate) const fn next(&self) -> Serial {
        self.next
    }

    /// A serial nothing carries, or `None` when all 2^24 are taken. Costs one probe per taken serial at worst.
    pub(crate) fn try_take(&mut self) -> Option<Serial> {
        for _ in 0..=self.taken.len() {
            let serial = self.next;
            if self.taken.len() > STAMP_FIELD_MAX as usize {
                return None;
            }
            self.next = serial.following();
            if self.taken.insert(serial) {
                return Some(serial);
            }
        }
        None
    }

    /// Nothing carries the serial any more.
    pub(crate) fn on_gone(&mut self, serial: Serial) {
        self.taken.remove(&serial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_24_bits_are_refused() {
        assert!(Serial::new(STAMP_FIELD_MAX).is_some());
        assert_eq!(Serial::new(STAMP_FIELD_MAX + 1), None);
        assert_eq!(Instance::new(STAMP_FIELD_MAX + 1), None);
        assert_eq!(Serial::try_from(u32::MAX), Err(StampFieldError(u32::MAX)));
    }

    #[test]
    fn serials_wrap_and_skip_what_is_taken() {
        let serial = |number| Serial::new(number).unwrap();
        let taken = BTreeSet::from([serial(STAMP_FIELD_MAX), serial(0), serial(2)]);
        let mut source = SerialSource::new(serial(STAMP_FIELD_MAX - 1), taken);
        let got: Vec<_> = (0..3)
            .map(|_| source.try_take().unwrap().number())
            .collect();
        assert_eq!(got, [STAMP_FIELD_MAX - 1, 1, 3]);
        assert_eq!(source.next(), serial(4));
    }

    #[test]
    fn a_freed_serial_comes_again_only_after_the_wrap() {
        let mut source = SerialSource::new(Serial::new(7).unwrap(), BTreeSet::new());
        let first = source.try_take().unwrap();
        source.on_gone(first);
        assert_ne!(source.try_take(), Some(first));
    }
}
