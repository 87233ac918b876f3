//! A target that panics.

use block::{Geometry, Handover, Plan, Request, RequestData, Status, Target, Verdict};

/// Behaves like another target until its calls are used up, then panics.
pub(crate) struct PanickingTarget {
    inner: Box<dyn Target>,
    calls_left: u32,
}

impl PanickingTarget {
    pub(crate) fn new(inner: Box<dyn Target>, calls_left: u32) -> Self {
        Self { inner, calls_left }
    }

    fn count(&mut self) {
        match self.calls_left.checked_sub(1) {
            Some(left) => self.calls_left = left,
            // As a panic, but without the message that the panic hook would print for each of many seeds.
            None => std::panic::resume_unwind(Box::new("the target's calls are used up")),
        }
    }
}

impl Target for PanickingTarget {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn handle_request(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        self.count();
        self.inner.handle_request(request, plan)
    }

    fn handle_phase_end(&mut self, request: &Request, status: Status, plan: &mut Plan) -> Verdict {
        self.count();
        self.inner.handle_phase_end(request, status, plan)
    }

    fn handle_fetched(
        &mut self,
        request: &Request,
        fetched: &Handover,
        bytes: &[u8],
        data: &mut dyn RequestData,
    ) -> Status {
        self.count();
        self.inner.handle_fetched(request, fetched, bytes, data)
    }

    fn fill_stored(
        &mut self,
        request: &Request,
        stored: &Handover,
        bytes: &mut [u8],
        data: &mut dyn RequestData,
    ) -> Status {
        self.count();
        self.inner.fill_stored(request, stored, bytes, data)
    }

    fn handover_bytes_max(&self) -> u32 {
        self.inner.handover_bytes_max()
    }

    fn close(&mut self) -> std::io::Result<()> {
        self.inner.close()
    }
}
