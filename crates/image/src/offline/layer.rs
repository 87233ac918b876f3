//! New layers out of old ones: commit an upper, merge a stack, flatten both.

use std::path::Path;

use block::ByteOffset;
use overlaybd::lsmt::{Index, LayerIndex, LayerPlan, NewLayer};

use super::sink::{Packing, Sink};
use super::{CHUNK_BYTES, Progress};
use crate::blob::Blob;
use crate::config::LayerKind;
use crate::error::Error;
use crate::lowers::read_layer;
use crate::upper::Upper;
use crate::view::View;

/// What is made, and where.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// The new file.
    pub path: &'a Path,
    /// How it is packed.
    pub packing: Packing,
    /// What the new layer says about itself.
    pub layer: NewLayer,
}

/// Makes a layer of what an upper holds. Holes stay holes; what was overwritten is left out.
///
/// # Errors
/// When the upper cannot be read, or the file not be made; then there is no file.
pub fn commit(
    upper: &Upper,
    target: &Target<'_>,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let index = upper.index().to_index();
    let index = index.map_err(|fault| too_many(target.path, &fault))?;
    let plan = LayerPlan::commit(&index, &target.layer);
    let plan = plan.map_err(|error| Error::format(target.path, error))?;
    let data = upper.data();
    let mut read = |_, offset: ByteOffset, bytes: &mut [u8]| data.read_exact_at(offset.0, bytes);
    write(&plan, &mut read, target, progress)
}

/// Makes the layer that a sealed file is, as if it had just been committed: without what was overwritten before it was sealed.
///
/// # Errors
/// As [`commit`].
pub fn commit_sealed(
    blob: &Blob,
    target: &Target<'_>,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let layer = read_layer(blob, LayerKind::Own)?;
    let plan = LayerPlan::commit(&layer.index, &target.layer);
    let plan = plan.map_err(|error| Error::format(target.path, error))?;
    let mut reader = blob.reader()?;
    let mut read = |_, offset, bytes: &mut [u8]| reader.read_exact_at(offset, bytes);
    write(&plan, &mut read, target, progress)
}

/// Makes one layer of all lowers. The data of warp layers' targets become the new layer's own.
///
/// # Errors
/// As [`commit`].
pub fn merge(view: &View, target: &Target<'_>, progress: &mut dyn Progress) -> Result<(), Error> {
    write_stack(view, view.lowers().stack().index(), target, progress)
}

/// Makes one layer of all lowers and the upper.
///
/// # Errors
/// As [`commit`].
pub fn flatten(view: &View, target: &Target<'_>, progress: &mut dyn Progress) -> Result<(), Error> {
    let Some(upper) = view.upper() else {
        return merge(view, target, progress);
    };
    let index = view.lowers().stack().index_under(upper.index());
    let index = index.map_err(|error| Error::format(target.path, error))?;
    write_stack(view, &index, target, progress)
}

fn write_stack(
    view: &View,
    index: &Index,
    target: &Target<'_>,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let files = u8::try_from(view.lowers().blobs().len()).unwrap_or(u8::MAX);
    let plan = LayerPlan::merge(index, files, &target.layer);
    let plan = plan.map_err(|error| Error::format(target.path, error))?;
    let mut reader = view.reader()?;
    let mut read = |layer, offset, bytes: &mut [u8]| reader.read_data(layer, offset, bytes);
    write(&plan, &mut read, target, progress)
}

type Read<'a> = &'a mut dyn FnMut(LayerIndex, ByteOffset, &mut [u8]) -> Result<(), Error>;

pub(super) fn write(
    plan: &LayerPlan<'_>,
    read: Read<'_>,
    target: &Target<'_>,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    progress.begin(plan.len_bytes().0);
    let mut sink = Sink::begin(target.path, target.packing)?;
    sink.push(&plan.header)?;
    progress.advance(plan.header.len() as u64);
    let mut buffer = vec![0; CHUNK_BYTES];
    for copy in plan.copies() {
        let mut done = 0;
        while done < copy.from.len.0 {
            let len = usize::try_from(copy.from.len.0 - done).unwrap_or(CHUNK_BYTES);
            let Some(bytes) = buffer.get_mut(..len.min(CHUNK_BYTES)) else {
                break;
            };
            read(copy.layer, copy.from.offset.advanced(done), bytes)?;
            sink.push(bytes)?;
            done += bytes.len() as u64;
            progress.advance(bytes.len() as u64);
        }
    }
    sink.push(&plan.tail)?;
    progress.advance(plan.tail.len() as u64);
    sink.finish()
}

pub(super) fn too_many(path: &Path, fault: &dyn std::fmt::Display) -> Error {
    let error = overlaybd::Error::new(
        overlaybd::ErrorKind::TooLarge,
        "new index",
        ByteOffset(0),
        fault.to_string(),
    );
    Error::format(path, error)
}
