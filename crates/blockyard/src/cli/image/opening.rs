//! What the arguments of image commands name.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::Problem;
use image::{
    Blob, ImageConfig, LayerFile, LostRecords, OpenOptions, ParentCheck, Upper, UpperConfig, View,
};
use overlaybd::lsmt::{LayerUuid, NewLayer};

use super::args::{OpenArgs, UpperArgs};
use super::problem;

/// What a commit is made of.
pub(super) enum Source {
    /// An upper, and the uuid of what is below it.
    Upper(Box<Upper>, Option<LayerUuid>),
    /// A sealed layer, and what it says about itself.
    Sealed(Blob, Box<NewLayer>),
}

impl Source {
    pub(super) fn find(args: &UpperArgs, open: OpenArgs) -> Result<Self, Problem> {
        let failed = |error: image::Error| problem::of(&error);
        if is_config(Path::new(path_of(&args.upper))) {
            let config = config(&args.upper)?;
            // Opened as a whole, so that a mismatch of parents is seen.
            let view = View::open(&config, options(open)).map_err(failed)?;
            let below = view.lowers().top_uuid();
            drop(view);
            return Ok(Self::Upper(Box::new(own_upper(args, open)?), below));
        }
        let path = Path::new(path_of(&args.upper));
        if args.index.is_none()
            && let Ok(blob) = open_blob(path)
            && let Ok(layer) = image::read_trailer(&blob)
        {
            return Ok(Self::Sealed(blob, Box::new(layer)));
        }
        Ok(Self::Upper(Box::new(own_upper(args, open)?), None))
    }

    /// What the new layer says unless told otherwise.
    pub(super) fn names(&self) -> NewLayer {
        match self {
            Self::Upper(upper, below) => {
                let header = upper.header();
                NewLayer {
                    virtual_size: header.virtual_size,
                    uuid: header.uuid,
                    parent_uuid: header.parent_uuid.or(*below),
                    user_tag: header.user_tag.clone(),
                }
            }
            Self::Sealed(_, layer) => (**layer).clone(),
        }
    }
}

pub(super) const fn options(open: OpenArgs) -> OpenOptions {
    OpenOptions {
        parents: if open.ignore_parent {
            ParentCheck::Ignore
        } else {
            ParentCheck::Refuse
        },
        lost: if open.drop_lost_records {
            LostRecords::Drop
        } else {
            LostRecords::Refuse
        },
    }
}

/// The upper that is meant, for its only owner.
pub(super) fn own_upper(args: &UpperArgs, open: OpenArgs) -> Result<Upper, Problem> {
    let path = PathBuf::from(path_of(&args.upper));
    let found = if is_config(&path) {
        let config = config(&args.upper)?;
        config.upper.ok_or_else(|| {
            let detail = format!("{} has no upper", path.display());
            problem::usage(detail, "name an image with an upper")
        })?
    } else {
        match &args.index {
            Some(index) => UpperConfig::Log {
                data: path,
                index: index.clone(),
            },
            None => UpperConfig::Sparse { data: path },
        }
    };
    Upper::open(&found, options(open).lost).map_err(|error| problem::of(&error))
}

/// An image is named by its configuration, with or without the kind in front.
fn path_of(image: &str) -> &str {
    image.strip_prefix("overlaybd:").unwrap_or(image)
}

pub(super) fn config(image: &str) -> Result<ImageConfig, Problem> {
    ImageConfig::read(Path::new(path_of(image))).map_err(|error| problem::of(&error))
}

/// Whether a file is the configuration of an image: JSON, where layers begin with a magic.
pub(super) fn is_config(path: &Path) -> bool {
    use std::io::Read;
    // A pipe would keep whoever opens it waiting; what is wrong with one is said by who opens it in earnest.
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return false;
    }
    let mut first = [0; 64];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut first));
    let begins = first.iter().find(|byte| !byte.is_ascii_whitespace());
    read.is_ok_and(|len| len > 0) && matches!(begins, Some(b'{' | b'['))
}

/// Every file that an image is made of.
pub(super) fn files_of(config: &ImageConfig) -> Vec<PathBuf> {
    config.files().map(Path::to_owned).collect()
}

/// Every file that a commit reads.
pub(super) fn upper_files(args: &UpperArgs) -> Result<Vec<PathBuf>, Problem> {
    let path = PathBuf::from(path_of(&args.upper));
    if is_config(&path) {
        return Ok(files_of(&config(&args.upper)?));
    }
    Ok([path].into_iter().chain(args.index.clone()).collect())
}

/// Refuses a new file that would take the place of one that it is made from, whatever the two are called.
pub(super) fn spare_inputs(output: &Path, inputs: &[PathBuf]) -> Result<(), Problem> {
    let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino()));
    let Ok(taken) = identity(output) else {
        return Ok(());
    };
    let spared = inputs
        .iter()
        .find(|input| identity(input).is_ok_and(|input| input == taken));
    spared.map_or(Ok(()), |input| {
        let detail = format!(
            "{} is {}, which it would be made from",
            output.display(),
            input.display()
        );
        Err(problem::usage(detail, "give the new file another name"))
    })
}

pub(super) fn open_blob(path: &Path) -> Result<Blob, Problem> {
    let file = LayerFile::open_sealed(path).map_err(|error| problem::of(&error))?;
    Blob::open(Arc::new(file)).map_err(|error| problem::of(&error))
}
