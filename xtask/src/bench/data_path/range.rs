//! How large devices are, and the part of them that is measured.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Result;

/// Size of the devices and of the sparse file.
pub(crate) const FILE_BYTES: u64 = 8 << 30;
/// The part of a device that is read and written; it is written before.
pub(crate) const RANGE_BYTES: u64 = 256 << 20;
/// One write of the preparation.
const CHUNK_BYTES: usize = 1 << 20;

/// A sparse file that has data everywhere in the range, which begins at `begin`.
pub(super) fn write_range(path: &Path, begin: u64) -> Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    if begin == 0 {
        file.set_len(FILE_BYTES)?;
    }
    file.seek(SeekFrom::Start(begin))?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    let chunks = RANGE_BYTES / u64::try_from(CHUNK_BYTES)?;
    for _ in 0..chunks {
        file.write_all(&chunk)?;
    }
    Ok(())
}
