//! How large a device is: as its backing, or as asked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use block::{Access, ByteLen, Sectors};
use rustix::fs::SeekFrom;

use super::error::BackingError;

/// What became of a backing's size.
pub(super) struct Settled {
    pub(super) size: Sectors,
    /// How long the file was, if it was extended.
    pub(super) extended_from: Option<u64>,
}

impl Settled {
    const fn as_it_is(size: Sectors) -> Self {
        Self {
            size,
            extended_from: None,
        }
    }
}

/// The size to serve: the file's own, or the asked one after growing the file to it.
pub(super) fn settle_size(
    file: &File,
    path: &Path,
    asked: Option<Sectors>,
    access: Access,
) -> Result<Settled, BackingError> {
    let io = |op| {
        move |source| BackingError::Io {
            op,
            path: path.to_owned(),
            source,
        }
    };
    // Works for block devices too, whose metadata has no size.
    let size_bytes =
        rustix::fs::seek(file, SeekFrom::End(0)).map_err(|errno| io("lseek")(errno.into()))?;
    let path_owned = || path.to_owned();
    let Some(asked) = asked else {
        if size_bytes == 0 {
            return Err(BackingError::Empty { path: path_owned() });
        }
        let size = Sectors::try_from_bytes(ByteLen(size_bytes));
        return size
            .map(Settled::as_it_is)
            .ok_or_else(|| BackingError::NotSectors {
                path: path_owned(),
                size_bytes,
            });
    };
    let asked_bytes = asked.len_bytes().0;
    if size_bytes > asked_bytes {
        return Err(BackingError::TooLarge {
            path: path_owned(),
            size_bytes,
            asked_bytes,
        });
    }
    if size_bytes < asked_bytes {
        let refuse = |why| BackingError::TooSmall {
            path: path_owned(),
            size_bytes,
            asked_bytes,
            why,
        };
        if access == Access::ReadOnly {
            return Err(refuse("it is served read-only"));
        }
        let metadata = file.metadata().map_err(io("stat"))?;
        if metadata.file_type().is_block_device() {
            return Err(refuse("a block device has the size it has"));
        }
        file.set_len(asked_bytes)
            .map_err(|source| match source.kind() {
                io::ErrorKind::FileTooLarge => {
                    refuse("its file system does not hold files of that size")
                }
                io::ErrorKind::StorageFull => refuse("its file system is full"),
                _ => io("ftruncate")(source),
            })?;
        return Ok(Settled {
            size: asked,
            extended_from: Some(size_bytes),
        });
    }
    Ok(Settled::as_it_is(asked))
}
