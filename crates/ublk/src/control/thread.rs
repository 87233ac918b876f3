//! The control thread: moves commands from the mailbox to the ring and answers to their callers.
//!
//! A driver without policy: [`Flight`] decides what is due, the ring executes, this feeds one with the other. It
//! sleeps in the ring when there is nothing to do; callers wake it through the mailbox's event counter.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::flight::{Completed, Due, Flight};
use super::limits::{CLOSING, ControlLimits};
use super::mailbox::{Job, Mailbox};
use super::port::Port;
use crate::errno::Errno;
use crate::error::Error;
use crate::reply::Reply;
use crate::sys::RingEvent;

/// How a cancelled command comes back: `EINTR` and `ECANCELED`, and the kernel's inner form of the first.
const ERESTARTSYS: Errno = Errno(512);

/// The clock of the crate: read by the control thread and by those who submit.
#[expect(clippy::disallowed_methods, reason = "the driver's one clock")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The state of the thread.
pub(super) struct Driver<R> {
    ring: R,
    flight: Flight<Job>,
    mailbox: Arc<Mailbox>,
    workers_max: u32,
    is_closing: bool,
}

impl<R: Port> Driver<R> {
    /// Prepares a thread's work. To be called on the thread that runs it: the ring belongs to its maker.
    pub(super) fn new(ring: R, mailbox: Arc<Mailbox>, limits: ControlLimits) -> io::Result<Self> {
        let mut driver = Self {
            ring,
            flight: Flight::new(usize::from(limits.in_flight_max)),
            mailbox,
            workers_max: u32::from(limits.workers_max),
            is_closing: false,
        };
        driver.ring.set_workers_max(driver.workers_max)?;
        driver.ring.push_wake()?;
        Ok(driver)
    }

    /// Works until the mailbox is closed and nothing runs any more. Returns how many commands
    /// the kernel still holds.
    pub(super) fn run(mut self) -> usize {
        if let Err(error) = self.work() {
            tracing::error!(err = %error, "the control ring failed; no device can be managed");
        }
        self.mailbox.close();
        let (jobs, _) = self.mailbox.take();
        let rest = self.flight.drain();
        for job in jobs.into_iter().map(|(_, job)| job).chain(rest) {
            let (command, device) = (job.command.kind(), job.command.device());
            self.answer(job, Err(Error::not_sent(command, device, CLOSING)));
        }
        // More than the stuck ones only if the ring itself failed.
        self.flight.running() + self.flight.stuck()
    }

    fn work(&mut self) -> io::Result<()> {
        loop {
            self.take_mail();
            self.handle_due()?;
            self.start_waiting()?;
            self.publish();
            if self.is_closing && self.flight.running() == 0 {
                return Ok(());
            }
            let timeout = self
                .flight
                .next_due()
                .map(|due| due.saturating_duration_since(now()));
            self.ring.wait(timeout)?;
            self.handle_events()?;
        }
    }

    fn take_mail(&mut self) {
        let (jobs, is_closed) = self.mailbox.take();
        for (due, job) in jobs {
            self.flight.admit(due, job);
        }
        if is_closed && !self.is_closing {
            self.is_closing = true;
            self.flight.expire_all(now());
        }
    }

    fn start_waiting(&mut self) -> io::Result<()> {
        while let Some((token, job)) = self.flight.poll_start() {
            let encoded = job.command.encode();
            self.mailbox.on_dequeued(1);
            self.ring.push_command(token, encoded)?;
        }
        Ok(())
    }

    fn handle_due(&mut self) -> io::Result<()> {
        while let Some(due) = self.flight.poll_due(now()) {
            match due {
                Due::Expired(job) => {
                    self.mailbox.on_dequeued(1);
                    let error = self.late(&job);
                    self.answer(job, Err(error));
                }
                Due::Cancel(token) => self.ring.push_cancel(token)?,
                Due::Stuck(job) => {
                    self.follow_stuck()?;
                    let (command, device) = (job.command.kind(), job.command.device());
                    let error = Error::stuck(command, device, job.deadline);
                    tracing::error!(
                        op = command.name(),
                        device = device.map(|device| device.0),
                        stuck = self.flight.stuck(),
                        "a control command is stuck in the kernel"
                    );
                    self.answer(job, Err(error));
                }
            }
        }
        Ok(())
    }

    fn handle_events(&mut self) -> io::Result<()> {
        while let Some(event) = self.ring.poll_event() {
            match event {
                RingEvent::Wake => {
                    self.mailbox.clear_wake();
                    self.ring.push_wake()?;
                }
                RingEvent::Ended {
                    token,
                    result,
                    payload,
                } => match self.flight.handle_completion(token) {
                    Completed::Ended(job) => {
                        let reply = parse(&job, result, &payload);
                        self.answer(job, reply);
                    }
                    Completed::EndedLate(job) => {
                        let reply = if was_cancelled(result) {
                            Err(self.late(&job))
                        } else {
                            parse(&job, result, &payload)
                        };
                        self.answer(job, reply);
                    }
                    Completed::Released => {
                        tracing::warn!(result, "a stuck control command has ended after all");
                        self.follow_stuck()?;
                    }
                    Completed::Unknown => {
                        tracing::error!(token = token.0, "a completion without a command");
                    }
                },
            }
        }
        Ok(())
    }

    /// The error of a command whose time is over.
    fn late(&self, job: &Job) -> Error {
        let (command, device) = (job.command.kind(), job.command.device());
        if self.is_closing {
            Error::not_sent(command, device, CLOSING)
        } else {
            Error::deadline_exceeded(command, device, job.deadline)
        }
    }

    /// A stuck command holds a worker for ever: as many workers more keep the others going.
    fn follow_stuck(&self) -> io::Result<()> {
        let stuck = u32::try_from(self.flight.stuck()).unwrap_or(u32::MAX);
        self.ring
            .set_workers_max(self.workers_max.saturating_add(stuck))
    }

    /// Calls back, with the counters up to date. A callback that panics is a bug of its caller and must not take the
    /// other devices along.
    fn answer(&self, job: Job, reply: Result<Reply, Error>) {
        self.publish();
        let command = job.command.kind();
        if catch_unwind(AssertUnwindSafe(|| (job.done)(reply))).is_err() {
            tracing::error!(op = command.name(), "a control callback panicked");
        }
    }

    fn publish(&self) {
        let mailbox = &self.mailbox;
        mailbox
            .running
            .store(self.flight.running(), Ordering::Relaxed);
        mailbox.stuck.store(self.flight.stuck(), Ordering::Relaxed);
    }
}

fn was_cancelled(result: i32) -> bool {
    matches!(
        Errno(result.saturating_neg()),
        Errno::EINTR | Errno::ECANCELED | ERESTARTSYS
    )
}

fn parse(job: &Job, result: i32, payload: &[u8]) -> Result<Reply, Error> {
    let (command, device) = (job.command.kind(), job.command.device());
    if result < 0 {
        let errno = Errno(result.saturating_neg());
        return Err(Error::from_command(command, device, errno));
    }
    let answer = payload.get(job.command.answer_at()..).unwrap_or_default();
    Reply::parse(command, device, answer, result)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use block::DeviceId;
    use rustix::event::{PollFd, PollFlags};

    use super::*;
    use crate::command::{Command, Encoded};
    use crate::diagnosis::ErrorKind;
    use crate::sys::Token;

    /// How the scripted kernel treats a device.
    const QUICK: DeviceId = DeviceId(0);
    const CANCELLABLE: DeviceId = DeviceId(1);
    const DEAF: DeviceId = DeviceId(2);

    struct ScriptedRing {
        wake: Arc<OwnedFd>,
        running: Vec<(Token, u32)>,
        events: VecDeque<RingEvent>,
        workers: Sender<u32>,
        /// A message releases what is deaf.
        release: Receiver<()>,
    }

    impl ScriptedRing {
        fn end(&mut self, token: Token, result: i32) {
            self.running.retain(|(running, _)| *running != token);
            self.events.push_back(RingEvent::Ended {
                token,
                result,
                payload: Vec::new(),
            });
        }
    }

    impl Port for ScriptedRing {
        fn set_workers_max(&self, workers: u32) -> io::Result<()> {
            self.workers.send(workers).map_err(io::Error::other)
        }

        fn push_command(&mut self, token: Token, encoded: Encoded) -> io::Result<()> {
            self.running.push((token, encoded.header.dev_id));
            if encoded.header.dev_id == QUICK.0 {
                self.end(token, 0);
            }
            Ok(())
        }

        fn push_cancel(&mut self, token: Token) -> io::Result<()> {
            if self.running.contains(&(token, CANCELLABLE.0)) {
                self.end(token, -Errno::EINTR.0);
            }
            Ok(())
        }

        fn push_wake(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
            if self.events.is_empty() {
                let timeout = timeout.map(|time| time.try_into().unwrap());
                let mut fds = [PollFd::new(&*self.wake, PollFlags::IN)];
                if rustix::event::poll(&mut fds, timeout.as_ref())? > 0 {
                    self.events.push_back(RingEvent::Wake);
                }
            }
            if self.release.try_recv().is_ok() {
                for (token, _) in self.running.clone() {
                    self.end(token, 0);
                }
            }
            Ok(())
        }

        fn poll_event(&mut self) -> Option<RingEvent> {
            self.events.pop_front()
        }
    }

    struct Bench {
        mailbox: Arc<Mailbox>,
        workers: Receiver<u32>,
        release: Sender<()>,
        outcomes: Receiver<(DeviceId, Result<Reply, Error>)>,
        sender: Sender<(DeviceId, Result<Reply, Error>)>,
        thread: std::thread::JoinHandle<usize>,
    }

    fn bench() -> Bench {
        let mailbox = Arc::new(Mailbox::new(16).unwrap());
        let (workers_sender, workers) = mpsc::channel();
        let (release, release_receiver) = mpsc::channel();
        let (sender, outcomes) = mpsc::channel();
        let ring = ScriptedRing {
            wake: mailbox.wake_counter(),
            running: Vec::new(),
            events: VecDeque::new(),
            workers: workers_sender,
            release: release_receiver,
        };
        let limits = ControlLimits {
            in_flight_max: 2,
            workers_max: 8,
            queued_max: 16,
        };
        let driver = Driver::new(ring, Arc::clone(&mailbox), limits).unwrap();
        Bench {
            mailbox,
            workers,
            release,
            outcomes,
            sender,
            thread: std::thread::spawn(move || driver.run()),
        }
    }

    impl Bench {
        fn submit(&self, device: DeviceId, deadline: Duration) {
            let sender = self.sender.clone();
            let job = Job {
                command: Command::StopDev(device),
                deadline,
                done: Box::new(move |outcome| sender.send((device, outcome)).unwrap()),
            };
            assert!(self.mailbox.push(now() + deadline, job).is_ok());
        }

        /// The next outcome: device, and the kind of its failure.
        fn outcome(&self) -> (DeviceId, Option<ErrorKind>) {
            let (device, outcome) = self.outcomes.recv().unwrap();
            (device, outcome.err().map(|error| error.kind()))
        }
    }

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_deaf_command_is_reported_stuck_once_and_does_not_hold_up_the_others() {
        let bench = bench();
        assert_eq!(bench.workers.recv(), Ok(8));
        bench.submit(DEAF, SHORT);
        bench.submit(DEAF, SHORT);
        // Both places are taken; this one waits for the first to be given up.
        bench.submit(QUICK, LONG);
        assert_eq!(bench.outcome(), (DEAF, Some(ErrorKind::Stuck)));
        assert_eq!(bench.outcome(), (DEAF, Some(ErrorKind::Stuck)));
        assert_eq!(bench.outcome(), (QUICK, None));
        assert_eq!(
            [bench.workers.recv(), bench.workers.recv()],
            [Ok(9), Ok(10)]
        );
        bench.release.send(()).unwrap();
        bench.submit(QUICK, LONG);
        assert_eq!(bench.outcome(), (QUICK, None));
        assert_eq!([bench.workers.recv(), bench.workers.recv()], [Ok(9), Ok(8)]);
        bench.mailbox.close();
        assert_eq!(bench.thread.join().unwrap(), 0);
        assert!(bench.outcomes.try_recv().is_err(), "answered twice");
    }

    #[test]
    fn a_command_that_can_be_cancelled_ends_at_its_deadline() {
        let bench = bench();
        let begin = now();
        bench.submit(CANCELLABLE, SHORT);
        assert_eq!(
            bench.outcome(),
            (CANCELLABLE, Some(ErrorKind::DeadlineExceeded))
        );
        assert!(begin.elapsed() >= SHORT);
        bench.mailbox.close();
        assert_eq!(bench.thread.join().unwrap(), 0);
    }

    #[test]
    fn closing_answers_everybody_and_leaves_the_deaf_behind() {
        let bench = bench();
        bench.submit(DEAF, LONG);
        bench.submit(QUICK, LONG);
        // First come, first served: the deaf command has been sent.
        assert_eq!(bench.outcome(), (QUICK, None));
        bench.submit(CANCELLABLE, LONG);
        bench.submit(QUICK, LONG);
        bench.mailbox.close();
        // The closing may overtake the later two or not; each is answered, and the deaf one after its grace.
        let mut later = [bench.outcome().0, bench.outcome().0];
        later.sort_unstable();
        assert_eq!(later, [QUICK, CANCELLABLE]);
        assert_eq!(bench.outcome(), (DEAF, Some(ErrorKind::Stuck)));
        assert_eq!(bench.thread.join().unwrap(), 1);
        assert_eq!(bench.mailbox.queued(), 0);
    }
}
