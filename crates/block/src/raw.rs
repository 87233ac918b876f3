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
        let offset = request.extent.offset_bytes();
        let len = request.extent.len_bytes();
        match request.op {
            Op::Write => self.holes.end_write(),
            Op::Discard if status.is_ok() => {
                self.holes
                    .end_punch(PunchMark::from_cookie(plan.cookie), offset, len);
            }
            Op::WriteZeroes if status.is_ok() && !request.no_unmap => {
                self.holes
                    .end_punch(PunchMark::from_cookie(plan.cookie), offset, len);
                if request.fua {
                    return follow_up(plan, Step::Sync { file: FILE }, status);
                }
            }
            _ => {}
        }
        Verdict::Complete(status)
    }
}

fn follow_up(plan: &mut Plan, step: Step, status: Status) -> Verdict {
    match plan.push(step) {
        Ok(()) => Verdict::Run,
        Err(PlanFull) => Verdict::Complete(status),
    }
}
