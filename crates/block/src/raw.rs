//! `raw:PATH`: one file or block device, served byte for byte.
//!
//! Reads of known holes need no I/O. FLUSH becomes a data sync of the file; FUA a durable write. Discard deallocates;
//! write-zeroes deallocates too, or zeroes in place when the kernel asks to keep the space.

use std::sync::Arc;

use crate::geometry::{Geometry, Zeroing};
use crate::holes::{HoleMap, PunchMark};
use crate::ids::FileIndex;
use crate::plan::{DataRange, Durability, Plan, PlanFull, Step};
use crate::request::{Op, Request};
use crate::status::Status;
use crate::target::{Target, Verdict};

/// The one file of a raw target.
const FILE: FileIndex = FileIndex(0);

/// What the backing file was found to be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFeatures {
    /// Whether a range can be zeroed in place (`FALLOC_FL_ZERO_RANGE`); else it is deallocated and allocated anew.
    pub zero_range: bool,
}

/// A raw file or block device. The file is number 0 of the attached files.
#[derive(Debug)]
pub struct RawTarget {
    geometry: Geometry,
    features: RawFeatures,
    holes: Arc<HoleMap>,
}

impl RawTarget {
    /// A target of `geometry` whose holes are `holes`, shared by all instances of the same device.
    #[must_use]
    pub const fn new(geometry: Geometry, features: RawFeatures, holes: Arc<HoleMap>) -> Self {
        Self {
            geometry,
            features,
            holes,
        }
    }

    fn plan(&self, request: &Request, plan: &mut Plan) -> Result<Verdict, PlanFull> {
        let offset = request.extent.offset_bytes();
        let len = request.extent.len_bytes();
        // Requests that carry data are at most 32 MiB long.
        let data = DataRange {
            start: 0,
            len: u32::try_from(request.data_len_bytes()).unwrap_or(u32::MAX),
        };
        match request.op {
            Op::Read if self.holes.is_hole(offset, len) => plan.push(Step::Zero { data })?,
            Op::Read => plan.push(Step::Read {
                file: FILE,
                offset,
                data,
            })?,
            Op::Write => {
                self.holes.begin_write(offset, len);
                let durability = if request.fua {
                    Durability::Durable
                } else {
                    Durability::Volatile
                };
                plan.push(Step::Write {
                    file: FILE,
                    offset,
                    data,
                    durability,
                })?;
            }
            Op::Flush => plan.push(Step::Sync { file: FILE })?,
            Op::Discard | Op::WriteZeroes if self.geometry.zeroing == Zeroing::Unsupported => {
                return Ok(Verdict::Complete(Status::Unsupported));
            }
            Op::WriteZeroes if request.no_unmap && self.features.zero_range => {
                plan.push(Step::ZeroRange {
                    file: FILE,
                    offset,
                    len,
                })?;
            }
            Op::Discard | Op::WriteZeroes => {
                plan.cookie = self.holes.begin_punch().to_cookie();
                plan.push(Step::Punch {
                    file: FILE,
                    offset,
                    len,
                })?;
            }
        }
        Ok(Verdict::Run)
    }
}

impl Target for RawTarget {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn handle_request(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        self.plan(request, plan)
            .unwrap_or(Verdict::Complete(Status::Io))
    }

    fn handle_phase_end(&mut self, request: &Request, status: Status, plan: &mut Plan) -> Verdict {
        match request.op {
            Op::Write => self.holes.end_write(),
            Op::Discard | Op::WriteZeroes if status.is_ok() => {
                return self
                    .next_zeroing_phase(request, plan)
                    .unwrap_or(Verdict::Complete(Status::Io));
            }
            Op::Read | Op::Flush | Op::Discard | Op::WriteZeroes => {}
        }
        Verdict::Complete(status)
    }
}

/// Cookie of a request whose range is zeroed and allocated again; only the sync of a FUA request is left.
const ALLOCATED: u64 = u64::MAX - 1;
/// Cookie of a request that waits for its last phase.
const LAST: u64 = u64::MAX - 2;

impl RawTarget {
    /// Zeroing takes up to three phases: deallocate (or zero in place), allocate again if the space is to be kept, sync if
    /// the request is FUA.
    fn next_zeroing_phase(&self, request: &Request, plan: &mut Plan) -> Result<Verdict, PlanFull> {
        let offset = request.extent.offset_bytes();
        let len = request.extent.len_bytes();
        let keep_space = request.op == Op::WriteZeroes && request.no_unmap;
        match plan.cookie {
            LAST => return Ok(Verdict::Complete(Status::Ok)),
            ALLOCATED => {}
            _ if keep_space && !self.features.zero_range => {
                plan.cookie = ALLOCATED;
                plan.push(Step::Allocate {
                    file: FILE,
                    offset,
                    len,
                })?;
                return Ok(Verdict::Run);
            }
            _ if keep_space => {}
            mark => self
                .holes
                .end_punch(PunchMark::from_cookie(mark), offset, len),
        }
        if !request.fua {
            return Ok(Verdict::Complete(Status::Ok));
        }
        plan.cookie = LAST;
        plan.push(Step::Sync { file: FILE })?;
        Ok(Verdict::Run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Extent;
    use crate::holes::CHUNK_BYTES_MIN;
    use crate::request::Access;
    use crate::units::{ByteLen, ByteOffset, Sectors};

    const CHUNK_SECTORS: u64 = CHUNK_BYTES_MIN / 512;

    fn target(zero_range: bool) -> RawTarget {
        let size = Sectors(16 * CHUNK_SECTORS);
        let geometry = Geometry {
            size,
            access: Access::ReadWrite,
            logical_block_shift: 9,
            physical_block_shift: 12,
            volatile_cache: true,
            zeroing: Zeroing::Deallocate {
                granularity_bytes: 4096,
            },
        };
        let holes = Arc::new(HoleMap::all_holes(size.len_bytes()));
        RawTarget::new(geometry, RawFeatures { zero_range }, holes)
    }

    fn request(op: Op, start: u64, len: u64) -> Request {
        let extent = Extent {
            start: Sectors(start),
            len: Sectors(len),
        };
        Request {
            op,
            extent,
            fua: false,
            no_unmap: false,
        }
    }

    /// Runs all phases as if every step succeeded; returns the steps in order.
    fn run(target: &mut RawTarget, request: &Request) -> Vec<Step> {
        let mut plan = Plan::new();
        let mut seen = Vec::new();
        let mut verdict = target.handle_request(request, &mut plan);
        while verdict == Verdict::Run {
            seen.extend_from_slice(plan.steps());
            plan.reset(plan.cookie);
            verdict = target.handle_phase_end(request, Status::Ok, &mut plan);
        }
        assert_eq!(verdict, Verdict::Complete(Status::Ok));
        seen
    }

    #[test]
    fn reads_of_holes_need_no_file_until_something_was_written() {
        let mut target = target(true);
        let read = request(Op::Read, 8, 8);
        let data = DataRange {
            start: 0,
            len: 4096,
        };
        assert_eq!(run(&mut target, &read), [Step::Zero { data }]);
        run(&mut target, &request(Op::Write, 8, 8));
        let offset = ByteOffset(4096);
        assert_eq!(
            run(&mut target, &read),
            [Step::Read {
                file: FILE,
                offset,
                data
            }]
        );
        run(&mut target, &request(Op::Discard, 0, CHUNK_SECTORS));
        assert_eq!(run(&mut target, &read), [Step::Zero { data }]);
    }

    #[test]
    fn flush_syncs_and_fua_writes_are_durable() {
        let mut target = target(true);
        assert_eq!(
            run(&mut target, &request(Op::Flush, 0, 0)),
            [Step::Sync { file: FILE }]
        );
        let write = Request {
            fua: true,
            ..request(Op::Write, 0, 1)
        };
        assert!(matches!(
            run(&mut target, &write)[..],
            [Step::Write {
                durability: Durability::Durable,
                ..
            }]
        ));
    }

    #[test]
    fn write_zeroes_that_keeps_space_zeroes_in_place_or_allocates_again() {
        let zeroes = Request {
            no_unmap: true,
            fua: true,
            ..request(Op::WriteZeroes, 0, 8)
        };
        let (offset, len) = (ByteOffset(0), ByteLen(4096));
        let sync = Step::Sync { file: FILE };
        assert_eq!(
            run(&mut target(true), &zeroes),
            [
                Step::ZeroRange {
                    file: FILE,
                    offset,
                    len
                },
                sync
            ]
        );
        assert_eq!(
            run(&mut target(false), &zeroes),
            [
                Step::Punch {
                    file: FILE,
                    offset,
                    len
                },
                Step::Allocate {
                    file: FILE,
                    offset,
                    len
                },
                sync
            ]
        );
    }

    #[test]
    fn a_failed_deallocation_makes_no_hole() {
        let mut target = target(true);
        run(&mut target, &request(Op::Write, 0, 8));
        let discard = request(Op::Discard, 0, CHUNK_SECTORS);
        let mut plan = Plan::new();
        assert_eq!(target.handle_request(&discard, &mut plan), Verdict::Run);
        plan.reset(plan.cookie);
        let verdict = target.handle_phase_end(&discard, Status::Io, &mut plan);
        assert_eq!(verdict, Verdict::Complete(Status::Io));
        assert!(matches!(
            run(&mut target, &request(Op::Read, 0, 8))[..],
            [Step::Read { .. }]
        ));
    }
}
