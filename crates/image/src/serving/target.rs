//! An image as the target of a device.

use std::io;
use std::sync::Arc;

use block::{
    ByteLen, Extent, FileIndex, Geometry, Handover, Op, Plan, Request, RequestData, STEPS_MAX,
    Sectors, Status, Step, Target, Verdict,
};
use overlaybd::lsmt::{HEADER_SECTORS, Piece, Source};

use super::below::{Below, Way};
use super::log::{LogState, STORE_BYTES_MAX, data_range};
use super::presence::piece_of;
use super::sparse::{SparseState, ZEROS_BYTES_MAX};
use super::workspace::Sink;
use crate::file::LayerFile;

/// How often blocks are read again that do not have their checksum, before the read fails: what a bus or a memory damaged
/// once may come right.
const REREADS_MAX: u8 = 3;

/// The target. Its files: those of the lowers by [`overlaybd::lsmt::LayerIndex`], then those of the upper.
#[derive(Debug)]
pub struct ImageTarget {
    geometry: Geometry,
    below: Below,
    upper: UpperState,
}

/// The upper of an image that is served.
#[derive(Debug)]
pub(super) enum UpperState {
    /// None, or one that is only read.
    None,
    Log(Box<LogState>),
    Sparse(SparseState),
}

/// How far a read has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    /// Sectors of the request that earlier phases have read.
    read: u32,
    /// Sectors up to which this phase reads.
    planned: u32,
    /// How often the phase was tried again.
    rereads: u8,
    /// What the log's read began with.
    mark: bool,
}

impl Progress {
    // A request has at most 2^16 sectors.
    const fn to_cookie(self) -> u64 {
        (self.read as u64)
            | (self.planned as u64) << 24
            | (self.rereads as u64) << 48
            | (self.mark as u64) << 56
    }

    const fn from_cookie(cookie: u64) -> Self {
        Self {
            read: (cookie & 0xff_ffff) as u32,
            planned: (cookie >> 24 & 0xff_ffff) as u32,
            rereads: (cookie >> 48 & 0xff) as u8,
            mark: cookie >> 56 != 0,
        }
    }
}

impl ImageTarget {
    pub(super) const fn new(geometry: Geometry, below: Below, upper: UpperState) -> Self {
        Self {
            geometry,
            below,
            upper,
        }
    }

    /// The files of the upper, in their order.
    #[must_use]
    pub fn upper_files(&self) -> Vec<Arc<LayerFile>> {
        match &self.upper {
            UpperState::None => Vec::new(),
            UpperState::Log(log) => log.files().to_vec(),
            UpperState::Sparse(sparse) => vec![Arc::clone(sparse.file())],
        }
    }

    /// Plans as much of the rest of a read as a phase takes.
    fn plan_read(&self, request: &Request, mut progress: Progress, plan: &mut Plan) -> Verdict {
        let start = request.extent.start.0 + u64::from(progress.read);
        let rest = Extent {
            start: Sectors(start),
            len: Sectors(request.extent.len.0 - u64::from(progress.read)),
        };
        let mut reading = Reading {
            target: self,
            request,
            plan,
            planned: u64::from(progress.read),
        };
        self.resolve(rest, |piece| reading.plan(piece));
        // A request has at most 2^16 sectors.
        progress.planned = u32::try_from(reading.planned).unwrap_or(progress.read);
        if progress.planned == progress.read {
            return Verdict::Complete(Status::Io);
        }
        plan.cookie = progress.to_cookie();
        Verdict::Run
    }

    /// Gives the pieces of an extent to `take`, in order, until it has enough.
    fn resolve(&self, extent: Extent, mut take: impl FnMut(Piece) -> bool) {
        let stack = self.below.lowers().stack();
        match &self.upper {
            UpperState::None => {
                let _enough = stack
                    .resolve(extent)
                    .try_for_each(|piece| more(take(piece)));
            }
            UpperState::Log(log) => {
                let pieces = stack.resolve_under(log.index(), self.geometry.size, extent);
                let _enough = { pieces }.try_for_each(|piece| more(take(piece)));
            }
            UpperState::Sparse(sparse) => {
                for run in sparse.runs(extent) {
                    let enough = if run.is_present {
                        more(take(piece_of(run, stack.upper_index(), HEADER_SECTORS)))
                    } else {
                        let mut below = stack.resolve_below(run.extent);
                        below.try_for_each(|piece| more(take(piece)))
                    };
                    if enough.is_none() {
                        return;
                    }
                }
            }
        }
    }

    fn go_on_reading(&mut self, request: &Request, progress: Progress, plan: &mut Plan) -> Verdict {
        let verdict = self.plan_read(request, progress, plan);
        if let Verdict::Complete(_) = verdict {
            self.end_read(progress.mark);
        }
        verdict
    }

    fn end_read(&mut self, mark: bool) {
        if let UpperState::Log(log) = &mut self.upper {
            log.end_read(mark);
        }
    }
}

fn more(is_taken: bool) -> Option<()> {
    is_taken.then_some(())
}

/// A phase of a read that is being planned.
struct Reading<'a> {
    target: &'a ImageTarget,
    request: &'a Request,
    plan: &'a mut Plan,
    /// Sectors of the request that are planned.
    planned: u64,
}

impl Reading<'_> {
    /// Plans a piece; `false` when the plan has no room for all of it.
    fn plan(&mut self, piece: Piece) -> bool {
        let start = piece.extent.start.0 - self.request.extent.start.0;
        let data = data_range(start, piece.extent.len.0);
        let planned = match piece.source {
            Source::Hole | Source::Zero => self.push(Step::Zero { data }, data.len),
            Source::Data { layer, offset } => {
                let below = &self.target.below;
                if layer == below.lowers().stack().upper_index() {
                    let step = Step::Read {
                        file: FileIndex(layer.0.into()),
                        offset: offset.offset_bytes(),
                        data,
                    };
                    self.push(step, data.len)
                } else if self.plan.steps().len() < STEPS_MAX {
                    below.plan_data((layer, offset), data, Way::Straight, self.plan)
                } else {
                    0
                }
            }
        };
        // Pieces are planned in whole sectors: the blocks of a ZFile are.
        self.planned += ByteLen(planned.into()).0 / block::SECTOR_BYTES;
        planned == data.len
    }

    fn push(&mut self, step: Step, len: u32) -> u32 {
        if self.plan.push(step).is_ok() { len } else { 0 }
    }
}

impl Target for ImageTarget {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn handle_request(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        if request.op == Op::Read {
            let mark = match &mut self.upper {
                UpperState::Log(log) => log.begin_read(),
                UpperState::None | UpperState::Sparse(_) => false,
            };
            let progress = Progress {
                read: 0,
                planned: 0,
                rereads: 0,
                mark,
            };
            return self.go_on_reading(request, progress, plan);
        }
        match &mut self.upper {
            UpperState::None if request.op == Op::Flush => Verdict::Complete(Status::Ok),
            UpperState::None => Verdict::Complete(Status::ReadOnly),
            UpperState::Log(log) => log.handle_request(&self.below, request, plan),
            UpperState::Sparse(sparse) => sparse.handle_request(&self.below, request, plan),
        }
    }

    fn handle_phase_end(&mut self, request: &Request, status: Status, plan: &mut Plan) -> Verdict {
        if request.op != Op::Read {
            return match &mut self.upper {
                UpperState::None => Verdict::Complete(status),
                UpperState::Log(log) => log.handle_phase_end(request, status, plan),
                UpperState::Sparse(sparse) => {
                    sparse.handle_phase_end(&self.below, request, status, plan)
                }
            };
        }
        let mut progress = Progress::from_cookie(plan.cookie);
        if status == Status::Corrupt && progress.rereads < REREADS_MAX {
            progress.rereads += 1;
            return self.go_on_reading(request, progress, plan);
        }
        if status.is_ok() && u64::from(progress.planned) < request.extent.len.0 {
            progress.read = progress.planned;
            progress.rereads = 0;
            return self.go_on_reading(request, progress, plan);
        }
        self.end_read(progress.mark);
        Verdict::Complete(status)
    }

    fn handle_fetched(
        &mut self,
        request: &Request,
        fetched: &Handover,
        bytes: &[u8],
        data: &mut dyn RequestData,
    ) -> Status {
        match (&mut self.upper, request.op) {
            (_, Op::Read) => self
                .below
                .handle_fetched(fetched, bytes, &mut Sink::Request(data)),
            (UpperState::Sparse(sparse), _) => sparse.handle_fetched(&self.below, fetched, bytes),
            (UpperState::None | UpperState::Log(_), _) => Status::Io,
        }
    }

    fn fill_stored(
        &mut self,
        request: &Request,
        stored: &Handover,
        bytes: &mut [u8],
        data: &mut dyn RequestData,
    ) -> Status {
        match &self.upper {
            UpperState::None => Status::Io,
            UpperState::Log(log) => log.fill_stored(stored, bytes),
            UpperState::Sparse(sparse) => sparse.fill_stored(request, stored, bytes, data),
        }
    }

    fn handover_bytes_max(&self) -> u32 {
        let upper = match &self.upper {
            UpperState::None => 0,
            UpperState::Log(_) => STORE_BYTES_MAX,
            UpperState::Sparse(_) => ZEROS_BYTES_MAX,
        };
        self.below.fetch_bytes_max().max(upper)
    }

    fn close(&mut self) -> io::Result<()> {
        match &mut self.upper {
            UpperState::Log(log) => log.close(),
            UpperState::None | UpperState::Sparse(_) => Ok(()),
        }
    }
}
