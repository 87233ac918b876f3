//! Accepts connections, whatever happens.
//!
//! When the process or the host has no file descriptor left, an idle connection is closed to get one. If there is none, the
//! waiting client is accepted on a descriptor kept in reserve, told so, and closed; then accepting pauses, because the
//! listener stays readable and would keep a thread busy.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{UnixListener, UnixStream};

use super::answer;
use super::slots::Slots;
use crate::v1::{Code, Problem};

/// How long accepting pauses after a failure: long enough to cost nothing, short enough not to be noticed.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Acceptor {
    listener: UnixListener,
    reserve: Option<File>,
}

impl Acceptor {
    pub(super) fn new(listener: UnixListener) -> Self {
        Self {
            listener,
            reserve: reserve(),
        }
    }

    /// The next connection. May be dropped at any await without losing one.
    pub(super) async fn accept(&mut self, slots: &Slots) -> UnixStream {
        loop {
            let error = match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                // The client has gone before it was accepted.
                Some(Errno::CONNABORTED | Errno::INTR) => continue,
                Some(Errno::MFILE | Errno::NFILE) => {
                    tracing::warn!(err = %error, "no file descriptor left for a connection");
                    if !slots.evict_idlest() {
                        self.turn_away();
                    }
                }
                _ => tracing::warn!(err = %error, "connection not accepted"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Gives the reserved descriptor to one client for as long as it takes to tell it why.
    fn turn_away(&mut self) {
        drop(self.reserve.take());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(Ok((stream, _))) = self.listener.poll_accept(&mut context) {
            let problem = Problem::new(
                Code::LimitReached,
                "the daemon has no file descriptor left for a connection",
                "remove devices, or raise the limit of open files of the daemon",
            )
            .about("open files");
            // Best effort: a client that does not take it sees a closed connection.
            let _: io::Result<usize> = stream.try_write(&answer::raw_problem(&problem));
        }
        self.reserve = reserve();
    }
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}
