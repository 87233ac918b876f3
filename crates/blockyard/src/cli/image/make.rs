//! New layers, uppers and files.

use std::num::NonZeroUsize;
use std::path::Path;

use api::v1::{ByteSize, Problem};
use block::{ByteLen, Sectors};
use image::offline::{
    self, Compression, NewUpper, Overwrite, Packing, Target, UpperFiles, Wrapping,
};
use image::{LayerFile, View};
use overlaybd::lsmt::{LayerUuid, LogMode, NewLayer, UserTag};
use overlaybd::zfile::{Algorithm, BlockChecksums, BlockFormat, BlockSize, Completion, Options};

use super::args::{AlgorithmArg, CreateArgs, LayerArgs, ModeArg, OpenArgs, PackingArgs, UpperArgs};
use super::bar::Bar;
use super::opening::{Source, config, files_of, open_blob, options, spare_inputs, upper_files};
use super::problem;

/// Bytes that are compressed together unless told otherwise, as in overlaybd.
const BLOCK_BYTES: u32 = 4096;

/// Threads that compress, at most: each takes up to 2 MiB of content and as much of what came of it.
const THREADS_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The new file of a command, and how it is made.
#[derive(Clone, Copy)]
pub(super) struct Output<'a> {
    path: &'a Path,
    layer: &'a LayerArgs,
    packing: PackingArgs,
}

impl<'a> Output<'a> {
    pub(super) const fn new(path: &'a Path, layer: &'a LayerArgs, packing: PackingArgs) -> Self {
        Self {
            path,
            layer,
            packing,
        }
    }
}

pub(super) fn commit(
    upper: &UpperArgs,
    open: OpenArgs,
    output: Output<'_>,
    bar: &mut Bar,
) -> Result<(), Problem> {
    spare_inputs(output.path, &upper_files(upper)?)?;
    let source = Source::find(upper, open)?;
    let target = target(output, &source.names())?;
    match &source {
        Source::Upper(upper, _) => offline::commit(upper, &target, bar),
        Source::Sealed(blob, _) => offline::commit_sealed(blob, &target, bar),
    }
    .map_err(|error| problem::of(&error))
}

/// What of an image becomes one layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Merged {
    Lowers,
    All,
}

pub(super) fn merge(
    image: &str,
    (merged, open): (Merged, OpenArgs),
    output: Output<'_>,
    bar: &mut Bar,
) -> Result<(), Problem> {
    let config = config(image)?;
    spare_inputs(output.path, &files_of(&config))?;
    let view = View::open(&config, options(open)).map_err(|error| problem::of(&error))?;
    let names = NewLayer {
        virtual_size: match merged {
            Merged::Lowers => view.lowers().stack().size(),
            Merged::All => view.size(),
        },
        ..NewLayer::default()
    };
    let target = target(output, &names)?;
    match merged {
        Merged::Lowers => offline::merge(&view, &target, bar),
        Merged::All => offline::flatten(&view, &target, bar),
    }
    .map_err(|error| problem::of(&error))
}

pub(super) fn compress(
    file: &Path,
    output: &Path,
    packing: PackingArgs,
    bar: &mut Bar,
) -> Result<(), Problem> {
    let packing = packing_of(packing, Some(AlgorithmArg::Lz4))?;
    spare_inputs(output, &[file.to_owned()])?;
    let file = LayerFile::open_sealed(file).map_err(|error| problem::of(&error))?;
    offline::compress(&file, output, packing, bar).map_err(|error| problem::of(&error))
}

pub(super) fn decompress(
    file: &Path,
    (output, force): (&Path, bool),
    bar: &mut Bar,
) -> Result<(), Problem> {
    spare_inputs(output, &[file.to_owned()])?;
    let blob = open_blob(file)?;
    offline::decompress(&blob, output, overwrite(force), bar).map_err(|error| problem::of(&error))
}

pub(super) fn import(raw: &Path, output: Output<'_>, bar: &mut Bar) -> Result<(), Problem> {
    spare_inputs(output.path, &[raw.to_owned()])?;
    let raw = LayerFile::open_sealed(raw).map_err(|error| problem::of(&error))?;
    let target = target(output, &NewLayer::default())?;
    offline::import(&raw, &target, bar).map_err(|error| problem::of(&error))
}

fn target<'a>(output: Output<'a>, names: &NewLayer) -> Result<Target<'a>, Problem> {
    Ok(Target {
        path: output.path,
        packing: packing_of(output.packing, None)?,
        layer: layer_of(output.layer, names)?,
    })
}

pub(super) fn create(args: &CreateArgs) -> Result<(), Problem> {
    let log = |mode| match &args.index {
        Some(index) => Ok(UpperFiles::Log {
            data: args.data.clone(),
            index: index.clone(),
            mode,
        }),
        None => Err(problem::usage(
            "a log upper has two files".to_owned(),
            "name DATA and INDEX, or pass --mode sparse",
        )),
    };
    if args.index.as_ref() == Some(&args.data) {
        return Err(problem::usage(
            format!("DATA and INDEX are both {}", args.data.display()),
            "a log upper has two files; give them two names",
        ));
    }
    let files = match args.mode {
        ModeArg::Log => log(LogMode::Append)?,
        ModeArg::Hybrid => log(LogMode::Hybrid)?,
        ModeArg::Sparse if args.index.is_some() => {
            return Err(problem::usage(
                "a sparse upper has no index file".to_owned(),
                "leave INDEX out, or pass another --mode",
            ));
        }
        ModeArg::Sparse => UpperFiles::Sparse {
            data: args.data.clone(),
        },
    };
    let new = NewUpper {
        files,
        size: args.size.map(sectors).transpose()?.unwrap_or_default(),
        uuid: args.uuid.as_deref().map(uuid).transpose()?,
        parent_uuid: args.parent.as_deref().map(uuid).transpose()?,
    };
    offline::create(&new).map_err(|error| problem::of(&error))
}

pub(super) fn sectors(size: ByteSize) -> Result<Sectors, Problem> {
    let sectors = Sectors::try_from_bytes(ByteLen(size.0)).filter(|sectors| sectors.0 > 0);
    sectors.ok_or_else(|| {
        let detail = format!("a disk of {} bytes is no whole sectors", size.0);
        problem::usage(detail, "give a multiple of 512 bytes such as 8G")
    })
}

fn uuid(text: &str) -> Result<LayerUuid, Problem> {
    LayerUuid::from_text(text.as_bytes()).ok_or_else(|| {
        let detail = format!("{text:?} is no uuid");
        problem::usage(
            detail,
            "write it as 8-4-4-4-12 hexadecimal digits, not all zero",
        )
    })
}

fn layer_of(args: &LayerArgs, otherwise: &NewLayer) -> Result<NewLayer, Problem> {
    let tag = args.user_tag.as_deref().map(|text| {
        UserTag::new(text.as_bytes())
            .map_err(|error| problem::usage(error.to_string(), "give a shorter --user-tag"))
    });
    Ok(NewLayer {
        virtual_size: otherwise.virtual_size,
        uuid: args
            .uuid
            .as_deref()
            .map(uuid)
            .transpose()?
            .or(otherwise.uuid),
        parent_uuid: args
            .parent
            .as_deref()
            .map(uuid)
            .transpose()?
            .or(otherwise.parent_uuid),
        user_tag: tag
            .transpose()?
            .unwrap_or_else(|| otherwise.user_tag.clone()),
    })
}

fn packing_of(args: PackingArgs, otherwise: Option<AlgorithmArg>) -> Result<Packing, Problem> {
    let algorithm = args.zfile.or(otherwise).map(|algorithm| match algorithm {
        AlgorithmArg::Lz4 => Algorithm::Lz4,
        AlgorithmArg::Zstd => Algorithm::Zstd,
    });
    let block_size = args.block_size.unwrap_or(BLOCK_BYTES);
    let compression = match algorithm {
        None if args.block_size.is_some() || args.no_checksums => {
            return Err(problem::usage(
                "--block-size and --no-checksums are about compressed blocks".to_owned(),
                "pass --zfile too, or leave them out",
            ));
        }
        None => Compression::Plain,
        Some(algorithm) => Compression::ZFile(Options {
            blocks: BlockFormat {
                algorithm,
                block_size: BlockSize::try_new(block_size).ok_or_else(|| {
                    let detail = format!("blocks of {block_size} bytes");
                    let (min, max) = (BlockSize::BYTES_MIN, BlockSize::BYTES_MAX);
                    problem::usage(detail, &format!("give a power of two from {min} to {max}"))
                })?,
                checksums: if args.no_checksums {
                    BlockChecksums::Absent
                } else {
                    BlockChecksums::Crc32c
                },
            },
            completion: Completion::HeaderOverwritten,
        }),
    };
    Ok(Packing {
        compression,
        wrapping: if args.tar {
            Wrapping::Tar
        } else {
            Wrapping::Bare
        },
        overwrite: overwrite(args.force),
        threads: threads(args.threads),
    })
}

/// One for each CPU unless told otherwise. More than there are blocks to compress at once are of no use.
fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    let cpus = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    asked.unwrap_or_else(cpus).min(THREADS_MAX)
}

pub(super) const fn overwrite(force: bool) -> Overwrite {
    if force {
        Overwrite::Replace
    } else {
        Overwrite::Refuse
    }
}
