//! What a reader must read, and in which order.
//!
//! ```text
//!   header, 512 bytes --- overwritten ------------------------> jump table, in pieces --> open
//!                     \-- not --> trailer, the last 512 bytes --/
//! ```
//!
//! The opener asks for one range after another and judges what comes; nothing is published before all of it was right,
//! so that an open that failed half-way can be tried again from the start.

use ::block::{ByteLen, ByteOffset};

use super::header::{HEADER_BYTES, HEADER_LEN, Header, HeaderBlock, Part};
use super::table::{JumpTable, TableBuilder};
use crate::error::{Error, ErrorKind};
use crate::range::FileRange;

/// The most bytes of the jump table that the opener asks for at once: few requests to a far store, little memory.
pub const TABLE_PIECE_BYTES: u64 = 1 << 20;

/// A file that is being opened.
#[derive(Debug)]
pub struct Opener {
    file_len: ByteLen,
    state: State,
}

#[derive(Debug)]
enum State {
    Header,
    Trailer,
    Table {
        header: Header,
        builder: Box<TableBuilder>,
        /// Bytes of the table that came.
        done: u64,
    },
}

/// An open file: what its header says, and where its blocks lie.
#[derive(Debug)]
pub struct ZFile {
    header: Header,
    table: JumpTable,
}

/// The part of one block that a read wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which block.
    pub block: u64,
    /// Where its stored bytes lie. Those of neighbours touch, so that one read can fetch many.
    pub stored: FileRange,
    /// Bytes that it decompresses to.
    pub raw_len: u32,
    /// First byte of them that is wanted.
    pub begin: u32,
    /// Number of bytes that are wanted.
    pub len: u32,
}

impl Opener {
    /// Opens a file of `file_len`: what is in a tar wrapper, without the wrapper.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Truncated`] if the file has no room for a header and a trailer.
    pub fn new(file_len: ByteLen) -> Result<Self, Error> {
        if file_len.0 < 2 * HEADER_LEN {
            let detail = format!("the file ends at {} bytes", file_len.0);
            let at = ByteOffset(0);
            return Err(Error::new(
                ErrorKind::Truncated,
                Part::Header.name(),
                at,
                detail,
            ));
        }
        Ok(Self {
            file_len,
            state: State::Header,
        })
    }

    /// What to read next; `None` if nothing is missing.
    #[must_use]
    pub fn poll_read(&self) -> Option<FileRange> {
        match &self.state {
            State::Header => Some(FileRange::new(0, HEADER_LEN)),
            State::Trailer => Some(FileRange::new(self.trailer_at().0, HEADER_LEN)),
            State::Table { header, done, .. } => {
                let left = header.index.len.0 - done;
                let piece = left.min(TABLE_PIECE_BYTES);
                (left > 0).then(|| FileRange::new(header.index.offset.0 + done, piece))
            }
        }
    }

    /// Takes the bytes of the range that [`Opener::poll_read`] named, all of them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Truncated`] for another number of bytes; for what the bytes say, see [`HeaderBlock::parse`] and
    /// [`HeaderBlock::to_header`]; [`ErrorKind::Corrupt`] for an entry of the table that cannot be.
    pub fn handle_read(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let wanted = self.poll_read().unwrap_or(FileRange::new(0, 0));
        if bytes.len() as u64 != wanted.len.0 {
            let detail = format!("{} bytes came of {wanted}", bytes.len());
            return Err(Error::new(
                ErrorKind::Truncated,
                "ZFile",
                wanted.offset,
                detail,
            ));
        }
        match &mut self.state {
            State::Header => self.handle_block(bytes, Part::Header, wanted.offset),
            State::Trailer => self.handle_block(bytes, Part::Trailer, wanted.offset),
            State::Table { builder, done, .. } => {
                *done += wanted.len.0;
                builder.push(bytes)
            }
        }
    }

    /// The open file, when nothing is missing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Checksum`] for the table's checksum, [`ErrorKind::Truncated`] if something is missing.
    pub fn finish(self) -> Result<ZFile, Error> {
        match self.state {
            State::Table {
                header, builder, ..
            } => Ok(ZFile {
                table: builder.finish()?,
                header,
            }),
            State::Header | State::Trailer => {
                let detail = "opened before it was read";
                Err(Error::new(
                    ErrorKind::Truncated,
                    "ZFile",
                    ByteOffset(0),
                    detail,
                ))
            }
        }
    }

    fn handle_block(&mut self, bytes: &[u8], part: Part, at: ByteOffset) -> Result<(), Error> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            // The length was compared before.
            return Ok(());
        };
        let block = HeaderBlock::parse(bytes, part, at)?;
        self.state = if block.is_final() {
            let header = block.to_header(at, self.file_len)?;
            State::Table {
                header,
                builder: Box::new(TableBuilder::new(&header)),
                done: 0,
            }
        } else {
            State::Trailer
        };
        Ok(())
    }

    fn trailer_at(&self) -> ByteOffset {
        ByteOffset(self.file_len.0.saturating_sub(HEADER_LEN))
    }
}

impl ZFile {
    /// What the header says.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Where the blocks lie.
    #[must_use]
    pub const fn table(&self) -> &JumpTable {
        &self.table
    }

    /// Bytes before compression: what a reader sees as the file's length.
    #[must_use]
    pub const fn len(&self) -> ByteLen {
        self.header.original_file_size
    }

    /// Whether a reader sees an empty file.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.header.original_file_size.0 == 0
    }

    /// The blocks that hold the raw bytes `wanted`, in order; what lies behind the end is left out.
    pub fn pieces(&self, wanted: FileRange) -> impl Iterator<Item = Piece> + '_ {
        let shift = self.header.blocks.block_size.shift();
        let end = wanted.end().0.min(self.header.original_file_size.0);
        let blocks = if wanted.offset.0 < end {
            (wanted.offset.0 >> shift)..(((end - 1) >> shift) + 1)
        } else {
            0..0
        };
        blocks.map_while(move |block| {
            let first = block << shift;
            let raw_len = self.raw_len(block);
            let begin = wanted.offset.0.saturating_sub(first);
            let piece_end = (end - first).min(u64::from(raw_len));
            Some(Piece {
                block,
                stored: self.table.block(block)?,
                raw_len,
                // Both are at most a block's length.
                begin: u32::try_from(begin).ok()?,
                len: u32::try_from(piece_end - begin).ok()?,
            })
        })
    }

    /// Bytes that a block of the file decompresses to.
    fn raw_len(&self, block: u64) -> u32 {
        let block_size = self.header.blocks.block_size;
        let left = self.header.original_file_size.0 - (block << block_size.shift());
        u32::try_from(left).map_or(block_size.bytes(), |left| left.min(block_size.bytes()))
    }
}
