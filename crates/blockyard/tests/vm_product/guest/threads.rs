//! The threads of a daemon: those that last, and those that come and go as calls block.

/// Threads of the runtime: 2 that wait and up to 64 for calls that may block.
const CONTROL_MAX: usize = 66;
/// The kernel's workers: 64 for control commands, and for each of the 2 shards 256 and one for each of 8 devices. Shards may
/// be held to fewer.
const IO_WORKERS_MAX: usize = 64 + 2 * (256 + 8);

/// The names of a daemon's threads at one moment.
#[derive(Debug)]
pub(crate) struct Threads(Vec<String>);

impl Threads {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Main thread, shards, control ring and journal, sorted: from the first device on they stay as they are.
    pub(crate) fn lasting(&self) -> Vec<String> {
        let names = self.0.iter().map(|name| name.trim_end().to_owned());
        let mut names: Vec<_> = names
            .filter(|name| !name.starts_with("control") && !name.starts_with("iou-"))
            .collect();
        names.sort();
        names
    }

    /// How many there are of all kinds.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Asserts that those which come and go are within their limits, whatever the load was.
    pub(crate) fn assert_within_limits(&self) {
        let of = |prefix: &str| {
            self.0
                .iter()
                .filter(|name| name.starts_with(prefix))
                .count()
        };
        assert!(of("control") <= CONTROL_MAX, "{self:?}");
        assert!(of("iou-") <= IO_WORKERS_MAX, "{self:?}");
    }
}
