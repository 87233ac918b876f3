//! Loop devices that serve a file: they read and write it beside everybody else and take no lock.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where the kernel lists block devices.
const BLOCK: &str = "/sys/block";
/// There while the driver is.
const MODULE: &str = "/sys/module/loop";

/// A loop device that serves a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Serving {
    /// Its node.
    pub(super) device: String,
    pub(super) is_read_only: bool,
}

/// The loop device that serves the file, if there is one. A file without a name (deleted) is not found; nobody opens such a
/// one by its name either.
pub(super) fn serving(file: &Metadata) -> Option<Serving> {
    if !Path::new(MODULE).exists() {
        return None;
    }
    // What cannot be read is not there any more.
    let entries = std::fs::read_dir(BLOCK).ok()?;
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("loop"))
        .find_map(|name| serves(&name, file))
}

fn serves(name: &str, file: &Metadata) -> Option<Serving> {
    let device = Path::new(BLOCK).join(name);
    let backing = std::fs::read_to_string(device.join("loop/backing_file")).ok()?;
    let backing = std::fs::metadata(backing.trim_end_matches('\n')).ok()?;
    if (backing.dev(), backing.ino()) != (file.dev(), file.ino()) {
        return None;
    }
    let protected = std::fs::read_to_string(device.join("ro")).ok()?;
    Some(Serving {
        device: format!("/dev/{name}"),
        is_read_only: protected.trim() != "0",
    })
}
