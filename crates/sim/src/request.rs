//! One request of a simulated client, from its issue to its answer.

use std::fmt;

use block::{Geometry, Op, QueueId, Request, Status, Zeroing};
use ublk::IoDescriptor;
use ublk::abi::io::{UBLK_IO_F_FUA, UBLK_IO_F_NOUNMAP, ublksrv_io_desc};

use crate::pattern;

/// The byte that a read's data holds before the server fills it; no word of it is a valid pattern.
const UNFILLED: u8 = 0xa5;

/// What the kernel may send: any descriptor, also those no target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOp {
    /// `UBLK_IO_OP_*`.
    pub code: u8,
    /// Force unit access.
    pub fua: bool,
    /// Write-zeroes keeps the space.
    pub no_unmap: bool,
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub len: u32,
}

impl ClientOp {
    fn descriptor(&self) -> IoDescriptor {
        let fua = if self.fua { UBLK_IO_F_FUA } else { 0 };
        let no_unmap = if self.no_unmap { UBLK_IO_F_NOUNMAP } else { 0 };
        IoDescriptor(ublksrv_io_desc {
            op_flags: u32::from(self.code) | fua | no_unmap,
            nr_sectors: self.len,
            start_sector: self.start,
            addr: 0,
        })
    }
}

/// Who answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnsweredBy {
    /// The server, by a commit with this result.
    Server(i32),
    /// The kernel, because the device was stopped before the server saw the request.
    Kernel,
}

/// A request with its data.
pub(crate) struct ClientRequest {
    pub(crate) id: u64,
    pub(crate) queue: QueueId,
    pub(crate) op: ClientOp,
    /// What the server gets to see.
    pub(crate) parsed: Result<Request, Status>,
    /// What the device must refuse it with, whatever else happens.
    pub(crate) refusal: Option<Status>,
    pub(crate) data: Vec<u8>,
    /// The slot that its data is registered in, for as long as the server has it.
    pub(crate) registered: Option<u16>,
    /// The model's time of issue, for a read or a flush.
    pub(crate) model_time: u64,
    /// The turn in which the server got it.
    pub(crate) owned_turn: u64,
    /// A failure below that certainly belonged to this request.
    pub(crate) failed: Option<Status>,
    /// What the device's condition at the time of issue makes of it.
    pub(crate) doom: Option<Status>,
    /// Failures below that may have belonged to it.
    pub(crate) perhaps_failed: Vec<Status>,
    /// EINTR, EAGAIN, and reads that begin again, that may have belonged to it.
    pub(crate) retries: u32,
}

impl fmt::Debug for ClientRequest {
    /// Everything but the data, which follows from the rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRequest")
            .field("id", &self.id)
            .field("queue", &self.queue)
            .field("op", &self.op)
            .field("refusal", &self.refusal)
            .field("failed", &self.failed)
            .field("doom", &self.doom)
            .field("perhaps_failed", &self.perhaps_failed)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}

impl ClientRequest {
    pub(crate) fn new(id: u64, queue: QueueId, op: ClientOp, geometry: &Geometry) -> Self {
        let parsed = op.descriptor().parse();
        let refusal = refusal(&parsed, geometry);
        let mut data = Vec::new();
        if refusal.is_none()
            && let Ok(request) = parsed
        {
            let len = usize::try_from(request.data_len_bytes()).unwrap_or(0);
            data = vec![UNFILLED; len];
            if request.op == Op::Write {
                pattern::fill(id, op.start, &mut data);
            }
        }
        Self {
            id,
            queue,
            op,
            parsed,
            refusal,
            data,
            registered: None,
            model_time: 0,
            owned_turn: 0,
            failed: None,
            doom: None,
            perhaps_failed: Vec::new(),
            retries: 0,
        }
    }

    /// The operation and its extent in sectors, if the device should serve it.
    pub(crate) fn served(&self) -> Option<(Op, std::ops::Range<usize>)> {
        if self.refusal.is_some() {
            return None;
        }
        let request = self.parsed.ok()?;
        let start = usize::try_from(request.extent.start.0).ok()?;
        let len = usize::try_from(request.extent.len.0).ok()?;
        Some((request.op, start..start + len))
    }

    /// What a commit must say when the request succeeded.
    pub(crate) fn success(&self) -> i32 {
        i32::try_from(self.data.len()).unwrap_or(i32::MAX)
    }
}

/// Written apart from the server's own check on purpose.
fn refusal(parsed: &Result<Request, Status>, geometry: &Geometry) -> Option<Status> {
    let request = match parsed {
        Ok(request) => request,
        Err(status) => return Some(*status),
    };
    let end = u128::from(request.extent.start.0) + u128::from(request.extent.len.0);
    let is_zeroing = matches!(request.op, Op::Discard | Op::WriteZeroes);
    if end > u128::from(geometry.size.0) {
        Some(Status::OutOfRange)
    } else if geometry.access == block::Access::ReadOnly && (is_zeroing || request.op == Op::Write)
    {
        Some(Status::ReadOnly)
    } else if is_zeroing && geometry.zeroing == Zeroing::Unsupported {
        Some(Status::Unsupported)
    } else {
        None
    }
}
