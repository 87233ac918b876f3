//! The lowers of an image: open blobs and one merged index.
//!
//! Everything here never changes once it is open, so all devices on the same lowers share one value of it.

use std::path::Path;
use std::sync::Arc;

use block::ByteOffset;
use overlaybd::lsmt::{Layer, LayerEnds, LayerUuid, Layout, NewLayer, Stack, StackFile};
use overlaybd::{ErrorKind, FileRange};

use crate::blob::{Blob, BlobReader};
use crate::config::{LayerKind, LowerConfig};
use crate::error::Error;
use crate::file::LayerFile;

/// Bytes of an index that are read at a time.
const INDEX_CHUNK_BYTES: u64 = 1 << 20;

/// What to do about a layer that names another parent than the one it lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParentCheck {
    /// Refuse it: its content would be wrong without any other sign.
    Refuse,
    /// Stack it all the same, as the reference does: merged and foreign layers may carry stale names.
    Ignore,
}

/// Opens the file of a layer; lets a caller share files between images.
pub trait LowerSource {
    /// The open file at `path`.
    ///
    /// # Errors
    /// As [`LayerFile::open_sealed`].
    fn open(&mut self, path: &Path) -> Result<Arc<LayerFile>, Error>;

    /// What the file at `path` is without what it is wrapped in.
    ///
    /// # Errors
    /// As [`LowerSource::open`] and [`Blob::open`].
    fn open_blob(&mut self, path: &Path) -> Result<Blob, Error> {
        Blob::open(self.open(path)?)
    }
}

impl<F: FnMut(&Path) -> Result<Arc<LayerFile>, Error>> LowerSource for F {
    fn open(&mut self, path: &Path) -> Result<Arc<LayerFile>, Error> {
        self(path)
    }
}

/// Open lowers.
#[derive(Debug)]
pub struct Lowers {
    stack: Stack,
    top_uuid: Option<LayerUuid>,
    /// In the order of the stack's files.
    blobs: Vec<Blob>,
}

impl Lowers {
    /// Opens `lowers`, bottom first. `image` is what names them, for messages.
    ///
    /// # Errors
    /// When a file cannot be opened or is no sound layer, or one does not belong on the one below.
    pub fn open(
        image: &Path,
        lowers: &[LowerConfig],
        parents: ParentCheck,
        source: &mut dyn LowerSource,
    ) -> Result<Self, Error> {
        let mut layers = Vec::new();
        let mut files = Vec::new();
        for lower in lowers {
            let blob = source.open_blob(&lower.file)?;
            layers.push(read_layer(&blob, lower.kind())?);
            let target = match &lower.target {
                None => None,
                Some(target) => Some(Blob::bare(source.open(target)?)),
            };
            files.push((blob, target));
        }
        let borrowed: Vec<&Layer> = layers.iter().collect();
        let stack = match parents {
            ParentCheck::Refuse => Stack::build(&borrowed).map_err(|source| match source.kind {
                ErrorKind::Corrupt => Error::Parent {
                    path: image.to_owned(),
                    source,
                },
                _ => Error::format(image, source),
            })?,
            ParentCheck::Ignore => {
                Stack::build_unrelated(&borrowed).map_err(|error| Error::format(image, error))?
            }
        };
        let of_file = |file: &StackFile| match *file {
            StackFile::Own(layer) => files.get(layer).map(|(own, _)| own.clone()),
            StackFile::Target(layer) => files.get(layer).and_then(|(_, target)| target.clone()),
        };
        let blobs: Option<Vec<Blob>> = stack.files().iter().map(of_file).collect();
        // A warp layer is only parsed as one if it has a target.
        let blobs = blobs.unwrap_or_default();
        let top_uuid = layers.last().and_then(|layer| layer.trailer.uuid);
        Ok(Self {
            stack,
            top_uuid,
            blobs,
        })
    }

    /// What is where.
    #[must_use]
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The uuid of the top layer: the parent of an upper.
    #[must_use]
    pub const fn top_uuid(&self) -> Option<LayerUuid> {
        self.top_uuid
    }

    /// The files, by [`overlaybd::lsmt::LayerIndex`].
    #[must_use]
    pub fn blobs(&self) -> &[Blob] {
        &self.blobs
    }
}

/// Reads the layer that a blob is.
///
/// # Errors
/// When it is no sound sealed layer.
pub fn read_layer(blob: &Blob, kind: LayerKind) -> Result<Layer, Error> {
    let format = |error| Error::format(blob.path(), error);
    let ends = LayerEnds::of_file(blob.len()).map_err(format)?;
    let mut reader = blob.reader()?;
    let header = read_range(&mut reader, ends.header)?;
    let trailer = read_range(&mut reader, ends.trailer)?;
    let layout = match kind {
        LayerKind::Own => Layout::parse(ends, &header, &trailer),
        LayerKind::Warp => Layout::parse_warp(ends, &header, &trailer),
    };
    let layout = layout.map_err(format)?;
    let index = layout.index();
    let mut loader = layout.loader();
    let mut done = 0;
    while done < index.len.0 {
        let len = INDEX_CHUNK_BYTES.min(index.len.0 - done);
        let chunk = FileRange {
            offset: index.offset.advanced(done),
            len: block::ByteLen(len),
        };
        loader
            .push(&read_range(&mut reader, chunk)?)
            .map_err(format)?;
        done += len;
    }
    loader.finish().map_err(format)
}

/// What a sealed layer says about itself.
///
/// # Errors
/// When it is no sealed layer.
pub fn read_trailer(blob: &Blob) -> Result<NewLayer, Error> {
    let trailer = read_layer(blob, LayerKind::Own)?.trailer;
    Ok(NewLayer {
        virtual_size: trailer.virtual_size,
        uuid: trailer.uuid,
        parent_uuid: trailer.parent_uuid,
        user_tag: trailer.user_tag,
    })
}

/// A range whose length is bounded by its asker.
fn read_range(reader: &mut BlobReader<'_>, range: FileRange) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; usize::try_from(range.len.0).unwrap_or(usize::MAX)];
    reader.read_exact_at(ByteOffset(range.offset.0), &mut bytes)?;
    Ok(bytes)
}
