//! A request to create a device, checked; equality decides whether "the same again" was asked.

use block::{Access, ByteLen};

use crate::name::{DeviceName, NameError};
use crate::size::{SizeError, check_size, spell};
use crate::spec::{Spec, SpecError};

/// The most queues of one device. The kernel allows 4096 but never more than the host has CPUs; every queue
/// costs a mapping and a file reference.
pub const QUEUES_MAX: u16 = 64;
/// Queues when nothing is said.
pub const QUEUES_DEFAULT: u16 = 1;
/// The deepest queue. The kernel allows 4096; every tag costs kernel memory, served or not.
pub const DEPTH_MAX: u16 = 1024;
/// Tags of a queue when nothing is said.
pub const DEPTH_DEFAULT: u16 = 64;

/// What [`CreateRequest::new`] is made from. `None` means "not said".
#[derive(Clone, Debug)]
pub struct CreateParams {
    /// The device's name.
    pub name: DeviceName,
    /// What it stands on.
    pub spec: Spec,
    /// Its size, where the spec does not decide it alone.
    pub size: Option<ByteLen>,
    /// Whether it may be written to.
    pub access: Access,
    /// Number of queues, 1 to [`QUEUES_MAX`].
    pub queues: Option<u16>,
    /// Tags of each queue, 1 to [`DEPTH_MAX`].
    pub depth: Option<u16>,
}

/// A valid request. Two equal requests ask for the same device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    name: DeviceName,
    spec: Spec,
    size: Option<ByteLen>,
    access: Access,
    queues: u16,
    depth: u16,
}

/// Why a request cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The name is wrong.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The spec is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The size is wrong.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// `null:SIZE` and another size beside it.
    #[error(
        "the spec says {spec_bytes} bytes and the size says {size_bytes} bytes; give one of them"
    )]
    SizeConflict {
        /// Size in the spec.
        spec_bytes: u64,
        /// Size beside it.
        size_bytes: u64,
    },
    /// A size beside an image, which has one.
    #[error(
        "an image has a size of its own; leave the size out, or grow the image first with `blockyard image resize`"
    )]
    SizeOfImage,
    /// Queues out of range.
    #[error("{queues} queues are out of range; ask for 1 to {QUEUES_MAX}")]
    Queues {
        /// What was asked for.
        queues: u16,
    },
    /// Depth out of range.
    #[error("a depth of {depth} is out of range; ask for 1 to {DEPTH_MAX}")]
    Depth {
        /// What was asked for.
        depth: u16,
    },
}

impl RequestError {
    /// The stable code of the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Name(error) => error.code(),
            Self::Spec(error) => error.code(),
            Self::Size(_) | Self::SizeConflict { .. } | Self::SizeOfImage => "invalid_size",
            Self::Queues { .. } => "invalid_queues",
            Self::Depth { .. } => "invalid_depth",
        }
    }
}

/// A field in which two requests for one name differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The field's name in the API.
    pub field: &'static str,
    /// What the existing device has, to follow "it": `has size 1G`.
    pub existing: String,
    /// What was asked for, to follow "you asked for": `the file's own`.
    pub requested: String,
}

impl CreateRequest {
    /// Checks the limits and fills in the defaults.
    ///
    /// # Errors
    /// [`RequestError`] for a size, queue count or depth out of range, or two different sizes.
    pub fn new(params: CreateParams) -> Result<Self, RequestError> {
        let size = params.size.map(check_size).transpose()?;
        let size = match (&params.spec, size) {
            (Spec::Null { size: spec }, Some(size)) if *spec != size => {
                return Err(RequestError::SizeConflict {
                    spec_bytes: spec.0,
                    size_bytes: size.0,
                });
            }
            // Said twice or once, it is the same request.
            (Spec::Null { .. }, _) => None,
            (Spec::Raw { .. }, size) => size,
            (Spec::Image { .. }, None) => None,
            (Spec::Image { .. }, Some(_)) => return Err(RequestError::SizeOfImage),
        };
        let queues = params.queues.unwrap_or(QUEUES_DEFAULT);
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(RequestError::Queues { queues });
        }
        let depth = params.depth.unwrap_or(DEPTH_DEFAULT);
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(RequestError::Depth { depth });
        }
        Ok(Self {
            name: params.name,
            spec: params.spec,
            size,
            access: params.access,
            queues,
            depth,
        })
    }

    /// The device's name.
    #[must_use]
    pub const fn name(&self) -> &DeviceName {
        &self.name
    }

    /// What the device stands on.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The size that was asked for beside the spec. Always `None` for `null:` and `overlaybd:`.
    #[must_use]
    pub const fn size(&self) -> Option<ByteLen> {
        self.size
    }

    /// Whether the device may be written to.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Number of queues.
    #[must_use]
    pub const fn queues(&self) -> u16 {
        self.queues
    }

    /// Tags of each queue.
    #[must_use]
    pub const fn depth(&self) -> u16 {
        self.depth
    }

    /// Where `other` asks for something else than `self` has. Empty exactly when the two are equal.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let spec = |request: &Self| match &request.spec {
            Spec::Null { size } => format!("null:{}", spell(*size)),
            Spec::Raw { .. } | Spec::Image { .. } => request.spec.to_string(),
        };
        let queues = |request: &Self| match request.queues {
            1 => "1 queue".to_owned(),
            queues => format!("{queues} queues"),
        };
        let has = |value: &str| format!("has {value}");
        let access = |request: &Self| match request.access {
            Access::ReadOnly => "read-only".to_owned(),
            Access::ReadWrite => "read-write".to_owned(),
        };
        let difference = |field, existing, requested| Difference {
            field,
            existing,
            requested,
        };
        let mut differences = Vec::new();
        if self.name != other.name {
            let existing = format!("is called {}", self.name);
            differences.push(difference("name", existing, other.name.to_string()));
        }
        if self.spec != other.spec {
            let existing = has(&format!("the spec {}", spec(self)));
            differences.push(difference("spec", existing, spec(other)));
        }
        if self.size != other.size {
            let existing = match self.size {
                Some(size) => has(&format!("size {}", spell(size))),
                None => has("the file's own size"),
            };
            let requested = other.size.map_or("the file's own".to_owned(), spell);
            differences.push(difference("size", existing, requested));
        }
        if self.access != other.access {
            let existing = format!("is {}", access(self));
            differences.push(difference("read_only", existing, access(other)));
        }
        if self.queues != other.queues {
            differences.push(difference("queues", has(&queues(self)), queues(other)));
        }
        if self.depth != other.depth {
            let existing = has(&format!("depth {}", self.depth));
            differences.push(difference("depth", existing, other.depth.to_string()));
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(spec: &str) -> CreateParams {
        CreateParams {
            name: "a".parse().unwrap(),
            spec: spec.parse().unwrap(),
            size: None,
            access: Access::ReadWrite,
            queues: None,
            depth: None,
        }
    }

    #[test]
    fn defaults_said_and_unsaid_are_the_same_request() {
        let unsaid = CreateRequest::new(params("null:8G")).unwrap();
        let said = CreateRequest::new(CreateParams {
            size: Some(ByteLen(8 << 30)),
            queues: Some(QUEUES_DEFAULT),
            depth: Some(DEPTH_DEFAULT),
            ..params("null:8192M")
        })
        .unwrap();
        assert_eq!(unsaid, said);
        assert!(unsaid.differences(&said).is_empty());
    }

    #[test]
    fn limits_are_checked() {
        let make = |change: fn(&mut CreateParams)| {
            let mut params = params("raw:/a");
            change(&mut params);
            CreateRequest::new(params)
        };
        assert_eq!(
            make(|p| p.queues = Some(0)),
            Err(RequestError::Queues { queues: 0 })
        );
        assert_eq!(
            make(|p| p.queues = Some(65)),
            Err(RequestError::Queues { queues: 65 })
        );
        assert_eq!(
            make(|p| p.depth = Some(0)),
            Err(RequestError::Depth { depth: 0 })
        );
        assert_eq!(
            make(|p| p.depth = Some(1025)),
            Err(RequestError::Depth { depth: 1025 })
        );
        assert_eq!(
            make(|p| p.size = Some(ByteLen(0))),
            Err(RequestError::Size(SizeError::Zero))
        );
        assert!(
            make(|p| {
                p.queues = Some(QUEUES_MAX);
                p.depth = Some(DEPTH_MAX);
            })
            .is_ok()
        );
    }

    #[test]
    fn two_sizes_conflict() {
        let result = CreateRequest::new(CreateParams {
            size: Some(ByteLen(512)),
            ..params("null:1024")
        });
        assert_eq!(
            result,
            Err(RequestError::SizeConflict {
                spec_bytes: 1024,
                size_bytes: 512
            })
        );
    }

    #[test]
    fn each_changed_field_is_a_difference() {
        let base = CreateRequest::new(params("raw:/a")).unwrap();
        type Change = fn(&mut CreateParams);
        let cases: [(&str, Change); 5] = [
            ("spec", |p| p.spec = "raw:/b".parse().unwrap()),
            ("size", |p| p.size = Some(ByteLen(512))),
            ("read_only", |p| p.access = Access::ReadOnly),
            ("queues", |p| p.queues = Some(2)),
            ("depth", |p| p.depth = Some(2)),
        ];
        for (field, change) in cases {
            let mut params = params("raw:/a");
            change(&mut params);
            let other = CreateRequest::new(params).unwrap();
            let differences = base.differences(&other);
            assert_eq!(differences.len(), 1);
            assert_eq!(differences[0].field, field);
            assert_ne!(base, other);
        }
    }
}
