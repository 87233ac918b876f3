//! What a file is, as facts for people and programs.

use overlaybd::lsmt::{Header, LogMode};
use overlaybd::zfile::BlockChecksums;
use serde::Serialize;

use crate::blob::{Blob, Form};
use crate::config::LayerKind;
use crate::error::Error;
use crate::lowers::read_layer;
use crate::upper::Upper;

use super::check::{Content, is_other};

/// A file of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlobFacts {
    /// The file.
    pub path: String,
    /// Its bytes.
    pub file_bytes: u64,
    /// Byte at which the payload begins; not 0 in an archive.
    pub payload_offset: u64,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// How the content lies in it.
    pub form: FormFacts,
    /// The layer in it; none in a ZFile of something else.
    pub layer: Option<LayerFacts>,
}

/// How content lies in a payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FormFacts {
    /// As it is.
    Plain,
    /// In compressed blocks.
    Zfile {
        /// `lz4` or `zstd`.
        algorithm: String,
        /// Bytes of a block before compression.
        block_bytes: u32,
        /// Whether each block has a checksum.
        checksums: bool,
        /// How many blocks.
        blocks: u64,
        /// Bytes of the content.
        content_bytes: u64,
    },
}

/// A layer, sealed or an upper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerFacts {
    /// Size of its disk in bytes; 0 for that of what is below.
    pub virtual_bytes: u64,
    /// Its uuid.
    pub uuid: Option<String>,
    /// The uuid of the layer that it belongs on.
    pub parent_uuid: Option<String>,
    /// Free text.
    pub user_tag: String,
    /// Records of its index, without padding.
    pub records: u64,
    /// Bytes of the disk that it has data for.
    pub data_bytes: u64,
    /// Bytes of the disk that it has zeros for.
    pub zeroed_bytes: u64,
}

/// An upper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpperFacts {
    /// The file of its data.
    pub path: String,
    /// `log`, `hybrid` or `sparse`.
    pub mode: &'static str,
    /// Records at the end that point behind the data and are dropped.
    pub records_dropped: u64,
    /// What it holds.
    pub layer: LayerFacts,
}

/// Describes a file.
///
/// # Errors
/// When it cannot be read, or is no sound layer and must be one.
pub fn describe_blob(blob: &Blob, content: Content) -> Result<BlobFacts, Error> {
    let kind = match content {
        Content::Layer(kind) => Some(kind),
        Content::Any => (!is_other(blob)?).then_some(LayerKind::Own),
    };
    let layer = kind.map(|kind| read_layer(blob, kind)).transpose()?;
    let payload = blob.payload();
    Ok(BlobFacts {
        path: blob.path().display().to_string(),
        file_bytes: blob.file().len().0,
        payload_offset: payload.offset.0,
        payload_bytes: payload.len.0,
        form: match blob.form() {
            Form::Plain => FormFacts::Plain,
            Form::Compressed(zfile) => {
                let blocks = zfile.header().blocks;
                FormFacts::Zfile {
                    algorithm: blocks.algorithm.to_string(),
                    block_bytes: blocks.block_size.bytes(),
                    checksums: blocks.checksums == BlockChecksums::Crc32c,
                    blocks: zfile.table().blocks(),
                    content_bytes: zfile.len().0,
                }
            }
        },
        layer: layer.map(|layer| facts(&layer.trailer, layer.index.segments())),
    })
}

/// Describes an upper.
#[must_use]
pub fn describe_upper(upper: &Upper) -> UpperFacts {
    let (mode, records_dropped) = match upper {
        Upper::Log { log, .. } => {
            let mode = match log.mode {
                LogMode::Append => "log",
                LogMode::Hybrid => "hybrid",
            };
            (mode, log.records_dropped)
        }
        Upper::Sparse { .. } => ("sparse", 0),
    };
    UpperFacts {
        path: upper.data().path().display().to_string(),
        mode,
        records_dropped,
        layer: facts(upper.header(), upper.index().segments()),
    }
}

fn facts(header: &Header, segments: impl Iterator<Item = overlaybd::lsmt::Segment>) -> LayerFacts {
    let mut facts = LayerFacts {
        virtual_bytes: header.virtual_size.len_bytes().0,
        uuid: header.uuid.map(|uuid| uuid.to_string()),
        parent_uuid: header.parent_uuid.map(|uuid| uuid.to_string()),
        user_tag: String::from_utf8_lossy(header.user_tag.as_bytes()).into_owned(),
        records: 0,
        data_bytes: 0,
        zeroed_bytes: 0,
    };
    for segment in segments {
        facts.records += 1;
        let bytes = segment.len().len_bytes().0;
        if segment.is_zeroed() {
            facts.zeroed_bytes += bytes;
        } else {
            facts.data_bytes += bytes;
        }
    }
    facts
}
