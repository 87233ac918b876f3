//! A server in the test's runtime, and a client that speaks bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::client::Client;
use api::server::{Limits, Server};
use api::socket::BoundSocket;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::memory::Memory;

/// A running server.
pub(crate) struct Harness {
    pub(crate) service: Arc<Memory>,
    pub(crate) socket: PathBuf,
    pub(crate) server: JoinHandle<std::io::Result<()>>,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    _scratch: TempDir,
}

/// An answer taken apart.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Harness {
    pub(crate) fn start() -> Self {
        Self::with_limits(Limits::default())
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("daemon.sock");
        let service = Arc::new(Memory::new());
        let bound = BoundSocket::bind(&socket).unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = Server::new(bound, Arc::clone(&service), limits).run(async {
            // A dropped sender stops the server too.
            let _ = stopped.await;
        });
        let server = tokio::spawn(server);
        Self {
            service,
            socket,
            server,
            stop: Some(stop),
            _scratch: scratch,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.socket).with_deadline(Duration::from_secs(20))
    }

    /// A request with a JSON body, or none.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Heard {
        let json = if body.is_empty() {
            ""
        } else {
            "content-type: application/json\r\n"
        };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{json}content-length: {length}\r\n\r\n{body}"
        );
        talk(&self.socket, request.as_bytes()).await
    }
}

impl Heard {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that it is a whole problem document with that code, and gives it back.
    pub(crate) fn problem(&self, status: u16, code: &str) -> serde_json::Value {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(self.status, status);
        assert_eq!(problem["type"], format!("urn:blockyard:error:{code}"));
        for field in ["title", "detail", "advice"] {
            assert!(
                !problem[field].as_str().unwrap().is_empty(),
                "{field} of {problem}"
            );
        }
        problem
    }
}

/// Sends the bytes and reads until the server closes.
pub(crate) async fn talk(socket: &Path, bytes: &[u8]) -> Heard {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    hear(&mut stream).await
}

/// Reads until the server closes.
pub(crate) async fn hear(stream: &mut UnixStream) -> Heard {
    let mut bytes = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes))
        .await
        .expect("the server must close")
        .unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {text:?}"));
    Heard {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}
