//! Reading fixtures: what a caller of the crate does, with whole files in memory.

use std::path::{Path, PathBuf};

use block::{ByteLen, ByteOffset, Extent, Sectors};
use overlaybd::Error;
use overlaybd::FileRange;
use overlaybd::lsmt::{
    HEADER_BYTES, Layer, LayerEnds, Layout, LogFiles, LogLayout, LogLoader, Piece, Source,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// No multiple of a record, so that records fall across chunks.
const CHUNK_BYTES: usize = 1000;
/// Sectors of one lookup: no multiple of anything in the fixtures.
const LOOKUP_SECTORS: u64 = 1021;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// The files of a group, in order, as other functions name them.
pub(crate) fn names_in(group: &str) -> Vec<String> {
    let name_of = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        format!("{group}/{name}")
    };
    let mut names: Vec<_> = std::fs::read_dir(path(group))
        .unwrap()
        .map(name_of)
        .collect();
    names.sort();
    names
}

pub(crate) fn read(name: &str) -> Vec<u8> {
    let path = path(name);
    std::fs::read(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

pub(crate) fn read_text(name: &str) -> String {
    String::from_utf8(read(name)).unwrap()
}

pub(crate) fn read_json(name: &str) -> Value {
    serde_json::from_slice(&read(name)).unwrap()
}

pub(crate) fn slice(file: &[u8], range: FileRange) -> &[u8] {
    let start = usize::try_from(range.offset.0).unwrap();
    &file[start..start + usize::try_from(range.len.0).unwrap()]
}

pub(crate) fn layout(file: &[u8]) -> Result<Layout, Error> {
    let ends = LayerEnds::of_file(ByteLen(file.len() as u64))?;
    Layout::parse(ends, slice(file, ends.header), slice(file, ends.trailer))
}

pub(crate) fn warp_layout(file: &[u8]) -> Result<Layout, Error> {
    let ends = LayerEnds::of_file(ByteLen(file.len() as u64))?;
    Layout::parse_warp(ends, slice(file, ends.header), slice(file, ends.trailer))
}

pub(crate) fn load(layout: Layout, file: &[u8]) -> Result<Layer, Error> {
    let index = slice(file, layout.index());
    let mut loader = layout.loader();
    for chunk in index.chunks(CHUNK_BYTES) {
        loader.push(chunk)?;
    }
    loader.finish()
}

pub(crate) fn layer(file: &[u8]) -> Result<Layer, Error> {
    load(layout(file)?, file)
}

pub(crate) fn log_loader(data: &[u8], index: &[u8]) -> Result<LogLoader, Error> {
    let layout = LogLayout::parse(&LogFiles {
        data_header: &data[..HEADER_BYTES.min(data.len())],
        data_len: ByteLen(data.len() as u64),
        index_header: &index[..HEADER_BYTES.min(index.len())],
        index_len: ByteLen(index.len() as u64),
    })?;
    let records = slice(index, layout.records());
    let mut loader = layout.loader();
    for chunk in records.chunks(CHUNK_BYTES) {
        loader.push(chunk)?;
    }
    Ok(loader)
}

/// The whole disk of `size`, out of lookups and the files that they point to.
pub(crate) fn image<I: Iterator<Item = Piece>>(
    size: Sectors,
    files: &[&[u8]],
    lookup: impl Fn(Extent) -> I,
) -> Vec<u8> {
    let mut image = Vec::new();
    let mut start = 0;
    while start < size.0 {
        let extent = Extent {
            start: Sectors(start),
            len: Sectors(LOOKUP_SECTORS),
        };
        for piece in lookup(extent) {
            assert_eq!(piece.extent.offset_bytes().0, image.len() as u64);
            let len = usize::try_from(piece.extent.len_bytes().0).unwrap();
            match piece.source {
                Source::Hole | Source::Zero => image.resize(image.len() + len, 0),
                Source::Data { layer, offset } => {
                    let from = usize::try_from(offset.offset_bytes().0).unwrap();
                    let file = files[usize::from(layer.0)];
                    image.extend(&file[from..from + len]);
                }
            }
        }
        start += LOOKUP_SECTORS;
    }
    assert_eq!(image.len() as u64, size.len_bytes().0);
    image
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file of `e_sparse/sparse_files.tar`: its content and the ranges that have data.
pub(crate) fn sparse_file(name: &str) -> (Vec<u8>, Vec<FileRange>) {
    let tar = read("e_sparse/sparse_files.tar");
    let octal = |field: &[u8]| {
        let text = String::from_utf8(field.to_vec()).unwrap();
        usize::from_str_radix(text.trim_end_matches(['\0', ' ']), 8).unwrap_or(0)
    };
    let mut at = 0;
    while tar[at] != 0 {
        let header = &tar[at..at + 512];
        let stored = octal(&header[124..136]);
        let mut from = at + 512;
        at = from + stored.next_multiple_of(512);
        if !header.starts_with(format!("{name}\0").as_bytes()) {
            continue;
        }
        // GNU's sparse header: up to four pairs of offset and length, then the real size.
        let mut file = vec![0; octal(&header[483..495])];
        let mut ranges = Vec::new();
        for pair in header[386..482].chunks(24) {
            let (offset, len) = (octal(&pair[..12]), octal(&pair[12..]));
            if len == 0 {
                break;
            }
            file[offset..offset + len].copy_from_slice(&tar[from..from + len]);
            from += len;
            ranges.push(FileRange {
                offset: ByteOffset(offset as u64),
                len: ByteLen(len as u64),
            });
        }
        return (file, ranges);
    }
    panic!("no {name} in the archive");
}

/// `e_sparse/aligned4k_sealed.lsmt.gz` without its compression.
pub(crate) fn sparse_sealed() -> Vec<u8> {
    let path = path("e_sparse/aligned4k_sealed.lsmt.gz");
    let output = std::process::Command::new("gzip")
        .arg("-dc")
        .arg(path)
        .output()
        .expect("gzip is installed");
    assert!(output.status.success(), "gzip failed");
    output.stdout
}
