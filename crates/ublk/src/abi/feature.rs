//! Feature flags of devices and of the driver (`UBLK_F_*` of `ublk_cmd.h`, Linux 6.0 to 7.3).

/// Request pages are registered in a ring's buffer table (works from 6.15).
pub const UBLK_F_SUPPORT_ZERO_COPY: u64 = 1 << 0;
/// Commands complete in task work (6.0; set by the driver).
pub const UBLK_F_URING_CMD_COMP_IN_TASK: u64 = 1 << 1;
/// A second round trip fetches the data of writes (6.0).
pub const UBLK_F_NEED_GET_DATA: u64 = 1 << 2;
/// The disk survives its server (6.1).
pub const UBLK_F_USER_RECOVERY: u64 = 1 << 3;
/// Requests the dead server held are issued again (6.1).
pub const UBLK_F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Devices of users without `CAP_SYS_ADMIN` (6.3).
pub const UBLK_F_UNPRIVILEGED_DEV: u64 = 1 << 5;
/// Commands are encoded like ioctls (6.4; set by the driver).
pub const UBLK_F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// Data travels by pread and pwrite on the char device (6.5).
pub const UBLK_F_USER_COPY: u64 = 1 << 7;
/// Zoned devices (6.6).
pub const UBLK_F_ZONED: u64 = 1 << 8;
/// I/O fails while there is no server (6.13).
pub const UBLK_F_USER_RECOVERY_FAIL_IO: u64 = 1 << 9;
/// `UPDATE_SIZE` exists (6.16).
pub const UBLK_F_UPDATE_SIZE: u64 = 1 << 10;
/// The driver registers request pages by itself (6.16).
pub const UBLK_F_AUTO_BUF_REG: u64 = 1 << 11;
/// `QUIESCE_DEV` exists (6.16).
pub const UBLK_F_QUIESCE: u64 = 1 << 12;
/// Each tag may have its own serving task (6.16; set by the driver).
pub const UBLK_F_PER_IO_DAEMON: u64 = 1 << 13;
/// Any task may register a request's pages (6.17; set by the driver).
pub const UBLK_F_BUF_REG_OFF_DAEMON: u64 = 1 << 14;
/// Tags are fetched and committed in batches (7.0).
pub const UBLK_F_BATCH_IO: u64 = 1 << 15;
/// Requests carry integrity data; needs user copy (7.0).
pub const UBLK_F_INTEGRITY: u64 = 1 << 16;
/// `TRY_STOP_DEV` exists (7.0; set by the driver).
pub const UBLK_F_SAFE_STOP_DEV: u64 = 1 << 17;
/// The start does not scan for partitions (7.0).
pub const UBLK_F_NO_AUTO_PART_SCAN: u64 = 1 << 18;
/// Zero copy with memory shared between client and server (7.1).
pub const UBLK_F_SHMEM_ZC: u64 = 1 << 19;
/// Descriptors of a chosen size (7.3).
pub const UBLK_F_IO_DESC_SIZE: u64 = 1 << 20;
