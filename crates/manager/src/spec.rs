//! What a device stands on: `null:SIZE`, `raw:PATH` or `overlaybd:PATH`.

use std::fmt;
use std::str::FromStr;

use block::ByteLen;
use serde::{Deserialize, Serialize};

use crate::size::{SizeError, parse_size};

/// The specs that exist, as an error message lists them.
pub const KNOWN_SPECS: &str = "null:SIZE, raw:PATH, overlaybd:PATH";

/// The longest spec in bytes: `overlaybd:` and a path of `PATH_MAX` (4096, include/uapi/linux/limits.h).
const SPEC_BYTES_MAX: usize = 10 + 4096;

/// The backing of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Spec {
    /// Reads zeros and **drops writes**.
    Null {
        /// Its size: whole sectors, not 0.
        size: ByteLen,
    },
    /// A regular file or a block device.
    Raw {
        /// Absolute path, UTF-8.
        path: String,
    },
    /// An image: layers of overlaybd.
    Image {
        /// Absolute path of its configuration, UTF-8.
        path: String,
    },
}

/// Why a text is no spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No kind of backing with this name.
    #[error("unknown spec {found:?}; known are {KNOWN_SPECS}")]
    Unknown {
        /// What stands before the colon, or all of it, cut to a few characters.
        found: String,
    },
    /// A path without the kind before it.
    #[error("unknown spec {path:?}; for a file write raw:{path}")]
    BarePath {
        /// The path.
        path: String,
    },
    /// `null:` with a bad size.
    #[error("the size of a null device is wrong: {0}")]
    Size(SizeError),
    /// `raw:` or `overlaybd:` without a path.
    #[error("{kind}: needs the path of {what}")]
    PathMissing {
        /// What stands before the colon.
        kind: &'static str,
        /// What the path is to be of, with an example.
        what: &'static str,
    },
    /// The path is relative; the daemon's working directory must not matter.
    #[error("the path {path:?} is relative; give an absolute one")]
    PathRelative {
        /// The path.
        path: String,
    },
    /// The path holds a NUL byte, which no file name can.
    #[error("a path holds a NUL byte; no file has such a name")]
    PathNul,
    /// More bytes than any path can have.
    #[error("a spec of {len_bytes} bytes is too long; a path has at most 4096 bytes")]
    TooLong {
        /// Its length in bytes.
        len_bytes: usize,
    },
}

impl SpecError {
    /// The stable code of the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::BarePath { .. } => "unknown_spec",
            Self::Size(_) => "invalid_size",
            Self::PathMissing { .. }
            | Self::PathRelative { .. }
            | Self::PathNul
            | Self::TooLong { .. } => "invalid_spec",
        }
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.len() > SPEC_BYTES_MAX {
            return Err(SpecError::TooLong {
                len_bytes: text.len(),
            });
        }
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "null" => parse_size(rest)
                .map(|size| Self::Null { size })
                .map_err(SpecError::Size),
            "raw" => {
                let what = "a file or block device, such as raw:/srv/disk.img";
                parse_path(rest, "raw", what).map(|path| Self::Raw { path })
            }
            "overlaybd" => {
                let what = "an image's configuration, such as overlaybd:/srv/image.json";
                parse_path(rest, "overlaybd", what).map(|path| Self::Image { path })
            }
            // No kind has such a character in its name.
            _ if kind.contains(['/', '.']) => Err(SpecError::BarePath { path: text.into() }),
            _ => Err(SpecError::Unknown {
                found: kind.chars().take(32).collect(),
            }),
        }
    }
}

fn parse_path(path: &str, kind: &'static str, what: &'static str) -> Result<String, SpecError> {
    if path.is_empty() {
        Err(SpecError::PathMissing { kind, what })
    } else if path.contains('\0') {
        Err(SpecError::PathNul)
    } else if !path.starts_with('/') {
        Err(SpecError::PathRelative { path: path.into() })
    } else {
        Ok(path.into())
    }
}

impl TryFrom<String> for Spec {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<Spec> for String {
    fn from(spec: Spec) -> Self {
        spec.to_string()
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null { size } => write!(f, "null:{}", size.0),
            Self::Raw { path } => write!(f, "raw:{path}"),
            Self::Image { path } => write!(f, "overlaybd:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_parse_and_print_in_canonical_form() {
        let cases = [
            ("null:8G", "null:8589934592"),
            ("null:4096", "null:4096"),
            ("raw:/srv/a.img", "raw:/srv/a.img"),
            ("raw:/with: colon", "raw:/with: colon"),
            ("overlaybd:/srv/i.json", "overlaybd:/srv/i.json"),
        ];
        for (text, printed) in cases {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(spec.to_string(), printed);
            assert_eq!(printed.parse::<Spec>(), Ok(spec), "{text}");
        }
    }

    #[test]
    fn each_bad_spec_has_its_own_error() {
        let unknown = |found: &str| SpecError::Unknown {
            found: found.into(),
        };
        let missing = |kind| match kind {
            "raw" => SpecError::PathMissing {
                kind: "raw",
                what: "a file or block device, such as raw:/srv/disk.img",
            },
            _ => SpecError::PathMissing {
                kind: "overlaybd",
                what: "an image's configuration, such as overlaybd:/srv/image.json",
            },
        };
        let bare = |path: &str| SpecError::BarePath { path: path.into() };
        let cases = [
            ("", unknown("")),
            ("qcow2:/a", unknown("qcow2")),
            ("/srv/a.img", bare("/srv/a.img")),
            ("disk.img", bare("disk.img")),
            ("a/b:c", bare("a/b:c")),
            ("overlaybd", missing("overlaybd")),
            (
                "overlaybd:i.json",
                SpecError::PathRelative {
                    path: "i.json".into(),
                },
            ),
            ("null:0", SpecError::Size(SizeError::Zero)),
            (
                "null:513",
                SpecError::Size(SizeError::NotSectors { bytes: 513 }),
            ),
            (
                "null",
                SpecError::Size(SizeError::Malformed { text: "".into() }),
            ),
            ("raw", missing("raw")),
            ("raw:", missing("raw")),
            ("raw:a/b", SpecError::PathRelative { path: "a/b".into() }),
            ("raw:/a\0b", SpecError::PathNul),
            (&"r".repeat(5000), SpecError::TooLong { len_bytes: 5000 }),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Spec>(), Err(error), "{text:?}");
        }
        assert!(unknown("x").to_string().contains("null:SIZE, raw:PATH"));
        assert!(
            bare("disk.img")
                .to_string()
                .ends_with("; for a file write raw:disk.img")
        );
    }
}
