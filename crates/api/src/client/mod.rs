//! The client: typed calls over the unix socket, each with a deadline.
//!
//! Every call is idempotent, so a call whose connection was closed before an answer came (the server makes room
//! by closing idle connections) is made again, a few times, within the deadline.

mod error;
mod transport;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use serde::de::DeserializeOwned;

use crate::service::Creation;
use crate::v1::{Device, DeviceList, DeviceRequest, Problem, Removal, RemovalReport, Status};
pub use error::Error;
use transport::{Answer, Call};

/// How long a call may take unless the caller says otherwise. Longer than any deadline of a single removal.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(120);

/// A client of the daemon on that socket. Cheap to clone; a connection lasts for one call.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    deadline: Duration,
}

impl Client {
    /// A client with the default deadline. Does not connect yet.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            deadline: DEADLINE_DEFAULT,
        }
    }

    /// The same client with another deadline for each call.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The socket it speaks to.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Creates the device, or finds that the same request was fulfilled before.
    ///
    /// # Errors
    ///
    /// See [`Error`]; so for every other call.
    pub async fn create(&self, name: &str, request: &DeviceRequest) -> Result<Creation, Error> {
        let body = serde_json::to_vec(request).map_err(|error| self.invalid(error.to_string()))?;
        let call = Call {
            method: Method::PUT,
            path: device_path(name),
            body: Some(body),
        };
        let answer = self.call(call).await?;
        let device = self.decode(&answer)?;
        Ok(if answer.status == hyper::StatusCode::CREATED {
            Creation::Created(device)
        } else {
            Creation::Existing(device)
        })
    }

    /// The device of that name.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn inspect(&self, name: &str) -> Result<Device, Error> {
        self.json(Method::GET, device_path(name)).await
    }

    /// Every device, sorted by name.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn list(&self) -> Result<DeviceList, Error> {
        self.json(Method::GET, "/v1/devices".to_owned()).await
    }

    /// Stops and removes a device.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn remove(&self, name: &str) -> Result<Removal, Error> {
        self.json(Method::DELETE, device_path(name)).await
    }

    /// Removes a ublk device of another installation that no living process serves.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn remove_stray(&self, id: u32) -> Result<Removal, Error> {
        self.json(Method::DELETE, format!("/v1/strays/{id}")).await
    }

    /// Stops and removes every device.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Devices that could not be removed are in the report.
    pub async fn remove_all(&self) -> Result<RemovalReport, Error> {
        self.json(Method::DELETE, "/v1/devices".to_owned()).await
    }

    /// The daemon's state.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn status(&self) -> Result<Status, Error> {
        self.json(Method::GET, "/v1/status".to_owned()).await
    }

    /// The metrics as Prometheus text.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn metrics(&self) -> Result<String, Error> {
        let call = Call {
            method: Method::GET,
            path: "/metrics".to_owned(),
            body: None,
        };
        let answer = self.call(call).await?;
        String::from_utf8(answer.body).map_err(|error| self.invalid(error.to_string()))
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: String) -> Result<T, Error> {
        let answer = self
            .call(Call {
                method,
                path,
                body: None,
            })
            .await?;
        self.decode(&answer)
    }

    async fn call(&self, call: Call) -> Result<Answer, Error> {
        let answer = tokio::time::timeout(self.deadline, transport::exchange(&self.socket, &call))
            .await
            .map_err(|_| Error::Deadline {
                socket: self.socket.clone(),
                request: call.to_string(),
                after: self.deadline,
            })??;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let problem: Problem = self.decode(&answer)?;
        Err(Error::Refused(Box::new(problem)))
    }

    fn decode<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Error> {
        serde_json::from_slice(&answer.body)
            .map_err(|error| self.invalid(format!("status {}: {error}", answer.status)))
    }

    fn invalid(&self, reason: String) -> Error {
        Error::InvalidAnswer {
            socket: self.socket.clone(),
            reason,
        }
    }
}

/// The path of a device; whatever is in the name stays one segment.
fn device_path(name: &str) -> String {
    let mut path = String::from("/v1/devices/");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_segment_of_the_path() {
        for (name, path) in [
            ("web-1.a_b", "/v1/devices/web-1.a_b"),
            ("a/b", "/v1/devices/a%2Fb"),
            ("a b?#%", "/v1/devices/a%20b%3F%23%25"),
            ("\u{e9}", "/v1/devices/%C3%A9"),
        ] {
            assert_eq!(device_path(name), path);
        }
    }
}
