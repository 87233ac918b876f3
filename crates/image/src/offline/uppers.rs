//! Making an upper, growing it, and sealing it.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use block::{ByteOffset, Sectors};
use overlaybd::lsmt::{
    Flags, HEADER_LEN, Header, LayerUuid, LogMode, SealPlan, SparseLayout, UserTag,
    VIRTUAL_SECTORS_MAX,
};

use super::new_file::{NewFile, Overwrite};
use crate::error::Error;
use crate::file::LayerFile;
use crate::upper::Upper;

/// The files of a new upper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpperFiles {
    /// A log, appending or hybrid.
    Log {
        /// The data file.
        data: PathBuf,
        /// The index file.
        index: PathBuf,
        /// How it is written to.
        mode: LogMode,
    },
    /// One sparse file.
    Sparse {
        /// The file.
        data: PathBuf,
    },
}

/// A new upper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUpper {
    /// Its files; none of them may exist.
    pub files: UpperFiles,
    /// The size of the disk; 0 for that of what is below, which a sparse upper cannot have.
    pub size: Sectors,
    /// Its uuid.
    pub uuid: Option<LayerUuid>,
    /// The uuid of the layer that it is for.
    pub parent_uuid: Option<LayerUuid>,
}

/// Makes an empty upper.
///
/// # Errors
/// When a file exists already or cannot be made; then neither is there.
pub fn create(new: &NewUpper) -> Result<(), Error> {
    let (UpperFiles::Log { data, .. } | UpperFiles::Sparse { data }) = &new.files;
    check_size(data, new.size)?;
    let header = |flags, index_offset| Header {
        flags,
        index_offset: ByteOffset(index_offset),
        index_size: 0,
        virtual_size: new.size,
        uuid: new.uuid,
        parent_uuid: new.parent_uuid,
        user_tag: UserTag::default(),
    };
    match &new.files {
        UpperFiles::Log { data, index, mode } => {
            let (data_flags, index_flags) = match mode {
                LogMode::Append => (Flags::LOG_DATA, Flags::LOG_INDEX),
                LogMode::Hybrid => (Flags::HYBRID_DATA, Flags::HYBRID_INDEX),
            };
            let mut data_file = NewFile::begin(data, Overwrite::Refuse)?;
            data_file.append(&header(data_flags, 0).encode())?;
            let mut index_file = NewFile::begin(index, Overwrite::Refuse)?;
            index_file.append(&header(index_flags, HEADER_LEN.0).encode())?;
            data_file.finish()?;
            index_file.finish().inspect_err(|_| {
                // Made a moment ago, by us; there is nothing in it. The first error is the one to tell.
                let _ = std::fs::remove_file(data);
            })
        }
        UpperFiles::Sparse { data } => {
            if new.size.0 == 0 {
                let detail = "a sparse upper needs a size of its own; pass --size".to_owned();
                let path = data.clone();
                return Err(Error::Size { path, detail });
            }
            let mut file = NewFile::begin(data, Overwrite::Refuse)?;
            file.append(&header(Flags::SPARSE_DATA, 0).encode())?;
            let len = SparseLayout::file_len_for(new.size).0;
            file.append_hole(len - HEADER_LEN.0)
                .map_err(|error| too_long(error, len))?;
            file.finish()
        }
    }
}

/// Grows the disk of an upper that the caller owns.
///
/// The order is crash-safe: a sparse file is extended before its header says so, and of the two headers of a log the data file's is written
/// first; a crash in between leaves two sizes, which `--drop-lost-records` settles for the index file's, the old one.
///
/// # Errors
/// When the new size is smaller, or a call fails.
pub fn resize(upper: &Upper, size: Sectors) -> Result<(), Error> {
    check_size(upper.data().path(), size)?;
    let old = upper.header().virtual_size;
    if size < old {
        let path = upper.data().path().to_owned();
        let detail = format!(
            "{} is smaller than {}; a disk only grows, what lies behind a smaller end would be lost",
            size.len_bytes(),
            old.len_bytes()
        );
        return Err(Error::Size { path, detail });
    }
    match upper {
        Upper::Log { data, index, .. } => {
            set_size(data, size)?;
            set_size(index, size)
        }
        Upper::Sparse { file, .. } => {
            let len = SparseLayout::file_len_for(size).0;
            let extended = file.file().set_len(len.max(file.len().0));
            extended
                .map_err(|error| Error::io("ftruncate", file.path(), error))
                .map_err(|error| too_long(error, len))?;
            sync(file)?;
            set_size(file, size)
        }
    }
}

/// Seals an upper in place: its data file becomes a layer. The index file is left as it is; nobody needs it any more.
///
/// The trailer is written last, after everything else is durable: a crash before that leaves the upper as it was, with garbage
/// behind its data that the next opening drops.
///
/// # Errors
/// When a call fails.
pub fn seal(upper: &Upper) -> Result<(), Error> {
    let file = upper.data();
    let format = |error| Error::format(file.path(), error);
    let index = upper.index().to_index();
    let index = index.map_err(|fault| super::layer::too_many(file.path(), &fault))?;
    let (header, data_len) = match upper {
        Upper::Log { log, data, .. } => {
            // The index file's header has no flags of a data file.
            let header = read_header(data)?;
            (header, log.data_len)
        }
        Upper::Sparse { header, .. } => (
            header.clone(),
            SparseLayout::file_len_for(header.virtual_size),
        ),
    };
    let plan = SealPlan::build(&header, data_len, &index).map_err(format)?;
    let trailer_at = plan
        .bytes
        .len()
        .saturating_sub(overlaybd::lsmt::HEADER_BYTES);
    let (records, trailer) = plan.bytes.split_at(trailer_at);
    let write = |at: u64, bytes: &[u8]| {
        let written = file.file().write_all_at(bytes, at);
        written.map_err(|error| Error::io("write", file.path(), error))
    };
    file.file()
        .set_len(data_len.0)
        .map_err(|error| Error::io("ftruncate", file.path(), error))?;
    write(plan.offset.0, records)?;
    sync(file)?;
    write(plan.offset.0 + records.len() as u64, trailer)?;
    sync(file)
}

/// A larger size could be written, and read by nobody.
fn check_size(path: &Path, size: Sectors) -> Result<(), Error> {
    if size <= VIRTUAL_SECTORS_MAX {
        return Ok(());
    }
    let (path, max) = (path.to_owned(), VIRTUAL_SECTORS_MAX.len_bytes());
    let detail = format!(
        "{} is more than a disk can have; give at most {max}",
        size.len_bytes()
    );
    Err(Error::Size { path, detail })
}

/// A sparse upper is as long as its disk.
fn too_long(error: Error, len: u64) -> Error {
    match error {
        Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::FileTooLarge => {
            let detail = format!(
                "its file system has no room for a file of {len} bytes, holes or not; use a log upper, or another file system"
            );
            Error::Size { path, detail }
        }
        error => error,
    }
}

fn read_header(file: &LayerFile) -> Result<Header, Error> {
    let mut block = [0; overlaybd::lsmt::HEADER_BYTES];
    file.read_exact_at(0, &mut block)?;
    Header::parse(&block, "data file's header", ByteOffset(0))
        .map_err(|error| Error::format(file.path(), error))
}

fn set_size(file: &LayerFile, size: Sectors) -> Result<(), Error> {
    let header = Header {
        virtual_size: size,
        ..read_header(file)?
    };
    let written = file.file().write_all_at(&header.encode(), 0);
    written.map_err(|error| Error::io("write", file.path(), error))?;
    sync(file)
}

fn sync(file: &LayerFile) -> Result<(), Error> {
    let synced = file.file().sync_all();
    synced.map_err(|error| Error::io("fsync", file.path(), error))
}
