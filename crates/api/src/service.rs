//! What the server needs from the daemon: one asynchronous trait, so that tests serve an in-memory implementation.

use std::future::Future;

use crate::v1::{Device, DeviceRequest, Problem, Removal, RemovalReport, Status};

/// How a create was answered. Both cases carry the device as it is now.
#[derive(Clone, Debug, PartialEq)]
pub enum Creation {
    /// The device did not exist and is live now.
    Created(Device),
    /// The same request was answered before; nothing changed.
    Existing(Device),
}

impl Creation {
    /// The device, whichever case it is.
    #[must_use]
    pub fn into_device(self) -> Device {
        match self {
            Self::Created(device) | Self::Existing(device) => device,
        }
    }
}

/// What the metrics are rendered from.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsSource {
    /// The daemon as a whole.
    pub status: Status,
    /// Every device with its counters.
    pub devices: Vec<Device>,
}

/// The daemon behind the server.
///
/// Names and requests arrive as the client sent them (decoded, not validated): the implementation parses them and answers
/// with a [`Problem`] that says what is wrong. `create`, `remove`, `remove_stray` and `remove_all` run to their end even when
/// the client goes away; the others are dropped then and must be safe to drop at any await.
pub trait Service: Send + Sync + 'static {
    /// Creates the device, or finds that the same request was fulfilled before.
    fn create(
        &self,
        name: String,
        request: DeviceRequest,
    ) -> impl Future<Output = Result<Creation, Problem>> + Send;

    /// The device of that name.
    fn inspect(&self, name: String) -> impl Future<Output = Result<Device, Problem>> + Send;

    /// Every device, in any order; the server sorts by name.
    fn list(&self) -> impl Future<Output = Result<Vec<Device>, Problem>> + Send;

    /// Stops and removes one device.
    fn remove(&self, name: String) -> impl Future<Output = Result<Removal, Problem>> + Send;

    /// Removes a ublk device of another installation that no living process serves, by the kernel's number.
    fn remove_stray(&self, id: u32) -> impl Future<Output = Result<Removal, Problem>> + Send;

    /// Stops and removes every device; failures are part of the report.
    fn remove_all(&self) -> impl Future<Output = Result<RemovalReport, Problem>> + Send;

    /// The daemon's state. The server adds its own limits to [`Status::limits`].
    fn status(&self) -> impl Future<Output = Result<Status, Problem>> + Send;

    /// What `/metrics` is rendered from.
    fn metrics(&self) -> impl Future<Output = Result<MetricsSource, Problem>> + Send {
        async {
            Ok(MetricsSource {
                status: self.status().await?,
                devices: self.list().await?,
            })
        }
    }
}
