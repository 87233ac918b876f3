//! The one place of this crate that reads a clock.

use std::time::{Duration, Instant};

/// A point in time that waiting must not pass.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    begun: Instant,
    limit: Duration,
}

impl Deadline {
    /// The point `limit` from now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "a driver of machines: the clock is read here only"
    )]
    pub fn after(limit: Duration) -> Self {
        Self {
            begun: Instant::now(),
            limit,
        }
    }

    /// Time gone since the deadline was set.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Time left; zero when it has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.begun.elapsed())
    }

    /// The limit as it was set.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        self.limit
    }
}
