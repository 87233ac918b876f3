//! What can be wrong with the bytes of an image.

use block::ByteOffset;

/// The stable kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are not of the format at all: the magic is another one.
    NotThisFormat,
    /// The file ends before what it promises.
    Truncated,
    /// A field contradicts another field, the file's length or the format.
    Corrupt,
    /// A checksum does not match.
    Checksum,
    /// The format allows it and this version cannot read it.
    Unsupported,
    /// More than a limit that protects memory.
    TooLarge,
}

/// Why bytes are refused. Whoever knows the file's name adds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at {offset}: {detail}")]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// The part of the format: `header`, `trailer`, `index record 7`, `jump table`.
    pub what: String,
    /// Where it is in the file.
    pub offset: ByteOffset,
    /// What is wrong with it, in one line, with the values.
    pub detail: String,
}

impl Error {
    /// An error about the part `what` at `offset` of the file.
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        what: impl Into<String>,
        offset: ByteOffset,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            what: what.into(),
            offset,
            detail: detail.into(),
        }
    }
}
