//! How far long work is, on a terminal.

use image::offline::Progress;
use indicatif::ProgressBar;

use crate::output::{self, Format};

/// A bar of bytes; gone when dropped.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new(format: Format) -> Self {
        let template = "[{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        Self(output::progress_bar(format, template))
    }
}

impl Progress for Bar {
    fn begin(&mut self, total_bytes: u64) {
        self.0.set_length(total_bytes);
        self.0.set_position(0);
    }

    fn advance(&mut self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
