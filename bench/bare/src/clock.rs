//! The program's clock.

use std::time::{Duration, Instant};

/// Time since a moment.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// From now on.
    #[expect(clippy::disallowed_methods, reason = "measuring time is the purpose")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds so far.
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// A pause between two looks at something that sends no event.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel does not tell when a number is free"
)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}
