//! An image that is served: the target of a device, what devices share, and how an image is opened for it.
//!
//! ```text
//!   ImageConfig --> Library: lowers (one open file a layer, one index a stack, for all devices on them)
//!              \--> upper: log, hybrid or sparse; its only owner                                       --> ServedImage
//!
//!   ServedImage --instance(workspace of the shard)--> ImageTarget, with the files that its plans name
//! ```
//!
//! | a request | of a read-only image | over a log | over a sparse upper |
//! |---|---|---|---|
//! | read | [`below`](self) | the upper's sectors, else below | the same |
//! | write, zeros, discard, flush | refused; flush does nothing | `log.rs` | `sparse.rs` |
//!
//! A target that is written to has one instance, on one shard: nothing of it is locked.

mod below;
mod cache;
mod dead;
mod library;
mod log;
mod open;
mod presence;
mod sparse;
mod target;
mod workspace;

pub use library::Library;
pub use open::{Content, ServeOptions, ServedImage};
pub use target::ImageTarget;
pub use workspace::Workspace;
