//! The reference's files, and a reader of whole files in memory.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use block::ByteLen;
use overlaybd::sniff::{SNIFF_BYTES, Verdict};
use overlaybd::tar::PayloadFinder;
use overlaybd::zfile::{BlockDecoder, BlockError, Opener, ZFile};
use overlaybd::{Error, FileRange};
use sha2::{Digest, Sha256};

/// Why a file is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    Format(Error),
    Block(BlockError),
    Unknown(Verdict),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Format(error)
    }
}

impl From<BlockError> for Refusal {
    fn from(error: BlockError) -> Self {
        Self::Block(error)
    }
}

impl Refusal {
    /// Its kind as a word, for tables.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Format(error) => format!("{:?}", error.kind),
            Self::Block(BlockError::Checksum { .. }) => "BlockChecksum".to_owned(),
            Self::Block(_) => "BlockUndecodable".to_owned(),
            Self::Unknown(Verdict::Unknown(_)) => "Unknown".to_owned(),
            Self::Unknown(other) => format!("inside: {other}"),
        }
    }
}

pub(crate) fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", name]
        .iter()
        .collect()
}

pub(crate) fn read(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn json(name: &str) -> serde_json::Value {
    serde_json::from_slice(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The names of the files of a group, sorted.
pub(crate) fn names(group: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path(group))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
}

/// The bytes of a range, fewer where the file ends.
pub(crate) fn slice(file: &[u8], range: FileRange) -> &[u8] {
    let at = |offset: u64| {
        usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(file.len())
    };
    &file[at(range.offset.0)..at(range.end().0)]
}

pub(crate) fn open(file: &[u8]) -> Result<ZFile, Error> {
    let mut opener = Opener::new(ByteLen(file.len() as u64))?;
    while let Some(range) = opener.poll_read() {
        opener.handle_read(slice(file, range))?;
    }
    opener.finish()
}

/// Raw bytes of an open file.
pub(crate) fn read_range(
    file: &[u8],
    zfile: &ZFile,
    wanted: FileRange,
) -> Result<Vec<u8>, Refusal> {
    let mut decoder = BlockDecoder::new(zfile.header().blocks)?;
    let mut raw = vec![0; 64 << 10];
    let mut bytes = Vec::new();
    for piece in zfile.pieces(wanted) {
        let raw = &mut raw[..piece.raw_len as usize];
        decoder.decode(slice(file, piece.stored), raw)?;
        bytes.extend_from_slice(&raw[piece.begin as usize..][..piece.len as usize]);
    }
    Ok(bytes)
}

pub(crate) fn read_all(file: &[u8]) -> Result<Vec<u8>, Refusal> {
    let zfile = open(file)?;
    read_range(file, &zfile, FileRange::new(0, zfile.len().0))
}

pub(crate) fn payload(archive: &[u8]) -> Result<&[u8], Error> {
    let mut finder = PayloadFinder::new(ByteLen(archive.len() as u64));
    while let Some(range) = finder.poll_read() {
        finder.handle_read(slice(archive, range))?;
    }
    Ok(slice(archive, finder.payload().unwrap()))
}

/// The layer in a file, whatever it is wrapped in.
pub(crate) fn layer(file: &[u8]) -> Result<Vec<u8>, Refusal> {
    let verdict = |file: &[u8]| Verdict::of(&file[..file.len().min(SNIFF_BYTES)]);
    let inside = match verdict(file) {
        Verdict::Tar | Verdict::UnfinishedTar => payload(file)?,
        _ => file,
    };
    let raw = match verdict(inside) {
        Verdict::ZFile(_) => read_all(inside)?,
        _ => inside.to_vec(),
    };
    match verdict(&raw) {
        Verdict::Lsmt(_) => Ok(raw),
        other => Err(Refusal::Unknown(other)),
    }
}
