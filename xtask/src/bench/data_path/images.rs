//! The images that are measured.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::command::output;
use super::range::{FILE_BYTES, RANGE_BYTES, write_range};

/// Layers of the compressed image.
const LAYERS: u64 = 4;
/// Where the disk begins in a sparse upper (the header of overlaybd's formats).
const HEADER_BYTES: u64 = 4096;
/// Bytes of a block that compress to nothing; the other half is noise.
const QUIET_BYTES: usize = 2048;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Image {
    /// A sparse upper that has all of the range.
    Sparse,
    /// An empty log upper.
    Log,
    /// Four zstd layers, each with a quarter of the range, and no upper.
    Zstd,
}

/// The programs under test.
pub(crate) struct Programs {
    /// Serves one device.
    pub(super) server: PathBuf,
    /// Makes images.
    pub(super) daemon: PathBuf,
}

/// What contenders stand on.
pub(crate) struct Store {
    /// The file of those that have one.
    pub(super) file: PathBuf,
    /// Where images are made.
    pub(super) folder: PathBuf,
}

/// Makes an image; its configuration. What is written to is made anew, what is only read is kept.
pub(super) fn prepare(image: Image, store: &Store, programs: &Programs) -> Result<PathBuf> {
    let config = store.folder.join("image.json");
    let (data, index) = (store.folder.join("data"), store.folder.join("index"));
    for old in [&data, &index] {
        // The first round has none.
        drop(fs::remove_file(old));
    }
    let text = match image {
        Image::Zstd => {
            let layers = zstd_layers(store, programs)?;
            let files: Vec<_> = layers
                .iter()
                .map(|file| format!(r#"{{"file":{file:?}}}"#))
                .collect();
            format!(r#"{{"lowers":[{}]}}"#, files.join(","))
        }
        Image::Log => {
            create(programs, &[&data, &index], "log")?;
            format!(r#"{{"lowers":[],"upper":{{"data":{data:?},"index":{index:?}}}}}"#)
        }
        Image::Sparse => {
            create(programs, &[&data], "sparse")?;
            write_range(&data, HEADER_BYTES)?;
            format!(r#"{{"lowers":[],"upper":{{"data":{data:?}}}}}"#)
        }
    };
    fs::write(&config, text).context("write the image's configuration")?;
    Ok(config)
}

fn create(programs: &Programs, files: &[&PathBuf], mode: &str) -> Result<()> {
    let size = FILE_BYTES.to_string();
    let mut command = Command::new(&programs.daemon);
    command.args(["image", "create"]).args(files);
    output(command.args(["--mode", mode, "--size", &size]))?;
    Ok(())
}

/// Writes the range of a device in order.
pub(super) fn fill(device: &Path) -> Result<()> {
    let count = (RANGE_BYTES >> 20).to_string();
    output(
        Command::new("dd")
            .args(["if=/dev/zero", "bs=1M", "oflag=direct", "status=none"])
            .arg(format!("count={count}"))
            .arg(format!("of={}", device.display())),
    )?;
    Ok(())
}

fn zstd_layers(store: &Store, programs: &Programs) -> Result<Vec<PathBuf>> {
    let mut layers = Vec::new();
    for number in 0..LAYERS {
        let layer = store.folder.join(format!("{number}.zfile"));
        if !layer.exists() {
            let raw = store.folder.join("raw");
            write_quarter(&raw, number).context("write a raw disk")?;
            let mut command = Command::new(&programs.daemon);
            command.args(["image", "import"]).args([&raw, &layer]);
            output(command.args(["--zfile", "zstd"]))?;
            fs::remove_file(raw).context("remove the raw disk")?;
        }
        layers.push(layer);
    }
    Ok(layers)
}

/// A raw disk of which one quarter of the range has data.
fn write_quarter(path: &Path, number: u64) -> Result<()> {
    let quarter = RANGE_BYTES / LAYERS;
    let mut file = File::create(path)?;
    file.set_len(FILE_BYTES)?;
    file.seek(SeekFrom::Start(number * quarter))?;
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64 + number;
    let mut chunk = vec![0; 1 << 20];
    for _ in 0..quarter >> 20 {
        for block in chunk.chunks_mut(4096) {
            let (_, noisy) = block.split_at_mut(QUIET_BYTES);
            for word in noisy.chunks_mut(8) {
                // xorshift64
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                word.copy_from_slice(&noise.to_le_bytes());
            }
        }
        file.write_all(&chunk)?;
    }
    Ok(())
}
