//! The image behind `overlaybd:`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{Access, Geometry, Target};
use image::serving::{Content, Library, ServeOptions, ServedImage, Workspace};
use image::{Error, ImageConfig, LayerFile, ParentCheck};
use reactor::{NowMode, NowModes, RingFile};

/// An open image. Holds the lock of its upper.
#[derive(Debug)]
pub(crate) struct ImageFiles {
    image: ServedImage,
    /// How each file can be read at once, in their order.
    modes: Vec<NowModes>,
    is_read_at_once: bool,
    result_file: Option<PathBuf>,
}

impl ImageFiles {
    /// Opens the image of a configuration. Blocks for as long as the file systems take.
    pub(super) fn open(path: &Path, access: Access, library: &Library) -> Result<Self, Error> {
        let config = ImageConfig::read(path)?;
        for key in config.unknown_keys() {
            tracing::debug!(image = %path.display(), key, "a key of the image's configuration is unknown and ignored");
        }
        let opened = Self::open_config(&config, access, library);
        if let (Err(error), Some(file)) = (&opened, &config.result_file) {
            report(file, &format!("failed: {}", text(error)));
        }
        opened
    }

    fn open_config(config: &ImageConfig, access: Access, library: &Library) -> Result<Self, Error> {
        let options = ServeOptions {
            access,
            parents: ParentCheck::Refuse,
        };
        let image = ServedImage::open(config, options, library)?;
        if image.records_dropped() > 0 {
            tracing::warn!(
                image = %config.path.display(), records = image.records_dropped(),
                "the end of the upper's log was of a flush that never ended, and is cut off"
            );
        }
        let (mut modes, mut is_read_at_once) = (Vec::new(), false);
        image.each_file(|file, content| {
            let probed = NowModes::probe(file);
            is_read_at_once |= content == Content::AsItIs && probed.read() != NowMode::Never;
            modes.push(probed);
        });
        Ok(Self {
            image,
            modes,
            is_read_at_once,
            result_file: config.result_file.clone(),
        })
    }

    /// Tells who waits for it that the device is there.
    pub(super) fn report_live(&self) {
        if let Some(file) = &self.result_file {
            report(file, "success");
        }
    }

    pub(super) const fn geometry(&self) -> Geometry {
        self.image.geometry()
    }

    /// Whether it can have one instance only.
    pub(super) const fn is_single(&self) -> bool {
        self.image.is_single()
    }

    /// Whether reads of some file can go at once into the request.
    pub(super) const fn is_read_at_once(&self) -> bool {
        self.is_read_at_once
    }

    /// An instance of the target, with its files.
    pub(super) fn instance(
        &self,
        workspace: &Workspace,
    ) -> Result<(Box<dyn Target>, Vec<RingFile>), Error> {
        let (target, files) = self.image.instance(workspace)?;
        let files = files.into_iter().zip(&self.modes);
        let files =
            files.map(|(file, modes): (Arc<LayerFile>, _)| RingFile::data_held_by(file, *modes));
        Ok((Box::new(target), files.collect()))
    }
}

/// An error with its causes, and what to do.
pub(super) fn text(error: &Error) -> String {
    let mut text = match error {
        Error::Parent { path, .. } => format!(
            "{} does not belong on what is below it; list the lowers bottom first, or make one layer of them with `blockyard image merge --ignore-parent`",
            path.display()
        ),
        error => error.to_string(),
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Writes the result file that the configuration of overlaybd names. Who reads it takes its first bytes; nothing else depends
/// on it.
fn report(file: &Path, result: &str) {
    let written =
        std::fs::File::create(file).and_then(|mut file| file.write_all(result.as_bytes()));
    if let Err(error) = written {
        tracing::warn!(file = %file.display(), err = %error, "the result file of an image cannot be written");
    }
}
