//! The whole disk of an image, read offline.

use std::path::Path;
use std::sync::Arc;

use block::{ByteOffset, Extent, Sectors};
use overlaybd::lsmt::{LayerIndex, Piece, Source};

use crate::blob::{Blob, BlobReader};
use crate::config::ImageConfig;
use crate::error::Error;
use crate::file::LayerFile;
use crate::lowers::{Lowers, ParentCheck};
use crate::upper::{LostRecords, Upper};

/// How an image is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// About layers on other parents than they name.
    pub parents: ParentCheck,
    /// About records without data at the end of a log upper.
    pub lost: LostRecords,
}

/// An image that is open for reading.
#[derive(Debug)]
pub struct View {
    lowers: Lowers,
    upper: Option<Upper>,
    size: Sectors,
}

/// Reads the disk of a [`View`]; one for each thread.
pub struct ViewReader<'a> {
    view: &'a View,
    lowers: Vec<BlobReader<'a>>,
}

impl View {
    /// Opens an image for reading.
    ///
    /// # Errors
    /// When a file cannot be opened or is not what the configuration says.
    pub fn open(config: &ImageConfig, options: OpenOptions) -> Result<Self, Error> {
        let mut open = |path: &Path| LayerFile::open_sealed(path).map(Arc::new);
        let lowers = Lowers::open(&config.path, &config.lowers, options.parents, &mut open)?;
        let upper = match &config.upper {
            None => None,
            Some(upper) => Some(Upper::open_to_read(upper, options.lost)?),
        };
        let size = check_stack(&config.path, &lowers, upper.as_ref(), options.parents)?;
        Ok(Self {
            lowers,
            upper,
            size,
        })
    }

    /// The size of the disk.
    #[must_use]
    pub const fn size(&self) -> Sectors {
        self.size
    }

    /// The lowers.
    #[must_use]
    pub const fn lowers(&self) -> &Lowers {
        &self.lowers
    }

    /// The upper.
    #[must_use]
    pub const fn upper(&self) -> Option<&Upper> {
        self.upper.as_ref()
    }

    /// What `extent` consists of, up to the end of the disk, in order. A hole reads as zeros.
    pub fn resolve(&self, extent: Extent) -> Box<dyn Iterator<Item = Piece> + '_> {
        let stack = self.lowers.stack();
        match &self.upper {
            None => Box::new(stack.resolve(extent)),
            Some(upper) => Box::new(stack.resolve_under(upper.index(), self.size, extent)),
        }
    }

    /// A reader.
    ///
    /// # Errors
    /// When there is no memory for decoders.
    pub fn reader(&self) -> Result<ViewReader<'_>, Error> {
        let lowers = self.lowers.blobs().iter().map(Blob::reader);
        Ok(ViewReader {
            view: self,
            lowers: lowers.collect::<Result<_, _>>()?,
        })
    }
}

impl ViewReader<'_> {
    /// Fills `bytes` with the disk's content from sector `start` on. What lies behind the end of the disk is zeros.
    ///
    /// # Errors
    /// When a read fails or a block is damaged.
    pub fn read(&mut self, start: Sectors, bytes: &mut [u8]) -> Result<(), Error> {
        let sectors = (bytes.len() as u64).div_ceil(block::SECTOR_BYTES);
        let extent = Extent {
            start,
            len: Sectors(sectors),
        };
        let view = self.view;
        let mut done = 0;
        for piece in view.resolve(extent) {
            let len = usize::try_from(piece.extent.len_bytes().0).unwrap_or(usize::MAX);
            let end = done + len.min(bytes.len() - done);
            let Some(part) = bytes.get_mut(done..end) else {
                break;
            };
            match piece.source {
                Source::Hole | Source::Zero => part.fill(0),
                Source::Data { layer, offset } => {
                    self.read_data(layer, offset.offset_bytes(), part)?;
                }
            }
            done = end;
        }
        if let Some(behind) = bytes.get_mut(done..) {
            behind.fill(0);
        }
        Ok(())
    }

    pub(crate) fn read_data(
        &mut self,
        layer: LayerIndex,
        offset: ByteOffset,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        if let Some(reader) = self.lowers.get_mut(usize::from(layer.0)) {
            return reader.read_exact_at(offset, bytes);
        }
        // The only file behind those of the lowers.
        match &self.view.upper {
            Some(upper) => upper.data().read_exact_at(offset.0, bytes),
            None => {
                bytes.fill(0);
                Ok(())
            }
        }
    }
}

/// The size of the disk, if its parts belong together.
pub(crate) fn check_stack(
    image: &Path,
    lowers: &Lowers,
    upper: Option<&Upper>,
    parents: ParentCheck,
) -> Result<Sectors, Error> {
    let stack = lowers.stack();
    let Some(upper) = upper else {
        return sized(image, stack.size());
    };
    if parents == ParentCheck::Refuse && !lowers.blobs().is_empty() {
        let checked = stack.check_upper(upper.header());
        checked.map_err(|source| Error::Parent {
            path: upper.data().path().to_owned(),
            source,
        })?;
    }
    sized(image, stack.size_under(upper.header()))
}

fn sized(image: &Path, size: Sectors) -> Result<Sectors, Error> {
    if size.0 == 0 {
        let detail = "no layer has a size; grow the upper with `blockyard image resize`";
        return Err(Error::Config {
            path: image.to_owned(),
            detail: detail.to_owned(),
        });
    }
    Ok(size)
}
