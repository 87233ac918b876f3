//! One serving thread: fetches every tag of its devices, answers reads with zeros, ends when every tag is aborted.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use block::{DeviceId, Op, QueueId, Request, Status, Tag};
use reactor::uring::{Uring, UringLimits};
use reactor::{Op as RingOp, Ring, RingFile, Token, Wait};
use ublk::{CharDevice, DescriptorMap, IoCommand, Registration};

/// Tags of a device.
pub(crate) const DEPTH: u16 = 16;
const QUEUE: QueueId = QueueId(0);
/// Zeros to answer reads with; longer reads take several copies.
const ZEROS: [u8; 4096] = [0; 4096];

struct Served {
    device: Arc<CharDevice>,
    file: RingFile,
    descriptors: DescriptorMap,
}

/// Serves the devices until all are stopped, and returns them still open.
pub(crate) fn serve(ids: &[DeviceId]) -> Result<Vec<Arc<CharDevice>>> {
    let mut ring = Uring::new(UringLimits::default())?;
    let served = ids
        .iter()
        .map(|id| {
            let device = Arc::new(CharDevice::open(&ublk::char_node(*id))?);
            let holder = Arc::clone(&device);
            let descriptors = device.map_queue(QUEUE, DEPTH, ublk::abi::io::IO_DESC_BYTES)?;
            Ok(Served {
                device,
                file: RingFile::held_by(holder),
                descriptors,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    for (index, served) in served.iter().enumerate() {
        for tag in 0..DEPTH {
            push(
                &mut ring,
                served,
                (index, Tag(tag)),
                IoCommand::fetch(QUEUE, Tag(tag), Registration::Nowhere),
            );
        }
    }
    let mut armed = served.len() * usize::from(DEPTH);
    while armed > 0 {
        ring.enter(Wait::One)?;
        while let Some(completion) = ring.poll_completion() {
            let (index, tag) = split(completion.token)?;
            let device = served.get(index).context("an answer for no device")?;
            if completion.result != ublk::abi::io::UBLK_IO_RES_OK {
                ensure!(
                    completion.result == ublk::abi::io::UBLK_IO_RES_ABORT,
                    "the kernel refused a command: {}",
                    completion.result
                );
                armed -= 1;
                continue;
            }
            let commit =
                IoCommand::commit_and_fetch(QUEUE, tag, device.answer(tag), Registration::Nowhere);
            push(&mut ring, device, (index, tag), commit);
        }
    }
    Ok(served.into_iter().map(|served| served.device).collect())
}

impl Served {
    fn answer(&self, tag: Tag) -> i32 {
        let request = self.descriptors.descriptor(tag).map(|desc| desc.parse());
        match request {
            Some(Ok(request)) => ublk::commit_result(&request, self.fill(tag, &request)),
            Some(Err(status)) => -status.errno(),
            None => -Status::Io.errno(),
        }
    }

    fn fill(&self, tag: Tag, request: &Request) -> Status {
        if request.op != Op::Read {
            return Status::Ok;
        }
        let mut left = request.data_len_bytes();
        let mut offset = 0;
        while left > 0 {
            let piece = usize::try_from(left)
                .unwrap_or(ZEROS.len())
                .min(ZEROS.len());
            let zeros = ZEROS.get(..piece).unwrap_or(&ZEROS);
            match self.device.copy_to_request(QUEUE, tag, offset, zeros) {
                Ok(copied) if copied == piece => {}
                Ok(_) => return Status::Io,
                Err(status) => return status,
            }
            left -= piece as u64;
            offset += u32::try_from(piece).unwrap_or(u32::MAX);
        }
        Status::Ok
    }
}

fn push(ring: &mut Uring, served: &Served, (index, tag): (usize, Tag), command: IoCommand) {
    let op = RingOp::Command {
        file: &served.file,
        code: command.opcode,
        payload: command.payload,
        address: command.address,
    };
    ring.push(op, Token((index as u64) << u16::BITS | u64::from(tag.0)));
}

fn split(token: Token) -> Result<(usize, Tag)> {
    let index = usize::try_from(token.0 >> u16::BITS).context("an answer for no device")?;
    let tag = u16::try_from(token.0 & u64::from(u16::MAX)).context("an answer for no tag")?;
    Ok((index, Tag(tag)))
}
