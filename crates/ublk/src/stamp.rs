//! Whose device it is: our mark in the 64 bits that the driver keeps verbatim for user space (`ublksrv_flags`).
//!
//! ```text
//!   bits 63..48  0xB10C, the mark of this program
//!        47..24  instance: which installation (its state directory) made the device
//!        23..0   serial: which record of that installation
//! ```
//!
//! A device without the mark is somebody else's and is never touched.

/// The mark in the top 16 bits.
const MAGIC: u64 = 0xB10C;
/// `instance` and `serial` are below this.
const FIELD_END: u32 = 1 << 24;

/// The mark of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerStamp {
    instance: u32,
    serial: u32,
}

impl OwnerStamp {
    /// A stamp, or `None` if a part needs more than 24 bits.
    #[must_use]
    pub const fn new(instance: u32, serial: u32) -> Option<Self> {
        if instance < FIELD_END && serial < FIELD_END {
            Some(Self { instance, serial })
        } else {
            None
        }
    }

    /// The stamp in a device's 64 bits, or `None` if the device is not ours.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> 48 != MAGIC {
            return None;
        }
        let [_, _, i2, i1, i0, s2, s1, s0] = bits.to_be_bytes();
        Some(Self {
            instance: u32::from_be_bytes([0, i2, i1, i0]),
            serial: u32::from_be_bytes([0, s2, s1, s0]),
        })
    }

    /// The 64 bits to give to the driver.
    #[must_use]
    pub const fn into_bits(self) -> u64 {
        MAGIC << 48 | (self.instance as u64) << 24 | self.serial as u64
    }

    /// Which installation made the device: 24 bits.
    #[must_use]
    pub const fn instance(self) -> u32 {
        self.instance
    }

    /// Which record of that installation: 24 bits.
    #[must_use]
    pub const fn serial(self) -> u32 {
        self.serial
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stamp_has_the_documented_bits() {
        let stamp = OwnerStamp::new(0xab_cdef, 0x12_3456).unwrap();
        assert_eq!(stamp.into_bits(), 0xb10c_abcd_ef12_3456);
    }

    #[test]
    fn parts_of_more_than_24_bits_are_refused() {
        assert!(OwnerStamp::new(1 << 24, 0).is_none());
        assert!(OwnerStamp::new(0, 1 << 24).is_none());
        assert!(OwnerStamp::new(FIELD_END - 1, FIELD_END - 1).is_some());
    }

    proptest! {
        #[test]
        fn bits_are_a_stamp_exactly_when_they_carry_the_mark(bits: u64) {
            match OwnerStamp::from_bits(bits) {
                Some(stamp) => prop_assert_eq!(stamp.into_bits(), bits),
                None => prop_assert_ne!(bits >> 48, MAGIC),
            }
            let marked = MAGIC << 48 | bits >> 16;
            prop_assert_eq!(OwnerStamp::from_bits(marked).map(OwnerStamp::into_bits), Some(marked));
        }
    }
}
