//! Whether a layer is whole: every block's checksum and content, every record.
//!
//! LSMT itself has no checksums: flipped bits in the data of a layer that is not compressed, or compressed without checksums, are
//! not seen. [`Verdict::is_covered`] says whether they would have been.

use std::path::PathBuf;

use block::ByteOffset;
use overlaybd::sniff::{self, SNIFF_BYTES};
use overlaybd::zfile::{BlockChecksums, ZFile};

use super::Progress;
use crate::blob::{Blob, Form};
use crate::config::LayerKind;
use crate::error::Error;
use crate::lowers::read_layer;

/// Findings that are kept; a file that is damaged throughout needs no more.
const FINDINGS_MAX: usize = 100;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and where.
    pub what: String,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong; the first hundred.
    pub findings: Vec<Finding>,
    /// How much is.
    pub count: u64,
    /// Whether a checksum covers every byte of data.
    pub is_covered: bool,
    /// Whether the content is a layer. A ZFile may hold anything.
    pub is_layer: bool,
}

/// What the content of a file must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A layer of this kind.
    Layer(LayerKind),
    /// A layer, or in a ZFile anything else.
    Any,
}

impl Verdict {
    fn push(&mut self, blob: &Blob, error: &Error) {
        self.count += 1;
        if self.findings.len() < FINDINGS_MAX {
            let mut what = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(error) = source {
                what = format!("{what}: {error}");
                source = error.source();
            }
            self.findings.push(Finding {
                path: blob.path().to_owned(),
                what,
            });
        }
    }
}

/// Checks a blob.
///
/// # Errors
/// When the file cannot be read. Damage is no error but a finding.
pub fn check(blob: &Blob, content: Content, progress: &mut dyn Progress) -> Result<Verdict, Error> {
    let mut verdict = Verdict {
        is_layer: true,
        ..Verdict::default()
    };
    match blob.form() {
        Form::Plain => progress.begin(0),
        Form::Compressed(zfile) => {
            verdict.is_covered = zfile.header().blocks.checksums == BlockChecksums::Crc32c;
            check_blocks(blob, zfile, &mut verdict, progress)?;
        }
    }
    let kind = match content {
        Content::Layer(kind) => kind,
        Content::Any if is_other(blob)? => {
            verdict.is_layer = false;
            return Ok(verdict);
        }
        Content::Any => LayerKind::Own,
    };
    match read_layer(blob, kind) {
        Ok(_) => {}
        // What is in a damaged block was told already.
        Err(Error::Block { .. }) if verdict.count > 0 => {}
        Err(error @ (Error::Format { .. } | Error::Block { .. })) => verdict.push(blob, &error),
        Err(error) => return Err(error),
    }
    Ok(verdict)
}

/// Whether a ZFile holds something else than a layer. If its first block is damaged nobody knows, and it is taken for a layer.
pub(super) fn is_other(blob: &Blob) -> Result<bool, Error> {
    if matches!(blob.form(), Form::Plain) {
        return Ok(false);
    }
    let len = blob.len().0.min(SNIFF_BYTES as u64);
    let mut first = vec![0; usize::try_from(len).unwrap_or(SNIFF_BYTES)];
    match blob.reader()?.read_exact_at(ByteOffset(0), &mut first) {
        Ok(()) => Ok(!matches!(
            sniff::Verdict::of(&first),
            sniff::Verdict::Lsmt(_)
        )),
        Err(Error::Block { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn check_blocks(
    blob: &Blob,
    zfile: &ZFile,
    verdict: &mut Verdict,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let block_len = u64::from(zfile.header().blocks.block_size.bytes());
    let len = zfile.len().0;
    progress.begin(len);
    let mut reader = blob.reader()?;
    let mut raw = vec![0; usize::try_from(block_len).unwrap_or(0)];
    let mut at = 0;
    while at < len {
        let wanted = block_len.min(len - at);
        let bytes = raw
            .get_mut(..usize::try_from(wanted).unwrap_or(0))
            .unwrap_or_default();
        match reader.read_exact_at(ByteOffset(at), bytes) {
            Ok(()) => {}
            Err(error @ Error::Block { .. }) => verdict.push(blob, &error),
            Err(error) => return Err(error),
        }
        at += wanted;
        progress.advance(wanted);
    }
    Ok(())
}
