//! What a file is, by its first bytes: a tar wrapper, else ZFile, else LSMT. Always in this order.
//!
//! What is inside a wrapper or a ZFile is sniffed again, from the first bytes inside. Each step is optional; an LSMT layer
//! must be at the end.

use std::fmt;

use crate::tar::{FirstBlock, NotTar};
use crate::{lsmt, zfile};

/// As many first bytes as a verdict needs; fewer only if the file is shorter.
pub const SNIFF_BYTES: usize = 512;

/// What a file is, and why it is not what was tried before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An archive: look inside, see [`crate::tar::PayloadFinder`].
    Tar,
    /// An archive that is still being written or was never finished.
    UnfinishedTar,
    /// A compressed file: look inside, see [`crate::zfile::Opener`].
    ZFile(NotTar),
    /// A layer.
    Lsmt(NotTar),
    /// None of them.
    Unknown(NotTar),
}

impl Verdict {
    /// Judges the first bytes of a file, [`SNIFF_BYTES`] of them if it has as many.
    #[must_use]
    pub fn of(first: &[u8]) -> Self {
        let not_tar = match FirstBlock::of(first) {
            FirstBlock::Header => return Self::Tar,
            FirstBlock::Unfinished => return Self::UnfinishedTar,
            FirstBlock::NotTar(why) => why,
        };
        if zfile::has_magic(first) {
            Self::ZFile(not_tar)
        } else if lsmt::has_magic(first) {
            Self::Lsmt(not_tar)
        } else {
            Self::Unknown(not_tar)
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tar => f.write_str("a tar archive"),
            Self::UnfinishedTar => f.write_str("a tar archive that was never finished"),
            Self::ZFile(why) => write!(f, "a ZFile; no tar archive: {why}"),
            Self::Lsmt(why) => write!(
                f,
                "an LSMT layer; no tar archive: {why}; no ZFile: another magic"
            ),
            Self::Unknown(why) => write!(
                f,
                "unknown; no tar archive: {why}; no ZFile and no LSMT layer: another magic"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar;
    use block::ByteLen;

    #[test]
    fn each_format_is_recognised_and_the_rest_is_said_not_to_be() {
        let wrapper = tar::wrapper(ByteLen(7));
        assert_eq!(Verdict::of(&wrapper), Verdict::Tar);
        let unfinished = tar::unfinished_wrapper();
        assert_eq!(Verdict::of(&unfinished), Verdict::UnfinishedTar);
        let mut lsmt = [0; SNIFF_BYTES];
        let magic = *b"LSMT\x00\x01\x02\x00\x65\x7e\x63\xd2\x94\x44\x08\x4c\xa2\xd2\xc8\xec\x4f\xcf\xae\x8a";
        lsmt[..24].copy_from_slice(&magic);
        assert_eq!(Verdict::of(&lsmt), Verdict::Lsmt(NotTar::Magic));
        assert_eq!(Verdict::of(&lsmt[..100]), Verdict::Lsmt(NotTar::Short));
        lsmt[23] ^= 1;
        assert_eq!(Verdict::of(&lsmt), Verdict::Unknown(NotTar::Magic));
        assert_eq!(Verdict::of(b""), Verdict::Unknown(NotTar::Short));
        let mut damaged = wrapper;
        damaged[0] ^= 1;
        let verdict = Verdict::of(&damaged);
        assert!(matches!(verdict, Verdict::Unknown(NotTar::Checksum { .. })));
        assert!(verdict.to_string().contains("tar checksum"), "{verdict}");
    }
}
