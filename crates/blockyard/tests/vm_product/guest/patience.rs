//! Waiting for a condition. The limit is what a hang looks like on an emulated machine that others use too, not a
//! measure of speed.

use std::time::Duration;

use testvm::Deadline;

/// Longer than anything takes that works.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// Between two looks.
const STEP: Duration = Duration::from_millis(10);

/// Looks until there is something to see; fails after [`LIMIT`].
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll_until(LIMIT, look).unwrap_or_else(|| panic!("not within {LIMIT:?}: {what}"))
}

/// Looks until there is something to see, or the time is over.
#[expect(
    clippy::disallowed_methods,
    reason = "the pause between two looks at a condition that has a deadline"
)]
pub(crate) fn poll_until<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Deadline::after(limit);
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if deadline.remaining().is_zero() {
            return None;
        }
        std::thread::sleep(STEP);
    }
}
