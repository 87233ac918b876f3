//! The control ring: 128-byte submissions that carry a command, each owning its buffer until it completes.
//!
//! Invariants: a buffer given to the kernel is neither moved, read nor freed before its completion, and is leaked if
//! the ring goes first; every command carries `IOSQE_ASYNC`, because Linux 6.10 to 6.13 otherwise execute a punted
//! command from a slot of the ring that has been reused for another one.
//!
//! Not shared between threads: the ring belongs to the thread that made it.
#![expect(
    unsafe_code,
    reason = "the kernel reads and writes memory behind submissions"
)]

use std::collections::HashMap;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use zerocopy::IntoBytes;

use crate::command::Encoded;
use crate::errno::Errno;

/// Names one command in flight. Values below [`Token::FIRST`] are the ring's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    /// Wake-ups of the mailbox.
    const WAKE: Self = Self(0);
    /// Cancellations; how they end does not matter, the cancelled command tells.
    const CANCEL: Self = Self(1);
    /// The first value that may name a command.
    pub(crate) const FIRST: Self = Self(2);
}

/// What the ring reports.
#[derive(Debug)]
pub(crate) enum RingEvent {
    /// The mailbox's event counter is readable.
    Wake,
    /// A command has ended.
    Ended {
        token: Token,
        /// 0 or more: success; else a negative errno.
        result: i32,
        /// The command's buffer, with the answer.
        payload: Vec<u8>,
    },
}

/// The ring, the control node and the buffers in flight.
pub(crate) struct CommandRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    node: OwnedFd,
    wake: Arc<OwnedFd>,
    payloads: HashMap<Token, Vec<u8>>,
}

impl CommandRing {
    /// A ring of `entries` submissions on the control node, woken by the event counter `wake`.
    pub(crate) fn new(entries: u32, node: OwnedFd, wake: Arc<OwnedFd>) -> io::Result<Self> {
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_clamp()
            .setup_submit_all()
            .setup_single_issuer()
            .build(entries)?;
        Ok(Self {
            ring,
            node,
            wake,
            payloads: HashMap::new(),
        })
    }

    /// Sets how many commands the kernel executes at once, that is how many worker threads it may start.
    pub(crate) fn set_workers_max(&self, workers: u32) -> io::Result<()> {
        // Bounded workers only: a char device counts as one; 0 leaves the other limit as it is.
        let mut limits = [workers, 0];
        self.ring.submitter().register_iowq_max_workers(&mut limits)
    }

    /// Queues a command. It goes to the kernel with the next [`CommandRing::wait`], or earlier.
    pub(crate) fn push_command(&mut self, token: Token, encoded: Encoded) -> io::Result<()> {
        if token < Token::FIRST || self.payloads.contains_key(&token) {
            return Err(io::Error::from_raw_os_error(Errno::EEXIST.0));
        }
        let mut header = encoded.header;
        let mut payload = encoded.payload;
        if !payload.is_empty() {
            // Exposed, so that the kernel's writes are visible when the buffer is read after the completion.
            header.addr = u64::try_from(payload.as_mut_ptr().expose_provenance())
                .map_err(|_| io::Error::from_raw_os_error(Errno::EFAULT.0))?;
        }
        let mut command = [0; 80];
        if let Some(front) = command.first_chunk_mut::<32>() {
            front.copy_from_slice(header.as_bytes());
        }
        let entry = opcode::UringCmd80::new(Fd(self.node.as_raw_fd()), encoded.opcode)
            .cmd(command)
            .build()
            .flags(squeue::Flags::ASYNC)
            .user_data(token.0);
        // Inserted first: a buffer is owned before the kernel can know its address. Moving the Vec does not move
        // what it points to.
        self.payloads.insert(token, payload);
        let pushed = self.push(&entry);
        if pushed.is_err() {
            self.payloads.remove(&token);
        }
        pushed
    }

    /// Queues a request to cancel a command.
    pub(crate) fn push_cancel(&mut self, token: Token) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(token.0)
            .build()
            .user_data(Token::CANCEL.0);
        self.push(&squeue::Entry128::from(entry))
    }

    /// Queues one [`RingEvent::Wake`], which comes when the event counter is not 0.
    pub(crate) fn push_wake(&mut self) -> io::Result<()> {
        /// `POLLIN` of asm-generic/poll.h.
        const POLLIN: u32 = 1;
        let entry = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), POLLIN)
            .build()
            .user_data(Token::WAKE.0);
        self.push(&squeue::Entry128::from(entry))
    }

    /// Submits what is queued and waits for a completion, at most for `timeout`. Returns early without harm.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let result = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next completion that has come, if any.
    pub(crate) fn poll_event(&mut self) -> Option<RingEvent> {
        loop {
            let entry = self.ring.completion().next()?;
            match Token(entry.user_data()) {
                Token::WAKE => return Some(RingEvent::Wake),
                Token::CANCEL => {}
                token => {
                    if let Some(payload) = self.payloads.remove(&token) {
                        return Some(RingEvent::Ended {
                            token,
                            result: entry.result(),
                            payload,
                        });
                    }
                }
            }
        }
    }

    fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.ring.submit()?;
        }
        let mut queue = self.ring.submission();
        // SAFETY: The entry's file descriptors are owned by `self`. The only memory it points to is the command's
        // payload, which `self.payloads` owns until the completion arrives and which `drop` leaks otherwise; the
        // 80 command bytes lie in the entry itself.
        unsafe { queue.push(entry) }.map_err(|_| io::Error::from_raw_os_error(Errno::EBUSY.0))
    }
}

impl Drop for CommandRing {
    fn drop(&mut self) {
        for (_, payload) in self.payloads.drain() {
            // The kernel may still write to it: a stuck command ends when it likes, the ring closed or not.
            mem::forget(payload);
        }
    }
}

/// A wait that ended without a completion, or that has to be repeated after completions are taken.
fn is_transient(error: &io::Error) -> bool {
    /// `ETIME`: the timeout of the wait.
    const ETIME: i32 = 62;
    matches!(
        error.raw_os_error().map(Errno),
        Some(Errno::EINTR | Errno::EBUSY | Errno::EAGAIN | Errno(ETIME))
    )
}
