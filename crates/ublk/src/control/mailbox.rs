//! Where callers leave commands for the control thread: a bounded queue and an event counter that wakes the ring.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

use super::limits::Done;
use crate::command::Command;

/// A command that somebody waits for.
pub(super) struct Job {
    pub(super) command: Command,
    /// How long it may take, for messages.
    pub(super) deadline: Duration,
    pub(super) done: Done,
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The queue is full.
    Full,
    /// The control thread ends or has ended.
    Closed,
}

struct Queue {
    jobs: VecDeque<(Instant, Job)>,
    is_closed: bool,
}

/// Shared by the handles and the control thread. The lock is held for a push or a swap only.
pub(super) struct Mailbox {
    queue: Mutex<Queue>,
    wake: Arc<OwnedFd>,
    queued_max: usize,
    /// Jobs that have not been sent: those here and those that the thread has taken over.
    queued: AtomicUsize,
    /// Copies of the thread's counters, for `status`.
    pub(super) running: AtomicUsize,
    pub(super) stuck: AtomicUsize,
}

impl Mailbox {
    pub(super) fn new(queued_max: usize) -> rustix::io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            queue: Mutex::new(Queue {
                jobs: VecDeque::new(),
                is_closed: false,
            }),
            wake: Arc::new(wake),
            queued_max,
            queued: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            stuck: AtomicUsize::new(0),
        })
    }

    pub(super) fn wake_counter(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        // No code that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a job, or gives it back.
    pub(super) fn push(&self, due: Instant, job: Job) -> Result<(), (Refusal, Job)> {
        let mut queue = self.lock();
        if queue.is_closed {
            return Err((Refusal::Closed, job));
        }
        if self.queued.load(Ordering::Acquire) >= self.queued_max {
            return Err((Refusal::Full, job));
        }
        self.queued.fetch_add(1, Ordering::AcqRel);
        let was_empty = queue.jobs.is_empty();
        queue.jobs.push_back((due, job));
        drop(queue);
        // Whoever found the queue empty wakes the thread; the others know that it has been woken.
        if was_empty {
            self.wake();
        }
        Ok(())
    }

    /// Takes over every job; the second value tells whether the mailbox is closed.
    pub(super) fn take(&self) -> (VecDeque<(Instant, Job)>, bool) {
        let mut queue = self.lock();
        (std::mem::take(&mut queue.jobs), queue.is_closed)
    }

    /// `count` jobs are no longer queued: sent, expired or refused.
    pub(super) fn on_dequeued(&self, count: usize) {
        self.queued.fetch_sub(count, Ordering::AcqRel);
    }

    /// Refuses jobs from now on and wakes the thread.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake();
    }

    /// Jobs that have not been sent.
    pub(super) fn queued(&self) -> usize {
        self.queued.load(Ordering::Acquire)
    }

    fn wake(&self) {
        // Fails only when the counter is at its maximum, and then the thread has been woken.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    /// Resets the event counter.
    pub(super) fn clear_wake(&self) {
        let mut count = [0; 8];
        // Fails only when the counter is 0 already.
        let _ = rustix::io::read(&*self.wake, &mut count);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests need one point in time")]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            command: Command::GetFeatures,
            deadline: Duration::ZERO,
            done: Box::new(|_| ()),
        }
    }

    #[test]
    fn the_queue_is_bounded_until_jobs_are_sent_and_refuses_once_closed() {
        let mailbox = Mailbox::new(2).unwrap();
        let now = Instant::now();
        assert!(mailbox.push(now, job()).is_ok());
        assert!(mailbox.push(now, job()).is_ok());
        let refusal = |mailbox: &Mailbox| mailbox.push(now, job()).err().map(|(why, _)| why);
        assert_eq!(refusal(&mailbox), Some(Refusal::Full));
        // Taken over is not sent.
        assert_eq!(mailbox.take().0.len(), 2);
        assert_eq!(refusal(&mailbox), Some(Refusal::Full));
        mailbox.on_dequeued(1);
        assert_eq!(refusal(&mailbox), None);
        mailbox.close();
        assert_eq!(refusal(&mailbox), Some(Refusal::Closed));
        let (jobs, is_closed) = mailbox.take();
        assert_eq!((jobs.len(), is_closed), (1, true));
    }
}
