//! Writing to a sparse upper: every sector has its place in the file, so a write is one write.
//!
//! The file system remembers which blocks are there, and nothing finer. Therefore:
//!
//! - a write of a part of a block that is not there, over data below, copies the block up: it writes all of it. Meanwhile no other
//!   write of the device may run, or one of the two would be lost. Such writes are rare: file systems write whole blocks;
//! - zeros over data below are written as zeros. A hole, or space that is only reserved, would show what is below after a restart;
//! - a discard gives space back where only zeros are below, and does nothing else.

use std::sync::Arc;

use block::{
    ByteOffset, DataRange, Durability, Extent, FileIndex, Handover, Op, Plan, Request, RequestData,
    Sectors, Status, Step, Verdict,
};
use overlaybd::lsmt::{HEADER_SECTORS, MutableIndex, Source};

use super::below::{Below, Way};
use super::log::data_range;
use super::presence::{Presence, Runs};
use super::workspace::Sink;
use crate::file::LayerFile;

/// Bytes of zeros of one step.
pub(super) const ZEROS_BYTES_MAX: u32 = 64 << 10;
/// The longest block.
const BLOCK_BYTES_MAX: usize = 4096;

/// A sparse upper that is written to.
#[derive(Debug)]
pub(super) struct SparseState {
    file: Arc<LayerFile>,
    /// Its number among the attached files.
    number: FileIndex,
    size: Sectors,
    presence: Presence,
    gate: Gate,
    /// The first and the last block of the write that copies up.
    copied: Box<[u8; 2 * BLOCK_BYTES_MAX]>,
}

/// Who may write: many, or one alone.
#[derive(Debug, Default)]
struct Gate {
    writers: u32,
    is_alone: bool,
    /// Requests that wait to be alone; new writers wait behind them.
    waiting_alone: u32,
    waiting: u32,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits to write; `true` if alone.
    Waiting(bool),
    /// What is below is on its way into memory; alone.
    Copying,
    /// It is written, all that was left; `true` if alone.
    Writing(bool),
    /// Zeros are written, up to so many sectors; alone.
    Zeroing(u64),
    /// Space is given back, up to so many sectors.
    Discarding(u64),
    Sync,
}

impl Stage {
    const fn to_cookie(self) -> u64 {
        match self {
            Self::Waiting(alone) => 1 + alone as u64,
            Self::Copying => 3,
            Self::Writing(alone) => 4 + alone as u64,
            Self::Sync => 6,
            Self::Zeroing(covered) => 7 | covered << 4,
            Self::Discarding(covered) => 8 | covered << 4,
        }
    }

    const fn from_cookie(cookie: u64) -> Option<Self> {
        Some(match cookie & 15 {
            1 => Self::Waiting(false),
            2 => Self::Waiting(true),
            3 => Self::Copying,
            4 => Self::Writing(false),
            5 => Self::Writing(true),
            6 => Self::Sync,
            7 => Self::Zeroing(cookie >> 4),
            8 => Self::Discarding(cookie >> 4),
            _ => return None,
        })
    }
}

/// What a Store holds beside zeros of its own; else where in the copied blocks it begins.
const NOTHING_BELOW: u64 = u64::MAX;

/// A write as it meets the blocks of the upper.
#[derive(Clone, Copy, Debug, Default)]
struct Split {
    /// The part in the first block, if that is copied up.
    first: Option<Extent>,
    /// What is written as it comes. May be empty.
    plain: Extent,
    /// The part in the last block, if that is another one and is copied up.
    last: Option<Extent>,
}

impl Split {
    const fn is_copied(&self) -> bool {
        self.first.is_some() || self.last.is_some()
    }

    /// The parts that are copied up, with where their blocks are in memory.
    fn copied(&self) -> impl Iterator<Item = (Extent, u32)> {
        let second = u32::try_from(BLOCK_BYTES_MAX).unwrap_or(u32::MAX);
        let last = self.last.map(|extent| (extent, second));
        self.first.map(|extent| (extent, 0)).into_iter().chain(last)
    }
}

impl SparseState {
    pub(super) fn new(
        file: LayerFile,
        number: FileIndex,
        (size, block_sectors): (Sectors, u64),
        index: &MutableIndex,
    ) -> Self {
        Self {
            file: Arc::new(file),
            number,
            size,
            presence: Presence::new(size, block_sectors, index),
            gate: Gate::default(),
            copied: Box::new([0; 2 * BLOCK_BYTES_MAX]),
        }
    }

    pub(super) const fn file(&self) -> &Arc<LayerFile> {
        &self.file
    }

    /// What of an extent is there.
    pub(super) fn runs(&self, extent: Extent) -> Runs<'_> {
        self.presence.runs(extent)
    }

    /// Plans a request other than a read.
    pub(super) fn handle_request(
        &mut self,
        below: &Below,
        request: &Request,
        plan: &mut Plan,
    ) -> Verdict {
        match request.op {
            Op::Read => Verdict::Complete(Status::Io),
            Op::Flush => self.sync(plan),
            Op::Discard => self.discard(below, request, 0, plan),
            Op::Write | Op::WriteZeroes => self.begin_write(below, request, None, plan),
        }
    }

    /// A phase of such a request has ended.
    pub(super) fn handle_phase_end(
        &mut self,
        below: &Below,
        request: &Request,
        status: Status,
        plan: &mut Plan,
    ) -> Verdict {
        let Some(stage) = Stage::from_cookie(plan.cookie) else {
            return Verdict::Complete(Status::Io);
        };
        match stage {
            Stage::Waiting(alone) => self.begin_write(below, request, Some(alone), plan),
            Stage::Copying | Stage::Zeroing(_) if !status.is_ok() => {
                self.gate.leave(true, plan);
                Verdict::Complete(status)
            }
            Stage::Copying if request.op == Op::Write => self.write_copied(below, request, plan),
            Stage::Copying => self.zero(below, request, 0, plan),
            Stage::Zeroing(covered) => self.zero(below, request, covered, plan),
            Stage::Writing(alone) => {
                self.gate.leave(alone, plan);
                if !status.is_ok() {
                    return Verdict::Complete(status);
                }
                self.presence.mark(request.extent);
                // Space that was given back comes back with a crash.
                if request.fua && request.op == Op::WriteZeroes {
                    return self.sync(plan);
                }
                Verdict::Complete(Status::Ok)
            }
            Stage::Discarding(covered) if status.is_ok() && covered < request.extent.len.0 => {
                self.discard(below, request, covered, plan)
            }
            Stage::Discarding(_) | Stage::Sync => Verdict::Complete(status),
        }
    }

    /// Takes over what was fetched of a block below.
    pub(super) fn handle_fetched(
        &mut self,
        below: &Below,
        fetched: &Handover,
        bytes: &[u8],
    ) -> Status {
        below.handle_fetched(fetched, bytes, &mut Sink::Memory(&mut *self.copied))
    }

    /// Makes what is written of a block: what is below it, and over that the request's data or zeros.
    pub(super) fn fill_stored(
        &self,
        request: &Request,
        stored: &Handover,
        bytes: &mut [u8],
        data: &mut dyn RequestData,
    ) -> Status {
        if stored.note == NOTHING_BELOW {
            bytes.fill(0);
            return Status::Ok;
        }
        self.fill_copied(request, stored, bytes, data)
            .unwrap_or(Status::Io)
    }

    /// A block that was copied up, with the request's part over it.
    fn fill_copied(
        &self,
        request: &Request,
        stored: &Handover,
        bytes: &mut [u8],
        data: &mut dyn RequestData,
    ) -> Option<Status> {
        let copied = self.copied.get(usize::try_from(stored.note).ok()?..)?;
        bytes.copy_from_slice(copied.get(..bytes.len())?);
        let part = self
            .place(request.extent.start)
            .advanced(stored.data.start.into());
        let begin = usize::try_from(part.0.checked_sub(stored.offset.0)?).ok()?;
        let over = bytes
            .get_mut(begin..)?
            .get_mut(..stored.data.len as usize)?;
        if request.op == Op::Write {
            return Some(data.copy_from(stored.data.start, over));
        }
        over.fill(0);
        Some(Status::Ok)
    }

    /// Begins to write, or waits. `waited` tells whether it waited before, and to be alone.
    fn begin_write(
        &mut self,
        below: &Below,
        request: &Request,
        waited: Option<bool>,
        plan: &mut Plan,
    ) -> Verdict {
        let split = self.split(below, request.extent);
        // Zeros are rare, and take several phases: alone is simple.
        let alone = request.op == Op::WriteZeroes || split.is_copied();
        if !self.gate.try_enter(alone, waited) {
            plan.cookie = Stage::Waiting(alone).to_cookie();
            return Verdict::Wait;
        }
        if alone {
            return self.copy_up(below, &split, plan);
        }
        plan.cookie = Stage::Writing(false).to_cookie();
        let step = Step::Write {
            file: self.number,
            offset: self.place(request.extent.start),
            data: data_range(0, request.extent.len.0),
            durability: durability(request),
        };
        self.run(plan, [step], false)
    }

    /// Fetches what is below the blocks that are written in part.
    fn copy_up(&mut self, below: &Below, split: &Split, plan: &mut Plan) -> Verdict {
        plan.cookie = Stage::Copying.to_cookie();
        if !split.is_copied() {
            return Verdict::Run;
        }
        self.copied.fill(0);
        let mut is_planned = true;
        for (part, place) in split.copied() {
            let block = self.block_of(part.start);
            for piece in below.lowers().stack().resolve_below(block) {
                let Source::Data { layer, offset } = piece.source else {
                    continue;
                };
                let in_block = piece.extent.start.0 - block.start.0;
                let mut data = data_range(in_block, piece.extent.len.0);
                data.start += place;
                let planned = below.plan_data((layer, offset), data, Way::HandedOver, plan);
                is_planned &= planned == data.len;
            }
        }
        if is_planned {
            return Verdict::Run;
        }
        // Two blocks of 8 sectors are at most 16 pieces, each of one step: this cannot happen.
        self.gate.leave(true, plan);
        Verdict::Complete(Status::Io)
    }

    /// Writes, with what was copied.
    fn write_copied(&mut self, below: &Below, request: &Request, plan: &mut Plan) -> Verdict {
        plan.cookie = Stage::Writing(true).to_cookie();
        let split = self.split(below, request.extent);
        let durability = durability(request);
        let stores = split.copied().map(|(part, place)| Step::Store {
            handover: self.copied_block(request, part, place),
            durability,
        });
        let plain = (split.plain.len.0 > 0).then(|| Step::Write {
            file: self.number,
            offset: self.place(split.plain.start),
            data: in_request(request, split.plain),
            durability,
        });
        let mut steps = [const { None }; 3];
        for (step, place) in stores.chain(plain).zip(&mut steps) {
            *place = Some(step);
        }
        self.run(plan, steps.into_iter().flatten(), true)
    }

    fn copied_block(&self, request: &Request, part: Extent, place: u32) -> Handover {
        let block = self.block_of(part.start);
        Handover {
            file: self.number,
            offset: self.place(block.start),
            len: data_range(0, block.len.0).len,
            data: in_request(request, part),
            note: place.into(),
        }
    }

    /// Writes zeros over data and gives space back over nothing, from `covered` sectors of the request on. Alone.
    fn zero(
        &mut self,
        below: &Below,
        request: &Request,
        mut covered: u64,
        plan: &mut Plan,
    ) -> Verdict {
        let split = self.split(below, request.extent);
        let durability = durability(request);
        if covered == 0 {
            for (part, place) in split.copied() {
                let handover = self.copied_block(request, part, place);
                if plan
                    .push(Step::Store {
                        handover,
                        durability,
                    })
                    .is_err()
                {
                    break;
                }
            }
        }
        while covered < split.plain.len.0 {
            let rest = Extent {
                start: Sectors(split.plain.start.0 + covered),
                len: Sectors(split.plain.len.0 - covered),
            };
            let (empty, len) = self.empty_blocks(below, rest);
            let step = if empty.len.0 > 0 {
                punch(self.number, self.place(empty.start), empty)
            } else {
                let extent = Extent { len, ..rest };
                let handover = Handover {
                    file: self.number,
                    offset: self.place(extent.start),
                    len: data_range(0, len.0).len,
                    data: DataRange::default(),
                    note: NOTHING_BELOW,
                };
                Step::Store {
                    handover,
                    durability,
                }
            };
            if plan.push(step).is_err() {
                break;
            }
            covered += len.0;
        }
        let is_over = covered >= split.plain.len.0;
        plan.cookie = if is_over {
            Stage::Writing(true).to_cookie()
        } else {
            Stage::Zeroing(covered).to_cookie()
        };
        Verdict::Run
    }

    /// Gives space back where nothing but zeros is below, from `covered` sectors of the request on.
    fn discard(
        &self,
        below: &Below,
        request: &Request,
        mut covered: u64,
        plan: &mut Plan,
    ) -> Verdict {
        while covered < request.extent.len.0 {
            let rest = Extent {
                start: Sectors(request.extent.start.0 + covered),
                len: Sectors(request.extent.len.0 - covered),
            };
            let (empty, len) = self.empty_blocks(below, rest);
            let step = punch(self.number, self.place(empty.start), empty);
            if empty.len.0 > 0 && plan.push(step).is_err() {
                break;
            }
            covered += len.0;
        }
        plan.cookie = Stage::Discarding(covered).to_cookie();
        if plan.steps().is_empty() {
            Verdict::Complete(Status::Ok)
        } else {
            Verdict::Run
        }
    }

    /// The whole blocks that `rest` begins with and that have nothing but zeros below, and how many sectors of `rest` that
    /// settles. If there are none, those up to the next such block, at most [`ZEROS_BYTES_MAX`].
    fn empty_blocks(&self, below: &Below, rest: Extent) -> (Extent, Sectors) {
        let block = self.presence.block_sectors();
        let (start, end) = (rest.start.0, rest.start.0 + rest.len.0);
        let (data_start, data_end) = below.first_data(rest).unwrap_or((end, end));
        // The disk's last block may be short.
        let empty_end = if data_start == self.size.0 {
            data_start
        } else {
            data_start / block * block
        };
        if start.is_multiple_of(block) && empty_end > start {
            let len = Sectors(empty_end - start);
            return (Extent { len, ..rest }, len);
        }
        let next_block = (start / block + 1) * block;
        let settled = if data_start >= next_block {
            next_block
        } else {
            let unit = u64::from(ZEROS_BYTES_MAX) / block::SECTOR_BYTES;
            data_end.next_multiple_of(block).min(start + unit)
        };
        (Extent::default(), Sectors(settled.min(end) - start))
    }

    fn sync(&self, plan: &mut Plan) -> Verdict {
        plan.cookie = Stage::Sync.to_cookie();
        match plan.push(Step::Sync { file: self.number }) {
            Ok(()) => Verdict::Run,
            Err(_) => Verdict::Complete(Status::Io),
        }
    }

    /// Runs a phase of one that is in the gate.
    fn run(
        &mut self,
        plan: &mut Plan,
        steps: impl IntoIterator<Item = Step>,
        alone: bool,
    ) -> Verdict {
        let mut steps = steps.into_iter();
        if steps.try_for_each(|step| plan.push(step)).is_ok() {
            return Verdict::Run;
        }
        self.gate.leave(alone, plan);
        Verdict::Complete(Status::Io)
    }

    fn split(&self, below: &Below, extent: Extent) -> Split {
        let end = extent.start.0 + extent.len.0;
        let mut split = Split {
            plain: extent,
            ..Split::default()
        };
        if extent.len.0 == 0 {
            return split;
        }
        let first = self.block_of(extent.start);
        let last = self.block_of(Sectors(end - 1));
        let first_end = first.start.0 + first.len.0;
        let is_first_cut = extent.start != first.start || end < first_end;
        if is_first_cut && self.is_copied_up(below, first) {
            let len = Sectors(first_end.min(end) - extent.start.0);
            split.first = Some(Extent { len, ..extent });
            split.plain.start.0 += len.0;
            split.plain.len.0 -= len.0;
        }
        let is_last_cut = end < last.start.0 + last.len.0;
        if last != first && is_last_cut && self.is_copied_up(below, last) {
            let len = Sectors(end - last.start.0);
            split.last = Some(Extent { len, ..last });
            split.plain.len.0 -= len.0;
        }
        split
    }

    fn is_copied_up(&self, below: &Below, block: Extent) -> bool {
        !self.presence.has_all(block) && below.has_data(block)
    }

    /// The block that a sector is in; the last one ends with the disk.
    fn block_of(&self, sector: Sectors) -> Extent {
        let len = self.presence.block_sectors();
        let start = sector.0 / len * len;
        Extent {
            start: Sectors(start),
            len: Sectors(len.min(self.size.0 - start)),
        }
    }

    /// Where a sector is in the file.
    const fn place(&self, sector: Sectors) -> ByteOffset {
        Sectors(HEADER_SECTORS.0 + sector.0).offset_bytes()
    }
}

impl Gate {
    /// Enters, or counts as waiting. `waited`: whether it waited before, and to be alone.
    const fn try_enter(&mut self, alone: bool, waited: Option<bool>) -> bool {
        if let Some(was_alone) = waited {
            self.waiting -= 1;
            self.waiting_alone -= was_alone as u32;
        }
        // One that waited to be alone and is first is not behind itself.
        let may = if alone {
            !self.is_alone && self.writers == 0
        } else {
            !self.is_alone && self.waiting_alone == 0
        };
        if !may {
            self.waiting += 1;
            self.waiting_alone += alone as u32;
        } else if alone {
            self.is_alone = true;
        } else {
            self.writers += 1;
        }
        may
    }

    const fn leave(&mut self, alone: bool, plan: &mut Plan) {
        if alone {
            self.is_alone = false;
        } else {
            self.writers -= 1;
        }
        if self.waiting > 0 && !self.is_alone && self.writers == 0 {
            plan.wake_waiting();
        }
    }
}

fn punch(file: FileIndex, offset: ByteOffset, extent: Extent) -> Step {
    Step::Punch {
        file,
        offset,
        len: extent.len_bytes(),
    }
}

fn durability(request: &Request) -> Durability {
    if request.fua {
        Durability::Durable
    } else {
        Durability::Volatile
    }
}

fn in_request(request: &Request, part: Extent) -> DataRange {
    data_range(part.start.0 - request.extent.start.0, part.len.0)
}
