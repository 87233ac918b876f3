//! What can be wrong with an image.

use std::io;
use std::path::{Path, PathBuf};

use overlaybd::zfile::BlockError;

/// The stable kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file that is named does not exist.
    Missing,
    /// A file may not be opened.
    Permission,
    /// A file is used by another device or process.
    InUse,
    /// A path names something that is no regular file.
    WrongType,
    /// The image's configuration is not one.
    Config,
    /// A file is not of the format that it must be, or is damaged.
    Format,
    /// Layers do not belong on one another.
    Parent,
    /// The format or configuration allows it and this version cannot do it.
    Unsupported,
    /// The place for a result is taken.
    Exists,
    /// A size that a disk or file cannot have.
    Size,
    /// A file system is full.
    NoSpace,
    /// A system call failed.
    Io,
}

/// Why an image is refused, with the file that it is about and what to do where that is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// See [`ErrorKind::Missing`].
    #[error("{path} does not exist{hint}", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What names it, or what to do; empty or beginning with a separator.
        hint: String,
    },
    /// See [`ErrorKind::Permission`].
    #[error("{path} may not be opened for {access}; check its mode and owner, and those of the directories above", path = path.display())]
    Permission {
        /// The file.
        path: PathBuf,
        /// `reading` or `writing`.
        access: &'static str,
    },
    /// See [`ErrorKind::InUse`].
    #[error("{path} is in use by another device or process; an upper has one owner, and nobody reads a layer that is being written (see `lslocks`)", path = path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// See [`ErrorKind::WrongType`].
    #[error("{path} is {what}; name a regular file", path = path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// See [`ErrorKind::WrongType`]: an upper that is a layer now.
    #[error("{path} was sealed and is a layer now; list it as the last of the lowers, and make a new upper with `blockyard image create`", path = path.display())]
    Sealed {
        /// The data file.
        path: PathBuf,
    },
    /// See [`ErrorKind::Size`].
    #[error("{path}: {detail}", path = path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// What is wrong with the size, and what to do.
        detail: String,
    },
    /// See [`ErrorKind::Config`].
    #[error("the image configuration {path}: {detail}", path = path.display())]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// What is wrong with it and what to do.
        detail: String,
    },
    /// See [`ErrorKind::Format`].
    #[error("{path}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        #[source]
        source: overlaybd::Error,
    },
    /// See [`ErrorKind::Format`]: a block of a compressed file.
    #[error("{path}: block {block} at byte {offset}", path = path.display())]
    Block {
        /// The file.
        path: PathBuf,
        /// The number of the block.
        block: u64,
        /// Where its stored bytes begin in the file.
        offset: u64,
        /// What is wrong.
        #[source]
        source: BlockError,
    },
    /// See [`ErrorKind::Parent`].
    #[error("{path} does not belong on what is below it; list the lowers bottom first, or pass --ignore-parent to stack it all the same", path = path.display())]
    Parent {
        /// The layer, or the image.
        path: PathBuf,
        /// Both uuids.
        #[source]
        source: overlaybd::Error,
    },
    /// See [`ErrorKind::Unsupported`].
    #[error("{path}: {detail}", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What cannot be done, and what can.
        detail: String,
    },
    /// See [`ErrorKind::Exists`].
    #[error("{path} exists already; nothing is overwritten without --force", path = path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// See [`ErrorKind::Io`] and [`ErrorKind::NoSpace`].
    #[error("{op} of {path} failed", path = path.display())]
    Io {
        /// The call.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. } => ErrorKind::Missing,
            Self::Permission { .. } => ErrorKind::Permission,
            Self::InUse { .. } => ErrorKind::InUse,
            Self::WrongType { .. } | Self::Sealed { .. } => ErrorKind::WrongType,
            Self::Size { .. } => ErrorKind::Size,
            Self::Config { .. } => ErrorKind::Config,
            Self::Format { .. } | Self::Block { .. } => ErrorKind::Format,
            Self::Parent { .. } => ErrorKind::Parent,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Io { source, .. } if is_full(source) => ErrorKind::NoSpace,
            Self::Io { .. } => ErrorKind::Io,
        }
    }

    /// An error of a system call on `path`.
    pub(crate) fn io(op: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            op,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// An error about the bytes of `path`.
    pub(crate) fn format(path: &Path, source: overlaybd::Error) -> Self {
        Self::Format {
            path: path.to_owned(),
            source,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
