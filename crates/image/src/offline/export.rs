//! The disk of an image as plain bytes: into a sparse file, to a writer, or as a digest.

use std::io::Write;
use std::path::Path;

use block::{Extent, Sectors};
use overlaybd::lsmt::Source;
use sha2::{Digest, Sha256};

use super::new_file::{NewFile, Overwrite};
use super::{CHUNK_BYTES, Progress};
use crate::error::Error;
use crate::view::View;

/// Where zeros become holes: whole blocks of this size, that of most file systems.
const HOLE_BYTES: usize = 4096;

/// Writes the disk into a new file. What reads as zeros is a hole there.
///
/// # Errors
/// When the image cannot be read, or the file not be made; then there is no file.
pub fn export(
    view: &View,
    path: &Path,
    overwrite: Overwrite,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let mut file = NewFile::begin(path, overwrite)?;
    each_chunk(view, progress, &mut |chunk| match chunk {
        Chunk::Zeros(len) => file.append_hole(len),
        Chunk::Bytes(bytes) => bytes.chunks(HOLE_BYTES).try_for_each(|block| {
            if block.iter().all(|byte| *byte == 0) {
                file.append_hole(block.len() as u64)
            } else {
                file.append(block)
            }
        }),
    })?;
    file.finish()
}

/// Writes the disk to a writer, zeros and all. `name` is what errors call it.
///
/// # Errors
/// When the image cannot be read or the writer fails.
pub fn write(
    view: &View,
    out: &mut dyn Write,
    name: &Path,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    whole(view, progress, &mut |bytes| {
        out.write_all(bytes)
            .map_err(|error| Error::io("write", name, error))
    })
}

/// The SHA-256 of the disk, in hexadecimal digits.
///
/// # Errors
/// When the image cannot be read.
pub fn hash(view: &View, progress: &mut dyn Progress) -> Result<String, Error> {
    let mut digest = Sha256::new();
    whole(view, progress, &mut |bytes| {
        digest.update(bytes);
        Ok(())
    })?;
    let digest = digest.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

enum Chunk<'a> {
    Zeros(u64),
    Bytes(&'a [u8]),
}

fn whole(
    view: &View,
    progress: &mut dyn Progress,
    take: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let zeros = vec![0; CHUNK_BYTES];
    each_chunk(view, progress, &mut |chunk| match chunk {
        Chunk::Zeros(len) => {
            let len = usize::try_from(len).unwrap_or(CHUNK_BYTES);
            take(zeros.get(..len).unwrap_or(&zeros))
        }
        Chunk::Bytes(bytes) => take(bytes),
    })
}

/// The disk in pieces of at most [`CHUNK_BYTES`], in order; those that no layer has data for are not read.
fn each_chunk(
    view: &View,
    progress: &mut dyn Progress,
    take: &mut dyn FnMut(Chunk<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let size = view.size();
    progress.begin(size.len_bytes().0);
    let mut reader = view.reader()?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let step = CHUNK_BYTES as u64 / block::SECTOR_BYTES;
    let mut start = 0;
    while start < size.0 {
        let len = Sectors(step.min(size.0 - start));
        let extent = Extent {
            start: Sectors(start),
            len,
        };
        let is_data = |source| matches!(source, Source::Data { .. });
        let len_bytes = len.len_bytes().0;
        if view.resolve(extent).any(|piece| is_data(piece.source)) {
            let wanted = usize::try_from(len_bytes).unwrap_or(CHUNK_BYTES);
            let bytes = buffer.get_mut(..wanted).unwrap_or_default();
            reader.read(extent.start, bytes)?;
            take(Chunk::Bytes(bytes))?;
        } else {
            take(Chunk::Zeros(len_bytes))?;
        }
        progress.advance(len_bytes);
        start += len.0;
    }
    Ok(())
}
