//! Failures of image commands as problems.

use std::error::Error as _;

use api::v1::{Code, Problem};
use image::{Error, ErrorKind};

/// The problem of an error, with the object and what to do.
pub(super) fn of(error: &Error) -> Problem {
    let (code, advice) = match error.kind() {
        ErrorKind::Missing => (Code::SourceNotFound, "check the path"),
        ErrorKind::Permission => (Code::SourceDenied, "check its mode and owner"),
        ErrorKind::InUse => (Code::SourceInUse, "see `lslocks`"),
        ErrorKind::Size => (Code::InvalidSize, "give another size"),
        ErrorKind::WrongType => (Code::SourceInvalid, "name a regular file"),
        ErrorKind::Config => (Code::SourceInvalid, "see docs/images.md for the keys"),
        ErrorKind::Format => (
            Code::SourceInvalid,
            "it is damaged or of another format; get it again from where it came",
        ),
        ErrorKind::Parent => (Code::SourceInvalid, "list the lowers bottom first"),
        ErrorKind::Unsupported => (Code::FeatureMissing, "see docs/images.md"),
        ErrorKind::Exists => (Code::NameTaken, "pass --force to replace it"),
        ErrorKind::NoSpace => (Code::NoSpace, "free some space; nothing was changed"),
        _ => (Code::IoFailed, "check the file and its file system"),
    };
    // Messages may end in advice of their own.
    let text = error.to_string();
    let (what, advice) = text.rsplit_once("; ").unwrap_or((&text, advice));
    let mut detail = what.to_owned();
    let mut source = error.source();
    while let Some(cause) = source {
        detail = format!("{detail}: {cause}");
        source = cause.source();
    }
    Problem::new(code, detail, advice)
}

/// An argument that cannot be used.
pub(super) fn usage(detail: String, advice: &str) -> Problem {
    Problem::new(Code::Usage, detail, advice)
}
