//! A blob: the file of a layer without what it is wrapped in.
//!
//! ```text
//!   file:     [ tar header ][ payload ................................ ][ tar end ]
//!   payload:  [ ZFile: compressed blocks, jump table ]   or the LSMT bytes themselves
//!   content:  the LSMT bytes
//! ```
//!
//! Reading here blocks and is for opening and offline work; a live image reads by the data plane.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use block::{ByteLen, ByteOffset};
use overlaybd::sniff::{SNIFF_BYTES, Verdict};
use overlaybd::tar::PayloadFinder;
use overlaybd::zfile::{BlockDecoder, Opener, Piece, ZFile};
use overlaybd::{ErrorKind, FileRange};

use crate::error::Error;
use crate::file::LayerFile;

/// How the content lies in the payload.
#[derive(Debug)]
pub enum Form {
    /// As it is.
    Plain,
    /// In compressed blocks.
    Compressed(Box<ZFile>),
}

/// An open blob.
#[derive(Clone, Debug)]
pub struct Blob {
    file: Arc<LayerFile>,
    payload: FileRange,
    form: Arc<Form>,
    number: u64,
}

/// A blob that does not keep its file open.
#[derive(Clone, Debug)]
pub(crate) struct WeakBlob {
    file: Weak<LayerFile>,
    payload: FileRange,
    form: Weak<Form>,
    number: u64,
}

/// Blobs opened by this process.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Reads the content of a blob, one piece after another. Holds a decoder and the block it decoded last.
pub struct BlobReader<'a> {
    blob: &'a Blob,
    decoder: Option<BlockDecoder>,
    stored: Vec<u8>,
    raw: Vec<u8>,
    /// The block that is in `raw`.
    block: Option<u64>,
}

impl Blob {
    /// Finds out what a file is wrapped in.
    ///
    /// # Errors
    /// When it is neither an archive nor a ZFile nor an LSMT file, or a damaged one.
    pub fn open(file: Arc<LayerFile>) -> Result<Self, Error> {
        let whole = FileRange::new(0, file.len().0);
        let payload = match sniff(&file, whole)? {
            Verdict::Tar | Verdict::UnfinishedTar => find_payload(&file)?,
            Verdict::ZFile(_) | Verdict::Lsmt(_) | Verdict::Unknown(_) => whole,
        };
        let form = match sniff(&file, payload)? {
            Verdict::ZFile(_) => Form::Compressed(Box::new(open_zfile(&file, payload)?)),
            Verdict::Lsmt(_) => Form::Plain,
            verdict @ (Verdict::Tar | Verdict::UnfinishedTar | Verdict::Unknown(_)) => {
                let detail = format!("neither ZFile nor LSMT layer, but {verdict}");
                let kind = ErrorKind::NotThisFormat;
                let error = overlaybd::Error::new(kind, "layer", payload.offset, detail);
                return Err(Error::format(file.path(), error));
            }
        };
        Ok(Self {
            file,
            payload,
            form: Arc::new(form),
            number: OPENED.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// A file whose content is all of it, whatever it is: the target of a warp layer. Its last sector is filled up with
    /// zeros: an archive need not end with a sector.
    #[must_use]
    pub fn bare(file: Arc<LayerFile>) -> Self {
        Self {
            payload: FileRange::new(0, file.len().0.next_multiple_of(block::SECTOR_BYTES)),
            file,
            form: Arc::new(Form::Plain),
            number: OPENED.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &Arc<LayerFile> {
        &self.file
    }

    /// The number of this opening; clones have the same one. Never used twice in a process.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn downgrade(&self) -> WeakBlob {
        WeakBlob {
            file: Arc::downgrade(&self.file),
            payload: self.payload,
            form: Arc::downgrade(&self.form),
            number: self.number,
        }
    }

    /// Where the payload lies in the file.
    #[must_use]
    pub const fn payload(&self) -> FileRange {
        self.payload
    }

    /// How the content lies in the payload.
    #[must_use]
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// The length of the content.
    #[must_use]
    pub fn len(&self) -> ByteLen {
        match &*self.form {
            Form::Plain => self.payload.len,
            Form::Compressed(zfile) => zfile.len(),
        }
    }

    /// Whether there is no content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    /// The name that the file was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// A reader.
    ///
    /// # Errors
    /// When there is no memory for a decoder.
    pub fn reader(&self) -> Result<BlobReader<'_>, Error> {
        let decoder = match &*self.form {
            Form::Plain => None,
            Form::Compressed(zfile) => {
                let decoder = BlockDecoder::new(zfile.header().blocks);
                Some(decoder.map_err(|error| Error::format(self.path(), error))?)
            }
        };
        Ok(BlobReader {
            blob: self,
            decoder,
            stored: Vec::new(),
            raw: Vec::new(),
            block: None,
        })
    }

    /// Where bytes of the payload lie in the file.
    pub(crate) const fn in_file(&self, offset: ByteOffset) -> ByteOffset {
        self.payload.offset.advanced(offset.0)
    }
}

impl WeakBlob {
    /// The blob, if somebody has it open.
    pub(crate) fn upgrade(&self) -> Option<Blob> {
        Some(Blob {
            file: self.file.upgrade()?,
            payload: self.payload,
            form: self.form.upgrade()?,
            number: self.number,
        })
    }
}

impl BlobReader<'_> {
    /// Fills `bytes` with the content from `offset` on.
    ///
    /// # Errors
    /// When the content ends before, a block is damaged, or the read fails.
    pub fn read_exact_at(&mut self, offset: ByteOffset, bytes: &mut [u8]) -> Result<(), Error> {
        let range = FileRange::new(offset.0, bytes.len() as u64);
        if range.end().0 > self.blob.len().0 {
            let detail = format!(
                "the content ends at {}, {range} are wanted",
                self.blob.len()
            );
            let error = overlaybd::Error::new(ErrorKind::Truncated, "content", offset, detail);
            return Err(Error::format(self.blob.path(), error));
        }
        let zfile = match &*self.blob.form {
            Form::Plain => {
                let at = self.blob.in_file(offset);
                let there = self.blob.file.len().0.saturating_sub(at.0);
                let there = usize::try_from(there).unwrap_or(usize::MAX);
                let (stored, behind) = bytes.split_at_mut(there.min(bytes.len()));
                behind.fill(0);
                return self.blob.file.read_exact_at(at.0, stored);
            }
            Form::Compressed(zfile) => zfile,
        };
        let mut rest = bytes;
        for piece in zfile.pieces(range) {
            self.load(&piece)?;
            let begin = piece.begin as usize;
            let wanted = self.raw.get(begin..begin + piece.len as usize);
            let (Some(wanted), Some((part, after))) =
                (wanted, rest.split_at_mut_checked(piece.len as usize))
            else {
                break;
            };
            part.copy_from_slice(wanted);
            rest = after;
        }
        Ok(())
    }

    /// Decodes a block into `raw`, unless it is there.
    fn load(&mut self, piece: &Piece) -> Result<(), Error> {
        if self.block == Some(piece.block) {
            return Ok(());
        }
        self.block = None;
        let offset = self.blob.in_file(piece.stored.offset);
        // A block's stored length was bounded when the file was opened.
        let stored_len = usize::try_from(piece.stored.len.0).unwrap_or(usize::MAX);
        self.stored.resize(stored_len, 0);
        self.blob.file.read_exact_at(offset.0, &mut self.stored)?;
        self.raw.resize(piece.raw_len as usize, 0);
        if let Some(decoder) = &mut self.decoder {
            let decoded = decoder.decode(&self.stored, &mut self.raw);
            decoded.map_err(|source| Error::Block {
                path: self.blob.path().to_owned(),
                block: piece.block,
                offset: offset.0,
                source,
            })?;
        }
        self.block = Some(piece.block);
        Ok(())
    }
}

fn sniff(file: &LayerFile, within: FileRange) -> Result<Verdict, Error> {
    let mut first = [0; SNIFF_BYTES];
    let len = usize::try_from(within.len.0).unwrap_or(SNIFF_BYTES);
    let first = first.get_mut(..len.min(SNIFF_BYTES)).unwrap_or_default();
    file.read_exact_at(within.offset.0, first)?;
    Ok(Verdict::of(first))
}

fn find_payload(file: &LayerFile) -> Result<FileRange, Error> {
    let mut finder = PayloadFinder::new(file.len());
    while let Some(range) = finder.poll_read() {
        let bytes = read_range(file, range)?;
        let result = finder.handle_read(&bytes);
        result.map_err(|error| Error::format(file.path(), error))?;
    }
    finder.payload().ok_or_else(|| {
        let error = overlaybd::Error::new(
            ErrorKind::Truncated,
            "tar archive",
            ByteOffset(0),
            "no file in it",
        );
        Error::format(file.path(), error)
    })
}

fn open_zfile(file: &LayerFile, payload: FileRange) -> Result<ZFile, Error> {
    let within = |error: overlaybd::Error| {
        let offset = payload.offset.advanced(error.offset.0);
        Error::format(file.path(), overlaybd::Error { offset, ..error })
    };
    let mut opener = Opener::new(payload.len).map_err(within)?;
    while let Some(range) = opener.poll_read() {
        let offset = payload.offset.advanced(range.offset.0);
        let bytes = read_range(file, FileRange { offset, ..range })?;
        opener.handle_read(&bytes).map_err(within)?;
    }
    opener.finish().map_err(within)
}

/// A range whose length its asker bounded: the parts of headers and tables.
fn read_range(file: &LayerFile, range: FileRange) -> Result<Vec<u8>, Error> {
    if range.end().0 > file.len().0 {
        let detail = format!("the file ends at {}, {range} are wanted", file.len());
        let error = overlaybd::Error::new(ErrorKind::Truncated, "file", range.offset, detail);
        return Err(Error::format(file.path(), error));
    }
    let mut bytes = vec![0; usize::try_from(range.len.0).unwrap_or(usize::MAX)];
    file.read_exact_at(range.offset.0, &mut bytes)?;
    Ok(bytes)
}
