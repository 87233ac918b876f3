//! The error of this crate: what was tried, on which object, why it failed and what to do.

use std::error::Error as StdError;
use std::fmt;

/// What kind of failure it was; callers match on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file or directory could not be read, written or created.
    Io,
    /// A program of the host is missing or failed.
    Program,
    /// A Debian package is missing and cannot be installed from here.
    Package,
    /// No suitable kernel could be fetched, and none is in the cache.
    Kernel,
    /// A name or a value is not understood.
    Invalid,
    /// The machine ended without handing back a result: a panic, a crash of QEMU, no memory.
    GuestDied,
    /// The job did not end in its time; the machine was killed.
    TimedOut,
}

/// A failure. Its display does not repeat the source.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    op: &'static str,
    detail: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.detail)
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, op: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            op,
            detail: detail.into(),
            source: None,
        }
    }

    /// An I/O failure on the object that `detail` names.
    pub(crate) fn io(
        op: &'static str,
        detail: impl fmt::Display,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self {
            kind: ErrorKind::Io,
            op,
            detail: detail.to_string(),
            source: Some(Box::new(source.into())),
        }
    }

    pub(crate) fn with_source(
        mut self,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure it was.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error and its sources in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_operation_object_and_cause_once() {
        let error = Error::io(
            "read modules.dep",
            "/k/modules.dep",
            std::io::Error::other("disk on fire"),
        );
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.to_string(), "read modules.dep: /k/modules.dep");
        assert_eq!(
            error.chain(),
            "read modules.dep: /k/modules.dep: disk on fire"
        );
    }
}
