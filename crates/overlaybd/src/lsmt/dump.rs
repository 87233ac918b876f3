//! Headers as text, a line a field, for people. Records print themselves: `offset length moffset zeroed tag`.

use std::fmt;

use super::header::{Flags, Header};

impl fmt::Display for Flags {
    /// The number and what each bit means.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = if self.is_header() {
            "header"
        } else {
            "trailer"
        };
        let file = if self.is_data() { "data" } else { "index" };
        write!(f, "{:#04x} {block} {file}", self.bits())?;
        let rest = [
            (self.is_sealed(), " sealed"),
            (self.is_sparse(), " sparse"),
            (self.is_hybrid(), " hybrid"),
        ];
        for (_, word) in rest.iter().filter(|(is_set, _)| *is_set) {
            f.write_str(word)?;
        }
        Ok(())
    }
}

impl fmt::Display for Header {
    /// `field value` a line; numbers in the units of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uuid_text = |uuid: Option<super::LayerUuid>| {
            uuid.map_or_else(|| "none".to_owned(), |uuid| uuid.to_string())
        };
        writeln!(f, "flags {}", self.flags)?;
        writeln!(f, "index_offset {}", self.index_offset.0)?;
        writeln!(f, "index_size {}", self.index_size)?;
        writeln!(f, "virtual_size {}", self.virtual_size.len_bytes().0)?;
        writeln!(f, "uuid {}", uuid_text(self.uuid))?;
        writeln!(f, "parent_uuid {}", uuid_text(self.parent_uuid))?;
        // Escaped: a file must not be able to write to a terminal as it likes.
        writeln!(f, "user_tag {}", self.user_tag.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use block::{ByteOffset, Sectors};

    use super::*;
    use crate::lsmt::{LayerUuid, UserTag};

    #[test]
    fn a_header_is_a_line_a_field() {
        let header = Header {
            flags: Flags::HYBRID_INDEX.sealed_in_place(),
            index_offset: ByteOffset(8192),
            index_size: 256,
            virtual_size: Sectors(2),
            uuid: LayerUuid::from_bytes([0xAB; 16]),
            parent_uuid: None,
            user_tag: UserTag::new(b"one\ntwo").unwrap(),
        };
        let want = "flags 0x26 trailer data sealed hybrid\nindex_offset 8192\nindex_size 256\nvirtual_size 1024\n\
                    uuid ABABABAB-ABAB-ABAB-ABAB-ABABABABABAB\nparent_uuid none\nuser_tag one\\ntwo\n";
        assert_eq!(header.to_string(), want);
    }
}
