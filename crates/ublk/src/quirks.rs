//! What the running kernel gets wrong or does its own way. A pure table: release and features in, quirks out.
//!
//! Releases are as they come from kernel.org; a distribution that takes a fix early only makes a row too careful, and
//! every row is safe to obey without need. Sources: ublk_drv.c and io_uring of Linux 6.12.117, 7.2.13, 7.3.4.

use crate::features::Features;
use crate::kernel::KernelRelease;

/// One peculiarity that somebody has to work around or tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quirk {
    /// `DEL_DEV_ASYNC` does not exist.
    NoAsyncDelete,
    /// `ublks_max` limits all devices, not only unprivileged ones.
    LimitCountsAllDevices,
    /// Pipelined control commands reach the wrong device unless every one is forced to a worker.
    ControlSubmissionReused,
    /// A fixed-file slot of one char device pins the others of the same ring.
    FixedFilesPinDevices,
    /// The start does the partition scan itself, through the server, holding the device's lock.
    ScanInsideStart,
    /// `QUIESCE_DEV` may report success and leave the queue parked for ever.
    QuiesceUnsafe,
    /// Start and end of recovery are refused to a process that did not open the char device.
    StartChecksOpener,
    /// The last reference of a device is dropped under the host-wide lock, one grace period each.
    LastReferenceSerialised,
    /// After a cancelled fetch the start succeeds and the disk is wedged.
    StartAfterAbortWedges,
    /// A stop that races a start or a fetch of the same device can corrupt the kernel's lists.
    StopRacesFetch,
    /// A part of a registered request, not from its beginning, may be given too little memory.
    RegisteredPartsShort,
}

/// In which order a device is taken down. `Stop` always comes first, for all devices in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TeardownOrder {
    /// `STOP_DEV`, unmap and close the char device, delete.
    StopCloseDelete,
    /// `STOP_DEV`, delete asynchronously while the char device is open, then unmap and close.
    StopDeleteClose,
}

struct Row {
    quirk: Quirk,
    from: KernelRelease,
    /// First release without it.
    until: KernelRelease,
    /// Features without which it cannot matter.
    needs: Features,
    reason: &'static str,
}

const fn v(major: u32, minor: u32, patch: u32) -> KernelRelease {
    KernelRelease::new(major, minor, patch)
}

/// No release has been seen without it.
const OPEN: KernelRelease = v(u32::MAX, 0, 0);
const ANY: Features = Features::NONE;

const ROWS: [Row; 12] = [
    Row {
        quirk: Quirk::NoAsyncDelete,
        from: v(0, 0, 0),
        until: v(6, 9, 0),
        needs: ANY,
        reason: "DEL_DEV_ASYNC came with 6.9; DEL_DEV waits until the last reference is gone",
    },
    Row {
        quirk: Quirk::LimitCountsAllDevices,
        from: v(6, 3, 0),
        until: v(6, 12, 31),
        needs: ANY,
        reason: "ublks_max (64 by default) limits all devices up to 6.14; fixed in 6.12.31",
    },
    Row {
        quirk: Quirk::LimitCountsAllDevices,
        from: v(6, 13, 0),
        until: v(6, 15, 0),
        needs: ANY,
        reason: "ublks_max (64 by default) limits all devices up to 6.14; fixed in 6.15",
    },
    Row {
        quirk: Quirk::ControlSubmissionReused,
        from: v(6, 10, 0),
        until: v(6, 14, 0),
        needs: ANY,
        reason: "a punted command keeps pointing into the submission ring (5eff57fa9f3a, fixed by \
                 d6211ebbdaa5 in 6.14, not in 6.12.117): 21 to 31 % reached another device; every \
                 control submission carries IOSQE_ASYNC",
    },
    Row {
        quirk: Quirk::FixedFilesPinDevices,
        from: v(0, 0, 0),
        until: v(6, 13, 0),
        needs: ANY,
        reason: "resource nodes are recycled in order per ring: the id of a removed device stays \
                 taken until the other devices do I/O; plain descriptors are used",
    },
    Row {
        quirk: Quirk::ScanInsideStart,
        from: v(0, 0, 0),
        until: v(7, 0, 0),
        needs: ANY,
        reason: "the partition scan runs inside START_DEV and needs the server to answer; the \
                 serving thread never waits for START_DEV",
    },
    Row {
        quirk: Quirk::QuiesceUnsafe,
        from: v(6, 16, 0),
        until: v(7, 3, 5),
        needs: Features::QUIESCE,
        reason: "QUIESCE_DEV counts the wrong requests up to 7.3.4, reports success and leaves \
                 I/O parked; closing the char device does the same job",
    },
    Row {
        quirk: Quirk::StartChecksOpener,
        from: v(6, 16, 1),
        until: OPEN,
        needs: ANY,
        reason: "START_DEV and END_USER_RECOVERY compare the process with the opener of the char \
                 device (c2c8089f325e, 6.17 and 6.16.1)",
    },
    Row {
        quirk: Quirk::LastReferenceSerialised,
        from: v(6, 18, 0),
        until: v(7, 4, 0),
        needs: ANY,
        reason: "the last reference costs an SRCU grace period (ad0d05dbddc1, 6.18) under \
                 ublk_ctl_mutex until 812485c8ff26 (after 7.3): delete while the char device is \
                 open, five times faster on 7.3.4",
    },
    Row {
        quirk: Quirk::StartAfterAbortWedges,
        from: v(0, 0, 0),
        until: v(7, 4, 0),
        needs: ANY,
        reason: "START_DEV after a cancelled fetch returns 0 with a dead disk (7bf71ecab1c2, \
                 after 7.3): a device whose fetch was aborted starts over",
    },
    Row {
        quirk: Quirk::StopRacesFetch,
        from: v(6, 15, 0),
        until: v(7, 3, 4),
        needs: ANY,
        reason: "a stop can complete a command that is then put on the cancel list (fixed in \
                 7.3.4): STOP never overlaps START or FETCH of the same device",
    },
    Row {
        quirk: Quirk::RegisteredPartsShort,
        from: v(6, 15, 0),
        until: v(6, 18, 4),
        needs: Features::AUTO_BUF_REG,
        reason: "io_import_kbuf() counts too few segments for an offset inside a segment \
                 (114ea9bbaf76, 6.19 and 6.18.y of the turn of the year): no zero copy",
    },
];

/// The quirks of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    release: KernelRelease,
    features: Features,
}

impl Quirks {
    /// The quirks of a release whose driver has these features.
    #[must_use]
    pub const fn for_kernel(release: KernelRelease, features: Features) -> Self {
        Self { release, features }
    }

    fn rows(self) -> impl Iterator<Item = &'static Row> {
        ROWS.iter().filter(move |row| {
            row.from <= self.release
                && self.release < row.until
                && self.features.contains(row.needs)
        })
    }

    /// Whether this kernel has the quirk.
    #[must_use]
    pub fn has(self, quirk: Quirk) -> bool {
        self.rows().any(|row| row.quirk == quirk)
    }

    /// Every quirk of this kernel with its reason, for people.
    pub fn reasons(self) -> impl Iterator<Item = (Quirk, &'static str)> {
        self.rows().map(|row| (row.quirk, row.reason))
    }

    /// The fastest safe order of teardown.
    ///
    /// 200 devices: 6.12 needs 1.5 s with close before delete and 2.0 s the other way round; 7.3.4 needs 7.9 s and
    /// 1.6 s. Later kernels do not care.
    #[must_use]
    pub fn teardown(self) -> TeardownOrder {
        if self.release < v(6, 18, 0) {
            TeardownOrder::StopCloseDelete
        } else {
            TeardownOrder::StopDeleteClose
        }
    }

    /// Whether devices can be deleted without waiting.
    #[must_use]
    pub fn has_async_delete(self) -> bool {
        !self.has(Quirk::NoAsyncDelete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quirks(release: &str, features: u64) -> Quirks {
        Quirks::for_kernel(release.parse().unwrap(), Features::from_bits(features))
    }

    const NEW: u64 = 0x1f_ffff;
    const OLD: u64 = 0x1ff;

    #[test]
    fn each_quirk_begins_and_ends_where_the_table_of_kernels_says() {
        use Quirk as Q;
        let table = [
            ("6.8.0", OLD, Q::NoAsyncDelete, true),
            ("6.9.0", OLD, Q::NoAsyncDelete, false),
            ("6.8.0", OLD, Q::LimitCountsAllDevices, true),
            ("6.12.30", OLD, Q::LimitCountsAllDevices, true),
            ("6.12.31", OLD, Q::LimitCountsAllDevices, false),
            ("6.12.95", OLD, Q::LimitCountsAllDevices, false),
            ("6.13.0", OLD, Q::LimitCountsAllDevices, true),
            ("6.14.9", OLD, Q::LimitCountsAllDevices, true),
            ("6.15.0", OLD, Q::LimitCountsAllDevices, false),
            ("6.9.12", OLD, Q::ControlSubmissionReused, false),
            ("6.12.117", OLD, Q::ControlSubmissionReused, true),
            ("6.14.0", OLD, Q::ControlSubmissionReused, false),
            ("6.12.117", OLD, Q::FixedFilesPinDevices, true),
            ("6.13.0", OLD, Q::FixedFilesPinDevices, false),
            ("6.12.117", OLD, Q::QuiesceUnsafe, false),
            ("6.16.0", NEW, Q::QuiesceUnsafe, true),
            ("7.3.4", NEW, Q::QuiesceUnsafe, true),
            ("7.3.5", NEW, Q::QuiesceUnsafe, false),
            ("6.16.0", NEW, Q::StartChecksOpener, false),
            ("6.17.0", NEW, Q::StartChecksOpener, true),
            ("9.0.0", NEW, Q::StartChecksOpener, true),
            ("6.17.9", NEW, Q::LastReferenceSerialised, false),
            ("7.3.4", NEW, Q::LastReferenceSerialised, true),
            ("7.4.0", NEW, Q::LastReferenceSerialised, false),
            ("7.2.13", NEW, Q::StopRacesFetch, true),
            ("7.3.4", NEW, Q::StopRacesFetch, false),
        ];
        for (release, features, quirk, expected) in table {
            assert_eq!(
                quirks(release, features).has(quirk),
                expected,
                "{release} {quirk:?}"
            );
        }
    }

    #[test]
    fn a_driver_without_the_command_has_no_unsafe_command() {
        let without = Features::from_bits(NEW).without(Features::QUIESCE);
        assert!(!quirks("7.3.4", without.bits()).has(Quirk::QuiesceUnsafe));
    }

    #[test]
    fn the_order_of_teardown_changes_with_6_18() {
        let table = [
            ("6.8.0", TeardownOrder::StopCloseDelete),
            ("6.9.0", TeardownOrder::StopCloseDelete),
            ("6.17.9", TeardownOrder::StopCloseDelete),
            ("6.18.0", TeardownOrder::StopDeleteClose),
            ("7.3.4", TeardownOrder::StopDeleteClose),
            ("8.1.0", TeardownOrder::StopDeleteClose),
        ];
        for (release, order) in table {
            assert_eq!(quirks(release, NEW).teardown(), order, "{release}");
        }
        assert!(!quirks("6.8.0", OLD).has_async_delete());
        assert!(quirks("6.9.0", OLD).has_async_delete());
    }

    #[test]
    fn every_row_gives_a_reason_and_a_range() {
        for row in &ROWS {
            assert!(row.from < row.until, "{:?}", row.quirk);
            assert!(row.reason.len() > 20, "{:?}", row.quirk);
        }
        assert_eq!(quirks("6.12.95", OLD).reasons().count(), 4);
    }
}
