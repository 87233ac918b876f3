//! One call: connect, send, read the whole answer.

use std::fmt;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use tokio::net::UnixStream;

use super::error::Error;

/// The largest answer in bytes. A device takes about 700 bytes: room for a list of far more than the kernel can have.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// How often a call is made when the connection is closed before an answer.
const ATTEMPTS_MAX: u32 = 4;
/// How long to wait before connecting again while the daemon's backlog is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(20);

/// A request.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    /// A JSON document.
    pub(super) body: Option<Vec<u8>>,
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// Makes the call, again if the connection was closed before an answer began.
pub(super) async fn exchange(socket: &Path, call: &Call) -> Result<Answer, Error> {
    let mut attempt = 1;
    loop {
        match attempt_once(socket, call).await {
            Err(Error::Broken { source, .. })
                if attempt < ATTEMPTS_MAX && is_unanswered(&source) =>
            {
                attempt += 1;
            }
            result => return result,
        }
    }
}

/// Whether the connection ended before the first byte of an answer: closed, reset, or refused while sending.
fn is_unanswered(error: &hyper::Error) -> bool {
    error.is_incomplete_message() || error.is_canceled() || error.is_closed() || {
        // Reset and broken pipe are I/O errors of the connection; the engine keeps them as the source.
        std::error::Error::source(error).is_some() && !error.is_parse() && !error.is_user()
    }
}

async fn attempt_once(socket: &Path, call: &Call) -> Result<Answer, Error> {
    let broken = |source| Error::Broken {
        socket: socket.to_owned(),
        request: call.to_string(),
        source,
    };
    let stream = connect(socket).await?;
    let (mut sender, connection) = http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let request = request(socket, call)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        read(socket, response, broken).await
    };
    // The connection is driven here, not in a task: it ends with the call. If it ends first, the answer tells why.
    tokio::pin!(answer);
    tokio::select! {
        result = &mut answer => result,
        _ = connection => answer.await,
    }
}

fn request(socket: &Path, call: &Call) -> Result<Request<Full<Bytes>>, Error> {
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(&call.path)
        .header(HOST, "blockyard")
        .header(CONNECTION, "close");
    if call.body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = Full::new(Bytes::from(call.body.clone().unwrap_or_default()));
    request.body(body).map_err(|error| Error::InvalidAnswer {
        socket: socket.to_owned(),
        reason: format!("the request {call} cannot be built: {error}"),
    })
}

async fn read(
    socket: &Path,
    response: Response<Incoming>,
    broken: impl Fn(hyper::Error) -> Error,
) -> Result<Answer, Error> {
    let status = response.status();
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(&broken)?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if body.len().saturating_add(data.len()) > ANSWER_BYTES_MAX {
            return Err(Error::InvalidAnswer {
                socket: socket.to_owned(),
                reason: format!("it is larger than {ANSWER_BYTES_MAX} bytes"),
            });
        }
        body.extend_from_slice(data);
    }
    Ok(Answer { status, body })
}

async fn connect(socket: &Path) -> Result<UnixStream, Error> {
    loop {
        let source = match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(source) => source,
        };
        let socket = socket.to_owned();
        match Errno::from_io_error(&source) {
            // The backlog is full: a busy daemon, not an absent one.
            Some(Errno::AGAIN) => tokio::time::sleep(BACKLOG_PAUSE).await,
            _ if source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Error::Denied { socket, source });
            }
            // The kernel refuses both a socket that nobody listens on and what is no socket.
            Some(Errno::CONNREFUSED) if is_something_else(&socket) => {
                return Err(Error::NotSocket { path: socket });
            }
            _ => return Err(Error::Unreachable { socket, source }),
        }
    }
}

fn is_something_else(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket())
}
