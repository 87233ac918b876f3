//! What travels in a FETCH or a COMMIT on the char device: opcode, 16 bytes, and the result of a request.

use block::{Op, QueueId, Request, Status, Tag};
use zerocopy::IntoBytes;

use crate::abi::io::{
    UBLK_AUTO_BUF_REG_FALLBACK, UBLK_U_IO_COMMIT_AND_FETCH_REQ, UBLK_U_IO_FETCH_REQ,
    ublk_auto_buf_reg, ublksrv_io_cmd,
};

/// The command part of a 64-byte `IORING_OP_URING_CMD` submission on the char device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoCommand {
    /// The submission's `cmd_op`.
    pub opcode: u32,
    /// The submission's 16 command bytes.
    pub payload: [u8; 16],
    /// The submission's address field.
    pub address: u64,
}

/// Where the driver registers the data of a tag's next request, if the device has the feature `auto-buf-reg` and the request
/// is a read or a write. Other devices ignore it.
///
/// A request whose data was not registered is delivered all the same and says so
/// ([`crate::IoFlags::is_need_reg_buf`]). What was registered stays until the request is committed, and whoever uses it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Nowhere.
    Nowhere,
    /// In this slot of the ring's table, unless another request is in it.
    Slot(u16),
}

impl Registration {
    const fn address(self) -> u64 {
        let index = match self {
            Self::Slot(slot) => slot,
            Self::Nowhere => NO_SLOT,
        };
        let registration = ublk_auto_buf_reg {
            index,
            flags: UBLK_AUTO_BUF_REG_FALLBACK,
            reserved0: 0,
            reserved1: 0,
        };
        registration.to_sqe_addr()
    }
}

/// No table is as large (`IORING_MAX_REG_BUFFERS`): the driver finds no slot at once.
const NO_SLOT: u16 = u16::MAX;

impl IoCommand {
    /// Offers a tag for the first time.
    #[must_use]
    #[inline]
    pub fn fetch(queue: QueueId, tag: Tag, registration: Registration) -> Self {
        // The driver ignores the result of a fetch.
        Self::encode(UBLK_U_IO_FETCH_REQ, (queue, tag), 0, registration)
    }

    /// Ends the tag's request with `result` (see [`commit_result`]) and offers the tag again.
    #[must_use]
    #[inline]
    pub fn commit_and_fetch(
        queue: QueueId,
        tag: Tag,
        result: i32,
        registration: Registration,
    ) -> Self {
        Self::encode(
            UBLK_U_IO_COMMIT_AND_FETCH_REQ,
            (queue, tag),
            result,
            registration,
        )
    }

    #[inline]
    fn encode(
        opcode: u32,
        (queue, tag): (QueueId, Tag),
        result: i32,
        registration: Registration,
    ) -> Self {
        let command = ublksrv_io_cmd {
            q_id: queue.0,
            tag: tag.0,
            result,
            // The tag's buffer where the driver copies; must be 0 here.
            addr: 0,
        };
        let mut payload = [0; 16];
        payload.copy_from_slice(command.as_bytes());
        Self {
            opcode,
            payload,
            address: registration.address(),
        }
    }
}

/// The result that a COMMIT reports: bytes of data for a read or a write, 0 for the others, or a negative errno.
///
/// The driver issues the rest of a short read or write again, and turns a read of 0 bytes into EIO, so a success
/// reports all bytes (`ublk_complete_rq`, Linux 6.8 to 7.3).
#[must_use]
#[inline]
pub fn commit_result(request: &Request, status: Status) -> i32 {
    if !status.is_ok() {
        return -status.errno();
    }
    match request.op {
        Op::Read | Op::Write => i32::try_from(request.data_len_bytes()).unwrap_or(i32::MAX),
        Op::Flush | Op::Discard | Op::WriteZeroes => 0,
    }
}

#[cfg(test)]
mod tests {
    use block::{Extent, Sectors};

    use super::*;

    #[test]
    fn commands_have_the_layout_of_the_driver() {
        let slot = Registration::Slot(0x1234);
        let fetch = IoCommand::fetch(QueueId(0x0102), Tag(0x0304), slot);
        assert_eq!(fetch.opcode, 0xc010_7520);
        assert_eq!(
            fetch.payload,
            [2, 1, 4, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(fetch.address, 0x0001_1234);
        let commit = IoCommand::commit_and_fetch(QueueId(0), Tag(1), -5, Registration::Nowhere);
        assert_eq!(commit.address, 0x0001_ffff);
        assert_eq!(commit.opcode, 0xc010_7521);
        assert_eq!(commit.payload[2..8], [1, 0, 0xfb, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn reads_and_writes_report_bytes_and_the_others_nothing() {
        let request = |op, sectors| Request {
            op,
            extent: Extent {
                start: Sectors(0),
                len: Sectors(sectors),
            },
            fua: false,
            no_unmap: false,
        };
        assert_eq!(commit_result(&request(Op::Read, 8), Status::Ok), 4096);
        assert_eq!(commit_result(&request(Op::Write, 1), Status::Ok), 512);
        assert_eq!(commit_result(&request(Op::Flush, 0), Status::Ok), 0);
        assert_eq!(commit_result(&request(Op::Discard, 8), Status::Ok), 0);
        assert_eq!(commit_result(&request(Op::Read, 8), Status::NoSpace), -28);
    }
}
