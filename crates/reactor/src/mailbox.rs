//! Messages from other threads to the thread that sleeps in a ring.
//!
//! An eventfd wakes the ring; the receiver polls it through the ring and takes the messages without blocking. Only the
//! control plane sends, so the I/O path never touches the channel.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;

use rustix::event::EventfdFlags;

use crate::error::Error;

/// The sending side; any thread.
#[derive(Debug)]
pub struct Sender<M> {
    queue: mpsc::Sender<M>,
    wake: Arc<OwnedFd>,
}

/// The receiving side; the ring's thread.
#[derive(Debug)]
pub struct Receiver<M> {
    queue: mpsc::Receiver<M>,
    wake: Arc<OwnedFd>,
}

/// The receiver is gone; the message comes back.
#[derive(Debug)]
pub struct Disconnected<M>(pub M);

/// A mailbox. Unbounded by itself: control operations in flight are bounded by their callers.
///
/// # Errors
/// When no eventfd can be had.
pub fn channel<M>() -> Result<(Sender<M>, Receiver<M>), Error> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wake = Arc::new(
        rustix::event::eventfd(0, flags)
            .map_err(|errno| Error::setup(std::io::Error::from(errno)))?,
    );
    let (sender, receiver) = mpsc::channel();
    Ok((
        Sender {
            queue: sender,
            wake: Arc::clone(&wake),
        },
        Receiver {
            queue: receiver,
            wake,
        },
    ))
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            wake: Arc::clone(&self.wake),
        }
    }
}

impl<M> Sender<M> {
    /// Sends a message and wakes the receiver.
    ///
    /// # Errors
    /// When the receiver is gone.
    pub fn send(&self, message: M) -> Result<(), Disconnected<M>> {
        self.queue
            .send(message)
            .map_err(|mpsc::SendError(message)| Disconnected(message))?;
        // The only error left is EAGAIN for a counter at its maximum: then a wake-up is pending already.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        Ok(())
    }
}

impl<M> Receiver<M> {
    /// The file that is readable when messages wait.
    #[must_use]
    pub fn wake_file(&self) -> &OwnedFd {
        &self.wake
    }

    /// Clears the wake-up. Call before taking the messages, so that none sent in between is missed.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // EAGAIN when nothing was sent since the last call, which is as good as cleared.
        let _ = rustix::io::read(&*self.wake, &mut count);
    }

    /// The next message, if one waits.
    #[must_use]
    pub fn try_receive(&self) -> Option<M> {
        self.queue.try_recv().ok()
    }
}
