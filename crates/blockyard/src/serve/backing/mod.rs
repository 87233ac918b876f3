//! Opening what a device is made of.
//!
//! | spec | opened as | one instance for |
//! |---|---|---|
//! | `null:` | nothing | each shard |
//! | `raw:` | [`raw`]: a file or block device | each shard; they share what is known of holes |
//! | `overlaybd:` | [`layers`]: an image | each shard; with an upper one shard serves all queues |

mod disk;
mod error;
mod fault;
mod layers;
mod lease;
mod loops;
mod open;
mod raw;
mod size;

use std::path::Path;
use std::sync::Arc;

use block::{Access, Geometry, NullTarget, Sectors, Target};
use dataplane::Spread;
use image::serving::{Library, Workspace};
use manager::{CreateRequest, Fault, FaultKind, Spec};
use reactor::RingFile;

use layers::ImageFiles;
use raw::RawFile;

pub(crate) use lease::Leases;

/// What the backing stores of a daemon share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Of the raw files that are open.
    pub(crate) leases: Arc<Leases>,
    /// The layers that are open.
    pub(crate) library: Library,
}

impl Shared {
    pub(crate) fn new(leases: Arc<Leases>) -> Self {
        Self {
            leases,
            library: Library::default(),
        }
    }
}

/// An opened backing store. Holds the locks of its files.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Nothing.
    Null(Sectors, Access),
    Raw(RawFile),
    Image(Box<ImageFiles>),
}

impl Backing {
    /// Opens and locks what a request names. Blocks for as long as the file systems take.
    pub(crate) fn open(request: &CreateRequest, shared: &Shared) -> Result<Self, Fault> {
        let access = request.access();
        match request.spec() {
            Spec::Null { size } => {
                let size = Sectors::try_from_bytes(*size).ok_or_else(|| {
                    Fault::new(
                        FaultKind::SizeInvalid,
                        "the size is not a multiple of 512 bytes",
                    )
                })?;
                Ok(Self::Null(size, access))
            }
            Spec::Raw { path } => {
                let asked = request.size().and_then(Sectors::try_from_bytes);
                RawFile::open(Path::new(path), asked, access, &shared.leases)
                    .map(Self::Raw)
                    .map_err(|error| fault::of_raw(&error))
            }
            Spec::Image { path } => ImageFiles::open(Path::new(path), access, &shared.library)
                .map(|image| Self::Image(Box::new(image)))
                .map_err(|error| fault::of_image(&error)),
            other => Err(Fault::new(
                FaultKind::Unsupported,
                format!("{other} cannot be opened by this version"),
            )),
        }
    }

    /// Size and limits of the device.
    pub(crate) fn geometry(&self) -> Geometry {
        match self {
            Self::Null(size, access) => NullTarget::new(*size, *access).geometry(),
            Self::Raw(raw) => raw.geometry(),
            Self::Image(image) => image.geometry(),
        }
    }

    /// How many shards may serve it.
    pub(crate) fn spread(&self) -> Spread {
        match self {
            Self::Image(image) if image.is_single() => Spread::Together,
            Self::Null(..) | Self::Raw(_) | Self::Image(_) => Spread::Queues,
        }
    }

    /// Whether reads can go at once from a file into the request. Whoever has nothing to gain from zero copy pays for it with every
    /// request all the same.
    pub(crate) fn profits_from_zero_copy(&self) -> bool {
        match self {
            Self::Null(..) => false,
            Self::Raw(raw) => raw.is_read_at_once(),
            Self::Image(image) => image.is_read_at_once(),
        }
    }

    /// One instance of the target, for the shard of this workspace, with its files. Does not wait for the file systems.
    pub(crate) fn instance(
        &self,
        workspace: &Workspace,
    ) -> Result<(Box<dyn Target>, Vec<RingFile>), Fault> {
        match self {
            Self::Null(size, access) => Ok((Box::new(NullTarget::new(*size, *access)), Vec::new())),
            Self::Raw(raw) => raw.instance().map_err(|error| fault::of_reopening(&error)),
            Self::Image(image) => image
                .instance(workspace)
                .map_err(|error| fault::of_image(&error)),
        }
    }

    /// The device is live.
    pub(crate) fn report_live(&self) {
        if let Self::Image(image) = self {
            image.report_live();
        }
    }

    /// The device never lived: what was changed to make it is changed back.
    pub(crate) fn undo(&self) -> std::io::Result<()> {
        match self {
            Self::Raw(raw) => raw.undo_extension(),
            Self::Null(..) | Self::Image(_) => Ok(()),
        }
    }
}
