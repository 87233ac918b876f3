//! Seeded simulation of the ring and of the kernel's ublk driver, around the real shard, targets and tag table.
//!
//! ```text
//!   World: clients, control, power cuts
//!     |  requests, STOP          |  messages               what a read may return: Model
//!     v                          v
//!   Driver (tags) <--commands-- Shard (real) --operations--> SimDisk (live, durable)
//!        \______________________ SimRing _____________________/
//!             order, delays and failures of completions follow from one seed
//! ```
//!
//! [`run`] plays one seed. It checks at each step that every request is answered once, in time, and as it had to be or could
//! be; that data is what some legal order of the requests explains; that the server keeps to the tag protocol; and at the end that
//! nothing was leaked. [`SimHost`] is for tests that play their own scene.
//!
//! Non-goals: the timing of a real kernel, and what happens inside a single `Shard::turn` on another thread.
#![forbid(unsafe_code)]

mod at_once;
mod config;
mod control;
mod disk;
mod driver;
mod failure;
mod faults;
mod file;
mod handing;
mod host;
mod journal;
mod kernel;
mod life;
mod model;
mod notice;
mod operation;
mod pattern;
mod port;
mod registered;
mod request;
mod ring;
mod slot;
mod target;
mod traffic;
mod world;

pub use config::{Config, Report};
pub use disk::SimDisk;
pub use driver::DeviceIndex;
pub use failure::Failure;
pub use faults::Faults;
pub use file::SimFile;
pub use handing::{HandingTarget, Writers};
pub use host::SimHost;
pub use port::SimQueue;
pub use request::ClientOp;
pub use ring::SimRing;
pub use world::run;
