//! I/O commands on `/dev/ublkcN`, descriptors and the user-copy address space (`ublk_cmd.h`, Linux 6.4 to 7.3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::control::ioc_read_write;

/// Bytes of [`ublksrv_io_cmd`] and of [`ublk_batch_io`], as the opcodes carry them.
const IO_CMD_BYTES: u32 = 16;

/// Offers a tag for the first time (6.0).
pub const UBLK_U_IO_FETCH_REQ: u32 = ioc_read_write(0x20, IO_CMD_BYTES);
/// Ends a tag's request and offers the tag again (6.0).
pub const UBLK_U_IO_COMMIT_AND_FETCH_REQ: u32 = ioc_read_write(0x21, IO_CMD_BYTES);
/// Asks for the data of a write (6.0).
pub const UBLK_U_IO_NEED_GET_DATA: u32 = ioc_read_write(0x22, IO_CMD_BYTES);
/// Registers a request's pages in the ring's table (6.15).
pub const UBLK_U_IO_REGISTER_IO_BUF: u32 = ioc_read_write(0x23, IO_CMD_BYTES);
/// Unregisters them (6.15).
pub const UBLK_U_IO_UNREGISTER_IO_BUF: u32 = ioc_read_write(0x24, IO_CMD_BYTES);
/// Offers many tags for the first time (7.0).
pub const UBLK_U_IO_PREP_IO_CMDS: u32 = ioc_read_write(0x25, IO_CMD_BYTES);
/// Ends many requests (7.0).
pub const UBLK_U_IO_COMMIT_IO_CMDS: u32 = ioc_read_write(0x26, IO_CMD_BYTES);
/// Waits for many requests, with one multishot command (7.0).
pub const UBLK_U_IO_FETCH_IO_CMDS: u32 = ioc_read_write(0x27, IO_CMD_BYTES);

/// A request is in the tag's descriptor.
pub const UBLK_IO_RES_OK: i32 = 0;
/// The data of a write must be asked for.
pub const UBLK_IO_RES_NEED_GET_DATA: i32 = 1;
/// `-ENODEV`: the tag is given up; it must not be fetched again.
pub const UBLK_IO_RES_ABORT: i32 = -19;

/// Where the descriptors are mapped from.
pub const UBLKSRV_CMD_BUF_OFFSET: u64 = 0;
/// Where the user-copy address space begins.
pub const UBLKSRV_IO_BUF_OFFSET: u64 = 0x8000_0000;
/// Bits of a byte offset inside a request: at most 32 MiB.
pub const UBLK_IO_BUF_BITS: u32 = 25;
/// Where the tag begins in a user-copy position.
pub const UBLK_TAG_OFF: u32 = UBLK_IO_BUF_BITS;
/// Bits of a tag in a user-copy position.
pub const UBLK_TAG_BITS: u32 = 16;
/// Where the queue begins in a user-copy position.
pub const UBLK_QID_OFF: u32 = UBLK_TAG_OFF + UBLK_TAG_BITS;
/// Bits of a queue in a user-copy position.
pub const UBLK_QID_BITS: u32 = 12;
/// In a user-copy position: the request's integrity data instead of its data (7.0).
pub const UBLKSRV_IO_INTEGRITY_FLAG: u64 = 1 << 62;

/// Read.
pub const UBLK_IO_OP_READ: u8 = 0;
/// Write.
pub const UBLK_IO_OP_WRITE: u8 = 1;
/// Flush.
pub const UBLK_IO_OP_FLUSH: u8 = 2;
/// Discard.
pub const UBLK_IO_OP_DISCARD: u8 = 3;
/// Never sent by any kernel.
pub const UBLK_IO_OP_WRITE_SAME: u8 = 4;
/// Write zeroes.
pub const UBLK_IO_OP_WRITE_ZEROES: u8 = 5;
/// Zoned devices only (6.6), like the others of this group.
pub const UBLK_IO_OP_ZONE_OPEN: u8 = 10;
/// Close a zone.
pub const UBLK_IO_OP_ZONE_CLOSE: u8 = 11;
/// Finish a zone.
pub const UBLK_IO_OP_ZONE_FINISH: u8 = 12;
/// Append to a zone.
pub const UBLK_IO_OP_ZONE_APPEND: u8 = 13;
/// Reset all zones.
pub const UBLK_IO_OP_ZONE_RESET_ALL: u8 = 14;
/// Reset a zone.
pub const UBLK_IO_OP_ZONE_RESET: u8 = 15;
/// Report zones.
pub const UBLK_IO_OP_REPORT_ZONES: u8 = 18;

/// Do not retry on device errors. The flags are bits of the unshifted `op_flags`.
pub const UBLK_IO_F_FAILFAST_DEV: u32 = 1 << 8;
/// Do not retry on transport errors.
pub const UBLK_IO_F_FAILFAST_TRANSPORT: u32 = 1 << 9;
/// Do not retry on driver errors.
pub const UBLK_IO_F_FAILFAST_DRIVER: u32 = 1 << 10;
/// File system metadata.
pub const UBLK_IO_F_META: u32 = 1 << 11;
/// Durable before completion.
pub const UBLK_IO_F_FUA: u32 = 1 << 13;
/// Write-zeroes keeps the space allocated.
pub const UBLK_IO_F_NOUNMAP: u32 = 1 << 15;
/// Swap I/O.
pub const UBLK_IO_F_SWAP: u32 = 1 << 16;
/// Automatic registration failed; the server must register (6.16).
pub const UBLK_IO_F_NEED_REG_BUF: u32 = 1 << 17;
/// The request has integrity data (7.0).
pub const UBLK_IO_F_INTEGRITY: u32 = 1 << 18;
/// `addr` names registered shared memory (7.1).
pub const UBLK_IO_F_SHMEM_ZC: u32 = 1 << 19;

/// Deliver the request even if its pages could not be registered.
pub const UBLK_AUTO_BUF_REG_FALLBACK: u8 = 1;

/// Elements carry a zone position.
pub const UBLK_BATCH_F_HAS_ZONE_LBA: u16 = 1;
/// Elements carry a buffer address.
pub const UBLK_BATCH_F_HAS_BUF_ADDR: u16 = 2;
/// [`UBLK_AUTO_BUF_REG_FALLBACK`] for the batch.
pub const UBLK_BATCH_F_AUTO_BUF_REG_FALLBACK: u16 = 4;

/// In a shared-memory address: the bits of the byte offset.
pub const UBLK_SHMEM_ZC_OFF_MASK: u64 = 0xffff_ffff;
/// In a shared-memory address: where the buffer index begins.
pub const UBLK_SHMEM_ZC_IDX_OFF: u32 = 32;
/// In a shared-memory address: the bits of the buffer index.
pub const UBLK_SHMEM_ZC_IDX_MASK: u64 = 0xffff;

/// A request, written by the driver into the tag's place of the mapped array.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ublksrv_io_desc {
    /// Bits 0 to 7: `UBLK_IO_OP_*`; the others: `UBLK_IO_F_*`.
    pub op_flags: u32,
    /// Sectors of 512 bytes (zones for `REPORT_ZONES`).
    pub nr_sectors: u32,
    /// First sector.
    pub start_sector: u64,
    /// The buffer that was given with the fetch, or a shared-memory address.
    pub addr: u64,
}

assert_layout!(ublksrv_io_desc, 24, { op_flags: 0, nr_sectors: 4, start_sector: 8, addr: 16 });

/// Bytes of a descriptor unless the device chose another size.
pub const IO_DESC_BYTES: u16 = 24;
/// The largest descriptor (7.3); sizes are multiples of 8.
pub const IO_DESC_BYTES_MAX: u16 = 256;
const _: () = assert!(size_of::<ublksrv_io_desc>() == IO_DESC_BYTES as usize);

/// An I/O command, at byte 48 of a 64-byte submission.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublksrv_io_cmd {
    /// The queue.
    pub q_id: u16,
    /// The tag.
    pub tag: u16,
    /// Commit: bytes done or a negative errno.
    pub result: i32,
    /// Fetch: the buffer's address; with user copy 0, or the position of a zone append.
    pub addr: u64,
}

assert_layout!(ublksrv_io_cmd, 16, { q_id: 0, tag: 2, result: 4, addr: 8 });

/// What automatic registration needs; travels in the submission's `addr` (6.16).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_auto_buf_reg {
    /// Slot of the ring's buffer table.
    pub index: u16,
    /// [`UBLK_AUTO_BUF_REG_FALLBACK`] or 0.
    pub flags: u8,
    /// Must be 0.
    pub reserved0: u8,
    /// Must be 0.
    pub reserved1: u32,
}

assert_layout!(ublk_auto_buf_reg, 8, { index: 0, flags: 2, reserved0: 3, reserved1: 4 });

impl ublk_auto_buf_reg {
    /// As the submission's `addr` (`ublk_auto_buf_reg_to_sqe_addr`).
    #[must_use]
    pub const fn to_sqe_addr(self) -> u64 {
        (self.reserved1 as u64) << 32
            | (self.reserved0 as u64) << 24
            | (self.flags as u64) << 16
            | self.index as u64
    }
}

/// One element of a batch; optional 8-byte fields follow it (7.0).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_elem_header {
    /// The tag.
    pub tag: u16,
    /// Slot of the buffer table, with automatic registration.
    pub buf_index: u16,
    /// Commit: bytes done or a negative errno.
    pub result: i32,
}

assert_layout!(ublk_elem_header, 8, { tag: 0, buf_index: 2, result: 4 });

/// A batch command, at byte 48 of a 64-byte submission (7.0).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_batch_io {
    /// The queue.
    pub q_id: u16,
    /// `UBLK_BATCH_F_*`.
    pub flags: u16,
    /// Number of elements.
    pub nr_elem: u16,
    /// Bytes of one element: 8, 16 or 24.
    pub elem_bytes: u8,
    /// Must be 0.
    pub reserved: u8,
    /// Must be 0.
    pub reserved2: u64,
}

assert_layout!(ublk_batch_io, 16, {
    q_id: 0, flags: 2, nr_elem: 4, elem_bytes: 6, reserved: 7, reserved2: 8,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_the_values_of_the_kernel_header() {
        let table = [
            (UBLK_U_IO_FETCH_REQ, 0xc010_7520),
            (UBLK_U_IO_COMMIT_AND_FETCH_REQ, 0xc010_7521),
            (UBLK_U_IO_NEED_GET_DATA, 0xc010_7522),
            (UBLK_U_IO_REGISTER_IO_BUF, 0xc010_7523),
            (UBLK_U_IO_UNREGISTER_IO_BUF, 0xc010_7524),
            (UBLK_U_IO_PREP_IO_CMDS, 0xc010_7525),
            (UBLK_U_IO_COMMIT_IO_CMDS, 0xc010_7526),
            (UBLK_U_IO_FETCH_IO_CMDS, 0xc010_7527),
        ];
        for (opcode, expected) in table {
            assert_eq!(opcode, expected, "{expected:#x}");
        }
    }

    #[test]
    fn automatic_registration_packs_into_the_submission() {
        let reg = ublk_auto_buf_reg {
            index: 0x0102,
            flags: 0x03,
            reserved0: 0x04,
            reserved1: 0x0506_0708,
        };
        assert_eq!(reg.to_sqe_addr(), 0x0506_0708_0403_0102);
    }
}
