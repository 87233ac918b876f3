//! One operation on a disk while it is in flight, and what it does when it takes effect.

use std::rc::Rc;

use block::Status;
use fastrand::Rng;
use reactor::buffer::Buffer;
use reactor::{Token, WriteMode};

use crate::disk::{SimDisk, Snapshot};
use crate::driver::{Driver, TagRef};
use crate::faults::Faults;
use crate::file::{Node, Opened};
use crate::pattern::{self, UNIT};

const EINTR: i32 = 4;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const ENOSPC: i32 = 28;

// linux/falloc.h
const FALLOC_FL_KEEP_SIZE: i32 = 0x01;
const FALLOC_FL_PUNCH_HOLE: i32 = 0x02;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;

/// What to do.
#[derive(Debug)]
pub(crate) enum Action {
    Read,
    Write(WriteMode),
    /// With the content at the time of the push: a sync promises nothing about what was written later.
    Sync(Option<Snapshot>),
    Allocate {
        mode: i32,
    },
}

impl Action {
    /// How much the action counts among those that hold the file's lock.
    pub(crate) const fn allocations(&self) -> usize {
        match self {
            Self::Allocate { .. } => 1,
            Self::Read | Self::Write(_) | Self::Sync(_) => 0,
        }
    }
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) token: Token,
    pub(crate) node: Rc<Node>,
    pub(crate) action: Action,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) buffer: Option<Buffer>,
    /// Set once it took effect.
    pub(crate) result: Option<i32>,
}

/// A read into what the driver has registered, which takes effect when the ring takes it.
#[derive(Debug)]
pub(crate) struct RegisteredRead {
    /// The request that was in the slot at the push.
    pub(crate) at: Option<TagRef>,
    /// Where in its data.
    pub(crate) start: u32,
    /// Where in the file.
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) token: Token,
}

impl Operation {
    pub(crate) fn opened(&self) -> Option<&Opened> {
        match &*self.node {
            Node::Disk(opened) => Some(opened),
            Node::Mail | Node::Device(_) => None,
        }
    }

    /// Takes note of what the operation must see: called when the ring takes it.
    pub(crate) fn prepare(&mut self) {
        if matches!(self.action, Action::Sync(_)) {
            let content = self.opened().map(|opened| opened.disk.borrow().snapshot());
            self.action = Action::Sync(content);
        }
    }

    /// Takes effect, unless it did before, and settles the result.
    pub(crate) fn perform(&mut self, faults: &Faults, rng: &mut Rng, driver: &mut Driver) {
        if self.result.is_some() {
            return;
        }
        let node = Rc::clone(&self.node);
        let Node::Disk(opened) = &*node else {
            self.result = Some(-EIO);
            return;
        };
        let disk = &mut *opened.disk.borrow_mut();
        let asked = self.len;
        let result = match self.fault(faults, rng) {
            Some(errno) => {
                if errno == EIO && rng.bool() {
                    // The medium failed in the middle.
                    self.len = rng.usize(0..=self.len / UNIT) * UNIT;
                    self.apply(disk);
                }
                -errno
            }
            None => {
                if roll(rng, faults.short) && self.buffer.is_some() && self.len > UNIT {
                    self.len = rng.usize(1..self.len / UNIT) * UNIT;
                }
                self.apply(disk)
            }
        };
        self.blame(opened, (result, asked), driver);
        self.result = Some(result);
    }

    fn fault(&self, faults: &Faults, rng: &mut Rng) -> Option<i32> {
        let takes_space = !matches!(self.action, Action::Read | Action::Sync(_));
        if roll(rng, faults.interrupted) {
            Some(EINTR)
        } else if roll(rng, faults.again) {
            Some(EAGAIN)
        } else if roll(rng, faults.io_error) {
            Some(EIO)
        } else if roll(rng, faults.no_space) && takes_space {
            Some(ENOSPC)
        } else {
            None
        }
    }

    fn apply(&mut self, disk: &mut SimDisk) -> i32 {
        let len_bytes = u32::try_from(self.len).unwrap_or(u32::MAX);
        let count = match (&self.action, self.buffer.as_mut()) {
            (Action::Read, Some(buffer)) => disk.read(self.offset, buffer.bytes_mut(len_bytes)),
            (Action::Write(mode), Some(buffer)) => {
                let done = disk.write(self.offset, buffer.bytes(len_bytes));
                if done == 0 && self.len > 0 {
                    return -ENOSPC;
                }
                if *mode == WriteMode::Durable {
                    disk.persist_range(self.offset, done);
                }
                done
            }
            (Action::Sync(Some(snapshot)), _) => {
                disk.persist(snapshot);
                0
            }
            (Action::Allocate { mode }, _) => return self.allocate(disk, *mode),
            _ => return -EIO,
        };
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    fn allocate(&self, disk: &mut SimDisk, mode: i32) -> i32 {
        if mode & FALLOC_FL_KEEP_SIZE == 0 {
            return -EIO;
        }
        if mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) != 0 {
            disk.punch(self.offset, self.len);
        }
        let is_enough = mode & FALLOC_FL_PUNCH_HOLE != 0 || disk.allocate(self.offset, self.len);
        if is_enough { 0 } else { -ENOSPC }
    }

    /// Notes a failure at the requests that it can belong to: with one such request, that one must fail.
    fn blame(&self, opened: &Opened, (result, asked): (i32, usize), driver: &mut Driver) {
        let is_read = matches!(self.action, Action::Read);
        let is_end_of_file = result == 0 && is_read;
        let is_short = usize::try_from(result).is_ok_and(|done| done < asked);
        let is_begun_again =
            is_read && is_short && !is_end_of_file && opened.watch.hands_over.get();
        if result >= 0 && !is_end_of_file && !is_begun_again {
            return;
        }
        let status = if is_end_of_file {
            Status::Io
        } else {
            Status::from_errno(-result)
        };
        let is_retry = result == -EINTR || result == -EAGAIN || is_begun_again;
        let is_certain = driver
            .in_work_mut(opened.device)
            .filter(|request| self.may_serve(request))
            .count()
            == 1;
        for request in driver
            .in_work_mut(opened.device)
            .filter(|request| self.may_serve(request))
        {
            if is_retry {
                request.retries += 1;
            } else if is_certain {
                // Of several steps the first failure counts, in an order that is not known here.
                let earlier = request.failed.replace(status);
                request.perhaps_failed.extend(earlier);
            } else {
                request.perhaps_failed.push(status);
            }
        }
    }

    fn may_serve(&self, request: &crate::request::ClientRequest) -> bool {
        let Some((op, sectors)) = request.served() else {
            return false;
        };
        let (start, end) = (
            sectors.start * pattern::SECTOR,
            sectors.end * pattern::SECTOR,
        );
        let is_inside = start <= self.offset && self.offset < end;
        let is_zeroing = matches!(op, block::Op::Discard | block::Op::WriteZeroes);
        match &self.action {
            Action::Read => op == block::Op::Read && is_inside,
            Action::Write(_) => {
                let bytes = self
                    .buffer
                    .as_ref()
                    .map(|buffer| buffer.bytes(8))
                    .unwrap_or_default();
                op == block::Op::Write && pattern::write_of(bytes) == Some(request.id)
            }
            Action::Sync(_) => op == block::Op::Flush || is_zeroing && request.op.fua,
            Action::Allocate { .. } => is_zeroing && is_inside,
        }
    }
}

/// Whether something of `chance` in 10,000 happens.
pub(crate) fn roll(rng: &mut Rng, chance: u16) -> bool {
    chance > 0 && rng.u16(0..10_000) < chance
}
