//! The control plane's handle: starts the shard threads, places devices on them, sends messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use block::{QueueId, Target};
use reactor::mailbox::{self, Receiver, Sender};
use reactor::uring::{Uring, UringLimits};
use reactor::{Error, RingFile};

use crate::counters::{Counters, ShardGauges};
use crate::message::{Attachment, DeviceKey, Done, Message, Released};
use crate::shard::{EventSink, Shard, ShardLimits, Turn};
use crate::ublk_queue::UblkQueue;

/// What [`Dataplane::start`] needs to know.
#[derive(Clone, Copy, Debug)]
pub struct DataplaneConfig {
    /// Number of shard threads, at least 1.
    pub shards: u16,
    /// Limits of each.
    pub limits: ShardLimits,
    /// Limits of each one's ring.
    pub ring: UringLimits,
}

type Mail = Message<UblkQueue, RingFile>;

struct ShardHandle {
    mail: Sender<Mail>,
    gauges: Arc<ShardGauges>,
    /// Queues placed here, attached or about to be.
    load: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The shard threads. Dropping it ends them.
pub struct Dataplane {
    shards: Vec<ShardHandle>,
}

/// Whether one device is served by several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// By as many as it has queues.
    Queues,
    /// By one: its target has state that cannot be shared.
    Together,
}

/// Which shards serve which queues of a device. Holds their share of the load until dropped.
#[derive(Debug)]
pub struct Placement {
    parts: Vec<(usize, Vec<QueueId>)>,
    loads: Vec<(Arc<AtomicU64>, u64)>,
}

/// One shard's part of a device, to be attached.
pub struct Part {
    /// The queues, in the order of [`Placement::parts`].
    pub queues: Vec<UblkQueue>,
    /// The content: one instance per shard.
    pub target: Box<dyn Target>,
    /// The files of the target.
    pub files: Vec<RingFile>,
    /// Where to count.
    pub counters: Arc<Counters>,
}

impl Placement {
    /// For each shard that takes part: its index, and the queues it serves.
    #[must_use]
    pub fn parts(&self) -> &[(usize, Vec<QueueId>)] {
        &self.parts
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        for (load, queues) in &self.loads {
            load.fetch_sub(*queues, Ordering::Relaxed);
        }
    }
}

impl Dataplane {
    /// Starts the threads and waits until each has its ring.
    ///
    /// # Errors
    /// When a ring or a thread cannot be had; those started are ended again.
    pub fn start(config: DataplaneConfig, events: EventSink) -> Result<Self, Error> {
        let mut plane = Self { shards: Vec::new() };
        for index in 0..config.shards.max(1) {
            let (mail, receiver) = mailbox::channel()?;
            let gauges = Arc::new(ShardGauges::default());
            let (ready, started) = std::sync::mpsc::channel();
            let setup = Setup {
                config,
                events: Arc::clone(&events),
                gauges: Arc::clone(&gauges),
            };
            let thread = std::thread::Builder::new()
                .name(format!("shard-{index}"))
                .spawn(move || run(setup, receiver, &ready))
                .map_err(Error::thread)?;
            let handle = ShardHandle {
                mail,
                gauges,
                load: Arc::new(AtomicU64::new(0)),
                thread: Some(thread),
            };
            plane.shards.push(handle);
            started
                .recv()
                .unwrap_or_else(|_| Err(Error::thread(std::io::ErrorKind::Other.into())))?;
        }
        Ok(plane)
    }

    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The figures of each shard, in order.
    pub fn gauges(&self) -> impl Iterator<Item = &ShardGauges> {
        self.shards.iter().map(|shard| &*shard.gauges)
    }

    /// Chooses shards for a device: each queue goes to the shard with the fewest queues, or all of them do.
    #[must_use]
    pub fn place(&self, queues: u16, spread: Spread) -> Placement {
        let mut placement = Placement {
            parts: Vec::new(),
            loads: Vec::new(),
        };
        let mut chosen = self.least_loaded();
        for queue in 0..queues {
            if spread == Spread::Queues {
                chosen = self.least_loaded();
            }
            let Some((index, shard)) = chosen else { break };
            shard.load.fetch_add(1, Ordering::Relaxed);
            placement.loads.push((Arc::clone(&shard.load), 1));
            match placement.parts.iter_mut().find(|(part, _)| *part == index) {
                Some((_, queues)) => queues.push(QueueId(queue)),
                None => placement.parts.push((index, vec![QueueId(queue)])),
            }
        }
        placement
    }

    fn least_loaded(&self) -> Option<(usize, &ShardHandle)> {
        let load = |shard: &ShardHandle| shard.load.load(Ordering::Relaxed);
        let shards = self.shards.iter().enumerate();
        shards.min_by_key(|(_, shard)| load(shard))
    }

    /// Attaches one part of a device on `shard`. Looks at the files first, which may wait for as long as `fstatfs` takes.
    pub fn attach(&self, shard: usize, key: DeviceKey, part: Part, done: Done<bool>) {
        let Part {
            queues,
            target,
            files,
            counters,
        } = part;
        let attachment = Attachment {
            key,
            queues,
            target,
            files,
            counters,
        };
        self.send(shard, Message::Attach(attachment, done));
    }

    /// See [`Message::Drain`].
    pub fn drain(&self, shard: usize, key: DeviceKey, done: Done<()>) {
        self.send(shard, Message::Drain(key, done));
    }

    /// See [`Message::Abandon`].
    pub fn abandon(&self, shard: usize, key: DeviceKey, done: Done<usize>) {
        self.send(shard, Message::Abandon(key, done));
    }

    /// See [`Message::Release`].
    pub fn release(
        &self,
        shard: usize,
        key: DeviceKey,
        done: Done<Option<Released<UblkQueue, RingFile>>>,
    ) {
        self.send(shard, Message::Release(key, done));
    }

    /// A message to a shard that has ended is dropped with its callback, which the asker sees as a closed channel.
    fn send(&self, shard: usize, message: Mail) {
        if let Some(shard) = self.shards.get(shard)
            && shard.mail.send(message).is_err()
        {
            tracing::error!("a shard thread has ended before its devices");
        }
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        for shard in &mut self.shards {
            // A shard that has ended already needs no message.
            let _ = shard.mail.send(Message::Exit);
            if let Some(thread) = shard.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a shard thread panicked");
            }
        }
    }
}

struct Setup {
    config: DataplaneConfig,
    events: EventSink,
    gauges: Arc<ShardGauges>,
}

fn run(setup: Setup, receiver: Receiver<Mail>, ready: &std::sync::mpsc::Sender<Result<(), Error>>) {
    let Setup {
        config,
        events,
        gauges,
    } = setup;
    let shard = Uring::new(config.ring).and_then(|ring| {
        let wake = receiver.wake_file().try_clone().map_err(Error::thread)?;
        Shard::new(
            ring,
            (receiver, RingFile::ring_only(wake)),
            events,
            gauges,
            config.limits,
        )
    });
    let mut shard = match shard {
        Ok(shard) => shard,
        Err(error) => {
            // The starter is waiting for this answer; it is never gone before.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(())); // as above
    loop {
        match shard.turn() {
            Ok(Turn::Continue) => {}
            Ok(Turn::Exit) => return,
            Err(error) => {
                // Going on would leave guests hanging; the process's death lets the kernel keep their I/O for recovery.
                tracing::error!(error = %error, "a shard lost its ring");
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn wake_ups(plane: &Dataplane) -> Vec<u64> {
        plane.gauges().map(ShardGauges::wake_ups).collect()
    }

    #[test]
    fn a_shard_wakes_for_a_message_and_not_while_it_is_idle() {
        let config = DataplaneConfig {
            shards: 2,
            limits: ShardLimits::default(),
            ring: UringLimits::default(),
        };
        let plane = Dataplane::start(config, Arc::new(|_| {})).unwrap();
        let (done, answers) = mpsc::channel();
        for shard in 0..plane.shards() {
            let done = done.clone();
            let answer = Box::new(move |()| done.send(()).unwrap());
            plane.drain(shard, DeviceKey(1), answer);
            answers.recv().unwrap();
        }
        let before = wake_ups(&plane);
        assert!(before.iter().all(|count| *count > 0), "{before:?}");
        // The time that is watched; nothing is expected to happen in it.
        let silence = answers.recv_timeout(Duration::from_millis(500));
        assert_eq!(silence, Err(mpsc::RecvTimeoutError::Timeout));
        assert_eq!(wake_ups(&plane), before);
    }
}
