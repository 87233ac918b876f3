//! Images that are made for the tests.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use block::{Access, Extent, Op, Request, Sectors, Status, Target as _};
use image::offline::{
    self, Compression, NewUpper, Overwrite, Packing, Target, UpperFiles, Wrapping,
};
use image::serving::{Library, ServeOptions, ServedImage, Workspace};
use image::{ImageConfig, LostRecords, OpenOptions, ParentCheck, Upper, View};
use overlaybd::lsmt::{LogMode, NewLayer};
use overlaybd::zfile::{Algorithm, BlockChecksums, BlockFormat, BlockSize, Completion, Options};
use serde_json::json;
use tempfile::TempDir;

use crate::executor::Executor;
use crate::model::{below, sector};

/// Kinds of uppers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpperKind {
    Log,
    Hybrid,
    Sparse,
}

/// How a lower is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lower {
    Plain,
    PlainInTar,
    Lz4,
    Zstd,
}

/// A folder in memory, if there is one: tests of crashes do not need a disk that survives them.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// Makes lowers, bottom first: some sectors of each have data, some are zeroed, most are left to those below.
pub(crate) fn make_lowers(
    folder: &Path,
    lowers: &[Lower],
    size: Sectors,
    random: &mut fastrand::Rng,
) -> Vec<PathBuf> {
    let make = |(number, lower): (usize, &Lower)| {
        let inside = folder.join(format!("making{number}"));
        std::fs::create_dir(&inside).unwrap();
        let config = make_image(&inside, &[], Some(UpperKind::Log), size);
        let mut executor = serve(&config, &Library::default(), 0);
        for _ in 0..size.0 / 24 {
            let start = random.u64(0..size.0);
            let len = random.u64(1..=20).min(size.0 - start);
            let extent = Extent {
                start: Sectors(start),
                len: Sectors(len),
            };
            let is_zeroed = random.u32(0..5) == 0;
            let data = (start..start + len).flat_map(|at| sector(below(number, at)));
            let op = if is_zeroed {
                Op::WriteZeroes
            } else {
                Op::Write
            };
            let request = Request {
                op,
                extent,
                fua: false,
                no_unmap: false,
            };
            executor.submit(request, data.collect());
            while executor.step(random) {}
        }
        executor.target.close().unwrap();
        drop(executor);
        let config = ImageConfig::read(&config).unwrap();
        let upper = Upper::open(config.upper.as_ref().unwrap(), LostRecords::Refuse).unwrap();
        let path = folder.join(format!("lower{number}"));
        commit(&upper, &path, *lower, size);
        path
    };
    lowers.iter().enumerate().map(make).collect()
}

fn commit(upper: &Upper, path: &Path, lower: Lower, size: Sectors) {
    let compression = match lower {
        Lower::Plain | Lower::PlainInTar => Compression::Plain,
        Lower::Lz4 => zfile(Algorithm::Lz4),
        Lower::Zstd => zfile(Algorithm::Zstd),
    };
    let wrapping = match lower {
        Lower::PlainInTar => Wrapping::Tar,
        _ => Wrapping::Bare,
    };
    let target = Target {
        path,
        packing: Packing {
            compression,
            wrapping,
            overwrite: Overwrite::Refuse,
            threads: NonZeroUsize::MIN,
        },
        layer: NewLayer {
            virtual_size: size,
            ..NewLayer::default()
        },
    };
    offline::commit(upper, &target, &mut ()).unwrap();
}

/// Makes an empty upper and the image over `lowers`; its configuration.
pub(crate) fn make_image(
    folder: &Path,
    lowers: &[PathBuf],
    upper: Option<UpperKind>,
    size: Sectors,
) -> PathBuf {
    let lowers: Vec<_> = lowers.iter().map(|file| json!({"file": file})).collect();
    let mut config = json!({"lowers": lowers});
    if let Some(kind) = upper {
        let (data, index) = (folder.join("data"), folder.join("index"));
        config["upper"] = match kind {
            UpperKind::Sparse => json!({"data": "data"}),
            UpperKind::Log | UpperKind::Hybrid => json!({"data": "data", "index": "index"}),
        };
        let files = match kind {
            UpperKind::Sparse => UpperFiles::Sparse { data },
            UpperKind::Log => UpperFiles::Log {
                data,
                index,
                mode: LogMode::Append,
            },
            UpperKind::Hybrid => UpperFiles::Log {
                data,
                index,
                mode: LogMode::Hybrid,
            },
        };
        offline::create(&NewUpper {
            files,
            size,
            uuid: None,
            parent_uuid: None,
        })
        .unwrap();
    }
    let path = folder.join("image.json");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Opens an image as it is served, for writing if it has an upper.
pub(crate) fn serve(config: &Path, library: &Library, cache_bytes: usize) -> Executor {
    let config = ImageConfig::read(config).unwrap();
    let options = ServeOptions {
        access: Access::ReadWrite,
        parents: ParentCheck::Refuse,
    };
    let image = ServedImage::open(&config, options, library).unwrap();
    let (target, files) = image.instance(&Workspace::new(cache_bytes)).unwrap();
    Executor::new(target, files)
}

/// What the offline reader says that the disk of an image holds.
pub(crate) fn content(config: &Path) -> Result<Vec<u8>, String> {
    let config = ImageConfig::read(config).unwrap();
    let options = OpenOptions {
        parents: ParentCheck::Refuse,
        lost: LostRecords::Refuse,
    };
    let view = View::open(&config, options);
    let view = view.map_err(|error| format!("offline: {error:?}"))?;
    let mut bytes = vec![0; usize::try_from(view.size().len_bytes().0).unwrap()];
    view.reader().unwrap().read(Sectors(0), &mut bytes).unwrap();
    Ok(bytes)
}

/// What the disk of an image holds after a crash: served, which repairs it, and then the same offline.
pub(crate) fn content_after_repair(
    config: &Path,
    random: &mut fastrand::Rng,
) -> Result<Vec<u8>, String> {
    let mut executor = serve(config, &Library::default(), 64 << 10);
    let size = executor.target.geometry().size;
    let served = read_whole(&mut executor, size, random);
    drop(executor);
    if content(config)? != served {
        return Err("read offline, the repaired image is another one".to_owned());
    }
    Ok(served)
}

fn read_whole(executor: &mut Executor, size: Sectors, random: &mut fastrand::Rng) -> Vec<u8> {
    let extent = Extent {
        start: Sectors(0),
        len: size,
    };
    let request = Request {
        op: Op::Read,
        extent,
        fua: false,
        no_unmap: false,
    };
    executor.submit(
        request,
        vec![0xdd; usize::try_from(size.len_bytes().0).unwrap()],
    );
    while executor.step(random) {}
    let answer = executor.take_answer().unwrap();
    assert_eq!(answer.status, Status::Ok);
    answer.data
}

fn zfile(algorithm: Algorithm) -> Compression {
    Compression::ZFile(Options {
        blocks: BlockFormat {
            algorithm,
            block_size: BlockSize::try_new(4096).unwrap(),
            checksums: BlockChecksums::Crc32c,
        },
        completion: Completion::HeaderOverwritten,
    })
}
