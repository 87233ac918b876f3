//! One connection, from its first byte to its last.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::handler::{PeerHandler, uri_too_long};
use super::slots::{Activity, SlotGuard};
use super::stream::{GuardedStream, Unanswered};
use super::{HEAD_BYTES_MAX, Limits, answer};
use crate::v1::{Code, Problem};

/// Read buffer of the engine: a head of the largest size, and as much again.
const BUFFER_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;
/// What a client may still send after it was refused, before its connection is closed. Without reading a little, closing
/// would reset the connection, and a client that is busy sending might never see the answer.
const LINGER_BYTES_MAX: usize = 256 << 10;
/// How long to wait for that.
const LINGER: Duration = Duration::from_secs(1);
/// How long an answer that is written may take to leave after the shutdown signal.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// A connection that was accepted and has its place.
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) slot: SlotGuard,
    pub(super) handler: PeerHandler,
    pub(super) limits: Limits,
}

impl Connection {
    /// Serves it until either side closes it.
    pub(super) async fn run(self, ended: watch::Receiver<()>) {
        let Self {
            stream,
            slot,
            handler,
            limits,
        } = self;
        let engine = engine(&limits).serve_connection(
            TokioIo::new(GuardedStream::new(stream, slot.slot.clone())),
            handler,
        );
        let evicted = slot.slot.evicted();
        let work = async {
            if let Some((io, refusal)) = converse(engine, ended, &slot).await {
                // What is left to do is courtesy; if the client does not care, neither do we.
                let _: io::Result<()> = part(io.into_inner(), refusal).await;
            }
        };
        tokio::select! {
            () = evicted => tracing::debug!("idle connection closed to make room"),
            () = work => {}
        }
    }
}

fn engine(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        // One buffer per answer: the stream below tells answers apart by the beginning of a write.
        .writev(false);
    builder
}

type Engine = http1::Connection<TokioIo<GuardedStream>, PeerHandler>;

/// Runs the engine. Gives back the stream with the refusal that is still to be sent, or `None` if there is nothing to say.
async fn converse(
    mut engine: Engine,
    mut ended: watch::Receiver<()>,
    slot: &SlotGuard,
) -> Option<(GuardedStream, Option<Problem>)> {
    let result = tokio::select! {
        result = poll_fn(|cx| engine.poll_without_shutdown(cx)) => result,
        _ = ended.changed() => {
            stop_soon(&mut engine);
            let rest = poll_fn(|cx| engine.poll_without_shutdown(cx));
            match slot.slot.activity() {
                Activity::Silent | Activity::Evicted => return None,
                Activity::Idle => tokio::time::timeout(LAST_FLUSH, rest).await.ok()?,
                Activity::Serving => rest.await,
            }
        }
    };
    let io = engine.into_parts().io.into_inner();
    let gave_up = match result {
        Err(error) if error.is_timeout() => Some(GaveUp::TimedOut),
        _ => io.refused().map(GaveUp::Refused),
    };
    let refusal = refusal(gave_up, io.unanswered());
    Some((io, refusal))
}

/// Ends the connection after the request in progress.
fn stop_soon(engine: &mut Engine) {
    Pin::new(engine).graceful_shutdown();
}

/// How the engine's way of giving up on a request is told to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GaveUp {
    Refused(u16),
    TimedOut,
}

fn refusal(gave_up: Option<GaveUp>, unanswered: Unanswered) -> Option<Problem> {
    let problem = match (gave_up?, unanswered) {
        (GaveUp::TimedOut, Unanswered::Nothing) => return None,
        (GaveUp::TimedOut, _) => Problem::new(
            Code::RequestTimeout,
            "the head of the request did not arrive in time",
            "send the whole request at once",
        ),
        (GaveUp::Refused(414), _) | (GaveUp::Refused(431), Unanswered::LongLine) => uri_too_long(),
        (GaveUp::Refused(431), _) => Problem::new(
            Code::HeadTooLarge,
            format!("the head of the request is larger than {HEAD_BYTES_MAX} bytes"),
            "send fewer and shorter headers",
        ),
        (GaveUp::Refused(_), _) => Problem::new(
            Code::MalformedRequest,
            "the request is not HTTP/1.1",
            "speak HTTP/1.1, for example with curl --unix-socket",
        ),
    };
    Some(problem)
}

/// Sends the refusal if there is one, then lets the client finish what it is sending, within limits.
async fn part(mut stream: UnixStream, refusal: Option<Problem>) -> io::Result<()> {
    let courtesy = async {
        if let Some(problem) = refusal {
            stream.write_all(&answer::raw_problem(&problem)).await?;
        }
        stream.shutdown().await?;
        let mut sink = [0_u8; 4096];
        let mut read = 0;
        while read < LINGER_BYTES_MAX {
            match stream.read(&mut sink).await? {
                0 => break,
                len => read += len,
            }
        }
        Ok(())
    };
    tokio::time::timeout(LINGER, courtesy)
        .await
        .unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_giving_up_has_its_code() {
        for (gave_up, unanswered, code) in [
            (None, Unanswered::Something, None),
            (Some(GaveUp::TimedOut), Unanswered::Nothing, None),
            (
                Some(GaveUp::TimedOut),
                Unanswered::LongLine,
                Some(Code::RequestTimeout),
            ),
            (
                Some(GaveUp::Refused(400)),
                Unanswered::Something,
                Some(Code::MalformedRequest),
            ),
            (
                Some(GaveUp::Refused(414)),
                Unanswered::Something,
                Some(Code::UriTooLong),
            ),
            (
                Some(GaveUp::Refused(431)),
                Unanswered::LongLine,
                Some(Code::UriTooLong),
            ),
            (
                Some(GaveUp::Refused(431)),
                Unanswered::Something,
                Some(Code::HeadTooLarge),
            ),
        ] {
            assert_eq!(
                refusal(gave_up, unanswered).map(|problem| problem.code),
                code
            );
        }
    }
}
