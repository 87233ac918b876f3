//! The jump table: where each block lies.
//!
//! In a file it is one little-endian `u32` per block, the block's stored length with its checksum. In memory it is where
//! each block begins, relative to its group, so that a look-up is two loads. A group has as many blocks as fit into the
//! deltas whatever their lengths: 2.5 bytes per block of 4 KiB, 4.1 for blocks above 8 KiB.
//!
//! Limits: nothing is allocated for entries that have not come yet, so that a header that promises a billion blocks
//! costs nothing by itself.

use ::block::{ByteLen, ByteOffset};

use super::checksum;
use super::header::{ENTRY_BYTES, Header};
use super::options::BlockFormat;
use crate::error::{Error, ErrorKind};
use crate::range::FileRange;

/// With fewer blocks than this in a group, bases cost more than the narrow deltas save.
const NARROW_GROUP_MIN: u32 = 8;
/// Blocks of a group with wide deltas, as a shift: 64 blocks of 64 KiB are far from 4 GiB.
const WIDE_GROUP_SHIFT: u32 = 6;

/// Where each block of a file lies. Complete: every length, their sum and the checksum were right.
#[derive(Debug)]
pub struct JumpTable {
    group_shift: u32,
    /// Where each group begins in the file.
    bases: Vec<u64>,
    deltas: Deltas,
    /// Where the last block ends.
    end: u64,
}

/// Where each block begins, relative to its group's base.
#[derive(Debug)]
enum Deltas {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

/// A table that is being read, in pieces of any size.
#[derive(Debug)]
pub(super) struct TableBuilder {
    table: JumpTable,
    stored_len_max: u32,
    stored_len_min: u32,
    index: FileRange,
    index_crc: Option<u32>,
    /// Checksum of the entries so far.
    crc: u32,
    /// Bytes of an entry that a piece ended in.
    torn: Vec<u8>,
    entries_left: u64,
}

impl Deltas {
    fn len(&self) -> usize {
        match self {
            Self::Narrow(deltas) => deltas.len(),
            Self::Wide(deltas) => deltas.len(),
        }
    }

    fn at(&self, block: usize) -> Option<u64> {
        match self {
            Self::Narrow(deltas) => deltas.get(block).copied().map(u64::from),
            Self::Wide(deltas) => deltas.get(block).copied().map(u64::from),
        }
    }

    /// Whether the delta fitted.
    fn push(&mut self, delta: u64) -> bool {
        match self {
            Self::Narrow(deltas) => u16::try_from(delta).is_ok_and(|delta| {
                deltas.push(delta);
                true
            }),
            Self::Wide(deltas) => u32::try_from(delta).is_ok_and(|delta| {
                deltas.push(delta);
                true
            }),
        }
    }
}

impl JumpTable {
    fn empty(blocks: BlockFormat, begin: ByteOffset) -> Self {
        // The delta of a group's last block is the sum of the lengths before it.
        let narrow_blocks = 1 + u32::from(u16::MAX) / blocks.stored_len_max();
        let (group_shift, deltas) = if narrow_blocks < NARROW_GROUP_MIN {
            (WIDE_GROUP_SHIFT, Deltas::Wide(Vec::new()))
        } else {
            (narrow_blocks.ilog2(), Deltas::Narrow(Vec::new()))
        };
        Self {
            group_shift,
            bases: Vec::new(),
            deltas,
            end: begin.0,
        }
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.deltas.len() as u64
    }

    /// Where a block lies, its checksum included; `None` behind the last block.
    #[must_use]
    pub fn block(&self, block: u64) -> Option<FileRange> {
        let block = usize::try_from(block).ok()?;
        let begin = self.begin(block)?;
        let end = self.begin(block + 1).unwrap_or(self.end);
        Some(FileRange::new(begin, end - begin))
    }

    /// Bytes of memory that the table takes.
    #[must_use]
    pub fn memory_len(&self) -> ByteLen {
        let deltas = match &self.deltas {
            Deltas::Narrow(deltas) => size_of_val(deltas.as_slice()),
            Deltas::Wide(deltas) => size_of_val(deltas.as_slice()),
        };
        ByteLen((deltas + size_of_val(self.bases.as_slice())) as u64)
    }

    fn begin(&self, block: usize) -> Option<u64> {
        let base = self.bases.get(block >> self.group_shift)?;
        Some(base + self.deltas.at(block)?)
    }

    /// Adds the next block. Whether it fitted.
    fn push(&mut self, stored_len: u32) -> bool {
        let block = self.deltas.len();
        if block & ((1 << self.group_shift) - 1) == 0 {
            self.bases.push(self.end);
        }
        let base = self.bases.last().copied().unwrap_or(self.end);
        let fitted = self.deltas.push(self.end - base);
        self.end += u64::from(stored_len);
        fitted
    }
}

impl TableBuilder {
    pub(super) fn new(header: &Header) -> Self {
        Self {
            table: JumpTable::empty(header.blocks, header.data.offset),
            stored_len_max: header.blocks.stored_len_max(),
            stored_len_min: header.blocks.checksums.len_bytes() + 1,
            index: header.index,
            index_crc: header.index_crc,
            crc: 0,
            torn: Vec::new(),
            entries_left: header.index_size,
        }
    }

    /// Takes the next piece of the table.
    pub(super) fn push(&mut self, mut piece: &[u8]) -> Result<(), Error> {
        self.crc = checksum::continued(self.crc, piece);
        while !self.torn.is_empty() && !piece.is_empty() {
            let (first, rest) = piece.split_at(1);
            self.torn.extend_from_slice(first);
            piece = rest;
            if let Ok(entry) = <[u8; 4]>::try_from(self.torn.as_slice()) {
                self.entry(u32::from_le_bytes(entry))?;
                self.torn.clear();
            }
        }
        let (entries, rest) = piece.as_chunks::<4>();
        for entry in entries {
            self.entry(u32::from_le_bytes(*entry))?;
        }
        self.torn.extend_from_slice(rest);
        Ok(())
    }

    /// The table, if it is complete and its checksum is right.
    pub(super) fn finish(mut self) -> Result<JumpTable, Error> {
        let fault = |kind, detail| {
            Err(Error::new(
                kind,
                "ZFile jump table",
                self.index.offset,
                detail,
            ))
        };
        if self.entries_left != 0 {
            let detail = format!("{} entries are missing", self.entries_left);
            return fault(ErrorKind::Truncated, detail);
        }
        if let Some(crc) = self.index_crc.filter(|crc| *crc != self.crc) {
            let detail = format!("checksum {crc:#010x}, found {:#010x}", self.crc);
            return fault(ErrorKind::Checksum, detail);
        }
        self.table.bases.shrink_to_fit();
        match &mut self.table.deltas {
            Deltas::Narrow(deltas) => deltas.shrink_to_fit(),
            Deltas::Wide(deltas) => deltas.shrink_to_fit(),
        }
        Ok(self.table)
    }

    fn entry(&mut self, stored_len: u32) -> Result<(), Error> {
        let block = self.table.blocks();
        let fault = |detail| {
            let at = self.index.offset.advanced(block * ENTRY_BYTES);
            let what = format!("ZFile jump table entry {block}");
            Err(Error::new(ErrorKind::Corrupt, what, at, detail))
        };
        if self.entries_left == 0 {
            return fault("one more than there are blocks".to_owned());
        }
        if stored_len < self.stored_len_min || stored_len > self.stored_len_max {
            return fault(format!(
                "{stored_len} bytes; a block takes {} to {}",
                self.stored_len_min, self.stored_len_max
            ));
        }
        let end = self.table.end + u64::from(stored_len);
        if end > self.index.offset.0 {
            return fault(format!(
                "the block ends at {end}, in the table or behind it"
            ));
        }
        if !self.table.push(stored_len) {
            return fault("too far from its group's first block".to_owned());
        }
        self.entries_left -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::options::{Algorithm, BlockChecksums, BlockSize};
    use super::*;

    fn header(shift: u32, lens: &[u32]) -> Header {
        let sum: u64 = lens.iter().copied().map(u64::from).sum();
        let bytes: Vec<u8> = lens.iter().flat_map(|len| len.to_le_bytes()).collect();
        Header {
            blocks: BlockFormat {
                algorithm: Algorithm::Lz4,
                block_size: BlockSize::try_new(1 << shift).unwrap(),
                checksums: BlockChecksums::Crc32c,
            },
            data: FileRange::new(512, sum),
            index: FileRange::new(512 + sum, lens.len() as u64 * 4),
            index_size: lens.len() as u64,
            original_file_size: ByteLen((lens.len() as u64) << shift),
            index_crc: Some(checksum::metadata(&bytes)),
        }
    }

    fn build(header: &Header, lens: &[u32], piece: usize) -> Result<JumpTable, Error> {
        let bytes: Vec<u8> = lens.iter().flat_map(|len| len.to_le_bytes()).collect();
        let mut builder = TableBuilder::new(header);
        for piece in bytes.chunks(piece) {
            builder.push(piece)?;
        }
        builder.finish()
    }

    #[test]
    fn damaged_tables_are_refused_by_kind() {
        let lens = [5, 100, 4132];
        let header = header(12, &lens);
        let kind = |lens: &[u32]| build(&header, lens, 4).unwrap_err().kind;
        assert_eq!(kind(&[5, 100]), ErrorKind::Truncated);
        assert_eq!(kind(&[5, 100, 4131]), ErrorKind::Checksum);
        assert_eq!(kind(&[4, 100, 4132]), ErrorKind::Corrupt);
        assert_eq!(kind(&[0, 100, 4132]), ErrorKind::Corrupt);
        assert_eq!(kind(&[5, 100, 4133]), ErrorKind::Corrupt);
        assert_eq!(kind(&[6, 100, 4132]), ErrorKind::Corrupt);
        assert_eq!(kind(&[5, 100, 4132, 5]), ErrorKind::Corrupt);
        assert!(build(&header, &lens, 5).is_ok());
    }

    #[test]
    fn a_table_for_blocks_of_4_kib_takes_two_and_a_half_bytes_per_block() {
        let lens = vec![4132; 1600];
        let table = build(&header(12, &lens), &lens, 4096).unwrap();
        assert_eq!(table.memory_len(), ByteLen(4000));
    }

    proptest! {
        #[test]
        fn every_block_is_where_the_sum_of_lengths_says(
            shift in 9_u32..=16,
            parts in prop::collection::vec(0_u32..=1000, 0..300),
            piece in 1_usize..64,
        ) {
            let max = header(shift, &[]).blocks.stored_len_max();
            let lens: Vec<u32> = parts.iter().map(|part| (max * part / 1000).max(5)).collect();
            let table = build(&header(shift, &lens), &lens, piece).unwrap();
            let mut begin = 512;
            for (block, len) in lens.iter().enumerate() {
                prop_assert_eq!(table.block(block as u64), Some(FileRange::new(begin, u64::from(*len))));
                begin += u64::from(*len);
            }
            prop_assert_eq!(table.block(lens.len() as u64), None);
            prop_assert_eq!(table.block(u64::MAX), None);
        }
    }
}
