//! LSMT: a layer is data and an index of what is where.
//!
//! ```text
//!   sealed layer   header | data | records | trailer        layer
//!   log upper      header | data ...   header | records ... upper, log, hybrid
//!   sparse upper   header | the disk, with holes            sparse
//!
//!   header, record     the two structures of the format, parse and encode; dump: as text
//!   index, mutable     what is where, read-only and changing; lookup: what an extent consists of
//!   merge, stack       layers over one another
//!   compact, seal      plans of new files: commit, merge, flatten; sealing in place
//! ```
//!
//! A sector of a layer is in one of three states: data, zeros (which hide what is below), or a hole (what is below shows, and
//! zeros at the bottom). Taking zeros for a hole is the classic error.
//!
//! Byte tables: [`Header`], [`Flags`], [`Record`]. Limits: [`LAYER_RECORDS_MAX`], [`INDEX_RECORDS_MAX`],
//! [`LOWERS_MAX`], [`USER_TAG_BYTES_MAX`].

mod chunks;
mod compact;
mod dump;
mod header;
mod hybrid;
mod index;
mod layer;
mod log;
mod lookup;
mod merge;
mod mutable;
mod record;
#[cfg(test)]
mod samples;
mod seal;
mod sparse;
mod stack;
mod upper;
mod uuid;

pub use compact::{Copies, DataCopy, LayerPlan, NewLayer};
pub(crate) use header::has_magic;
pub use header::{
    Flags, HEADER_BYTES, HEADER_LEN, HEADER_SECTORS, Header, USER_TAG_BYTES_MAX, UserTag,
    VIRTUAL_SECTORS_MAX,
};
pub use hybrid::{HybridWrite, WriteStep};
pub use index::{INDEX_RECORDS_MAX, Index, IndexBuilder, LAYER_RECORDS_MAX, OrderFault, Segments};
pub use layer::{IndexLoader, Layer, LayerEnds, Layout};
pub use log::{Appended, GroupFull, RecordGroup};
pub use lookup::{LayerIndex, Piece, Pieces, Source};
pub use merge::{LOWERS_MAX, MergeInput, merge};
pub use mutable::{MutableIndex, MutableSegments};
pub use record::{RECORD_BYTES, RECORD_SECTORS_MAX, Record, Segment, SegmentFault};
pub use seal::SealPlan;
pub use sparse::SparseLayout;
pub use stack::{Stack, StackFile, StackPieces};
pub use upper::{LogFiles, LogLayout, LogLoader, LogMode, LogUpper};
pub use uuid::LayerUuid;
