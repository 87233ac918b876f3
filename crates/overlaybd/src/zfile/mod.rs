//! ZFile: a file in compressed blocks of equal size, readable at any place.
//!
//! ```text
//!   header     512 bytes, see [`HeaderBlock`]
//!   blocks     back to back, each compressed by itself, each with a checksum behind it if the file has them
//!   table      the stored length of each block
//!   trailer    512 bytes, the fields of the header
//! ```
//!
//! Reading: an [`Opener`] says what to read and gives a [`ZFile`], which says in which pieces a range of raw bytes lies;
//! a [`BlockDecoder`] makes raw bytes of stored ones. Writing: a [`Writer`].

mod block;
mod checksum;
mod dump;
mod header;
mod layout;
mod options;
mod table;
mod writer;

pub use block::{BlockDecoder, BlockEncoder, BlockError, EncodedBlocks};
pub(crate) use header::has_magic;
pub use header::{BLOCKS_MAX, Flags, HEADER_BYTES, Header, HeaderBlock, Part};
pub use layout::{Opener, Piece, TABLE_PIECE_BYTES, ZFile};
pub use options::{Algorithm, BlockChecksums, BlockFormat, BlockSize, Completion, Options};
pub use table::JumpTable;
pub use writer::{Finished, Writer};
