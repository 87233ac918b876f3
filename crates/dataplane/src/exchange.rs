//! Steps whose bytes the target takes or makes itself: in one buffer, whole, handed over on the shard's thread.
//!
//! ```text
//!   Fetch   file --> buffer --> Target::handle_fetched --> request's data
//!   Store   request's data --> Target::fill_stored --> buffer --> file
//! ```
//!
//! A fetch that the kernel cuts short begins again, for what is handed over is whole; a store goes on with the rest of its bytes,
//! which were made once. Either keeps its buffer and its place among the operations until it ends.

use std::panic::{AssertUnwindSafe, catch_unwind};

use block::{Durability, Handover, Request, RequestData, Status, Step, Tag};
use reactor::buffer::Buffer;
use reactor::{Op, Ring, WriteMode};

use crate::device::{IoRef, StepRun};
use crate::port::QueuePort;
use crate::recorded::{Progress, RETRIES_MAX};
use crate::shard::Shard;
use crate::token::Owner;

/// A step of this kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    handover: Handover,
    direction: Direction,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Fetch,
    Store(Durability),
}

/// The data of the request in a tag.
struct TagData<'a, Q> {
    port: &'a Q,
    tag: Tag,
}

impl<Q: QueuePort> RequestData for TagData<'_, Q> {
    fn copy_from(&mut self, start: u32, bytes: &mut [u8]) -> Status {
        self.port.copy_from_request(self.tag, start, bytes)
    }

    fn copy_to(&mut self, start: u32, bytes: &[u8]) -> Status {
        self.port.copy_to_request(self.tag, start, bytes)
    }
}

impl Exchange {
    /// The exchange of a step; `None` for another one.
    #[inline]
    pub(crate) const fn of(step: &Step) -> Option<Self> {
        let (handover, direction) = match *step {
            Step::Fetch(handover) => (handover, Direction::Fetch),
            Step::Store {
                handover,
                durability,
            } => (handover, Direction::Store(durability)),
            Step::Zero { .. }
            | Step::Read { .. }
            | Step::Write { .. }
            | Step::Sync { .. }
            | Step::Punch { .. }
            | Step::ZeroRange { .. }
            | Step::Allocate { .. } => return None,
        };
        Some(Self {
            handover,
            direction,
        })
    }
}

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    pub(crate) fn start_exchange(
        &mut self,
        (io, request): (IoRef, &Request),
        step: Step,
        exchange: &Exchange,
    ) -> Progress {
        if exchange.handover.len == 0 {
            return Progress::Ended(self.hand_over((io, request), exchange, &mut []));
        }
        let Some(mut buffer) = self.take_buffer(io, exchange) else {
            let index = self.record_step(io, step);
            self.waiting.push_back(index);
            return Progress::Pending;
        };
        if matches!(exchange.direction, Direction::Fetch)
            && self.try_fetch(io, exchange, &mut buffer)
        {
            if self.may_hand_over(io) {
                return Progress::Ended(self.end_with_buffer((io, request), exchange, buffer));
            }
            let index = self.record_step(io, step);
            self.put_off(index, io, buffer);
            return Progress::Pending;
        }
        let index = self.record_step(io, step);
        self.fill_and_push((index, io), request, exchange, buffer)
    }

    /// Goes on with an exchange that waited for a buffer or for an operation to end.
    pub(crate) fn resume_exchange(
        &mut self,
        index: u32,
        io: IoRef,
        exchange: &Exchange,
    ) -> Progress {
        let Some(request) = self.io(io).map(|io| io.request) else {
            self.forget_step(index);
            return Progress::Ended(Status::Gone);
        };
        let Some(buffer) = self.take_buffer(io, exchange) else {
            self.waiting.push_back(index);
            return Progress::Pending;
        };
        self.fill_and_push((index, io), &request, exchange, buffer)
    }

    /// The operation of an exchange completed and moved so many bytes.
    pub(crate) fn end_exchange(
        &mut self,
        (index, io): (u32, IoRef),
        run: &StepRun,
        exchange: &Exchange,
        (moved, buffer): (Result<u32, Status>, Option<Buffer>),
    ) -> Progress {
        let request = self.io(io).map(|io| io.request);
        let (Some(mut buffer), Some(request)) = (buffer, request) else {
            debug_assert!(false, "an exchange without a buffer or a request");
            self.forget_step(index);
            return Progress::Ended(Status::Io);
        };
        let done = run.done.saturating_add(*moved.as_ref().unwrap_or(&0));
        let left = exchange.handover.len.saturating_sub(done);
        let status = match (moved, exchange.direction) {
            (Err(status), _) => status,
            (Ok(_), _) if left == 0 => Status::Ok,
            (Ok(0), _) => {
                return self.push_again((index, io), exchange, (run.done, run.retries + 1), buffer);
            }
            // Whole or not at all.
            (Ok(_), Direction::Fetch) => {
                return self.push_again((index, io), exchange, (0, run.retries + 1), buffer);
            }
            (Ok(len), Direction::Store(_)) => {
                let bytes = buffer.bytes_mut(left.saturating_add(len));
                bytes.copy_within(len as usize.., 0);
                return self.push_again((index, io), exchange, (done, 0), buffer);
            }
        };
        self.end_operation(io);
        if status.is_ok() && matches!(exchange.direction, Direction::Fetch) {
            if !self.may_hand_over(io) {
                self.put_off(index, io, buffer);
                return Progress::Pending;
            }
            self.forget_step(index);
            return Progress::Ended(self.end_with_buffer((io, &request), exchange, buffer));
        }
        self.forget_step(index);
        self.give_back(io, buffer);
        Progress::Ended(status)
    }

    /// A buffer for all of it, if there may also be an operation.
    fn take_buffer(&mut self, io: IoRef, exchange: &Exchange) -> Option<Buffer> {
        let device = self.devices.get_mut(io.device as usize)?;
        if !self.in_kernel.has_room(device.in_kernel) {
            return None;
        }
        let len = exchange.handover.len;
        self.buffers
            .try_take_whole(&mut device.buffers, &device.own_buffers, len)
    }

    /// Reads all of it if that does not wait.
    fn try_fetch(&mut self, io: IoRef, exchange: &Exchange, buffer: &mut Buffer) -> bool {
        let Handover {
            file, offset, len, ..
        } = exchange.handover;
        let device = self.devices.get(io.device as usize);
        let file = device.and_then(|device| device.files.get(usize::from(file.0)));
        file.is_some_and(|file| {
            self.ring.try_read(file, offset.0, buffer.bytes_mut(len)) == Some(len)
        })
    }

    /// Lets the target make the bytes of a store, and puts the operation on the ring.
    fn fill_and_push(
        &mut self,
        (index, io): (u32, IoRef),
        request: &Request,
        exchange: &Exchange,
        mut buffer: Buffer,
    ) -> Progress {
        if matches!(exchange.direction, Direction::Store(_)) {
            let bytes = buffer.bytes_mut(exchange.handover.len);
            let filled = self.hand_over((io, request), exchange, bytes);
            if !filled.is_ok() {
                self.give_back(io, buffer);
                self.forget_step(index);
                return Progress::Ended(filled);
            }
        }
        let begun = self
            .devices
            .get_mut(io.device as usize)
            .is_some_and(|device| self.in_kernel.try_begin(&mut device.in_kernel));
        debug_assert!(begun, "there was room a moment ago");
        self.push((index, io), exchange, 0, buffer)
    }

    /// Puts an operation back on the ring, from `done` bytes on, unless it was tried often enough without getting on.
    fn push_again(
        &mut self,
        (index, io): (u32, IoRef),
        exchange: &Exchange,
        (done, retries): (u32, u8),
        buffer: Buffer,
    ) -> Progress {
        if retries > RETRIES_MAX {
            self.end_operation(io);
            self.give_back(io, buffer);
            self.forget_step(index);
            return Progress::Ended(Status::Io);
        }
        if let Some(run) = self.steps.get_mut(index as usize) {
            run.done = done;
            run.retries = retries;
        }
        self.push((index, io), exchange, done, buffer)
    }

    fn push(
        &mut self,
        (index, io): (u32, IoRef),
        exchange: &Exchange,
        done: u32,
        buffer: Buffer,
    ) -> Progress {
        let Handover {
            file, offset, len, ..
        } = exchange.handover;
        let device = self.devices.get(io.device as usize);
        let Some(file) = device.and_then(|device| device.files.get(usize::from(file.0))) else {
            self.end_operation(io);
            self.give_back(io, buffer);
            self.forget_step(index);
            return Progress::Ended(Status::Io);
        };
        let (offset_bytes, len_bytes) = (offset.advanced(done.into()).0, len.saturating_sub(done));
        let op = match exchange.direction {
            Direction::Fetch => Op::Read {
                file,
                offset_bytes,
                len_bytes,
                buffer,
            },
            Direction::Store(durability) => Op::Write {
                file,
                offset_bytes,
                len_bytes,
                buffer,
                mode: match durability {
                    Durability::Volatile => WriteMode::Volatile,
                    Durability::Durable => WriteMode::Durable,
                },
            },
        };
        self.ring.push(op, Owner::Step { step: index }.pack());
        Progress::Pending
    }

    /// Hands the bytes that were fetched over, and gives the buffer back.
    pub(crate) fn end_with_buffer(
        &mut self,
        (io, request): (IoRef, &Request),
        exchange: &Exchange,
        mut buffer: Buffer,
    ) -> Status {
        let bytes = buffer.bytes_mut(exchange.handover.len);
        let status = self.hand_over((io, request), exchange, bytes);
        self.handed_bytes = self.handed_bytes.saturating_add(exchange.handover.data.len);
        self.give_back(io, buffer);
        status
    }

    fn hand_over(
        &mut self,
        (io, request): (IoRef, &Request),
        exchange: &Exchange,
        bytes: &mut [u8],
    ) -> Status {
        let (Some(device), Some(queue)) = (
            self.devices.get_mut(io.device as usize),
            self.queues.get(io.queue as usize),
        ) else {
            return Status::Gone;
        };
        if device.poisoned {
            return Status::Io;
        }
        let mut data = TagData {
            port: &queue.port,
            tag: io.tag,
        };
        let (target, handover) = (&mut device.target, &exchange.handover);
        let handed = catch_unwind(AssertUnwindSafe(|| match exchange.direction {
            Direction::Fetch => target.handle_fetched(request, handover, bytes, &mut data),
            Direction::Store(_) => target.fill_stored(request, handover, bytes, &mut data),
        }));
        handed.unwrap_or_else(|panic| {
            self.poison(io, &*panic);
            Status::Io
        })
    }

    fn end_operation(&mut self, io: IoRef) {
        if let Some(device) = self.devices.get_mut(io.device as usize) {
            self.in_kernel.end(&mut device.in_kernel);
        }
    }

    fn give_back(&mut self, io: IoRef, buffer: Buffer) {
        match self.devices.get_mut(io.device as usize) {
            Some(device) => self.buffers.give_back(&mut device.buffers, buffer),
            None => self.buffers.drop_disowned(buffer),
        }
    }
}
