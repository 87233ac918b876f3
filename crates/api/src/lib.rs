//! placeholder header replaced by the crate's author.
