//! Execution of plans: every step of a phase at once. A step is recorded only when it does not end at once.
//!
//! What each kind of step does: data that travels as it is, [`crate::transfer`]; data that the target takes or makes,
//! [`crate::exchange`]; the rest is here.

use block::{DataRange, Request, Status, Step};
use reactor::buffer::Buffer;
use reactor::{Op, Ring};

use crate::device::{IoRef, StepRun, Way};
use crate::exchange::Exchange;
use crate::port::QueuePort;
use crate::recorded::{Progress, RETRIES_MAX};
use crate::shard::Shard;
use crate::token::Owner;
use crate::transfer::{Advance, Lane, Pushed, Transfer};

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;

// linux/falloc.h
const FALLOC_FL_KEEP_SIZE: i32 = 0x01;
const FALLOC_FL_PUNCH_HOLE: i32 = 0x02;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;

/// What became of the steps of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanRun {
    /// Steps that have not ended.
    pub(crate) outstanding: u16,
    /// The first failure of those that have.
    pub(crate) status: Status,
}

impl PlanRun {
    /// A plan without steps.
    pub(crate) const NOTHING: Self = Self {
        outstanding: 0,
        status: Status::Ok,
    };
}

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    /// Starts every step of the shard's plan for a request.
    pub(crate) fn run_plan(&mut self, io: IoRef, request: &Request) -> PlanRun {
        let mut run = PlanRun::NOTHING;
        let count = self.plan.steps().len();
        debug_assert!(
            self.devices
                .get(io.device as usize)
                .is_none_or(|device| device.has_room()),
            "no phase begins without room"
        );
        for index in 0..count {
            let Some(step) = self.plan.steps().get(index).copied() else {
                break;
            };
            match self.start_step(io, request, step) {
                Progress::Ended(status) => run.status = run.status.and(status),
                Progress::Pending => run.outstanding += 1,
            }
        }
        run
    }

    fn start_step(&mut self, io: IoRef, request: &Request, step: Step) -> Progress {
        if let Step::Zero { data } = step {
            return Progress::Ended(self.zero(io, data));
        }
        if let Some(exchange) = Exchange::of(&step) {
            return self.start_exchange((io, request), step, &exchange);
        }
        if let Some(transfer) = Transfer::of(&step) {
            let Some(mut lane) = self.lane(io) else {
                return Progress::Ended(Status::Gone);
            };
            if lane.in_kernel.is_full(lane.device.in_kernel) {
                // It would most likely have to wait, and a write would be copied in vain.
                let index = self.record_step(io, step);
                self.waiting.push_back(index);
                return Progress::Pending;
            }
            if let Some(slot) = lane.try_registered(&transfer) {
                let index = self.record_step(io, step);
                return self.push_registered(index, &transfer, (0, slot));
            }
            return match lane.advance(&transfer, 0, None) {
                Advance::Ended(status) => Progress::Ended(status),
                later => {
                    let index = self.record_step(io, step);
                    self.go_on(index, &transfer, later)
                }
            };
        }
        let index = self.record_step(io, step);
        let progress = self.push_plain(index, io, &step);
        if let Progress::Ended(_) = progress {
            self.forget_step(index);
        }
        progress
    }

    fn lane(&mut self, io: IoRef) -> Option<Lane<'_, R, Q>> {
        let queue = self.queues.get(io.queue as usize)?;
        Some(Lane {
            ring: &mut self.ring,
            buffers: &mut self.buffers,
            in_kernel: &mut self.in_kernel,
            device: self.devices.get_mut(io.device as usize)?,
            port: &queue.port,
            tag: io.tag,
            slots: queue.slots,
        })
    }

    /// Does what a recorded transfer that has come to `advance` needs next.
    fn go_on(&mut self, index: u32, transfer: &Transfer, advance: Advance) -> Progress {
        let done = match &advance {
            Advance::Ended(status) => {
                let status = *status;
                self.forget_step(index);
                return Progress::Ended(status);
            }
            Advance::Ring { done, .. } | Advance::NoBuffer { done } => *done,
        };
        let io = self.steps.get_mut(index as usize).and_then(|run| {
            run.done = done;
            run.io
        });
        let Advance::Ring { buffer, .. } = advance else {
            self.waiting.push_back(index);
            return Progress::Pending;
        };
        let token = Owner::Step { step: index }.pack();
        let pushed = io
            .and_then(|io| self.lane(io))
            .map_or(Err(Status::Gone), |mut lane| {
                lane.push(transfer, done, buffer, token)
            });
        match pushed {
            Ok(Pushed::OnRing) => Progress::Pending,
            Ok(Pushed::MustWait) => {
                self.waiting.push_back(index);
                Progress::Pending
            }
            Err(status) => {
                debug_assert!(false, "a transfer that had its file a moment ago");
                self.forget_step(index);
                Progress::Ended(status)
            }
        }
    }

    /// Puts a recorded read that goes on after `done` bytes on the ring, into the slot.
    fn push_registered(
        &mut self,
        index: u32,
        transfer: &Transfer,
        (done, slot): (u32, u16),
    ) -> Progress {
        let io = self.steps.get_mut(index as usize).and_then(|run| {
            (run.done, run.way) = (done, Way::Registered);
            run.io
        });
        let token = Owner::Step { step: index }.pack();
        let pushed = io
            .and_then(|io| self.lane(io))
            .map_or(Err(Status::Gone), |mut lane| {
                lane.push_registered(transfer, (done, slot), token)
            });
        match pushed {
            Ok(()) => Progress::Pending,
            Err(status) => {
                debug_assert!(false, "a transfer that had its file a moment ago");
                self.forget_step(index);
                Progress::Ended(status)
            }
        }
    }

    /// A read into a slot ended: goes on with what it did not do. A failure is nothing to report, the ring will meet it again.
    fn end_registered(
        &mut self,
        index: u32,
        (io, run): (IoRef, &StepRun),
        result: i32,
    ) -> Progress {
        let (Some(transfer), Some(mut lane)) = (Transfer::of(&run.step), self.lane(io)) else {
            debug_assert!(false, "a read of a device that is gone");
            self.forget_step(index);
            return Progress::Ended(Status::Gone);
        };
        let len = lane.on_read_registered(&transfer, result);
        let done = run.done.saturating_add(len);
        if done >= transfer.len_bytes() {
            self.forget_step(index);
            return Progress::Ended(Status::Ok);
        }
        if len > 0
            && let Some(slot) = lane.try_registered(&transfer)
        {
            return self.push_registered(index, &transfer, (done, slot));
        }
        let advance = lane.by_ring(&transfer, done);
        if let Some(run) = self.steps.get_mut(index as usize) {
            run.way = Way::Buffered;
        }
        self.go_on(index, &transfer, advance)
    }

    fn zero(&mut self, io: IoRef, data: DataRange) -> Status {
        let Some(queue) = self.queues.get(io.queue as usize) else {
            return Status::Gone;
        };
        let mut done = 0;
        while done < data.len {
            let len = (data.len - done).min(u32::try_from(self.zeros.len()).unwrap_or(u32::MAX));
            let Some(zeros) = self.zeros.get(..len as usize) else {
                return Status::Io;
            };
            let status = queue.port.copy_to_request(io.tag, data.start + done, zeros);
            if !status.is_ok() {
                return status;
            }
            done += len;
        }
        Status::Ok
    }

    /// Puts a step that moves no data on the ring, or lets it wait.
    fn push_plain(&mut self, index: u32, io: IoRef, step: &Step) -> Progress {
        let Some(device) = self.devices.get_mut(io.device as usize) else {
            return Progress::Ended(Status::Gone);
        };
        let (file, mode, range) = match *step {
            Step::Sync { file } => (file, 0, None),
            Step::Punch { file, offset, len } => {
                let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
                (file, mode, Some((offset, len)))
            }
            Step::ZeroRange { file, offset, len } => {
                let mode = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
                (file, mode, Some((offset, len)))
            }
            Step::Allocate { file, offset, len } => {
                (file, FALLOC_FL_KEEP_SIZE, Some((offset, len)))
            }
            Step::Zero { .. }
            | Step::Read { .. }
            | Step::Write { .. }
            | Step::Fetch(_)
            | Step::Store { .. } => {
                return Progress::Ended(Status::Io);
            }
        };
        let Some(file) = device.files.get(usize::from(file.0)) else {
            return Progress::Ended(Status::Io);
        };
        if !self.in_kernel.try_begin(&mut device.in_kernel) {
            self.waiting.push_back(index);
            return Progress::Pending;
        }
        let op = match range {
            None => Op::Sync { file },
            Some((offset, len)) => Op::Allocate {
                file,
                offset_bytes: offset.0,
                len_bytes: len.0,
                mode,
            },
        };
        self.ring.push(op, Owner::Step { step: index }.pack());
        Progress::Pending
    }

    /// A step's operation completed.
    pub(crate) fn handle_step(&mut self, index: u32, result: i32, buffer: Option<Buffer>) {
        let Some(run) = self.steps.get(index as usize).copied() else {
            debug_assert!(false, "a completion of a step that is gone");
            return;
        };
        let Some(io) = run.io else {
            // The request was answered without it; only now may the buffer be used again.
            if run.way == Way::Buffered {
                self.in_kernel.end_disowned();
            }
            if let Some(buffer) = buffer {
                self.buffers.drop_disowned(buffer);
            }
            self.steps.remove(index as usize);
            return;
        };
        if run.way == Way::Registered {
            if let Progress::Ended(status) = self.end_registered(index, (io, &run), result) {
                self.end_step(io, status);
            }
            return;
        }
        let is_retried = (result == -EINTR || result == -EAGAIN) && run.retries < RETRIES_MAX;
        if let Some(exchange) = Exchange::of(&run.step) {
            let moved = if is_retried { Ok(0) } else { moved(result) };
            if let Progress::Ended(status) =
                self.end_exchange((index, io), &run, &exchange, (moved, buffer))
            {
                self.end_step(io, status);
            }
            return;
        }
        if let Some(device) = self.devices.get_mut(io.device as usize) {
            self.in_kernel.end(&mut device.in_kernel);
        }
        if let Some(slot) = self.steps.get_mut(index as usize) {
            slot.retries = if is_retried { run.retries + 1 } else { 0 };
        }
        let progress = match (Transfer::of(&run.step), buffer) {
            (Some(transfer), Some(buffer)) => {
                let result = if is_retried { Ok(0) } else { moved(result) };
                self.end_piece((index, run.done), io, &transfer, (result, buffer))
            }
            _ if is_retried => self.push_plain(index, io, &run.step),
            _ => {
                self.forget_step(index);
                Progress::Ended(Status::from_errno(result.min(0).saturating_neg()))
            }
        };
        if let Progress::Ended(status) = progress {
            self.end_step(io, status);
        }
    }

    /// A read or write of a piece completed: takes the data over and goes on with the next piece.
    fn end_piece(
        &mut self,
        (index, done): (u32, u32),
        io: IoRef,
        transfer: &Transfer,
        (result, buffer): (Result<u32, Status>, Buffer),
    ) -> Progress {
        let Some(mut lane) = self.lane(io) else {
            self.buffers.drop_disowned(buffer);
            self.forget_step(index);
            return Progress::Ended(Status::Gone);
        };
        let copied = result.and_then(|len| {
            if !transfer.is_read() || len == 0 {
                return Ok(len);
            }
            let at = transfer.request_offset(done);
            let status = lane.port.copy_to_request(io.tag, at, buffer.bytes(len));
            if status.is_ok() { Ok(len) } else { Err(status) }
        });
        let advance = match copied {
            Ok(len) if done.saturating_add(len) < transfer.len_bytes() => {
                lane.advance(transfer, done + len, Some(buffer))
            }
            ended => {
                lane.buffers.give_back(&mut lane.device.buffers, buffer);
                Advance::Ended(ended.err().unwrap_or(Status::Ok))
            }
        };
        self.go_on(index, transfer, advance)
    }

    /// Goes on with the steps that wait, oldest first, as far as buffers and operations go.
    pub(crate) fn resume_waiting(&mut self) {
        // Both, or one would be remembered for a later turn.
        let (returned, ended) = (self.buffers.take_returned(), self.in_kernel.take_ended());
        if !returned && !ended {
            return;
        }
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else {
                return;
            };
            let Some(run) = self.steps.get(index as usize).copied() else {
                continue;
            };
            let Some(io) = run.io else {
                self.steps.remove(index as usize);
                continue;
            };
            if let Progress::Ended(status) = self.resume(index, io, &run) {
                self.end_step(io, status);
            }
        }
    }

    fn resume(&mut self, index: u32, io: IoRef, run: &StepRun) -> Progress {
        let Some(mut lane) = self.lane(io) else {
            return Progress::Ended(Status::Gone);
        };
        if !lane.in_kernel.has_room(lane.device.in_kernel) {
            self.waiting.push_back(index);
            return Progress::Pending;
        }
        if let Some(exchange) = Exchange::of(&run.step) {
            return self.resume_exchange(index, io, &exchange);
        }
        let Some(transfer) = Transfer::of(&run.step) else {
            return self.push_plain(index, io, &run.step);
        };
        let advance = lane.advance(&transfer, run.done, None);
        self.go_on(index, &transfer, advance)
    }
}

/// The bytes that an operation moved. None at all is a failure: the file ends inside the device, or the disk took nothing.
fn moved(result: i32) -> Result<u32, Status> {
    match u32::try_from(result) {
        Err(_) => Err(Status::from_errno(result.saturating_neg())),
        Ok(0) => Err(Status::Io),
        Ok(len) => Ok(len),
    }
}
