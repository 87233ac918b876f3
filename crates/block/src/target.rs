//! The trait behind every device: it turns requests into plans.
//!
//! ```text
//!   request --> handle_request --> Complete(status)
//!                     |
//!                     v Run                    +--------- Run (next phase)
//!              steps in parallel --> handle_phase_end --> Complete(status)
//!                     ^
//!                     +-- handle_fetched, fill_stored: bytes that the target itself takes or makes
//! ```
//!
//! A target is owned by the shards that serve it and is called by one thread at a time: no locks. It must return
//! quickly (bounded by the size of the request), never block, never allocate. If it panics, its device fails
//! with EIO from then on and no other device notices.

use crate::geometry::Geometry;
use crate::plan::{Handover, Plan};
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
    /// Call [`Target::handle_phase_end`] again, with `Ok`, after another request of the same target has called
    /// [`Plan::wake_waiting`]. The target must be sure that one will. The plan's steps, if any, are ignored.
    Wait,
}

/// The data of the request that a target is called for.
pub trait RequestData {
    /// Takes bytes out of a write's data, from `start` on.
    fn copy_from(&mut self, start: u32, bytes: &mut [u8]) -> Status;

    /// Puts bytes into a read's data, from `start` on.
    fn copy_to(&mut self, start: u32, bytes: &[u8]) -> Status;
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

    /// The bytes of a [`crate::Step::Fetch`] are there. What it returns is how the step ends.
    fn handle_fetched(
        &mut self,
        request: &Request,
        fetched: &Handover,
        bytes: &[u8],
        data: &mut dyn RequestData,
    ) -> Status {
        let _ = (request, fetched, bytes, data);
        Status::Io
    }

    /// Makes the bytes of a [`crate::Step::Store`], all of them. A failure is how the step ends.
    fn fill_stored(
        &mut self,
        request: &Request,
        stored: &Handover,
        bytes: &mut [u8],
        data: &mut dyn RequestData,
    ) -> Status {
        let _ = (request, stored, bytes, data);
        Status::Io
    }

    /// The longest [`Handover`] that cannot be cut into shorter ones; 0 for a target without any. Constant.
    fn handover_bytes_max(&self) -> u32 {
        0
    }

    /// Makes durable what is only in memory, after the device has stopped. On a thread that may block.
    ///
    /// # Errors
    /// What could not be written, and what is lost by that.
    fn close(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
