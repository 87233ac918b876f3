//! The byte stream below the HTTP engine: notes activity, and holds back the engine's own refusals.
//!
//! When a request's head is malformed or too large, the engine writes a 4xx answer without a body. Such an answer is
//! swallowed here and its status is kept, so that the connection can send a problem document in its place. It is
//! told apart from answers of the routes by its empty body: theirs never are.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use super::URI_BYTES_MAX;
use super::slots::Slot;

pub(super) struct GuardedStream {
    stream: UnixStream,
    slot: Arc<Slot>,
    /// The last write was cut short: the next one starts in the middle of an answer.
    is_amid_answer: bool,
    /// Bytes of the first line since the last answer, and whether that line has ended.
    line_bytes: usize,
    has_line: bool,
    refused: Option<u16>,
}

/// How far a client was in sending a request when the engine gave up on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// It sent nothing since the last answer.
    Nothing,
    /// It sent a request line, or a part of one, that is longer than a path may be.
    LongLine,
    /// It sent something else.
    Something,
}

impl GuardedStream {
    pub(super) const fn new(stream: UnixStream, slot: Arc<Slot>) -> Self {
        Self {
            stream,
            slot,
            is_amid_answer: false,
            line_bytes: 0,
            has_line: false,
            refused: None,
        }
    }

    /// The status of the answer that was held back.
    pub(super) const fn refused(&self) -> Option<u16> {
        self.refused
    }

    /// What came since the last answer.
    pub(super) const fn unanswered(&self) -> Unanswered {
        match self.line_bytes {
            0 => Unanswered::Nothing,
            len if len > URI_BYTES_MAX => Unanswered::LongLine,
            _ => Unanswered::Something,
        }
    }

    fn on_read(&mut self, fresh: &[u8]) {
        if fresh.is_empty() {
            return;
        }
        self.slot.on_bytes();
        if !self.has_line {
            let end = fresh.iter().position(|byte| *byte == b'\n');
            self.has_line = end.is_some();
            let len = end.map_or(fresh.len(), |end| end + 1);
            self.line_bytes = self.line_bytes.saturating_add(len);
        }
    }

    pub(super) fn into_inner(self) -> UnixStream {
        self.stream
    }
}

/// The status of an answer without a body that the engine made itself.
fn own_refusal(bytes: &[u8]) -> Option<u16> {
    let head = bytes.strip_prefix(b"HTTP/1.1 ")?;
    let status: u16 = std::str::from_utf8(head.get(..3)?).ok()?.parse().ok()?;
    let is_empty = bytes
        .windows(b"\r\ncontent-length: 0\r\n".len())
        .any(|window| window == b"\r\ncontent-length: 0\r\n");
    ((400..500).contains(&status) && is_empty).then_some(status)
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.on_read(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_amid_answer
            && let Some(status) = own_refusal(buf)
        {
            self.refused = Some(status);
            return Poll::Ready(Ok(buf.len()));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.slot.on_bytes();
        self.is_amid_answer = written < buf.len();
        self.line_bytes = 0;
        self.has_line = false;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_without_a_body_are_the_engines_own() {
        let head = |status: &str, length| {
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
        };
        for (bytes, expected) in [
            (head("400 Bad Request", 0), Some(400)),
            (head("431 Request Header Fields Too Large", 0), Some(431)),
            (head("404 Not Found", 120), None),
            (head("200 OK", 0), None),
            ("HTTP/1.1 4".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(own_refusal(bytes.as_bytes()), expected, "{bytes}");
        }
    }
}
