//! Work on images that nobody serves: making, checking and converting layers.
//!
//! Results appear whole or not at all: see [`NewFile`]. Memory is bounded: data goes through buffers of [`CHUNK_BYTES`], and
//! what grows is the index of what is read or written.

mod check;
mod compress;
mod describe;
mod export;
mod import;
mod layer;
mod new_file;
mod sink;
mod team;
mod uppers;

pub use check::{Content, Finding, Verdict, check};
pub use compress::{compress, decompress};
pub use describe::{BlobFacts, FormFacts, LayerFacts, UpperFacts, describe_blob, describe_upper};
pub use export::{export, hash, write};
pub use import::import;
pub use layer::{Target, commit, commit_sealed, flatten, merge};
pub use new_file::{NewFile, Overwrite};
pub use sink::{Compression, Packing, Wrapping};
pub use uppers::{NewUpper, UpperFiles, create, resize, seal};

/// Bytes that are moved at a time.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Hears how far long work is.
pub trait Progress {
    /// The work is about this many bytes.
    fn begin(&mut self, total_bytes: u64);
    /// So many more are done.
    fn advance(&mut self, bytes: u64);
}

/// Nobody listens.
impl Progress for () {
    fn begin(&mut self, _total_bytes: u64) {}
    fn advance(&mut self, _bytes: u64) {}
}
