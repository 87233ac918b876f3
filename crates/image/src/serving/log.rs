//! Writing to a log upper: append the sectors, remember their records, and at a flush make first the one and then the other
//! durable.
//!
//! ```text
//!   write     sectors --> data file                    record --> index in memory, pending
//!   flush     sync data file --> pending records --> index file --> sync index file --> give dead space back
//! ```
//!
//! A record is in the index file only behind its data, so whatever is cut off by a crash was never promised. Each record has its
//! place in the index file from the start: flushes may overlap, for they write the same bytes to the same places.
//! Nothing waits for another request: writes append side by side, each to the place it was given when it began.
//!
//! After a failed sync nobody knows what is durable (the kernel may have dropped the pages), so the upper takes no more writes. A
//! write of records that fails, for want of space, is made again by the next flush.
//!
//! Dead space, sectors that were overwritten or discarded, is given back when the records that say so are durable
//! and every read that could still look there has ended, in pieces of [`PUNCH_BYTES_MIN`].

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block::{
    ByteLen, ByteOffset, DataRange, Durability, Extent, FileIndex, Handover, Op, Plan, Request,
    STEPS_MAX, Sectors, Status, Step, Verdict,
};
use overlaybd::lsmt::{
    Appended, HybridWrite, INDEX_RECORDS_MAX, LogMode, LogUpper, MutableIndex, RECORD_BYTES,
    Segment, SegmentFault, Source, WriteStep,
};
use slab::Slab;

use super::below::Below;
use super::dead::DeadSpace;
use crate::file::LayerFile;

/// Records in memory beyond which a write flushes before it is answered: bounds what a flush has to write.
const PENDING_MAX: u64 = 4096;
/// Records of one step: 64 KiB, as much as the middle size of buffer holds.
const RECORDS_OF_STEP: u64 = 4096;
/// Bytes of records of one step.
pub(super) const STORE_BYTES_MAX: u32 = 64 << 10;
/// Pieces that are looked at to find out that there is nothing to discard.
const LOOKED_AT_MAX: usize = 64;

const _: () = assert!(RECORDS_OF_STEP * RECORD_BYTES as u64 == STORE_BYTES_MAX as u64);

/// A log upper that is written to. Its files are numbers `data` and `data + 1` of the attached ones.
#[derive(Debug)]
pub(super) struct LogState {
    files: [Arc<LayerFile>; 2],
    data: FileIndex,
    mode: LogMode,
    index: MutableIndex,
    /// Where the next sectors go.
    data_end: Sectors,
    /// As far as the data file is for sure, whatever becomes of the writes under way.
    written_end: Sectors,
    records: Records,
    dead: DeadSpace,
    runs: Slab<Run>,
    /// A sync failed.
    is_broken: bool,
}

/// Records that are not durable yet, by number; the first one since opening is number 0.
#[derive(Debug)]
struct Records {
    /// Where number 0 goes in the index file.
    base: ByteOffset,
    /// Number of the first one in `bytes`.
    first: u64,
    bytes: VecDeque<[u8; RECORD_BYTES]>,
    /// All before this one are durable.
    durable: u64,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
struct Run {
    stage: Stage,
    /// Sectors of the request that the phases so far have covered.
    covered: u64,
    /// What the phase appends.
    appended: [Option<Segment>; STEPS_MAX],
    /// Flush: records before this one must become durable.
    until: u64,
    /// Flush: the records that the phase writes.
    written: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Data,
    SyncData,
    Records,
    SyncIndex,
    Punch,
}

impl LogState {
    /// Takes over an upper whose files end where it says.
    pub(super) fn new(files: [LayerFile; 2], upper: LogUpper, data: FileIndex) -> Self {
        Self {
            files: files.map(Arc::new),
            data,
            mode: upper.mode,
            data_end: upper.data_end(),
            written_end: upper.data_end(),
            records: Records {
                base: ByteOffset(upper.index_len.0),
                first: 0,
                bytes: VecDeque::with_capacity(usize::try_from(2 * PENDING_MAX).unwrap_or(0)),
                durable: 0,
            },
            index: upper.index,
            dead: DeadSpace::new(),
            runs: Slab::new(),
            is_broken: false,
        }
    }

    pub(super) const fn files(&self) -> &[Arc<LayerFile>; 2] {
        &self.files
    }

    pub(super) const fn index(&self) -> &MutableIndex {
        &self.index
    }

    /// A read begins; what it returns goes to [`LogState::end_read`].
    pub(super) const fn begin_read(&mut self) -> bool {
        self.dead.begin_read()
    }

    pub(super) fn end_read(&mut self, mark: bool) {
        self.dead.end_read(mark);
    }

    /// Plans a request other than a read.
    pub(super) fn handle_request(
        &mut self,
        below: &Below,
        request: &Request,
        plan: &mut Plan,
    ) -> Verdict {
        if self.is_broken {
            return Verdict::Complete(Status::Io);
        }
        let mut run = Run {
            stage: Stage::Data,
            covered: 0,
            appended: [None; STEPS_MAX],
            until: 0,
            written: (0, 0),
        };
        match request.op {
            Op::Read => return Verdict::Complete(Status::Io),
            Op::Write => {
                if let Err(status) = self.plan_write(request, &mut run, plan) {
                    return Verdict::Complete(status);
                }
                plan.cookie = self.runs.insert(run) as u64;
                return Verdict::Run;
            }
            Op::Flush => {}
            Op::Discard | Op::WriteZeroes => {
                if let Err(status) = self.discard(below, request.extent) {
                    return Verdict::Complete(status);
                }
                if !request.fua && !self.records.is_crowded() {
                    return Verdict::Complete(Status::Ok);
                }
            }
        }
        let verdict = self.begin_flush(&mut run, plan);
        self.keep(verdict, None, run, plan)
    }

    /// A phase of such a request has ended.
    pub(super) fn handle_phase_end(
        &mut self,
        request: &Request,
        status: Status,
        plan: &mut Plan,
    ) -> Verdict {
        let slot = usize::try_from(plan.cookie).unwrap_or(usize::MAX);
        let Some(mut run) = self.runs.get(slot).copied() else {
            return Verdict::Complete(Status::Io);
        };
        let verdict = match run.stage {
            Stage::Data => self.end_data(request, status, &mut run, plan),
            Stage::SyncData | Stage::SyncIndex if !status.is_ok() => {
                self.is_broken = true;
                Verdict::Complete(status)
            }
            // They are still in memory, and the next flush writes them.
            Stage::Records if !status.is_ok() => Verdict::Complete(status),
            Stage::SyncData => self.plan_records(&mut run, plan),
            Stage::Records => {
                run.stage = Stage::SyncIndex;
                let file = self.index_file();
                run_step(plan, Step::Sync { file })
            }
            Stage::SyncIndex => {
                self.records.durable = self.records.durable.max(run.written.1);
                self.plan_records(&mut run, plan)
            }
            Stage::Punch => {
                if !status.is_ok() {
                    self.dead.give_up();
                }
                Verdict::Complete(Status::Ok)
            }
        };
        self.keep(verdict, Some(slot), run, plan)
    }

    /// Fills in records.
    pub(super) fn fill_stored(&self, stored: &Handover, bytes: &mut [u8]) -> Status {
        let skipped = stored.note.checked_sub(self.records.first);
        let Some(skipped) = skipped.and_then(|skipped| usize::try_from(skipped).ok()) else {
            return Status::Io;
        };
        let (places, _) = bytes.as_chunks_mut::<RECORD_BYTES>();
        let mut records = self.records.bytes.iter().skip(skipped);
        for place in places {
            let Some(record) = records.next() else {
                return Status::Io;
            };
            *place = *record;
        }
        Status::Ok
    }

    /// Makes durable what is only in memory. Waits.
    pub(super) fn close(&mut self) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other(
                "a sync failed before; what was written since the last flush is lost",
            ));
        }
        let [data, index] = &self.files;
        let skipped = usize::try_from(self.records.durable - self.records.first).unwrap_or(0);
        let left: Vec<u8> = self
            .records
            .bytes
            .iter()
            .skip(skipped)
            .flatten()
            .copied()
            .collect();
        if left.is_empty() && self.mode == LogMode::Append {
            return Ok(());
        }
        data.file().sync_data()?;
        let at = self.records.place(self.records.durable);
        index.file().write_all_at(&left, at.0)?;
        index.file().sync_data()
    }

    const fn index_file(&self) -> FileIndex {
        FileIndex(self.data.0 + 1)
    }

    /// Keeps or forgets a run, as the verdict needs it.
    fn keep(
        &mut self,
        verdict: Verdict,
        slot: Option<usize>,
        run: Run,
        plan: &mut Plan,
    ) -> Verdict {
        match (verdict, slot) {
            (Verdict::Complete(_), Some(slot)) => {
                self.runs.remove(slot);
            }
            (Verdict::Complete(_), None) => {}
            (_, Some(slot)) => {
                if let Some(kept) = self.runs.get_mut(slot) {
                    *kept = run;
                }
            }
            (_, None) => plan.cookie = self.runs.insert(run) as u64,
        }
        self.trim();
        verdict
    }

    /// Plans as much of the rest of a write as a phase takes.
    fn plan_write(
        &mut self,
        request: &Request,
        run: &mut Run,
        plan: &mut Plan,
    ) -> Result<(), Status> {
        if self.records.is_full(self.runs.len()) {
            return Err(Status::NoSpace);
        }
        let rest = Extent {
            start: Sectors(request.extent.start.0 + run.covered),
            len: Sectors(request.extent.len.0 - run.covered),
        };
        run.appended = [None; STEPS_MAX];
        let mut appended = run.appended.iter_mut();
        let mut data_end = self.data_end;
        let file = self.data;
        let mut push = |step: Result<WriteStep, SegmentFault>| -> Result<(), Status> {
            // Numbers that no record can hold: beyond 2^55 sectors.
            let step = step.map_err(|_| Status::NoSpace)?;
            let (extent, offset) = match step {
                WriteStep::Overwrite { extent, offset } => (extent, offset),
                WriteStep::Append(segment) => (segment.extent(), segment.moffset()),
            };
            let start = extent.start.0 - request.extent.start.0;
            plan.push(Step::Write {
                file,
                offset: offset.offset_bytes(),
                data: data_range(start, extent.len.0),
                durability: Durability::Volatile,
            })
            .map_err(|_| Status::Ok)?;
            if let WriteStep::Append(segment) = step {
                data_end = segment.moffset_end();
                if let Some(place) = appended.next() {
                    *place = Some(segment);
                }
            }
            run.covered = start + extent.len.0;
            Ok(())
        };
        let pushed = match self.mode {
            LogMode::Append => Appended::written(rest, self.data_end)
                .map(|segment| segment.map(WriteStep::Append))
                .try_for_each(&mut push),
            LogMode::Hybrid => {
                HybridWrite::new(&self.index, rest, self.data_end).try_for_each(&mut push)
            }
        };
        match pushed {
            Ok(()) | Err(Status::Ok) => {
                self.data_end = data_end;
                Ok(())
            }
            Err(status) => Err(status),
        }
    }

    fn end_data(
        &mut self,
        request: &Request,
        status: Status,
        run: &mut Run,
        plan: &mut Plan,
    ) -> Verdict {
        if !status.is_ok() {
            self.take_back(run);
            return Verdict::Complete(status);
        }
        for segment in run.appended.into_iter().flatten() {
            self.written_end = self.written_end.max(segment.moffset_end());
            self.insert(segment);
        }
        if run.covered < request.extent.len.0 {
            return match self.plan_write(request, run, plan) {
                Ok(()) => Verdict::Run,
                Err(status) => Verdict::Complete(status),
            };
        }
        if request.fua || self.records.is_crowded() {
            self.begin_flush(run, plan)
        } else {
            Verdict::Complete(Status::Ok)
        }
    }

    /// Of a write that failed: its place can be used again if nothing was appended behind it.
    fn take_back(&mut self, run: &Run) {
        for segment in run.appended.into_iter().rev().flatten() {
            if self.data_end == segment.moffset_end() {
                self.data_end = segment.moffset();
            }
        }
    }

    fn insert(&mut self, segment: Segment) {
        for piece in self.index.pieces(segment.extent()) {
            if let Source::Data { offset, .. } = piece.source {
                self.dead.add(offset, piece.extent.len, self.records.next());
            }
        }
        self.index.insert(segment);
        self.records.bytes.push_back(segment.encode());
    }

    /// Lets an extent read as zeros, unless it does.
    ///
    /// A record of zeros names a place in the data file too, and is unsound if that lies behind the file's end. Behind a write that is
    /// under way it would be, should the power fail now.
    fn discard(&mut self, below: &Below, extent: Extent) -> Result<(), Status> {
        let size = Sectors(u64::MAX);
        let stack = below.lowers().stack();
        let mut pieces = stack.resolve_under(&self.index, size, extent);
        let looked_at = pieces.by_ref().take(LOOKED_AT_MAX);
        let is_zero = |source| matches!(source, Source::Hole | Source::Zero);
        if looked_at.into_iter().all(|piece| is_zero(piece.source)) && pieces.next().is_none() {
            return Ok(());
        }
        if self.records.is_full(self.runs.len()) {
            return Err(Status::NoSpace);
        }
        for segment in Appended::discarded(extent, self.written_end) {
            self.insert(segment.map_err(|_| Status::NoSpace)?);
        }
        Ok(())
    }

    fn begin_flush(&mut self, run: &mut Run, plan: &mut Plan) -> Verdict {
        run.until = self.records.next();
        // An overwrite in place has no record.
        if self.mode == LogMode::Append && run.until == self.records.durable {
            return Verdict::Complete(Status::Ok);
        }
        run.stage = Stage::SyncData;
        run_step(plan, Step::Sync { file: self.data })
    }

    /// Writes the next records of a flush, or ends it.
    fn plan_records(&mut self, run: &mut Run, plan: &mut Plan) -> Verdict {
        let from = self.records.durable;
        if run.until <= from {
            return self.plan_punch(run, plan);
        }
        run.stage = Stage::Records;
        let mut at = from;
        while at < run.until {
            let count = (run.until - at).min(RECORDS_OF_STEP);
            let handover = Handover {
                file: self.index_file(),
                offset: self.records.place(at),
                len: u32::try_from(count * RECORD_BYTES as u64).unwrap_or(u32::MAX),
                data: DataRange::default(),
                note: at,
            };
            let step = Step::Store {
                handover,
                durability: Durability::Volatile,
            };
            if plan.push(step).is_err() {
                break;
            }
            at += count;
        }
        run.written = (from, at);
        Verdict::Run
    }

    fn plan_punch(&mut self, run: &mut Run, plan: &mut Plan) -> Verdict {
        run.stage = Stage::Punch;
        run.written = (u64::MAX, u64::MAX);
        let file = self.data;
        while plan.steps().len() < STEPS_MAX
            && let Some((offset, len)) = self.dead.take(self.records.durable)
        {
            let (offset, len) = (ByteOffset(offset), ByteLen(len));
            if plan.push(Step::Punch { file, offset, len }).is_err() {
                break;
            }
        }
        if plan.steps().is_empty() {
            Verdict::Complete(Status::Ok)
        } else {
            Verdict::Run
        }
    }

    /// Forgets records that are durable and that no flush writes again.
    fn trim(&mut self) {
        let writing = self
            .runs
            .iter()
            .filter(|(_, run)| matches!(run.stage, Stage::Records | Stage::SyncIndex));
        let begun = writing.map(|(_, run)| run.written.0).min();
        let keep_from = self.records.durable.min(begun.unwrap_or(u64::MAX));
        while self.records.first < keep_from && self.records.bytes.pop_front().is_some() {
            self.records.first += 1;
        }
    }
}

impl Records {
    /// The number of the next one.
    fn next(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }

    fn place(&self, number: u64) -> ByteOffset {
        self.base.advanced(number * RECORD_BYTES as u64)
    }

    fn is_crowded(&self) -> bool {
        self.next() - self.durable >= PENDING_MAX
    }

    /// Whether the index has no room for the records of another request beside those of `runs`.
    fn is_full(&self, runs: usize) -> bool {
        // A request makes at most 2^21 sectors' worth of records of 2^14 sectors.
        let of_runs = (runs as u64 + 1) * 256;
        let there = self.base.0 / RECORD_BYTES as u64 + self.next();
        there + of_runs > INDEX_RECORDS_MAX
    }
}

fn run_step(plan: &mut Plan, step: Step) -> Verdict {
    match plan.push(step) {
        Ok(()) => Verdict::Run,
        Err(_) => Verdict::Complete(Status::Io),
    }
}

/// A range of a request's data, which has at most 32 MiB.
pub(super) fn data_range(start_sectors: u64, sectors: u64) -> DataRange {
    let bytes = |sectors: u64| u32::try_from(Sectors(sectors).len_bytes().0).unwrap_or(u32::MAX);
    DataRange {
        start: bytes(start_sectors),
        len: bytes(sectors),
    }
}
