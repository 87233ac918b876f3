//! The image behind `overlaybd:`.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use block::{Access, Geometry, Target};
use image::serving::{Content, Library, ServeOptions, ServedImage, Workspace};
use image::{Error, ImageConfig, LayerFile, ParentCheck};
use reactor::{NowMode, NowModes, RingFile};
use rustix::fs::OFlags;

/// An open image. Holds the lock of its upper.
#[derive(Debug)]
pub(crate) struct ImageFiles {
    image: ServedImage,
    /// How each file can be read at once, in their order.
    modes: Vec<NowModes>,
    is_read_at_once: bool,
    config: ImageConfig,
}

impl ImageFiles {
    /// Opens the image of a configuration. Blocks for as long as the file systems take.
    pub(super) fn open(path: &Path, access: Access, library: &Library) -> Result<Self, Error> {
        let config = ImageConfig::read(path)?;
        for key in config.unknown_keys() {
            tracing::debug!(image = %path.display(), key, "a key of the image's configuration is unknown and ignored");
        }
        let opened = Self::open_config(&config, access, library);
        if let Err(error) = &opened {
            report(&config, &format!("failed: {}", text(error)));
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
            config: config.clone(),
        })
    }

    /// Tells who waits for it that the device is there.
    pub(super) fn report_live(&self) {
        report(&self.config, "success");
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
fn report(config: &ImageConfig, result: &str) {
    let Some(path) = &config.result_file else {
        return;
    };
    if let Err(error) = write_result(path, config, result) {
        tracing::warn!(file = %path.display(), err = %error, "the result file of an image cannot be written");
    }
}

fn write_result(path: &Path, config: &ImageConfig, result: &str) -> io::Result<()> {
    // A pipe that nobody reads must not make the daemon wait, and nothing is cut off before it is known what it is.
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let is_it = |part: &Path| {
        std::fs::metadata(part)
            .is_ok_and(|part| (part.dev(), part.ino()) == (found.dev(), found.ino()))
    };
    if let Some(part) = config.files().find(|part| is_it(part)) {
        let text = format!("it is a file of the image itself ({})", part.display());
        return Err(io::Error::other(text));
    }
    file.set_len(0)?;
    file.write_all(result.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration whose result file is a layer lost that layer.
    #[test]
    fn a_result_file_is_no_file_of_the_image_and_no_pipe() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        for name in ["image.json", "base", "result"] {
            std::fs::write(path(name), "old content, longer than the new one").unwrap();
        }
        let report_to = |name: &str| {
            let text = format!(r#"{{"lowers": [{{"file": "base"}}], "resultFile": "{name}"}}"#);
            let config = ImageConfig::parse(&path("image.json"), text.as_bytes()).unwrap();
            let file = config.result_file.clone().unwrap();
            write_result(&file, &config, "success").map_err(|error| error.to_string())
        };
        std::os::unix::fs::symlink(path("base"), path("link")).unwrap();
        for name in ["base", "link", "image.json"] {
            let refusal = report_to(name).unwrap_err();
            assert!(refusal.contains("of the image itself"), "{refusal}");
            assert!(std::fs::read(path(name)).unwrap().starts_with(b"old"));
        }
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(report_to("pipe").is_err());
        for name in ["result", "new"] {
            assert_eq!(report_to(name), Ok(()));
            assert_eq!(std::fs::read(path(name)).unwrap(), b"success");
        }
    }
}
