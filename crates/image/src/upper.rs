//! The upper of an image: its files, locked, and what is in them.

use std::path::Path;

use block::{ByteLen, ByteOffset};
use overlaybd::lsmt::{
    HEADER_BYTES, HEADER_SECTORS, Header, LogFiles, LogLayout, LogUpper, MutableIndex, SparseLayout,
};
use overlaybd::{ErrorKind, FileRange};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::config::UpperConfig;
use crate::error::Error;
use crate::file::LayerFile;

/// Bytes of records that are read at a time.
const RECORDS_CHUNK_BYTES: u64 = 1 << 20;

/// What to do about records at the end of a log that point behind its data, which only a crash of another writer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostRecords {
    /// Refuse the upper.
    Refuse,
    /// Drop them: the sectors show what was there before.
    Drop,
}

/// An open upper.
#[derive(Debug)]
pub enum Upper {
    /// A log, appending or hybrid.
    Log {
        /// The data file.
        data: LayerFile,
        /// The index file.
        index: LayerFile,
        /// What is in them.
        log: LogUpper,
    },
    /// One sparse file.
    Sparse {
        /// The file.
        file: LayerFile,
        /// Its header.
        header: Header,
        /// Which sectors it has.
        index: MutableIndex,
    },
}

impl Upper {
    /// Opens an upper as its only owner. Nothing is changed.
    ///
    /// # Errors
    /// When a file cannot be opened, is in use, or is not of an upper.
    pub fn open(config: &UpperConfig, lost: LostRecords) -> Result<Self, Error> {
        Self::open_by(config, lost, LayerFile::open_upper)
    }

    /// Opens an upper for reading only; others may read it at the same time, and nobody may own it.
    ///
    /// # Errors
    /// As [`Upper::open`].
    pub fn open_to_read(config: &UpperConfig, lost: LostRecords) -> Result<Self, Error> {
        Self::open_by(config, lost, LayerFile::open_sealed)
    }

    fn open_by(
        config: &UpperConfig,
        lost: LostRecords,
        open: fn(&Path) -> Result<LayerFile, Error>,
    ) -> Result<Self, Error> {
        match config {
            UpperConfig::Log { data, index } => {
                let data = open(data)?;
                // A configuration of the reference names an index file for a sparse upper too.
                if is_sparse(&data)? {
                    return open_sparse(data);
                }
                let index = open(index)?;
                let log = read_log(&data, &index, lost)?;
                let ends = log.index.segments().map(|segment| segment.moffset_end());
                let end = ends.max().unwrap_or(HEADER_SECTORS);
                check_unsealed(&data, &log.header, end.len_bytes())?;
                Ok(Self::Log { data, index, log })
            }
            UpperConfig::Sparse { data } => open_sparse(open(data)?),
        }
    }

    /// Size and uuids.
    #[must_use]
    pub const fn header(&self) -> &Header {
        match self {
            Self::Log { log, .. } => &log.header,
            Self::Sparse { header, .. } => header,
        }
    }

    /// What is where in [`Upper::data`].
    #[must_use]
    pub const fn index(&self) -> &MutableIndex {
        match self {
            Self::Log { log, .. } => &log.index,
            Self::Sparse { index, .. } => index,
        }
    }

    /// The file that its sectors are in.
    #[must_use]
    pub const fn data(&self) -> &LayerFile {
        match self {
            Self::Log { data, .. } => data,
            Self::Sparse { file, .. } => file,
        }
    }
}

/// Refuses the data file of an upper that was sealed in place: writing to it would take its trailer from the layer. A trailer
/// lies behind everything that the upper holds, so that no content of a disk is taken for one.
fn check_unsealed(data: &LayerFile, header: &Header, held: ByteLen) -> Result<(), Error> {
    let block = HEADER_BYTES as u64;
    let Some(at) = data.len().0.checked_sub(block).filter(|at| *at >= held.0) else {
        return Ok(());
    };
    let mut last = [0; HEADER_BYTES];
    data.read_exact_at(at, &mut last)?;
    let is_sealed = Header::parse(&last, "trailer", ByteOffset(at)).is_ok_and(|trailer| {
        trailer.flags == header.flags.sealed_in_place() && trailer.uuid == header.uuid
    });
    if is_sealed {
        let path = data.path().to_owned();
        return Err(Error::Sealed { path });
    }
    Ok(())
}

fn first_block(file: &LayerFile) -> Result<Vec<u8>, Error> {
    let len = usize::try_from(file.len().0).unwrap_or(HEADER_BYTES);
    let mut block = vec![0; len.min(HEADER_BYTES)];
    file.read_exact_at(0, &mut block)?;
    Ok(block)
}

fn is_sparse(data: &LayerFile) -> Result<bool, Error> {
    let block = first_block(data)?;
    let header = Header::parse(&block, "data file's header", ByteOffset(0));
    Ok(header.is_ok_and(|header| header.flags.is_sparse()))
}

fn read_log(data: &LayerFile, index: &LayerFile, lost: LostRecords) -> Result<LogUpper, Error> {
    let format = |error| Error::format(index.path(), error);
    let layout = LogLayout::parse(&LogFiles {
        data_header: &first_block(data)?,
        data_len: data.len(),
        index_header: &first_block(index)?,
        index_len: index.len(),
    });
    // Which of the two files it is about, the error's text says.
    let layout = layout.map_err(|error| match error.what.starts_with("data") {
        true => Error::format(data.path(), error),
        false => format(error),
    })?;
    let records = layout.records();
    let mut loader = layout.loader();
    let mut done = 0;
    while done < records.len.0 {
        let len = RECORDS_CHUNK_BYTES.min(records.len.0 - done);
        let mut chunk = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        index.read_exact_at(records.offset.advanced(done).0, &mut chunk)?;
        loader.push(&chunk).map_err(format)?;
        done += len;
    }
    match lost {
        LostRecords::Refuse => loader.finish_strict().map_err(format),
        LostRecords::Drop => loader.finish_repaired().map_err(format),
    }
}

fn open_sparse(file: LayerFile) -> Result<Upper, Error> {
    let format = |error| Error::format(file.path(), error);
    let layout = SparseLayout::parse(&first_block(&file)?, file.len()).map_err(format)?;
    let index = layout.index(extents(&file)?).map_err(format)?;
    let header = layout.header().clone();
    check_unsealed(
        &file,
        &header,
        SparseLayout::file_len_for(header.virtual_size),
    )?;
    Ok(Upper::Sparse {
        file,
        header,
        index,
    })
}

/// Where the file system has data for a file, in whole sectors.
pub(crate) fn extents(file: &LayerFile) -> Result<Vec<FileRange>, Error> {
    let seek = |whence| match rustix::fs::seek(file.file(), whence) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(Error::io("lseek", file.path(), errno)),
    };
    let mut extents = Vec::new();
    let mut at = 0;
    while let Some(data) = seek(SeekFrom::Data(at))? {
        let Some(hole) = seek(SeekFrom::Hole(data))? else {
            break;
        };
        if extents.len() as u64 >= overlaybd::lsmt::INDEX_RECORDS_MAX {
            let detail = "more extents than an index can hold";
            let error =
                overlaybd::Error::new(ErrorKind::TooLarge, "extents", ByteOffset(data), detail);
            return Err(Error::format(file.path(), error));
        }
        // The end of a file need not be the end of a sector.
        let end = hole.next_multiple_of(block::SECTOR_BYTES);
        extents.push(FileRange::new(data, end - data));
        at = hole;
    }
    Ok(extents)
}
