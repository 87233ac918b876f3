//! Compressing a file and the way back.

use std::path::Path;

use block::ByteOffset;

use super::new_file::NewFile;
use super::sink::{Packing, Sink};
use super::{CHUNK_BYTES, Overwrite, Progress};
use crate::blob::Blob;
use crate::error::Error;
use crate::file::LayerFile;

/// Packs a file of any content.
///
/// # Errors
/// When it cannot be read, or the new file not be made; then there is none.
pub fn compress(
    file: &LayerFile,
    path: &Path,
    packing: Packing,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let len = file.len().0;
    progress.begin(len);
    let mut sink = Sink::begin(path, packing)?;
    each_chunk(len, progress, &mut |at, bytes| {
        file.read_exact_at(at, bytes)?;
        sink.push(bytes)
    })?;
    sink.finish()
}

/// Writes the content of a blob into a new file: without compression and wrapper.
///
/// # Errors
/// As [`compress`].
pub fn decompress(
    blob: &Blob,
    path: &Path,
    overwrite: Overwrite,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let len = blob.len().0;
    progress.begin(len);
    let mut file = NewFile::begin(path, overwrite)?;
    let mut reader = blob.reader()?;
    each_chunk(len, progress, &mut |at, bytes| {
        reader.read_exact_at(ByteOffset(at), bytes)?;
        file.append(bytes)
    })?;
    file.finish()
}

/// Takes the chunk at a place: fills it, and passes it on.
type Take<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<(), Error>;

fn each_chunk(len: u64, progress: &mut dyn Progress, take: Take<'_>) -> Result<(), Error> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < len {
        let wanted = usize::try_from(len - at).unwrap_or(CHUNK_BYTES);
        let bytes = buffer
            .get_mut(..wanted.min(CHUNK_BYTES))
            .unwrap_or_default();
        take(at, bytes)?;
        at += bytes.len() as u64;
        progress.advance(bytes.len() as u64);
    }
    Ok(())
}
