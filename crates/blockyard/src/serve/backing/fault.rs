//! What a failure to open something means for a request.

use image::ErrorKind;
use manager::{Fault, FaultKind};

use super::error::BackingError;
use super::layers;

/// Of a file or disk.
pub(super) fn of_raw(error: &BackingError) -> Fault {
    let kind = match error {
        BackingError::Missing { .. } => FaultKind::BackingMissing,
        BackingError::Directory { .. }
        | BackingError::WrongType { .. }
        | BackingError::BadPath { .. }
        | BackingError::BlockSize { .. } => FaultKind::BackingKind,
        BackingError::Empty { .. }
        | BackingError::NotSectors { .. }
        | BackingError::NotBlocks { .. }
        | BackingError::TooLarge { .. }
        | BackingError::TooSmall { .. } => FaultKind::SizeInvalid,
        BackingError::InUse { .. }
        | BackingError::BehindLoop { .. }
        | BackingError::DiskInUse { .. } => FaultKind::InUse,
        BackingError::Permission { .. } | BackingError::ReadOnly { .. } => FaultKind::Permission,
        BackingError::Io { source, .. } => {
            return Fault::new(FaultKind::Io, format!("{error}: {source}"));
        }
    };
    Fault::new(kind, error.to_string())
}

/// Of an image.
pub(super) fn of_image(error: &image::Error) -> Fault {
    let kind = match error.kind() {
        ErrorKind::Missing => FaultKind::BackingMissing,
        ErrorKind::Permission => FaultKind::Permission,
        ErrorKind::InUse => FaultKind::InUse,
        ErrorKind::Size => FaultKind::SizeInvalid,
        ErrorKind::NoSpace => FaultKind::NoSpace,
        ErrorKind::Io => FaultKind::Io,
        // What the user gave is not what an image is made of.
        _ => FaultKind::BackingKind,
    };
    Fault::new(kind, layers::text(error))
}

/// Of a file that is open already.
pub(super) fn of_reopening(error: &std::io::Error) -> Fault {
    let text = format!("a file of the device cannot be opened again: {error}; check `ulimit -n`");
    Fault::new(FaultKind::LimitReached, text)
}
