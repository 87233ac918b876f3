//! `blockyard image`: work on images and layers that nobody serves. No daemon is needed.

mod args;
mod bar;
mod make;
mod opening;
mod problem;
mod report;

use std::path::{Path, PathBuf};

use api::v1::Problem;
use image::{View, offline};

use crate::output::{self, Format};
pub(crate) use args::ImageCommand;
use args::OpenArgs;
use bar::Bar;
use make::{Merged, Output};
use opening::{config, files_of, open_blob, options, own_upper, spare_inputs};

/// Runs a command to its end.
pub(super) fn run(command: ImageCommand, format: Format) -> Result<(), Problem> {
    let mut bar = Bar::new(format);
    match command {
        ImageCommand::Info { file } => report::info(&file, format),
        ImageCommand::Verify { file, open } => report::verify(&file, open, format, &mut bar),
        ImageCommand::Records { file } => report::records(&open_blob(&file)?),
        ImageCommand::Export {
            image,
            output,
            sha256,
            force,
            open,
        } => {
            let to = match (output, sha256) {
                (Some(path), _) => ExportTo::File { path, force },
                (None, true) => ExportTo::Digest,
                (None, false) => ExportTo::Stdout,
            };
            export(&image, open, &to, &mut bar)
        }
        ImageCommand::Create(args) => make::create(&args),
        ImageCommand::Commit {
            upper,
            output,
            layer,
            packing,
            open,
        } => make::commit(
            &upper,
            open,
            Output::new(&output, &layer, packing),
            &mut bar,
        ),
        ImageCommand::Seal { upper, open } => {
            offline::seal(&own_upper(&upper, open)?).map_err(|error| problem::of(&error))
        }
        ImageCommand::Merge {
            image,
            output,
            flatten,
            layer,
            packing,
            open,
        } => {
            let merged = if flatten { Merged::All } else { Merged::Lowers };
            let output = Output::new(&output, &layer, packing);
            make::merge(&image, (merged, open), output, &mut bar)
        }
        ImageCommand::Compress {
            file,
            output,
            packing,
        } => make::compress(&file, &output, packing, &mut bar),
        ImageCommand::Decompress {
            file,
            output,
            force,
        } => make::decompress(&file, (&output, force), &mut bar),
        ImageCommand::Import {
            raw,
            output,
            layer,
            packing,
        } => make::import(&raw, Output::new(&output, &layer, packing), &mut bar),
        ImageCommand::Resize { upper, size, open } => {
            let size = make::sectors(size)?;
            offline::resize(&own_upper(&upper, open)?, size).map_err(|error| problem::of(&error))
        }
    }
}

/// Where an exported disk goes.
enum ExportTo {
    File { path: PathBuf, force: bool },
    Stdout,
    Digest,
}

fn export(image: &str, open: OpenArgs, to: &ExportTo, bar: &mut Bar) -> Result<(), Problem> {
    let config = config(image)?;
    if let ExportTo::File { path, .. } = to {
        spare_inputs(path, &files_of(&config))?;
    }
    let view = View::open(&config, options(open)).map_err(|error| problem::of(&error))?;
    match to {
        ExportTo::File { path, force } => {
            offline::export(&view, path, make::overwrite(*force), bar)
        }
        ExportTo::Stdout => {
            let name = Path::new("standard output");
            match offline::write(&view, &mut std::io::stdout().lock(), name, bar) {
                // Whoever read this has seen enough.
                Err(image::Error::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::BrokenPipe =>
                {
                    Ok(())
                }
                written => written,
            }
        }
        ExportTo::Digest => {
            let digest = offline::hash(&view, bar).map_err(|error| problem::of(&error))?;
            return output::print(&format!("{digest}\n"));
        }
    }
    .map_err(|error| problem::of(&error))
}
