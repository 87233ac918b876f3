//! Where the content of a new layer goes: into a file, packed as asked.

use std::num::NonZeroUsize;
use std::path::Path;

use block::ByteLen;
use overlaybd::tar;
use overlaybd::zfile::{Options, Writer};

use super::new_file::{NewFile, Overwrite};
use super::team::{Batch, Team};
use crate::error::Error;

/// Whether content is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    Plain,
    /// A ZFile.
    ZFile(Options),
}

/// Whether the payload is wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapping {
    /// The payload is the file.
    Bare,
    /// An archive with the payload as its one file, as registries want it.
    Tar,
}

/// How a new file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Whether the content is compressed.
    pub compression: Compression,
    /// Whether the payload is wrapped.
    pub wrapping: Wrapping,
    /// About a file that has the name already.
    pub overwrite: Overwrite,
    /// Threads that compress. The bytes are the same, however many there are.
    pub threads: NonZeroUsize,
}

/// Bytes of a batch: whole blocks of every size.
const BATCH_BYTES: usize = 1 << 20;

/// A new file and what its content goes through on the way.
pub(super) struct Sink {
    file: NewFile,
    compressing: Option<Compressing>,
    /// Bytes on their way to the file.
    out: Vec<u8>,
    payload_at: u64,
    payload_len: u64,
}

/// A ZFile that is being made.
struct Compressing {
    writer: Writer,
    team: Team,
    /// The batch that is being filled.
    batch: Batch,
}

impl Sink {
    pub(super) fn begin(path: &Path, packing: Packing) -> Result<Self, Error> {
        let mut file = NewFile::begin(path, packing.overwrite)?;
        let payload_at = match packing.wrapping {
            Wrapping::Bare => 0,
            Wrapping::Tar => {
                // Marked so that nobody reads it before it is whole.
                file.append(&tar::unfinished_wrapper())?;
                tar::WRAPPER_BYTES as u64
            }
        };
        let mut out = Vec::new();
        let compressing = match packing.compression {
            Compression::Plain => None,
            Compression::ZFile(options) => {
                let writer = Writer::begin(options, &mut out);
                Some(Compressing {
                    writer: writer.map_err(|error| Error::format(path, error))?,
                    team: Team::start(packing.threads.get(), options.blocks, path)?,
                    batch: Batch::default(),
                })
            }
        };
        Ok(Self {
            file,
            compressing,
            out,
            payload_at,
            payload_len: 0,
        })
    }

    /// Takes the next bytes of the content.
    pub(super) fn push(&mut self, mut content: &[u8]) -> Result<(), Error> {
        let Some(compressing) = &mut self.compressing else {
            self.file.append(content)?;
            self.payload_len += content.len() as u64;
            return Ok(());
        };
        while !content.is_empty() {
            let batch = &mut compressing.batch;
            let room = BATCH_BYTES - batch.raw.len();
            let (now, later) = content.split_at(content.len().min(room));
            batch.raw.extend_from_slice(now);
            content = later;
            if batch.raw.len() == BATCH_BYTES {
                compressing.give(&mut self.out, self.file.path())?;
            }
        }
        self.flush()
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        if let Some(mut compressing) = self.compressing.take() {
            if !compressing.batch.raw.is_empty() {
                compressing.give(&mut self.out, self.file.path())?;
            }
            while compressing.take(&mut self.out, self.file.path())?.is_some() {
                self.flush()?;
            }
            let finished = compressing.writer.finish(&mut self.out);
            let finished = finished.map_err(|error| Error::format(self.file.path(), error))?;
            self.flush()?;
            if let Some(header) = finished.header {
                self.file.overwrite_at(self.payload_at, &header)?;
            }
        }
        if self.payload_at > 0 {
            let len = ByteLen(self.payload_len);
            let padding = usize::try_from(tar::padding_len(len).0).unwrap_or(0);
            self.file.append(&vec![0; padding])?;
            self.file.overwrite_at(0, &tar::wrapper(len))?;
        }
        self.file.finish()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file.append(&self.out)?;
        self.payload_len += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

impl Compressing {
    /// Gives the batch to the team, and makes room there before if need be.
    fn give(&mut self, out: &mut Vec<u8>, path: &Path) -> Result<(), Error> {
        let mut next = Batch::default();
        if self.team.is_busy()
            && let Some(batch) = self.take(out, path)?
        {
            next = batch;
            next.raw.clear();
        }
        self.team.give(std::mem::replace(&mut self.batch, next))
    }

    /// Takes the oldest batch back and appends what became of it to `out`.
    fn take(&mut self, out: &mut Vec<u8>, path: &Path) -> Result<Option<Batch>, Error> {
        let batch = self.team.take()?;
        if let Some(batch) = &batch {
            let pushed = self.writer.push_encoded(&batch.encoded, out);
            pushed.map_err(|error| Error::format(path, error))?;
        }
        Ok(batch)
    }
}
