//! Failures of image commands as problems.

use std::error::Error as _;

use api::v1::{Code, Problem};
use image::{Error, ErrorKind};

/// The problem of an error, with the object and what to do.
pub(super) fn of(error: &Error) -> Problem {
    let (code, advice) = match error.kind() {
        ErrorKind::Missing => (Code::SourceNotFound, "check the path"),
        ErrorKind::Permission => (Code::SourceDenied, "check its mode and owner"),
        ErrorKind::InUse => (Code::SourceInUse, "an upper has one owner; see `lslocks`"),
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
    let mut detail = error.to_string();
    let mut source = error.source();
    // Details may end in advice of their own, which comes last.
    let mut own = None;
    if let Some((what, todo)) = detail.clone().rsplit_once("; ") {
        own = Some(todo.to_owned());
        what.clone_into(&mut detail);
    }
    while let Some(cause) = source {
        detail = format!("{detail}: {cause}");
        source = cause.source();
    }
    Problem::new(code, detail, own.unwrap_or_else(|| advice.to_owned()))
}

/// An argument that cannot be used.
pub(super) fn usage(detail: String, advice: &str) -> Problem {
    Problem::new(Code::Usage, detail, advice)
}
