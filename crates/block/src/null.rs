//! `null:SIZE`: reads zeros, drops writes. For measuring and for tests; it stores nothing.

use crate::geometry::{Geometry, Zeroing};
use crate::plan::{DataRange, Plan, Step};
use crate::request::{Access, Op, Request};
use crate::status::Status;
use crate::target::{Target, Verdict};
use crate::units::Sectors;

/// A device without content: every read returns zeros, **every write is dropped**.
#[derive(Debug)]
pub struct NullTarget {
    geometry: Geometry,
}

impl NullTarget {
    /// A null device of `size`.
    #[must_use]
    pub const fn new(size: Sectors, access: Access) -> Self {
        Self {
            geometry: Geometry {
                size,
                access,
                logical_block_shift: 9,
                physical_block_shift: 12,
                volatile_cache: false,
                zeroing: Zeroing::Deallocate {
                    granularity_bytes: 4096,
                },
            },
        }
    }
}

impl Target for NullTarget {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn handle_request(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        let Ok(len) = u32::try_from(request.data_len_bytes()) else {
            return Verdict::Complete(Status::OutOfRange);
        };
        match request.op {
            Op::Read => match plan.push(Step::Zero {
                data: DataRange { start: 0, len },
            }) {
                Ok(()) => Verdict::Run,
                Err(_) => Verdict::Complete(Status::Io),
            },
            Op::Write | Op::Flush | Op::Discard | Op::WriteZeroes => Verdict::Complete(Status::Ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Extent;

    #[test]
    fn reads_plan_zeros_and_everything_else_completes_at_once() {
        let mut target = NullTarget::new(Sectors(64), Access::ReadWrite);
        let mut plan = Plan::new();
        let extent = Extent {
            start: Sectors(8),
            len: Sectors(16),
        };
        let request = |op| Request {
            op,
            extent,
            fua: false,
            no_unmap: false,
        };
        assert_eq!(
            target.handle_request(&request(Op::Read), &mut plan),
            Verdict::Run
        );
        assert_eq!(
            plan.steps(),
            [Step::Zero {
                data: DataRange {
                    start: 0,
                    len: 8192
                }
            }]
        );
        plan.reset(0);
        for op in [Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes] {
            assert_eq!(
                target.handle_request(&request(op), &mut plan),
                Verdict::Complete(Status::Ok)
            );
            assert!(plan.steps().is_empty());
        }
    }
}
