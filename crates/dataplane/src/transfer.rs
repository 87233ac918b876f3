//! Moving the data of one read or write: at once where the file allows it, by the ring where it does not.
//!
//! A piece is as much as one buffer holds. As long as the file can be read or written without waiting, piece after piece goes
//! through one buffer and no step is ever recorded; the first piece that would wait, and what follows it, goes by the
//! ring. A durable write always does, because it waits for the disk by its meaning.
//!
//! A read whose request the driver has registered in the ring needs no buffer: its first attempt is an operation of the ring that
//! reads into the request and never waits. Whatever that does not do, for want of data in memory or for any other reason, is done
//! through a buffer by the ring. So every operation that can hang has a buffer of ours, and its request can be answered without it:
//! the kernel would not let go of a request that an operation still reads into.

use block::{ByteOffset, DataRange, Durability, FileIndex, Status, Step, Tag};
use reactor::buffer::Buffer;
use reactor::{Op, Ring, Token, WriteMode};

use crate::buffers::SharedBuffers;
use crate::device::Device;
use crate::in_kernel::InKernel;
use crate::port::QueuePort;
use crate::slots::SlotRun;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write(Durability),
}

/// A step that moves data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    file: FileIndex,
    offset: ByteOffset,
    data: DataRange,
    direction: Direction,
}

/// How far a transfer came.
pub(crate) enum Advance {
    /// It is over; no buffer is held.
    Ended(Status),
    /// The piece after `done` bytes must go by the ring, with this buffer. For a write its data is in the buffer.
    Ring { done: u32, buffer: Buffer },
    /// There is no buffer for the piece after `done` bytes.
    NoBuffer { done: u32 },
}

/// What became of a piece that goes by the ring.
pub(crate) enum Pushed {
    /// Its operation is on the ring.
    OnRing,
    /// The device has too many operations in the kernel; the piece's buffer went back.
    MustWait,
}

/// What a transfer touches beside its step.
pub(crate) struct Lane<'a, R: Ring, Q: QueuePort<File = R::File>> {
    pub(crate) ring: &'a mut R,
    pub(crate) buffers: &'a mut SharedBuffers,
    pub(crate) in_kernel: &'a mut InKernel,
    pub(crate) device: &'a mut Device<Q, R::File>,
    pub(crate) port: &'a Q,
    pub(crate) tag: Tag,
    /// Where the driver registers the data of the queue's requests.
    pub(crate) slots: Option<SlotRun>,
}

impl Transfer {
    /// The transfer of a step; `None` for a step that moves no data.
    #[inline]
    pub(crate) const fn of(step: &Step) -> Option<Self> {
        match *step {
            Step::Read { file, offset, data } => Some(Self {
                file,
                offset,
                data,
                direction: Direction::Read,
            }),
            Step::Write {
                file,
                offset,
                data,
                durability,
            } => Some(Self {
                file,
                offset,
                data,
                direction: Direction::Write(durability),
            }),
            Step::Zero { .. }
            | Step::Fetch(_)
            | Step::Store { .. }
            | Step::Sync { .. }
            | Step::Punch { .. }
            | Step::ZeroRange { .. }
            | Step::Allocate { .. } => None,
        }
    }

    /// Bytes of the step.
    pub(crate) const fn len_bytes(&self) -> u32 {
        self.data.len
    }

    /// Whether data comes from the file.
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self.direction, Direction::Read)
    }

    /// Where the rest after `done` bytes begins in the request's data.
    pub(crate) const fn request_offset(&self, done: u32) -> u32 {
        self.data.start.saturating_add(done)
    }

    const fn file_offset(&self, done: u32) -> u64 {
        self.offset.advanced(done as u64).0
    }

    /// Bytes of the piece after `done` bytes in a buffer of this capacity.
    fn piece(&self, done: u32, buffer: &Buffer) -> u32 {
        self.data
            .len
            .saturating_sub(done)
            .min(buffer.capacity_bytes())
    }
}

impl<R: Ring, Q: QueuePort<File = R::File>> Lane<'_, R, Q> {
    /// Moves what can be moved without waiting, from `done` bytes on. `buffer` is one that the transfer holds already.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        transfer: &Transfer,
        mut done: u32,
        mut buffer: Option<Buffer>,
    ) -> Advance {
        loop {
            let left = transfer.data.len.saturating_sub(done);
            let taken = buffer
                .take()
                .or_else(|| self.buffers.try_take(&mut self.device.buffers, left));
            let Some(mut held) = taken else {
                return Advance::NoBuffer { done };
            };
            let moved = match transfer.direction {
                Direction::Read => self.try_read(transfer, done, &mut held),
                Direction::Write(durability) => {
                    self.try_write(transfer, done, (&mut held, durability))
                }
            };
            match moved {
                Ok(None) => return Advance::Ring { done, buffer: held },
                Ok(Some(len)) => {
                    done = done.saturating_add(len);
                    if done < transfer.data.len {
                        buffer = Some(held);
                        continue;
                    }
                    self.buffers.give_back(&mut self.device.buffers, held);
                    return Advance::Ended(Status::Ok);
                }
                Err(status) => {
                    self.buffers.give_back(&mut self.device.buffers, held);
                    return Advance::Ended(status);
                }
            }
        }
    }

    /// The slot in which the request's data is; `None` when it can only be copied.
    #[inline]
    fn registered(&self) -> Option<u16> {
        let slots = self.slots?;
        let is_registered = self.port.is_registered(self.tag);
        is_registered.then(|| slots.slot(self.tag))
    }

    /// The slot to read into, if that is worth a try now.
    #[inline]
    pub(crate) fn try_registered(&mut self, transfer: &Transfer) -> Option<u16> {
        if !transfer.is_read() {
            return None;
        }
        let slot = self.registered()?;
        let file = file_of(self.device, transfer).ok()?;
        self.ring.may_read_registered(file).then_some(slot)
    }

    /// Puts a read of all that is left after `done` bytes on the ring, into the slot.
    #[inline]
    pub(crate) fn push_registered(
        &mut self,
        transfer: &Transfer,
        (done, slot): (u32, u16),
        token: Token,
    ) -> Result<(), Status> {
        let op = Op::ReadRegistered {
            file: file_of(self.device, transfer)?,
            offset_bytes: transfer.file_offset(done),
            len_bytes: transfer.data.len.saturating_sub(done),
            slot,
            start_bytes: transfer.request_offset(done),
        };
        self.ring.push(op, token);
        Ok(())
    }

    /// Takes the result of such a read over: the bytes that are there now.
    #[inline]
    pub(crate) fn on_read_registered(&mut self, transfer: &Transfer, result: i32) -> u32 {
        if let Ok(file) = file_of(self.device, transfer) {
            self.ring.on_read_registered(file, result);
        }
        let len = u32::try_from(result).unwrap_or(0);
        self.device.counters.zero_copy_bytes.add(len.into());
        len
    }

    /// A buffer for the piece after `done` bytes, which nothing was tried for.
    pub(crate) fn by_ring(&mut self, transfer: &Transfer, done: u32) -> Advance {
        let left = transfer.data.len.saturating_sub(done);
        match self.buffers.try_take(&mut self.device.buffers, left) {
            Some(buffer) => Advance::Ring { done, buffer },
            None => Advance::NoBuffer { done },
        }
    }

    /// Reads the next piece if that does not wait.
    #[inline]
    fn try_read(
        &mut self,
        transfer: &Transfer,
        done: u32,
        buffer: &mut Buffer,
    ) -> Result<Option<u32>, Status> {
        let file = file_of(self.device, transfer)?;
        if self.registered().is_some() {
            // Attempts are made on the ring only, or there would be twice as many as a file's misses allow.
            return Ok(None);
        }
        let len = transfer.piece(done, buffer);
        let bytes = buffer.bytes_mut(len);
        let Some(len) = self.ring.try_read(file, transfer.file_offset(done), bytes) else {
            return Ok(None);
        };
        let copied =
            self.port
                .copy_to_request(self.tag, transfer.request_offset(done), buffer.bytes(len));
        if copied.is_ok() {
            Ok(Some(len))
        } else {
            Err(copied)
        }
    }

    /// Takes the next piece out of the request and writes it if that does not wait.
    #[inline]
    fn try_write(
        &mut self,
        transfer: &Transfer,
        done: u32,
        (buffer, durability): (&mut Buffer, Durability),
    ) -> Result<Option<u32>, Status> {
        let file = file_of(self.device, transfer)?;
        let len = transfer.piece(done, buffer);
        let bytes = buffer.bytes_mut(len);
        let copied = self
            .port
            .copy_from_request(self.tag, transfer.request_offset(done), bytes);
        if !copied.is_ok() {
            return Err(copied);
        }
        // An allocation holds the file's lock for as long as it takes; a write beside it would wait for that.
        if durability == Durability::Durable || self.device.allocating > 0 {
            return Ok(None);
        }
        Ok(self.ring.try_write(file, transfer.file_offset(done), bytes))
    }

    /// Puts the piece after `done` bytes on the ring, if the device may have one more operation there.
    pub(crate) fn push(
        &mut self,
        transfer: &Transfer,
        done: u32,
        buffer: Buffer,
        token: Token,
    ) -> Result<Pushed, Status> {
        if !self.in_kernel.try_begin(&mut self.device.in_kernel) {
            self.buffers.give_back(&mut self.device.buffers, buffer);
            return Ok(Pushed::MustWait);
        }
        let len_bytes = transfer.piece(done, &buffer);
        let offset_bytes = transfer.file_offset(done);
        let file = file_of(self.device, transfer)?;
        let op = match transfer.direction {
            Direction::Read => Op::Read {
                file,
                offset_bytes,
                len_bytes,
                buffer,
            },
            Direction::Write(durability) => Op::Write {
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
        self.ring.push(op, token);
        Ok(Pushed::OnRing)
    }
}

fn file_of<'a, Q, F>(device: &'a Device<Q, F>, transfer: &Transfer) -> Result<&'a F, Status> {
    let file = device.files.get(usize::from(transfer.file.0));
    file.ok_or(Status::Io)
}
