//! A descriptor, as the driver writes it, becomes a [`block::Request`] or a refusal. The only place that trusts nothing
//! in a descriptor.

use block::{Extent, Op, Request, Sectors, Status};

use crate::abi::io::*;

/// Most sectors of one request that carries data: 32 MiB, the user-copy address space of a tag.
const DATA_SECTORS_MAX: u32 = 1 << (UBLK_IO_BUF_BITS - 9);

/// A copy of one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoDescriptor(pub ublksrv_io_desc);

/// The flags of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoFlags(u32);

impl IoFlags {
    /// The data must be durable before the request completes.
    #[must_use]
    pub const fn is_fua(self) -> bool {
        self.0 & UBLK_IO_F_FUA != 0
    }

    /// Write-zeroes must keep the space allocated.
    #[must_use]
    pub const fn is_no_unmap(self) -> bool {
        self.0 & UBLK_IO_F_NOUNMAP != 0
    }

    /// Automatic registration failed and the server must move the data itself.
    #[must_use]
    pub const fn is_need_reg_buf(self) -> bool {
        self.0 & UBLK_IO_F_NEED_REG_BUF != 0
    }

    /// The data lies in memory shared with the client.
    #[must_use]
    pub const fn is_shared_memory(self) -> bool {
        self.0 & UBLK_IO_F_SHMEM_ZC != 0
    }
}

impl IoDescriptor {
    /// The flags, apart from the operation.
    #[must_use]
    pub const fn flags(self) -> IoFlags {
        IoFlags(self.0.op_flags & !0xff)
    }

    /// The operation, or `None` if no target can serve it (zones, write-same, unknown).
    #[must_use]
    pub const fn op(self) -> Option<Op> {
        let [op, _, _, _] = self.0.op_flags.to_le_bytes();
        Some(match op {
            UBLK_IO_OP_READ => Op::Read,
            UBLK_IO_OP_WRITE => Op::Write,
            UBLK_IO_OP_FLUSH => Op::Flush,
            UBLK_IO_OP_DISCARD => Op::Discard,
            UBLK_IO_OP_WRITE_ZEROES => Op::WriteZeroes,
            _ => return None,
        })
    }

    /// The request.
    ///
    /// # Errors
    /// [`Status::Unsupported`] for an operation no target serves; [`Status::OutOfRange`] for an extent that is
    /// empty, wraps around, or carries more than 32 MiB of data. Whether it lies on the device is the caller's check.
    #[inline]
    pub const fn parse(self) -> Result<Request, Status> {
        let Some(op) = self.op() else {
            return Err(Status::Unsupported);
        };
        let extent = match op {
            Op::Flush => Extent {
                start: Sectors(0),
                len: Sectors(0),
            },
            Op::Read | Op::Write | Op::Discard | Op::WriteZeroes => Extent {
                start: Sectors(self.0.start_sector),
                len: Sectors(self.0.nr_sectors as u64),
            },
        };
        let is_data = matches!(op, Op::Read | Op::Write);
        if (extent.len.0 == 0 && !matches!(op, Op::Flush))
            || extent.end().is_none()
            || (is_data && self.0.nr_sectors > DATA_SECTORS_MAX)
        {
            return Err(Status::OutOfRange);
        }
        let flags = self.flags();
        Ok(Request {
            op,
            extent,
            fua: flags.is_fua(),
            no_unmap: matches!(op, Op::WriteZeroes) && flags.is_no_unmap(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn descriptor(op_flags: u32, nr_sectors: u32, start_sector: u64) -> IoDescriptor {
        IoDescriptor(ublksrv_io_desc {
            op_flags,
            nr_sectors,
            start_sector,
            addr: 0,
        })
    }

    #[test]
    fn each_operation_of_the_driver_becomes_its_request_or_is_unsupported() {
        for op in 0..=u8::MAX {
            let parsed = descriptor(u32::from(op), 8, 16).parse();
            let expected = match op {
                0 => Some(Op::Read),
                1 => Some(Op::Write),
                2 => Some(Op::Flush),
                3 => Some(Op::Discard),
                5 => Some(Op::WriteZeroes),
                _ => None,
            };
            match expected {
                Some(expected) => assert_eq!(parsed.map(|request| request.op), Ok(expected)),
                None => assert_eq!(parsed, Err(Status::Unsupported), "op {op}"),
            }
        }
    }

    #[test]
    fn a_flush_has_no_extent_whatever_the_driver_left_there() {
        let request = descriptor(2, 77, 88).parse().unwrap();
        assert_eq!(request.extent, Extent::default());
    }

    #[test]
    fn impossible_extents_are_refused() {
        let table = [
            (0, 0, 0),
            (1, 0, 9),
            (3, 0, 0),
            (0, 8, u64::MAX),
            (5, u32::MAX, u64::MAX - 1),
            (0, DATA_SECTORS_MAX + 1, 0),
            (1, u32::MAX, 0),
        ];
        for (op, len, start) in table {
            assert_eq!(
                descriptor(op, len, start).parse(),
                Err(Status::OutOfRange),
                "{op} {len} {start}"
            );
        }
        assert!(descriptor(0, DATA_SECTORS_MAX, 0).parse().is_ok());
        assert!(descriptor(3, u32::MAX, 0).parse().is_ok());
    }

    proptest! {
        #[test]
        fn every_bit_pattern_parses_to_what_it_says_or_is_refused(
            op_flags: u32, nr_sectors: u32, start_sector: u64, addr: u64
        ) {
            let raw = IoDescriptor(ublksrv_io_desc { op_flags, nr_sectors, start_sector, addr });
            if let Ok(request) = raw.parse() {
                prop_assert_eq!(request.fua, op_flags >> 13 & 1 == 1);
                prop_assert_eq!(
                    request.no_unmap,
                    op_flags >> 15 & 1 == 1 && request.op == Op::WriteZeroes
                );
                prop_assert!(request.extent.end().is_some());
                prop_assert!(request.data_len_bytes() <= 32 << 20);
                if request.op != Op::Flush {
                    prop_assert_eq!(request.extent.start, Sectors(start_sector));
                    prop_assert_eq!(request.extent.len, Sectors(u64::from(nr_sectors)));
                }
            }
        }

        #[test]
        fn flags_do_not_change_the_operation(op in 0_u32..=5, flags: u32) {
            let plain = descriptor(op, 8, 0);
            let flagged = descriptor(op | flags & !0xff, 8, 0);
            prop_assert_eq!(plain.op(), flagged.op());
            prop_assert_eq!(plain.parse().is_ok(), flagged.parse().is_ok());
        }
    }
}
