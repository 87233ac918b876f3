//! Ring tokens: what a completion belongs to, packed into 56 bits.

use block::Tag;
use reactor::Token;

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The fetch or commit command of a tag. The index stays valid until every tag of the queue was aborted.
    Tag {
        /// Index of the queue in the shard.
        queue: u32,
        /// The tag.
        tag: Tag,
    },
    /// A step of a request. The index stays valid until the step's completion.
    Step {
        /// Index of the step in the shard.
        step: u32,
    },
    /// The mailbox.
    Mail,
}

const KIND_SHIFT: u32 = 48;
const TAG: u64 = 1 << KIND_SHIFT;
const STEP: u64 = 2 << KIND_SHIFT;
const MAIL: u64 = 3 << KIND_SHIFT;

impl Owner {
    pub(crate) const fn pack(self) -> Token {
        Token(match self {
            Self::Tag { queue, tag } => TAG | (queue as u64) << 16 | tag.0 as u64,
            Self::Step { step } => STEP | step as u64,
            Self::Mail => MAIL,
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the fields are cut out of the packed word"
    )]
    pub(crate) const fn unpack(token: Token) -> Option<Self> {
        let low = token.0 as u32;
        match token.0 & !((1 << KIND_SHIFT) - 1) {
            TAG => Some(Self::Tag {
                queue: (token.0 >> 16) as u32,
                tag: Tag(token.0 as u16),
            }),
            STEP => Some(Self::Step { step: low }),
            MAIL => Some(Self::Mail),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owner_survives_packing() {
        for owner in [
            Owner::Tag {
                queue: 0,
                tag: Tag(0),
            },
            Owner::Tag {
                queue: u32::MAX,
                tag: Tag(u16::MAX),
            },
            Owner::Step { step: u32::MAX },
            Owner::Mail,
        ] {
            assert_eq!(Owner::unpack(owner.pack()), Some(owner));
        }
        assert_eq!(Owner::unpack(Token(0)), None);
    }
}
