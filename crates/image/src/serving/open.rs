//! Opening an image to be served.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use block::{Access, FileIndex, Geometry, Zeroing};
use overlaybd::lsmt::LogUpper;
use rustix::fs::{FallocateFlags, fallocate};

use super::below::Below;
use super::library::Library;
use super::log::LogState;
use super::sparse::SparseState;
use super::target::{ImageTarget, UpperState};
use super::workspace::Workspace;
use crate::blob::Form;
use crate::config::ImageConfig;
use crate::error::Error;
use crate::file::LayerFile;
use crate::lowers::{Lowers, ParentCheck};
use crate::upper::{LostRecords, Upper};
use crate::view::check_stack;

/// The block of file systems that is assumed where nothing else is known, and the unit of discards.
const BLOCK_BYTES: u32 = 4096;

/// How an image is opened to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// [`Access::ReadOnly`]: nothing is changed even if the image has an upper.
    pub access: Access,
    /// About layers on other parents than they name.
    pub parents: ParentCheck,
}

/// What is in a file of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// What the disk holds, so that reads may take it straight from the file.
    AsItIs,
    /// Compressed blocks, or records.
    Other,
}

/// An open image.
#[derive(Debug)]
pub struct ServedImage {
    geometry: Geometry,
    lowers: Arc<Lowers>,
    /// Taken by the one instance that writes.
    upper: Mutex<Option<Upper>>,
    has_upper: bool,
    records_dropped: u64,
}

impl ServedImage {
    /// Opens an image. What a crash left behind the end of a log upper is cut off.
    ///
    /// # Errors
    /// When a file cannot be opened, is in use, or is not what the configuration says.
    pub fn open(
        config: &ImageConfig,
        options: ServeOptions,
        library: &Library,
    ) -> Result<Self, Error> {
        let lowers = library.lowers(config, options.parents)?;
        let upper = match (&config.upper, options.access) {
            (None, _) => None,
            (Some(upper), Access::ReadOnly) => Some(Upper::open_to_read(upper, LostRecords::Drop)?),
            (Some(upper), Access::ReadWrite) => Some(Upper::open(upper, LostRecords::Drop)?),
        };
        let size = check_stack(&config.path, &lowers, upper.as_ref(), options.parents)?;
        let access = match &upper {
            None => Access::ReadOnly,
            Some(_) => options.access,
        };
        let mut records_dropped = 0;
        if let Some(Upper::Log { data, index, log }) = &upper {
            records_dropped = log.records_dropped;
            if access == Access::ReadWrite {
                cut(data, index, log)?;
            }
        }
        if let Some(Upper::Sparse { file, .. }) = &upper
            && access == Access::ReadWrite
            && !lowers.blobs().is_empty()
        {
            check_block(file)?;
        }
        let geometry = Geometry {
            size,
            access,
            logical_block_shift: 9,
            physical_block_shift: 12,
            volatile_cache: access == Access::ReadWrite,
            zeroing: zeroing(upper.as_ref(), access),
        };
        Ok(Self {
            geometry,
            lowers,
            has_upper: upper.is_some(),
            upper: Mutex::new(upper),
            records_dropped,
        })
    }

    /// Size and limits of the device.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The lowers, shared with other images.
    #[must_use]
    pub const fn lowers(&self) -> &Arc<Lowers> {
        &self.lowers
    }

    /// Whether there can be one instance only.
    #[must_use]
    pub const fn is_single(&self) -> bool {
        self.has_upper
    }

    /// Records at the end of the upper's log that a crash had left unfinished and that are not in the image.
    #[must_use]
    pub const fn records_dropped(&self) -> u64 {
        self.records_dropped
    }

    /// Shows every file, in the order of their numbers. Before the instance that writes is taken.
    pub fn each_file(&self, mut look: impl FnMut(&LayerFile, Content)) {
        for blob in self.lowers.blobs() {
            let content = match blob.form() {
                Form::Plain => Content::AsItIs,
                Form::Compressed(_) => Content::Other,
            };
            look(blob.file(), content);
        }
        match &*self.upper.lock().unwrap_or_else(PoisonError::into_inner) {
            None => {}
            Some(Upper::Log { data, index, .. }) => {
                look(data, Content::AsItIs);
                look(index, Content::Other);
            }
            Some(Upper::Sparse { file, .. }) => look(file, Content::AsItIs),
        }
    }

    /// An instance for a shard whose images share `workspace`, and its files in the order of their numbers.
    ///
    /// # Errors
    /// When there is no memory for decoders, or a second instance is asked for of an image that can have one.
    pub fn instance(
        &self,
        workspace: &Workspace,
    ) -> Result<(ImageTarget, Vec<Arc<LayerFile>>), Error> {
        let below = Below::new(Arc::clone(&self.lowers), workspace.clone())?;
        let upper = self
            .upper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // A stack has at most 255 files.
        let first = u16::try_from(self.lowers.blobs().len()).unwrap_or(u16::MAX);
        let upper = match upper {
            None if self.has_upper => {
                return Err(Error::InUse {
                    path: "the upper of this image".into(),
                });
            }
            None => UpperState::None,
            Some(Upper::Log { data, index, log }) => UpperState::Log(Box::new(LogState::new(
                [data, index],
                log,
                FileIndex(first),
            ))),
            Some(Upper::Sparse { file, index, .. }) => {
                let block = block_sectors(&file)?;
                let size = self.geometry.size;
                let state = SparseState::new(file, FileIndex(first), (size, block), &index);
                UpperState::Sparse(state)
            }
        };
        let target = ImageTarget::new(self.geometry, below, upper);
        let lowers = self
            .lowers
            .blobs()
            .iter()
            .map(|blob| Arc::clone(blob.file()));
        let files = lowers.chain(target.upper_files()).collect();
        Ok((target, files))
    }
}

/// Makes the files of a log end where the next write goes.
fn cut(data: &LayerFile, index: &LayerFile, log: &LogUpper) -> Result<(), Error> {
    for (file, len) in [(data, log.data_len), (index, log.index_len)] {
        if file.len() != len {
            let done = file
                .file()
                .set_len(len.0)
                .and_then(|()| file.file().sync_all());
            done.map_err(|error| Error::io("truncate", file.path(), error))?;
        }
    }
    Ok(())
}

/// In what units the file system remembers where there is data, at most 4 KiB.
fn block_sectors(file: &LayerFile) -> Result<u64, Error> {
    let block = fs_block(file)?
        .min(BLOCK_BYTES.into())
        .max(block::SECTOR_BYTES);
    Ok(block / block::SECTOR_BYTES)
}

fn fs_block(file: &LayerFile) -> Result<u64, Error> {
    let found = rustix::fs::fstatvfs(file);
    let found = found.map_err(|errno| Error::io("statvfs", file.path(), errno))?;
    Ok(found.f_frsize)
}

/// A sparse upper over lowers needs to know of each block of 4 KiB whether it is there.
fn check_block(file: &LayerFile) -> Result<(), Error> {
    let block = fs_block(file)?;
    if block <= BLOCK_BYTES.into() && block.is_power_of_two() {
        return Ok(());
    }
    let detail = format!(
        "its file system has blocks of {block} bytes, and a sparse upper over lowers needs 4096 or less; use a log upper, or another file system"
    );
    Err(Error::Unsupported {
        path: file.path().to_owned(),
        detail,
    })
}

/// Whether ranges can be zeroed: a log always can, a sparse file by holes.
fn zeroing(upper: Option<&Upper>, access: Access) -> Zeroing {
    let can = match upper {
        None => false,
        Some(Upper::Log { .. }) => true,
        Some(Upper::Sparse { file, .. }) => {
            access == Access::ReadWrite && can_punch(file.file(), file.len().0)
        }
    };
    if can && access == Access::ReadWrite {
        Zeroing::Deallocate {
            granularity_bytes: BLOCK_BYTES,
        }
    } else {
        Zeroing::Unsupported
    }
}

/// Asks by a range behind the end of the file, where nothing is.
fn can_punch(file: &File, len: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let beyond = len.next_multiple_of(BLOCK_BYTES.into());
    fallocate(file, flags, beyond, BLOCK_BYTES.into()).is_ok()
}
