//! Where the content of a new layer goes: into a file, packed as asked.

use std::path::Path;

use block::ByteLen;
use overlaybd::tar;
use overlaybd::zfile::{Options, Writer};

use super::new_file::{NewFile, Overwrite};
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
}

/// A new file and what its content goes through on the way.
pub(super) struct Sink {
    file: NewFile,
    writer: Option<Writer>,
    /// Bytes of the writer on their way to the file.
    out: Vec<u8>,
    payload_at: u64,
    payload_len: u64,
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
        let writer = match packing.compression {
            Compression::Plain => None,
            Compression::ZFile(options) => {
                let writer = Writer::begin(options, &mut out);
                Some(writer.map_err(|error| Error::format(path, error))?)
            }
        };
        Ok(Self {
            file,
            writer,
            out,
            payload_at,
            payload_len: 0,
        })
    }

    /// Takes the next bytes of the content.
    pub(super) fn push(&mut self, content: &[u8]) -> Result<(), Error> {
        match &mut self.writer {
            None => {
                self.file.append(content)?;
                self.payload_len += content.len() as u64;
            }
            Some(writer) => {
                let pushed = writer.push(content, &mut self.out);
                pushed.map_err(|error| Error::format(self.file.path(), error))?;
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        if let Some(writer) = self.writer.take() {
            let finished = writer.finish(&mut self.out);
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
