//! The overlaybd image formats: bytes to typed values and back.
//!
//! ```text
//!   tar    an optional wrapper: one file in an archive
//!   zfile  an optional compression: blocks and a table of their lengths
//!   lsmt   a layer: data and an index of what is where; layers make a stack
//! ```
//!
//! No I/O and no clock: callers read what a value's layout asks for and pass the bytes. Bytes of a file are never trusted:
//! they become typed values in one place per format, and every size is bounded before anything is allocated.
#![forbid(unsafe_code)]

mod error;
pub mod lsmt;
mod range;
pub mod sniff;
pub mod tar;
pub mod zfile;

pub use error::{Error, ErrorKind};
pub use range::FileRange;
