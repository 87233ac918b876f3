//! The control interface: HTTP and JSON on a unix socket.
//!
//! [`v1`] holds the wire types and the error codes, [`socket`] takes possession of the socket's path, [`server`] serves
//! any [`Service`] on it and [`client`] is the other end. [`metrics`] and [`openapi`] render the two documents
//! that are derived from the wire types.
//!
//! Invariants: wire types are converted at the edge and never travel inward; every refusal is a problem document with a
//! [`v1::Code`]; a client that says nothing, sends too much or goes away costs a bounded amount of memory and time.
#![forbid(unsafe_code)]

pub mod client;
pub mod metrics;
pub mod openapi;
pub mod server;
mod service;
pub mod socket;
pub mod v1;

pub use service::{Creation, MetricsSource, Service};
