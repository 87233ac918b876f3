//! How far long work is, on a terminal.

use image::offline::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Format;

/// A bar on standard error; hidden unless that is a terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new(format: Format) -> Self {
        Self(match format {
            Format::Json => ProgressBar::hidden(),
            Format::Human => ProgressBar::new(0),
        })
    }
}

impl Progress for Bar {
    fn begin(&mut self, total_bytes: u64) {
        self.0.set_length(total_bytes);
        self.0.set_position(0);
        let template = "[{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
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
