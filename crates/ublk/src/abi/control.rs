//! Control commands on `/dev/ublk-control` and the structures they carry (`ublk_cmd.h`, Linux 6.4 to 7.3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const IOC_WRITE: u32 = 1 << 30;
const IOC_READ: u32 = 2 << 30;

/// `_IOR('u', nr, ...)` and `_IOWR('u', nr, ...)` of asm-generic/ioctl.h for a structure of `size` bytes.
pub(super) const fn ioc_read(nr: u32, size: u32) -> u32 {
    IOC_READ | size << 16 | 0x75 << 8 | nr
}

pub(super) const fn ioc_read_write(nr: u32, size: u32) -> u32 {
    IOC_READ | IOC_WRITE | size << 16 | 0x75 << 8 | nr
}

/// Bytes of [`ublksrv_ctrl_cmd`], as the opcodes carry them.
const CTRL_CMD_BYTES: u32 = 32;

/// Reads the CPU mask of a queue (6.0).
pub const UBLK_U_CMD_GET_QUEUE_AFFINITY: u32 = ioc_read(0x01, CTRL_CMD_BYTES);
/// Reads a device's [`ublksrv_ctrl_dev_info`] (6.0).
pub const UBLK_U_CMD_GET_DEV_INFO: u32 = ioc_read(0x02, CTRL_CMD_BYTES);
/// Adds a device (6.0).
pub const UBLK_U_CMD_ADD_DEV: u32 = ioc_read_write(0x04, CTRL_CMD_BYTES);
/// Deletes a device and waits until its id is free (6.0).
pub const UBLK_U_CMD_DEL_DEV: u32 = ioc_read_write(0x05, CTRL_CMD_BYTES);
/// Makes the disk visible once every tag is fetched (6.0).
pub const UBLK_U_CMD_START_DEV: u32 = ioc_read_write(0x06, CTRL_CMD_BYTES);
/// Removes the disk and aborts every fetch (6.0).
pub const UBLK_U_CMD_STOP_DEV: u32 = ioc_read_write(0x07, CTRL_CMD_BYTES);
/// Sets a device's parameters before its start (6.0).
pub const UBLK_U_CMD_SET_PARAMS: u32 = ioc_read_write(0x08, CTRL_CMD_BYTES);
/// Reads a device's parameters (6.0).
pub const UBLK_U_CMD_GET_PARAMS: u32 = ioc_read(0x09, CTRL_CMD_BYTES);
/// Begins the recovery of a quiesced device (6.1).
pub const UBLK_U_CMD_START_USER_RECOVERY: u32 = ioc_read_write(0x10, CTRL_CMD_BYTES);
/// Ends a recovery once every tag is fetched again (6.1).
pub const UBLK_U_CMD_END_USER_RECOVERY: u32 = ioc_read_write(0x11, CTRL_CMD_BYTES);
/// Like `GET_DEV_INFO`, with the char device's path in front of the buffer (6.3).
pub const UBLK_U_CMD_GET_DEV_INFO2: u32 = ioc_read(0x12, CTRL_CMD_BYTES);
/// Reads the driver's feature mask (6.5).
pub const UBLK_U_CMD_GET_FEATURES: u32 = ioc_read(0x13, CTRL_CMD_BYTES);
/// Deletes a device without waiting for its id (6.9). Encoded as a read although it is none.
pub const UBLK_U_CMD_DEL_DEV_ASYNC: u32 = ioc_read(0x14, CTRL_CMD_BYTES);
/// Changes a disk's size (6.16).
pub const UBLK_U_CMD_UPDATE_SIZE: u32 = ioc_read_write(0x15, CTRL_CMD_BYTES);
/// Quiesces a device for a new server (6.16).
pub const UBLK_U_CMD_QUIESCE_DEV: u32 = ioc_read_write(0x16, CTRL_CMD_BYTES);
/// Stops a device unless its disk is open (7.0).
pub const UBLK_U_CMD_TRY_STOP_DEV: u32 = ioc_read_write(0x17, CTRL_CMD_BYTES);
/// Registers memory shared with clients (7.1).
pub const UBLK_U_CMD_REG_BUF: u32 = ioc_read_write(0x18, CTRL_CMD_BYTES);
/// Unregisters such memory (7.1).
pub const UBLK_U_CMD_UNREG_BUF: u32 = ioc_read_write(0x19, CTRL_CMD_BYTES);

/// Bytes of the mask that `GET_FEATURES` fills; the command refuses any other length.
pub const UBLK_FEATURES_LEN: usize = 8;
/// The device id of `ADD_DEV` that lets the driver choose.
pub const DEV_ID_ANY: u32 = u32::MAX;
/// The queue id of a command that concerns no queue.
pub const QUEUE_ID_NONE: u16 = u16::MAX;
/// Most queues of a device.
pub const UBLK_MAX_NR_QUEUES: u32 = 4096;
/// Most tags of a queue.
pub const UBLK_MAX_QUEUE_DEPTH: u32 = 4096;
/// Device ids are below this (`UBLK_MINORS`, drivers/block/ublk_drv.c).
pub const UBLK_MINORS: u32 = 1 << 20;

/// Added and never started, or stopped.
pub const UBLK_S_DEV_DEAD: u16 = 0;
/// The disk is visible and served.
pub const UBLK_S_DEV_LIVE: u16 = 1;
/// The server is gone; I/O waits for a new one.
pub const UBLK_S_DEV_QUIESCED: u16 = 2;
/// The server is gone; I/O fails until there is a new one (6.13).
pub const UBLK_S_DEV_FAIL_IO: u16 = 3;

/// The shared buffer of `REG_BUF` is never written to by the server (7.1).
pub const UBLK_SHMEM_BUF_READ_ONLY: u32 = 1;

/// A control command, at byte 48 of a 128-byte submission.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublksrv_ctrl_cmd {
    /// The device, or [`DEV_ID_ANY`].
    pub dev_id: u32,
    /// The queue, or [`QUEUE_ID_NONE`].
    pub queue_id: u16,
    /// Bytes of the buffer at `addr`.
    pub len: u16,
    /// Address of the command's buffer.
    pub addr: u64,
    /// The command's argument.
    pub data: [u64; 1],
    /// Bytes of the char device's path at the front of the buffer, its NUL included (6.3).
    pub dev_path_len: u16,
    /// Must be 0.
    pub pad: u16,
    /// Must be 0.
    pub reserved: u32,
}

assert_layout!(ublksrv_ctrl_cmd, 32, {
    dev_id: 0, queue_id: 4, len: 6, addr: 8, data: 16, dev_path_len: 24, pad: 26, reserved: 28,
});

/// A device as `ADD_DEV` takes and returns it and `GET_DEV_INFO` reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublksrv_ctrl_dev_info {
    /// Number of queues; the driver lowers it to the number of CPUs.
    pub nr_hw_queues: u16,
    /// Tags of each queue.
    pub queue_depth: u16,
    /// `UBLK_S_DEV_*`.
    pub state: u16,
    /// Bytes of a descriptor (7.3; padding before, and 0 then).
    pub io_desc_size: u16,
    /// Most bytes of data in one request; the driver rounds it down to a page.
    pub max_io_buf_bytes: u32,
    /// The device.
    pub dev_id: u32,
    /// Process id of the server, or -1.
    pub ublksrv_pid: i32,
    /// Padding.
    pub pad1: u32,
    /// `UBLK_F_*`: asked for, or granted.
    pub flags: u64,
    /// Kept verbatim by the driver for user space.
    pub ublksrv_flags: u64,
    /// User that added the device (6.3).
    pub owner_uid: u32,
    /// Group that added the device (6.3).
    pub owner_gid: u32,
    /// Must be 0.
    pub reserved1: u64,
    /// Must be 0.
    pub reserved2: u64,
}

assert_layout!(ublksrv_ctrl_dev_info, 64, {
    nr_hw_queues: 0, queue_depth: 2, state: 4, io_desc_size: 6, max_io_buf_bytes: 8, dev_id: 12,
    ublksrv_pid: 16, pad1: 20, flags: 24, ublksrv_flags: 32, owner_uid: 40, owner_gid: 44,
    reserved1: 48, reserved2: 56,
});

/// Memory shared with clients, for `REG_BUF` (7.1).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_shmem_buf_reg {
    /// First byte, page-aligned.
    pub addr: u64,
    /// Bytes, a multiple of a page.
    pub len: u64,
    /// [`UBLK_SHMEM_BUF_READ_ONLY`] or 0.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

assert_layout!(ublk_shmem_buf_reg, 24, { addr: 0, len: 8, flags: 16, reserved: 20 });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_the_values_of_the_kernel_header() {
        let table = [
            (UBLK_U_CMD_GET_QUEUE_AFFINITY, 0x8020_7501),
            (UBLK_U_CMD_GET_DEV_INFO, 0x8020_7502),
            (UBLK_U_CMD_ADD_DEV, 0xc020_7504),
            (UBLK_U_CMD_DEL_DEV, 0xc020_7505),
            (UBLK_U_CMD_START_DEV, 0xc020_7506),
            (UBLK_U_CMD_STOP_DEV, 0xc020_7507),
            (UBLK_U_CMD_SET_PARAMS, 0xc020_7508),
            (UBLK_U_CMD_GET_PARAMS, 0x8020_7509),
            (UBLK_U_CMD_START_USER_RECOVERY, 0xc020_7510),
            (UBLK_U_CMD_END_USER_RECOVERY, 0xc020_7511),
            (UBLK_U_CMD_GET_DEV_INFO2, 0x8020_7512),
            (UBLK_U_CMD_GET_FEATURES, 0x8020_7513),
            (UBLK_U_CMD_DEL_DEV_ASYNC, 0x8020_7514),
            (UBLK_U_CMD_UPDATE_SIZE, 0xc020_7515),
            (UBLK_U_CMD_QUIESCE_DEV, 0xc020_7516),
            (UBLK_U_CMD_TRY_STOP_DEV, 0xc020_7517),
            (UBLK_U_CMD_REG_BUF, 0xc020_7518),
            (UBLK_U_CMD_UNREG_BUF, 0xc020_7519),
        ];
        for (opcode, expected) in table {
            assert_eq!(opcode, expected, "{expected:#x}");
        }
    }

    #[test]
    fn a_device_info_survives_its_bytes() {
        let info = ublksrv_ctrl_dev_info {
            nr_hw_queues: 1,
            queue_depth: 2,
            io_desc_size: 24,
            ublksrv_pid: -1,
            flags: u64::MAX,
            ublksrv_flags: 0x0102_0304_0506_0708,
            ..Default::default()
        };
        let back = ublksrv_ctrl_dev_info::read_from_bytes(info.as_bytes()).unwrap();
        assert_eq!(back.as_bytes(), info.as_bytes());
        assert!(ublksrv_ctrl_dev_info::read_from_bytes(&info.as_bytes()[1..]).is_err());
    }
}
