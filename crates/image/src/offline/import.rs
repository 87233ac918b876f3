//! A raw disk as a sealed layer: holes and runs of zeros are left out, so the layer is for the bottom of a stack.

use block::{ByteLen, ByteOffset, Extent, Sectors};
use overlaybd::lsmt::{
    INDEX_RECORDS_MAX, Index, IndexBuilder, LayerPlan, NewLayer, RECORD_SECTORS_MAX, Segment,
};
use overlaybd::{ErrorKind, FileRange};

use super::layer::{Target, too_many, write};
use super::{CHUNK_BYTES, Progress};
use crate::error::Error;
use crate::file::LayerFile;
use crate::upper::extents;

/// Zeros are looked for in blocks of this many bytes: finer would cost more records than it saves data.
const BLOCK_BYTES: usize = 4096;

/// Makes a layer of the disk that `file` is. Its size is the disk's, whatever `target.layer` says.
///
/// # Errors
/// When the file cannot be read, is empty or no whole sectors, or the layer not be made; then there is none.
pub fn import(
    file: &LayerFile,
    target: &Target<'_>,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let size = Sectors::try_from_bytes(file.len()).filter(|size| size.0 > 0);
    let size = size.ok_or_else(|| {
        let detail = format!(
            "{}: a disk is one sector of 512 bytes or several",
            file.len()
        );
        let error = overlaybd::Error::new(ErrorKind::Truncated, "disk", ByteOffset(0), detail);
        Error::format(file.path(), error)
    })?;
    progress.begin(file.len().0);
    let index = index_of(file, progress)?;
    let layer = NewLayer {
        virtual_size: size,
        ..target.layer.clone()
    };
    let plan = LayerPlan::commit(&index, &layer);
    let plan = plan.map_err(|error| Error::format(target.path, error))?;
    let mut read = |_, offset: ByteOffset, bytes: &mut [u8]| file.read_exact_at(offset.0, bytes);
    write(&plan, &mut read, target, progress)
}

/// Where the disk has anything but zeros.
fn index_of(file: &LayerFile, progress: &mut dyn Progress) -> Result<Index, Error> {
    let mut builder = IndexBuilder::new(INDEX_RECORDS_MAX);
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut seen = 0;
    for range in extents(file)? {
        // An extent of a file system may end behind the file.
        let end = range.end().0.min(file.len().0);
        let mut at = range.offset.0;
        progress.advance(at.saturating_sub(seen));
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK_BYTES);
            let bytes = buffer
                .get_mut(..wanted.min(CHUNK_BYTES))
                .unwrap_or_default();
            file.read_exact_at(at, bytes)?;
            for (block, place) in bytes.chunks(BLOCK_BYTES).zip((at..).step_by(BLOCK_BYTES)) {
                if block.iter().any(|byte| *byte != 0) {
                    push(&mut builder, FileRange::new(place, block.len() as u64))
                        .map_err(|fault| too_many(file.path(), &fault))?;
                }
            }
            at += bytes.len() as u64;
            progress.advance(bytes.len() as u64);
        }
        seen = end;
    }
    progress.advance(file.len().0.saturating_sub(seen));
    Ok(builder.finish())
}

fn push(builder: &mut IndexBuilder, range: FileRange) -> Result<(), String> {
    const _: () = assert!(BLOCK_BYTES as u64 / block::SECTOR_BYTES <= RECORD_SECTORS_MAX);
    // Extents begin and end with sectors, and so does the file.
    let sectors = |bytes| Sectors::try_from_bytes(ByteLen(bytes)).unwrap_or_default();
    let start = sectors(range.offset.0);
    let extent = Extent {
        start,
        len: sectors(range.len.0),
    };
    let segment = Segment::data(extent, start).map_err(|fault| fault.to_string())?;
    builder
        .push_joined(segment)
        .map_err(|fault| fault.to_string())
}
