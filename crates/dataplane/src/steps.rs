//! Execution of plans: every step of a phase at once, data by way of a buffer that the step holds only while it runs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use block::{DataRange, Durability, FileIndex, Status, Step};
use reactor::buffer::Buffer;
use reactor::{Op, Ring, WriteMode};

use crate::device::{IoRef, StepRun};
use crate::port::QueuePort;
use crate::shard::Shard;
use crate::token::Owner;

/// How often in a row a step that made no progress (EINTR, EAGAIN) is tried again before it fails.
const RETRIES_MAX: u8 = 16;

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;

// linux/falloc.h
const FALLOC_FL_KEEP_SIZE: i32 = 0x01;
const FALLOC_FL_PUNCH_HOLE: i32 = 0x02;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;

/// What became of a step.
enum Progress {
    /// It is on the ring or waits for a buffer.
    Pending,
    /// It has ended.
    Ended(Status),
}

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    /// Executes the shard's plan for a request.
    pub(crate) fn run_plan(&mut self, io: IoRef) {
        let Some(device) = self.devices.get_mut(io.device as usize) else {
            return;
        };
        let count = self.plan.steps().len();
        if device.steps + count > device.steps_max {
            // Only plans of many steps get here, when this device has many such requests in flight: see STEPS_EXTRA.
            return self.complete(io, Status::NoMemory);
        }
        let Some(slot) = self.io_mut(io) else { return };
        // One more than the steps: held by this function, so that the phase cannot end before all steps are started.
        slot.outstanding = u16::try_from(count + 1).unwrap_or(u16::MAX);
        slot.status = Status::Ok;
        let cookie = self.plan.cookie;
        if let Some(slot) = self.io_mut(io) {
            slot.cookie = cookie;
        }
        let mut status = Status::Ok;
        let mut ended = 1;
        for index in 0..count {
            let Some(step) = self.plan.steps().get(index).copied() else {
                break;
            };
            if let Progress::Ended(result) = self.start_step(io, step) {
                status = status.and(result);
                ended += 1;
            }
        }
        self.end_steps(io, ended, status);
    }

    fn start_step(&mut self, io: IoRef, step: Step) -> Progress {
        if let Step::Zero { data } = step {
            return Progress::Ended(self.zero(io, data));
        }
        if let Some(device) = self.devices.get_mut(io.device as usize) {
            device.steps += 1;
        }
        let run = StepRun {
            io: Some(io),
            step,
            done: 0,
            retries: 0,
            has_buffer: false,
        };
        let index = u32::try_from(self.steps.insert(run)).unwrap_or(u32::MAX);
        let progress = self.push_step(index);
        if let Progress::Ended(_) = progress {
            self.forget_step(index);
        }
        progress
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

    /// Puts the rest of a step on the ring, if it can have what it needs.
    fn push_step(&mut self, index: u32) -> Progress {
        let Some(run) = self.steps.get(index as usize).copied() else {
            return Progress::Ended(Status::Io);
        };
        let Some(io) = run.io else {
            return Progress::Ended(Status::Gone);
        };
        let Some(device) = self.devices.get_mut(io.device as usize) else {
            return Progress::Ended(Status::Gone);
        };
        let Some(file) = file_of(&run.step).and_then(|file| device.files.get(usize::from(file.0)))
        else {
            return Progress::Ended(Status::Io);
        };
        let token = Owner::Step { step: index }.pack();
        let op = match run.step {
            Step::Zero { .. } => return Progress::Ended(Status::Ok),
            Step::Read { data, .. } | Step::Write { data, .. } => {
                let left = data.len - run.done;
                let Some(buffer) = self.buffers.try_take(&mut device.buffers, left) else {
                    self.waiting.push_back(index);
                    return Progress::Pending;
                };
                if let Some(run) = self.steps.get_mut(index as usize) {
                    run.has_buffer = true;
                }
                return self.push_transfer(index, run, buffer);
            }
            Step::Sync { .. } => Op::Sync { file },
            Step::Punch { offset, len, .. } => Op::Allocate {
                file,
                offset_bytes: offset.0,
                len_bytes: len.0,
                mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            },
            Step::ZeroRange { offset, len, .. } => Op::Allocate {
                file,
                offset_bytes: offset.0,
                len_bytes: len.0,
                mode: FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
            },
            Step::Allocate { offset, len, .. } => Op::Allocate {
                file,
                offset_bytes: offset.0,
                len_bytes: len.0,
                mode: FALLOC_FL_KEEP_SIZE,
            },
        };
        self.ring.push(op, token);
        Progress::Pending
    }

    /// Puts the next piece of a read or write on the ring.
    fn push_transfer(&mut self, index: u32, run: StepRun, mut buffer: Buffer) -> Progress {
        let Some(io) = run.io else {
            return Progress::Ended(Status::Gone);
        };
        let (Some(device), Some(queue)) = (
            self.devices.get_mut(io.device as usize),
            self.queues.get(io.queue as usize),
        ) else {
            return Progress::Ended(Status::Gone);
        };
        let token = Owner::Step { step: index }.pack();
        match run.step {
            Step::Read { file, offset, data } => {
                let Some(file) = device.files.get(usize::from(file.0)) else {
                    return Progress::Ended(Status::Io);
                };
                let len_bytes = (data.len - run.done).min(buffer.capacity_bytes());
                let offset_bytes = offset.advanced(u64::from(run.done)).0;
                self.ring.push(
                    Op::Read {
                        file,
                        offset_bytes,
                        len_bytes,
                        buffer,
                    },
                    token,
                );
            }
            Step::Write {
                file,
                offset,
                data,
                durability,
            } => {
                let Some(file) = device.files.get(usize::from(file.0)) else {
                    return Progress::Ended(Status::Io);
                };
                let len_bytes = (data.len - run.done).min(buffer.capacity_bytes());
                let bytes = buffer.bytes_mut(len_bytes);
                let copied = queue
                    .port
                    .copy_from_request(io.tag, data.start + run.done, bytes);
                if !copied.is_ok() {
                    self.buffers.give_back(&mut device.buffers, buffer);
                    if let Some(run) = self.steps.get_mut(index as usize) {
                        run.has_buffer = false;
                    }
                    return Progress::Ended(copied);
                }
                let offset_bytes = offset.advanced(u64::from(run.done)).0;
                let mode = match durability {
                    Durability::Volatile => WriteMode::Volatile,
                    Durability::Durable => WriteMode::Durable,
                };
                self.ring.push(
                    Op::Write {
                        file,
                        offset_bytes,
                        len_bytes,
                        buffer,
                        mode,
                    },
                    token,
                );
            }
            _ => return Progress::Ended(Status::Io),
        }
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
            if let Some(buffer) = buffer {
                self.buffers.drop_disowned(buffer);
            }
            self.steps.remove(index as usize);
            return;
        };
        let progress = match (run.step, buffer) {
            (Step::Read { .. } | Step::Write { .. }, Some(buffer)) => {
                self.end_transfer(index, run, result, buffer)
            }
            _ if is_retry(result) && run.retries < RETRIES_MAX => {
                self.note_retry(index);
                self.push_step(index)
            }
            _ if result < 0 => Progress::Ended(Status::from_errno(-result)),
            _ => Progress::Ended(Status::Ok),
        };
        if let Progress::Ended(status) = progress {
            self.forget_step(index);
            self.end_steps(io, 1, status);
        }
    }

    /// A read or write of a piece completed: takes the data over and goes on with the next piece.
    fn end_transfer(&mut self, index: u32, run: StepRun, result: i32, buffer: Buffer) -> Progress {
        let (Step::Read { data, .. } | Step::Write { data, .. }) = run.step else {
            return Progress::Ended(Status::Io);
        };
        let is_read = matches!(run.step, Step::Read { .. });
        let status = match u32::try_from(result) {
            Err(_) if is_retry(result) && run.retries < RETRIES_MAX => {
                self.note_retry(index);
                return self.push_transfer(index, run, buffer);
            }
            Err(_) => Status::from_errno(-result),
            // The file ends inside the device (it was cut short), or the disk took nothing.
            Ok(0) => Status::Io,
            Ok(len) if is_read => {
                let copied = run.io.and_then(|io| {
                    let queue = self.queues.get(io.queue as usize)?;
                    Some(queue.port.copy_to_request(
                        io.tag,
                        data.start + run.done,
                        buffer.bytes(len),
                    ))
                });
                copied.unwrap_or(Status::Gone)
            }
            Ok(_) => Status::Ok,
        };
        let done = run.done.saturating_add(u32::try_from(result).unwrap_or(0));
        let run = StepRun {
            done,
            retries: 0,
            ..run
        };
        if let Some(slot) = self.steps.get_mut(index as usize) {
            *slot = run;
        }
        if status.is_ok() && done < data.len {
            return self.push_transfer(index, run, buffer);
        }
        if let Some(device) = run
            .io
            .and_then(|io| self.devices.get_mut(io.device as usize))
        {
            self.buffers.give_back(&mut device.buffers, buffer);
        }
        Progress::Ended(status)
    }

    fn note_retry(&mut self, index: u32) {
        if let Some(run) = self.steps.get_mut(index as usize) {
            run.retries += 1;
        }
    }

    fn forget_step(&mut self, index: u32) {
        let run = self.steps.remove(index as usize);
        if let Some(device) = run
            .io
            .and_then(|io| self.devices.get_mut(io.device as usize))
        {
            device.steps = device.steps.saturating_sub(1);
        }
    }

    /// Counts steps as ended; after the last one the target says how the request goes on.
    fn end_steps(&mut self, io: IoRef, count: u16, status: Status) {
        let Some(slot) = self.io_mut(io) else { return };
        slot.status = slot.status.and(status);
        slot.outstanding = slot.outstanding.saturating_sub(count);
        if slot.outstanding > 0 {
            return;
        }
        let (request, status, cookie) = (slot.request, slot.status, slot.cookie);
        let Some(device) = self.devices.get_mut(io.device as usize) else {
            return;
        };
        if device.poisoned {
            return self.complete(io, Status::Io);
        }
        self.plan.reset(cookie);
        let (target, plan) = (&mut device.target, &mut self.plan);
        let verdict = catch_unwind(AssertUnwindSafe(|| {
            target.handle_phase_end(&request, status, plan)
        }));
        self.follow(io, verdict);
    }

    /// Gives buffers to the steps that wait for one, oldest first, as far as they go.
    pub(crate) fn resume_waiting(&mut self) {
        if !self.buffers.take_returned() {
            return;
        }
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else {
                return;
            };
            let Some(io) = self.steps.get(index as usize).map(|run| run.io) else {
                continue;
            };
            let Some(io) = io else {
                self.steps.remove(index as usize);
                continue;
            };
            if let Progress::Ended(status) = self.push_step(index) {
                self.forget_step(index);
                self.end_steps(io, 1, status);
            }
        }
    }

    fn io_mut(&mut self, io: IoRef) -> Option<&mut crate::device::Io> {
        self.queues
            .get_mut(io.queue as usize)?
            .ios
            .get_mut(usize::from(io.tag.0))
    }
}

const fn is_retry(result: i32) -> bool {
    result == -EINTR || result == -EAGAIN
}

const fn file_of(step: &Step) -> Option<FileIndex> {
    match step {
        Step::Zero { .. } => None,
        Step::Read { file, .. }
        | Step::Write { file, .. }
        | Step::Sync { file }
        | Step::Punch { file, .. }
        | Step::ZeroRange { file, .. }
        | Step::Allocate { file, .. } => Some(*file),
    }
}
