//! LSMT: a layer is data and an index of what is where.

mod chunks;
mod header;
mod index;
mod layer;
mod lookup;
mod merge;
mod mutable;
mod record;
mod uuid;

pub use chunks::ByteRange;
pub use header::{
    Flags, HEADER_BYTES, HEADER_LEN, HEADER_SECTORS, Header, USER_TAG_BYTES_MAX, UserTag,
    VIRTUAL_SECTORS_MAX,
};
pub use index::{INDEX_RECORDS_MAX, Index, IndexBuilder, LAYER_RECORDS_MAX, OrderFault, Segments};
pub use layer::{IndexLoader, Layer, LayerEnds, Layout};
pub use lookup::{LayerIndex, Piece, Pieces, Source};
pub use merge::{LOWERS_MAX, MergeInput, merge};
pub use mutable::{MutableIndex, MutableSegments};
pub use record::{RECORD_BYTES, RECORD_SECTORS_MAX, Record, Segment, SegmentFault};
pub use uuid::LayerUuid;
