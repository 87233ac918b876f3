//! What the control thread needs of a ring; the kernel's, or one that a test scripts.

use std::io;
use std::time::Duration;

use crate::command::Encoded;
use crate::sys::{CommandRing, RingEvent, Token};

/// A ring of commands. The methods are those of [`CommandRing`].
pub(super) trait Port {
    fn set_workers_max(&self, workers: u32) -> io::Result<()>;
    fn push_command(&mut self, token: Token, encoded: Encoded) -> io::Result<()>;
    fn push_cancel(&mut self, token: Token) -> io::Result<()>;
    fn push_wake(&mut self) -> io::Result<()>;
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;
    fn poll_event(&mut self) -> Option<RingEvent>;
}

impl Port for CommandRing {
    fn set_workers_max(&self, workers: u32) -> io::Result<()> {
        self.set_workers_max(workers)
    }

    fn push_command(&mut self, token: Token, encoded: Encoded) -> io::Result<()> {
        self.push_command(token, encoded)
    }

    fn push_cancel(&mut self, token: Token) -> io::Result<()> {
        self.push_cancel(token)
    }

    fn push_wake(&mut self) -> io::Result<()> {
        self.push_wake()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.wait(timeout)
    }

    fn poll_event(&mut self) -> Option<RingEvent> {
        self.poll_event()
    }
}
