//! A header or a jump table as lines of text, for people and for tests.

use std::fmt;

use super::header::{Flags, HeaderBlock};
use super::table::JumpTable;

/// The known flags by name; `header` is written without its bit as `trailer`.
const FLAG_NAMES: [(u64, &str); 5] = [
    (Flags::DATA, "data"),
    (Flags::SEALED, "sealed"),
    (Flags::HEADER_OVERWRITTEN, "header_overwritten"),
    (Flags::DIGEST, "digest"),
    (Flags::INDEX_COMPRESSED, "index_compressed"),
];

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.has(Self::HEADER) {
            "header"
        } else {
            "trailer"
        };
        write!(f, "{:#x} {part}", self.0)?;
        for (bit, name) in FLAG_NAMES {
            if self.has(bit) {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}

/// One field a line, in the order of the file.
impl fmt::Display for HeaderBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = match self.algorithm {
            0 => "minilzo",
            1 => "lz4",
            2 => "zstd",
            _ => "unknown",
        };
        writeln!(f, "part               {}", self.part.name())?;
        writeln!(f, "size               {}", self.size)?;
        writeln!(f, "digest             {:#010x}", self.digest)?;
        writeln!(f, "flags              {}", self.flags)?;
        writeln!(f, "index_offset       {}", self.index_offset)?;
        writeln!(f, "index_size         {}", self.index_size)?;
        writeln!(f, "original_file_size {}", self.original_file_size)?;
        writeln!(f, "index_crc          {:#010x}", self.index_crc)?;
        writeln!(f, "block_size         {}", self.block_size)?;
        writeln!(f, "algorithm          {} {algorithm}", self.algorithm)?;
        writeln!(f, "level              {}", self.level)?;
        writeln!(f, "use_dict           {}", self.use_dict)?;
        writeln!(f, "dict_size          {}", self.dict_size)?;
        writeln!(f, "verify             {}", self.verify)
    }
}

/// One block a line: number, offset, stored length.
impl fmt::Display for JumpTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for block in 0..self.blocks() {
            if let Some(range) = self.block(block) {
                writeln!(f, "{block} {} {}", range.offset.0, range.len.0)?;
            }
        }
        Ok(())
    }
}
