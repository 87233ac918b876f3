//! LSMT: a layer is data and an index of what is where.

mod chunks;
mod compact;
mod dump;
mod header;
mod index;
mod layer;
mod log;
mod lookup;
mod merge;
mod mutable;
mod record;
mod seal;
mod sparse;
mod stack;
mod upper;
mod uuid;

pub use chunks::ByteRange;
pub use compact::{Copies, DataCopy, LayerPlan, NewLayer};
pub use header::{
    Flags, HEADER_BYTES, HEADER_LEN, HEADER_SECTORS, Header, USER_TAG_BYTES_MAX, UserTag,
    VIRTUAL_SECTORS_MAX,
};
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
