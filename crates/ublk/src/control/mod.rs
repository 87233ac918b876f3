//! The control ring: every control command of the process, many in flight, each with its own deadline.
//!
//! One thread, `ublk-control`, owns an io_uring of 128-byte submissions on `/dev/ublk-control`. The kernel executes each
//! command on a worker thread (all of them sleep somewhere), so concurrency is the number of workers, which is raised.
//!
//! ```text
//!   submit --> Mailbox --> Flight (waiting, running, deadlines) --> ring --> worker in the kernel
//!                             |                                      |
//!   callback <----------------+--------------------------------------+
//! ```
//!
//! Deadlines: a command that runs out of time is cancelled and ends as `DeadlineExceeded`. One that does not come
//! back within a second of that is `Stuck`: its caller is told once, its buffer stays with the kernel, and one more
//! worker is allowed in its place.
//!
//! Limits: see [`ControlLimits`]; 1024 stuck commands, then nothing more is sent.

mod flight;
mod limits;
mod mailbox;
mod port;
mod thread;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use self::flight::CANCEL_GRACE;
pub use self::limits::STUCK_MAX;
use self::limits::{CLOSING, DEADLINE_MAX, FULL, REENTRANT, WEDGED};
pub use self::limits::{ControlLimits, Done};
use self::mailbox::{Job, Mailbox, Refusal};
use self::thread::{Driver, now};
use crate::command::Command;
use crate::diagnosis::ErrorKind;
use crate::errno::Errno;
use crate::error::Error;
use crate::reply::Reply;
use crate::sys::CommandRing;

/// The driver's control node.
pub const CONTROL_NODE: &str = "/dev/ublk-control";

/// How long the last handle waits for the thread: the grace of cancelled commands, and a second for a busy host.
const JOIN_WAIT: Duration = CANCEL_GRACE.saturating_add(Duration::from_secs(1));

/// A handle on the control ring. Clone it freely; the thread ends with the last one.
///
/// Dropping the last handle cancels what is under way, waits for that up to about two seconds, and leaves stuck
/// commands behind.
#[derive(Clone)]
pub struct ControlRing {
    inner: Arc<Inner>,
}

struct Inner {
    mailbox: Arc<Mailbox>,
    limits: ControlLimits,
    thread: Mutex<Option<JoinHandle<()>>>,
    thread_id: std::thread::ThreadId,
    /// How many commands the kernel still held when the thread was about to end.
    finished: Mutex<Receiver<usize>>,
}

impl ControlRing {
    /// Opens the control node (see [`CONTROL_NODE`]) and starts the thread.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] without the node, [`ErrorKind::Permission`] without access to it or to io_uring,
    /// [`ErrorKind::LimitReached`] when the process has no more files or threads.
    pub fn open(node: &Path, limits: ControlLimits) -> Result<Self, Error> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(node, flags, Mode::empty()).map_err(|errno| {
            let errno = Errno(errno.raw_os_error());
            Error::on_path("open", node, errno, diagnose_open(errno))
        })?;
        let mailbox = Mailbox::new(limits.queued_max)
            .map_err(|errno| Error::ring("eventfd", &errno.into()))?;
        Self::start(file, Arc::new(mailbox), limits)
    }

    fn start(node: OwnedFd, mailbox: Arc<Mailbox>, limits: ControlLimits) -> Result<Self, Error> {
        let (started_sender, started) = mpsc::sync_channel(1);
        let (finished_sender, finished) = mpsc::sync_channel(1);
        let thread_mailbox = Arc::clone(&mailbox);
        let thread = std::thread::Builder::new()
            .name("ublk-control".to_owned())
            .spawn(move || {
                // Room for every command and its cancellation.
                let entries = u32::from(limits.in_flight_max) * 2;
                let wake = thread_mailbox.wake_counter();
                let driver = CommandRing::new(entries, node, wake)
                    .and_then(|ring| Driver::new(ring, thread_mailbox, limits));
                let (outcome, driver) = match driver {
                    Ok(driver) => (Ok(()), Some(driver)),
                    Err(error) => (Err(error), None),
                };
                // The receivers outlive the thread or nobody cares any more.
                let _ = started_sender.send(outcome);
                if let Some(driver) = driver {
                    // As above.
                    let _ = finished_sender.send(driver.run());
                }
            })
            .map_err(|error| Error::ring("start of the control thread", &error))?;
        let outcome = started
            .recv()
            .unwrap_or_else(|_| Err(std::io::Error::from_raw_os_error(Errno::EIO.0)));
        outcome.map_err(|error| Error::ring("set-up of the control ring", &error))?;
        Ok(Self {
            inner: Arc::new(Inner {
                mailbox,
                limits,
                thread_id: thread.thread().id(),
                thread: Mutex::new(Some(thread)),
                finished: Mutex::new(finished),
            }),
        })
    }

    /// Sends a command. `done` is called exactly once, on the control thread, and must be quick: it may submit, but
    /// must not wait. `deadline` counts from now and is cut at an hour.
    ///
    /// A command that cannot be queued (limits, closing) is answered at once on the calling thread.
    pub fn submit(&self, command: Command, deadline: Duration, done: Done) {
        let mailbox = &self.inner.mailbox;
        let deadline = deadline.min(DEADLINE_MAX);
        let job = Job {
            command,
            deadline,
            done,
        };
        let (because, job) = if self.stuck() >= STUCK_MAX {
            (WEDGED, job)
        } else {
            match mailbox.push(now() + deadline, job) {
                Ok(()) => return,
                Err((Refusal::Full, job)) => (FULL, job),
                Err((Refusal::Closed, job)) => (CLOSING, job),
            }
        };
        let (command, device) = (job.command.kind(), job.command.device());
        (job.done)(Err(Error::not_sent(command, device, because)));
    }

    /// Sends a command and waits for its outcome. For start-up, tools and tests; a daemon submits.
    ///
    /// # Errors
    /// The command's; [`ErrorKind::Protocol`] when called from a callback of this ring.
    pub fn call(&self, command: Command, deadline: Duration) -> Result<Reply, Error> {
        let (kind, device) = (command.kind(), command.device());
        if std::thread::current().id() == self.inner.thread_id {
            return Err(Error::not_sent(kind, device, REENTRANT));
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(
            command,
            deadline,
            Box::new(move |outcome| {
                // The receiver waits below.
                let _ = sender.send(outcome);
            }),
        );
        receiver
            .recv()
            .unwrap_or_else(|_| Err(Error::not_sent(kind, device, CLOSING)))
    }

    /// Commands that wait to be sent.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.inner.mailbox.queued()
    }

    /// Commands that the kernel executes.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.inner.mailbox.running.load(Ordering::Relaxed)
    }

    /// Commands that the kernel does not let go of.
    #[must_use]
    pub fn stuck(&self) -> usize {
        self.inner.mailbox.stuck.load(Ordering::Relaxed)
    }

    /// The limits it was opened with.
    #[must_use]
    pub fn limits(&self) -> ControlLimits {
        self.inner.limits
    }
}

impl std::fmt::Debug for ControlRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlRing")
            .field("limits", &self.inner.limits)
            .field("queued", &self.queued())
            .field("in_flight", &self.in_flight())
            .field("stuck", &self.stuck())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.mailbox.close();
        if std::thread::current().id() == self.thread_id {
            // The last handle died in a callback: the thread cannot wait for itself.
            return;
        }
        let finished = self
            .finished
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let outcome = finished.recv_timeout(JOIN_WAIT);
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match (outcome, thread) {
            // A thread with a stuck command cannot exit before the kernel lets go: joining it would hang.
            (Ok(0), Some(thread)) => {
                if thread.join().is_err() {
                    tracing::error!("the control thread panicked");
                }
            }
            (outcome, _) => tracing::warn!(
                stuck = outcome.unwrap_or_default(),
                "the control thread is left behind"
            ),
        }
    }
}

const fn diagnose_open(errno: Errno) -> (ErrorKind, &'static str) {
    match errno {
        Errno::ENOENT | Errno::ENXIO | Errno::ENODEV => (
            ErrorKind::Missing,
            "load the driver with `modprobe ublk_drv`; if there is none, this kernel was built \
             without ublk (CONFIG_BLK_DEV_UBLK) or is older than Linux 6.8",
        ),
        Errno::EACCES | Errno::EPERM => (
            ErrorKind::Permission,
            "read and write access to the node is needed: run as root, or give the group access \
             by a udev rule",
        ),
        Errno::EMFILE | Errno::ENFILE => (
            ErrorKind::LimitReached,
            "raise the limit of open files (`ulimit -n`)",
        ),
        _ => (ErrorKind::Other, "see the kernel's log (`dmesg`)"),
    }
}

#[cfg(test)]
mod tests {
    use block::DeviceId;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    /// `/dev/null` answers every command with success (`uring_cmd_null`, drivers/char/mem.c).
    fn null_ring(limits: ControlLimits) -> ControlRing {
        ControlRing::open(Path::new("/dev/null"), limits).unwrap()
    }

    #[test]
    fn a_missing_node_says_how_to_load_the_driver() {
        let node = Path::new("/dev/ublk-control-none");
        let error = ControlRing::open(node, ControlLimits::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("modprobe ublk_drv"), "{error}");
    }

    #[test]
    fn thousands_of_commands_are_each_answered_once() {
        let control = null_ring(ControlLimits {
            in_flight_max: 8,
            ..ControlLimits::default()
        });
        let (sender, receiver) = mpsc::channel();
        for id in 0..2000 {
            let sender = sender.clone();
            control.submit(
                Command::StopDev(DeviceId(id)),
                DEADLINE,
                Box::new(move |outcome| sender.send((id, outcome)).unwrap()),
            );
        }
        drop(sender);
        let mut ids: Vec<_> = receiver
            .into_iter()
            .map(|(id, outcome)| {
                assert_eq!(outcome, Ok(Reply::Done));
                id
            })
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..2000).collect::<Vec<_>>());
        assert_eq!((control.queued(), control.stuck()), (0, 0));
    }

    #[test]
    fn a_panicking_callback_does_not_stop_the_others() {
        let control = null_ring(ControlLimits::default());
        let stop = Command::StopDev(DeviceId(1));
        control.submit(stop.clone(), DEADLINE, Box::new(|_| panic!("on purpose")));
        assert_eq!(control.call(stop, DEADLINE), Ok(Reply::Done));
    }

    #[test]
    fn a_callback_may_submit_but_not_wait_and_may_hold_the_last_handle() {
        let control = null_ring(ControlLimits::default());
        let stop = Command::StopDev(DeviceId(1));
        let (sender, receiver) = mpsc::channel();
        let inner = control.clone();
        control.submit(
            stop.clone(),
            DEADLINE,
            Box::new(move |_| {
                let waited = inner.call(stop.clone(), DEADLINE);
                inner.submit(
                    stop,
                    DEADLINE,
                    Box::new(move |outcome| {
                        sender.send((waited, outcome)).unwrap();
                    }),
                );
            }),
        );
        let (waited, outcome) = receiver.recv().unwrap();
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(outcome, Ok(Reply::Done));
        drop(control);
    }

    #[test]
    fn a_full_queue_refuses_on_the_calling_thread() {
        let control = null_ring(ControlLimits {
            queued_max: 0,
            ..ControlLimits::default()
        });
        let error = control.call(Command::GetFeatures, DEADLINE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitReached);
    }

    #[test]
    fn answers_of_nonsense_are_protocol_errors() {
        let control = null_ring(ControlLimits::default());
        let device = DeviceId(3);
        // The buffer stays zero, so the answer describes device 0.
        let error = control
            .call(Command::GetDevInfo(device), DEADLINE)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert_eq!(error.device(), Some(device));
    }
}
