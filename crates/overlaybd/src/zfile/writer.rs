//! Writes a file: raw bytes in, bytes of the file out.
//!
//! Equal input and options give equal bytes, however the input is cut: those of the reference, if it was built with the
//! same compressors. zstd compresses a few blocks differently from one version to the next; every reader reads both.

use ::block::{ByteLen, ByteOffset};

use super::block::{BlockEncoder, EncodedBlocks};
use super::checksum;
use super::header::{BLOCKS_MAX, Flags, HEADER_BYTES, HEADER_LEN, HeaderBlock, Part};
use super::options::{Completion, Options};
use crate::error::{Error, ErrorKind};

/// A file that is being written. Its bytes are appended to the caller's buffer, in order, from the first on.
///
/// Memory: one block, and four bytes per block written.
pub struct Writer {
    options: Options,
    encoder: BlockEncoder,
    /// The begin of a block whose rest has not come yet.
    pending: Vec<u8>,
    /// The jump table as it is written.
    table: Vec<u8>,
    /// Where the next block goes.
    offset: u64,
    raw_len: u64,
}

/// What remains to do when all bytes are out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a file whose header is to be overwritten is not complete before that is done"]
pub struct Finished {
    /// What to write over the first bytes of the file, for [`Completion::HeaderOverwritten`].
    pub header: Option<[u8; HEADER_BYTES]>,
    /// Bytes of the file.
    pub file_len: ByteLen,
}

impl Writer {
    /// Begins a file: its first header is appended to `out`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if there is no memory for the compressor.
    pub fn begin(options: Options, out: &mut Vec<u8>) -> Result<Self, Error> {
        let header = HeaderBlock::begun(Part::Header, Flags::HEADER, options.blocks);
        out.extend_from_slice(&header.encode());
        Ok(Self {
            options,
            encoder: BlockEncoder::new(options.blocks)?,
            pending: Vec::new(),
            table: Vec::new(),
            offset: HEADER_LEN,
            raw_len: 0,
        })
    }

    /// Takes the next raw bytes and appends the blocks that are complete to `out`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] for more than [`BLOCKS_MAX`] blocks, or if the compressor has no memory.
    pub fn push(&mut self, mut raw: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let block_len = self.options.blocks.block_size.bytes() as usize;
        if !self.pending.is_empty() {
            let wanted = block_len - self.pending.len();
            let (head, rest) = raw.split_at(wanted.min(raw.len()));
            self.pending.extend_from_slice(head);
            raw = rest;
            if self.pending.len() < block_len {
                return Ok(());
            }
            self.push_pending(out)?;
        }
        let mut blocks = raw.chunks_exact(block_len);
        for block in &mut blocks {
            self.push_block(block, out)?;
        }
        self.pending.extend_from_slice(blocks.remainder());
        Ok(())
    }

    /// Takes blocks that are compressed already and appends them to `out`. Only the last one of a file may be short.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] for more than [`BLOCKS_MAX`] blocks; [`ErrorKind::Corrupt`] behind a block that is short.
    pub fn push_encoded(
        &mut self,
        encoded: &EncodedBlocks,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let block_len = u64::from(self.options.blocks.block_size.bytes());
        let error = |kind, detail| Err(Error::new(kind, "ZFile", ByteOffset(self.offset), detail));
        if !self.pending.is_empty() || !self.raw_len.is_multiple_of(block_len) {
            let detail = "blocks behind one that is short".to_owned();
            return error(ErrorKind::Corrupt, detail);
        }
        if self.blocks() + encoded.lens.len() as u64 > BLOCKS_MAX {
            return error(
                ErrorKind::TooLarge,
                format!("more than {BLOCKS_MAX} blocks"),
            );
        }
        out.extend_from_slice(&encoded.stored);
        let lens = encoded.lens.iter().flat_map(|len| len.to_le_bytes());
        self.table.extend(lens);
        self.offset += encoded.stored.len() as u64;
        self.raw_len += encoded.raw_len;
        Ok(())
    }

    /// Appends the last block, the jump table and the trailer to `out`.
    ///
    /// # Errors
    ///
    /// As for [`Writer::push`].
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<Finished, Error> {
        if !self.pending.is_empty() {
            self.push_pending(out)?;
        }
        out.extend_from_slice(&self.table);
        out.extend_from_slice(&self.complete(Part::Trailer, Flags::SEALED).encode());
        let header = match self.options.completion {
            Completion::TrailerOnly => None,
            Completion::HeaderOverwritten => {
                let flags = Flags::HEADER | Flags::HEADER_OVERWRITTEN;
                Some(self.complete(Part::Header, flags).encode())
            }
        };
        let file_len = ByteLen(self.offset + self.table.len() as u64 + HEADER_LEN);
        Ok(Finished { header, file_len })
    }

    fn push_pending(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut pending = std::mem::take(&mut self.pending);
        self.push_block(&pending, out)?;
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    fn push_block(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if self.blocks() == BLOCKS_MAX {
            let detail = format!("more than {BLOCKS_MAX} blocks");
            let at = ByteOffset(self.offset);
            return Err(Error::new(ErrorKind::TooLarge, "ZFile", at, detail));
        }
        let stored_len = self.encoder.encode(raw, out)?;
        self.table.extend_from_slice(&stored_len.to_le_bytes());
        self.offset += u64::from(stored_len);
        self.raw_len += raw.len() as u64;
        Ok(())
    }

    fn blocks(&self) -> u64 {
        (self.table.len() / 4) as u64
    }

    fn complete(&self, part: Part, flags: u64) -> HeaderBlock {
        HeaderBlock {
            index_offset: self.offset,
            index_size: self.blocks(),
            original_file_size: self.raw_len,
            index_crc: checksum::metadata(&self.table),
            ..HeaderBlock::begun(part, flags, self.options.blocks)
        }
    }
}
