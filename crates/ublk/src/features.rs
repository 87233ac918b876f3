//! The feature mask, of the driver or of one device, by name.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use crate::abi::feature::*;

/// A set of features. Bits this version does not know are kept and shown in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u64);

/// Name and bit of every feature, in the order of the bits (Linux 6.0 to 7.3).
const NAMES: [(&str, u64); 21] = [
    ("zero-copy", UBLK_F_SUPPORT_ZERO_COPY),
    ("complete-in-task", UBLK_F_URING_CMD_COMP_IN_TASK),
    ("need-get-data", UBLK_F_NEED_GET_DATA),
    ("user-recovery", UBLK_F_USER_RECOVERY),
    ("user-recovery-reissue", UBLK_F_USER_RECOVERY_REISSUE),
    ("unprivileged", UBLK_F_UNPRIVILEGED_DEV),
    ("ioctl-encode", UBLK_F_CMD_IOCTL_ENCODE),
    ("user-copy", UBLK_F_USER_COPY),
    ("zoned", UBLK_F_ZONED),
    ("user-recovery-fail-io", UBLK_F_USER_RECOVERY_FAIL_IO),
    ("update-size", UBLK_F_UPDATE_SIZE),
    ("auto-buf-reg", UBLK_F_AUTO_BUF_REG),
    ("quiesce", UBLK_F_QUIESCE),
    ("per-io-daemon", UBLK_F_PER_IO_DAEMON),
    ("buf-reg-off-daemon", UBLK_F_BUF_REG_OFF_DAEMON),
    ("batch-io", UBLK_F_BATCH_IO),
    ("integrity", UBLK_F_INTEGRITY),
    ("safe-stop", UBLK_F_SAFE_STOP_DEV),
    ("no-part-scan", UBLK_F_NO_AUTO_PART_SCAN),
    ("shmem-zero-copy", UBLK_F_SHMEM_ZC),
    ("io-desc-size", UBLK_F_IO_DESC_SIZE),
];

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);
    /// Request pages are registered in a ring's buffer table.
    pub const ZERO_COPY: Self = Self(UBLK_F_SUPPORT_ZERO_COPY);
    /// Commands complete in task work; set by the driver.
    pub const COMPLETE_IN_TASK: Self = Self(UBLK_F_URING_CMD_COMP_IN_TASK);
    /// A second round trip fetches the data of writes.
    pub const NEED_GET_DATA: Self = Self(UBLK_F_NEED_GET_DATA);
    /// The disk survives its server.
    pub const USER_RECOVERY: Self = Self(UBLK_F_USER_RECOVERY);
    /// Requests a dead server held are issued again to the next one.
    pub const USER_RECOVERY_REISSUE: Self = Self(UBLK_F_USER_RECOVERY_REISSUE);
    /// Devices of users without `CAP_SYS_ADMIN`.
    pub const UNPRIVILEGED: Self = Self(UBLK_F_UNPRIVILEGED_DEV);
    /// Commands are encoded like ioctls; set by the driver.
    pub const IOCTL_ENCODE: Self = Self(UBLK_F_CMD_IOCTL_ENCODE);
    /// Data travels by pread and pwrite on the char device.
    pub const USER_COPY: Self = Self(UBLK_F_USER_COPY);
    /// Zoned devices.
    pub const ZONED: Self = Self(UBLK_F_ZONED);
    /// I/O fails while there is no server.
    pub const USER_RECOVERY_FAIL_IO: Self = Self(UBLK_F_USER_RECOVERY_FAIL_IO);
    /// A live disk can change its size.
    pub const UPDATE_SIZE: Self = Self(UBLK_F_UPDATE_SIZE);
    /// The driver registers request pages by itself.
    pub const AUTO_BUF_REG: Self = Self(UBLK_F_AUTO_BUF_REG);
    /// `QUIESCE_DEV` exists.
    pub const QUIESCE: Self = Self(UBLK_F_QUIESCE);
    /// Each tag may have its own serving task.
    pub const PER_IO_DAEMON: Self = Self(UBLK_F_PER_IO_DAEMON);
    /// Any task may register a request's pages.
    pub const BUF_REG_OFF_DAEMON: Self = Self(UBLK_F_BUF_REG_OFF_DAEMON);
    /// Tags are fetched and committed in batches.
    pub const BATCH_IO: Self = Self(UBLK_F_BATCH_IO);
    /// Requests carry integrity data.
    pub const INTEGRITY: Self = Self(UBLK_F_INTEGRITY);
    /// `TRY_STOP_DEV` exists.
    pub const SAFE_STOP: Self = Self(UBLK_F_SAFE_STOP_DEV);
    /// The start does not scan for partitions.
    pub const NO_PART_SCAN: Self = Self(UBLK_F_NO_AUTO_PART_SCAN);
    /// Zero copy with memory shared between client and server.
    pub const SHMEM_ZERO_COPY: Self = Self(UBLK_F_SHMEM_ZC);
    /// Descriptors of a chosen size.
    pub const IO_DESC_SIZE: Self = Self(UBLK_F_IO_DESC_SIZE);

    /// The kernel's mask.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The mask as the kernel wants it.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether every feature of `other` is in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those of `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of the known features in the set, in the order of the bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES
            .iter()
            .filter(move |(_, bit)| self.0 & bit != 0)
            .map(|(name, _)| *name)
    }

    /// The feature of that name, as [`Features::names`] spells it.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bit)| Self(*bit))
    }

    /// The bits of the set that have no name here.
    #[must_use]
    pub fn unknown(self) -> Self {
        let known = NAMES.iter().fold(0, |mask, (_, bit)| mask | bit);
        Self(self.0 & !known)
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Features {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut separator = "";
        for name in self.names() {
            write!(f, "{separator}{name}")?;
            separator = " ";
        }
        let unknown = self.unknown();
        if !unknown.is_empty() {
            write!(f, "{separator}{:#x}", unknown.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_cover_the_bits_of_7_3_without_gaps() {
        for (index, (name, bit)) in NAMES.iter().enumerate() {
            assert_eq!(*bit, 1 << index, "{name}");
        }
        let all = Features::from_bits(0x1f_ffff);
        assert_eq!(all.names().count(), 21);
        assert!(all.unknown().is_empty());
    }

    #[test]
    fn every_name_parses_back_to_its_bit() {
        for (name, bit) in NAMES {
            assert_eq!(Features::by_name(name), Some(Features::from_bits(bit)));
        }
        assert_eq!(Features::by_name("USER_COPY"), None);
    }

    #[test]
    fn display_keeps_what_it_does_not_know() {
        let table = [
            (0, "none"),
            (1 << 7, "user-copy"),
            (1 << 3 | 1 << 7, "user-recovery user-copy"),
            (1 << 7 | 1 << 40, "user-copy 0x10000000000"),
            (1 << 40, "0x10000000000"),
        ];
        for (bits, text) in table {
            assert_eq!(Features::from_bits(bits).to_string(), text);
        }
    }

    #[test]
    fn sets_combine() {
        let both = Features::USER_COPY | Features::ZERO_COPY;
        assert!(both.contains(Features::USER_COPY));
        assert!(!Features::USER_COPY.contains(both));
        assert_eq!(both.without(Features::ZERO_COPY), Features::USER_COPY);
        assert_eq!(both & Features::ZERO_COPY, Features::ZERO_COPY);
    }
}
