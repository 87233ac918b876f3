//! One run at a time on a target directory: two would overwrite each other's results.

use std::fs::File;

use anyhow::{Context, Result};

use crate::cargo::Metadata;
use crate::console;

/// Waits for its turn, and says so; the turn ends with the value.
pub(crate) fn take() -> Result<File> {
    let directory = Metadata::load()?.target_directory;
    std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    let path = directory.join("xtask.lock");
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    if file.try_lock().is_err() {
        console::say("another run uses this target directory; waiting for its end");
        file.lock()
            .with_context(|| format!("lock {}", path.display()))?;
    }
    Ok(file)
}
