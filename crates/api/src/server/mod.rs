//! The server: any [`Service`] over HTTP/1.1 on a [`BoundSocket`].
//!
//! ```text
//!   accept -> slot -> connection task -> handler (peer, sizes) -> routes -> Service
//!     |         |          |                                                  |
//!     |         |          +- reads end with the client                       +- changes run to their end
//!     |         +- full: the connection that was idle longest is closed
//!     +- no file descriptor left: an idle connection is closed; else the client is told, and accepting pauses
//! ```
//!
//! Limits: everything that a client can make the server hold is in [`Limits`] or a constant here. Ten thousand silent
//! connections only ever displace each other: a connection with a request in progress is never closed for room, and
//! changes in progress are limited to fewer than there are connections, so that reads always find room.

mod accept;
mod answer;
mod body;
mod connection;
mod handler;
mod peer;
mod routes;
mod slots;
mod stream;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::service::Service;
use crate::socket::BoundSocket;
use accept::Acceptor;
use connection::Connection;
use handler::Handler;
use peer::Access;
use routes::Context;
use slots::Slots;

/// The largest body of a request in bytes: a request is a few hundred.
pub const BODY_BYTES_MAX: u64 = 64 << 10;
/// The longest path of a request in bytes: names have at most 63.
pub const URI_BYTES_MAX: usize = 2 << 10;
/// The largest head of a request in bytes: request line and headers.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Limits of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. When all are taken, the one that was idle longest makes room.
    pub connections_max: usize,
    /// Changes (create, remove, remove all) in progress at a time, those whose client has gone included. More are
    /// refused. Fewer than `connections_max`, so that reads find room.
    pub changes_max: usize,
    /// How long a connection may take to send the head of its next request, idle time included.
    pub head_timeout: Duration,
    /// How long a request may take to send its body.
    pub body_timeout: Duration,
    /// How long requests in progress may go on after the shutdown signal.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            changes_max: 192,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// A server that is ready to run.
#[derive(Debug)]
pub struct Server<S> {
    socket: BoundSocket,
    service: Arc<S>,
    limits: Limits,
}

impl<S: Service> Server<S> {
    /// A server of `service` on `socket`.
    #[must_use]
    pub const fn new(socket: BoundSocket, service: Arc<S>, limits: Limits) -> Self {
        Self {
            socket,
            service,
            limits,
        }
    }

    /// Serves until `shutdown` resolves; then the socket is removed, requests in progress are finished within
    /// [`Limits::drain_timeout`], and what is left is cut off.
    ///
    /// # Errors
    ///
    /// Only at start, if the listener cannot be registered with the runtime. Failing to accept never ends it.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> io::Result<()> {
        let Self {
            socket,
            service,
            limits,
        } = self;
        let listener = UnixListener::from_std(socket.try_clone_listener()?)?;
        let slots = Arc::new(Slots::new(limits.connections_max));
        let context = Arc::new(Context::new(service, Arc::clone(&slots), limits));
        let handler = Handler::new(routes::router(Arc::clone(&context)));
        let access = Access::of_this_process(socket.group());
        let (ending, ended) = watch::channel(());
        let mut acceptor = Acceptor::new(listener);
        let mut tasks = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let stream = tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(result) = tasks.join_next() => {
                    log_panic(result);
                    continue;
                }
                stream = acceptor.accept(&slots) => stream,
            };
            let slot = tokio::select! {
                biased;
                () = &mut shutdown => break,
                slot = slots.claim() => slot,
            };
            let handler = handler.for_peer(access.check(&stream), Arc::clone(&slot.slot));
            let connection = Connection {
                stream,
                slot,
                handler,
                limits,
            };
            tasks.spawn(connection.run(ended.clone()));
        }
        drop(acceptor);
        drop(socket);
        ending.send_replace(());
        finish(tasks, &context, limits.drain_timeout).await;
        Ok(())
    }
}

/// Waits for connections and for changes whose client has gone.
async fn finish<S: Service>(mut tasks: JoinSet<()>, context: &Context<S>, drain: Duration) {
    let drained = tokio::time::timeout(drain, async {
        while let Some(result) = tasks.join_next().await {
            log_panic(result);
        }
        context.changes_done().await;
    });
    if drained.await.is_err() {
        tracing::warn!(
            connections = tasks.len(),
            "requests cut off at the end of the daemon"
        );
    }
}

fn log_panic(result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = result {
        tracing::error!(err = %error, "connection task failed");
    }
}
