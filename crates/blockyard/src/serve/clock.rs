//! The daemon's clock: the one place of the control plane that reads the time.

use std::time::{Instant, SystemTime};

/// Now.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver is where time enters; the cores take it as a parameter"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Now, for people: it may be set back or forward.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver is where time enters; the cores take it as a parameter"
)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
