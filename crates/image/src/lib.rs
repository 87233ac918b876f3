//! Images: stacks of overlaybd layers, opened from a configuration, read and written.
//!
//! ```text
//!   config.json --> ImageConfig --> Lowers (blobs of sealed layers, one merged index) --+
//!                              \--> Upper (log or sparse, locked by its one owner) -----+--> offline: reader, commit, merge ...
//!                                                                                       \--> live: a target of the data plane
//! ```
//!
//! The formats are the crate `overlaybd`'s; here are the files. Lowers are shared: one open file a layer and one merged
//! index a stack, however many devices stand on them. An upper has one owner, kept by a lock that ends with the process.
#![forbid(unsafe_code)]

mod blob;
mod config;
mod error;
mod file;
mod lowers;
pub mod offline;
pub mod serving;
mod upper;
mod view;

pub use blob::{Blob, BlobReader, Form};
pub use config::{ImageConfig, LayerKind, LowerConfig, UpperConfig};
pub use error::{Error, ErrorKind};
pub use file::{FileId, LayerFile};
pub use lowers::{LowerSource, Lowers, ParentCheck, read_layer, read_trailer};
pub use upper::{LostRecords, Upper};
pub use view::{OpenOptions, View, ViewReader};
