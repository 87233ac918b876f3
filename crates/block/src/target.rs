//! The trait behind every device: it turns requests into plans.
//!
//! ```text
//!   request --> handle_request --> Complete(status)
//!                     |
//!                     v Run                    +--------- Run (next phase)
//!              steps in parallel --> handle_phase_end --> Complete(status)
//! ```
//!
//! A target is owned by the shards that serve it and is called by one thread at a time: no locks. It must return
//! quickly (bounded by the size of the request), never block, never allocate. If it panics, its device fails
//! with EIO from then on and no other device notices.

use crate::geometry::Geometry;
use crate::plan::Plan;
use crate::request::Request;
use crate::status::Status;

/// What the data plane shall do with a request next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Execute the steps of the plan, then call [`Target::handle_phase_end`]. An empty plan ends at once, with `Ok`.
    Run,
    /// Tell the kernel the request has ended. The plan's steps, if any, are ignored.
    Complete(Status),
}

/// The content of a device.
///
/// The data plane has checked before that the extent lies on the device, that a modifying request does not meet a
/// read-only device, and that the operation is one the [`Geometry`] offers.
pub trait Target: Send {
    /// Size and limits. Constant while the target is attached.
    fn geometry(&self) -> Geometry;

    /// Plans the first phase of a request.
    fn handle_request(&mut self, request: &Request, plan: &mut Plan) -> Verdict;

    /// Every step of the phase has ended; `status` is the first failure in completion order, or `Ok`.
    ///
    /// `plan` is empty and carries the request's cookie. The default ends the request with `status`.
    fn handle_phase_end(&mut self, request: &Request, status: Status, plan: &mut Plan) -> Verdict {
        let _ = (request, plan);
        Verdict::Complete(status)
    }
}
