//! Threads that compress side by side; what they make comes out in order.
//!
//! ```text
//!   content --batch 0--> worker 0 --\
//!           --batch 1--> worker 1 ---+--> in the order of the batches
//!           --batch 2--> worker 0 --/
//! ```
//!
//! Memory is bounded: a worker has at most two batches, one that it works on and one that waits.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use overlaybd::zfile::{BlockEncoder, BlockFormat, EncodedBlocks};

use crate::error::Error;

/// Batches that a worker may have.
const BATCHES_OF_WORKER: usize = 2;

/// A batch on its way there and back; its memory goes round.
#[derive(Default)]
pub(super) struct Batch {
    /// Whole blocks, but for the last ones of a file.
    pub(super) raw: Vec<u8>,
    pub(super) encoded: EncodedBlocks,
}

type Compressed = Result<Batch, overlaybd::Error>;

struct Worker {
    /// `None` once no more is to come.
    batches: Option<SyncSender<Batch>>,
    compressed: Receiver<Compressed>,
    thread: Option<JoinHandle<()>>,
}

/// The threads.
pub(super) struct Team {
    workers: Vec<Worker>,
    /// Which worker has the batches that are out, oldest first.
    out: VecDeque<usize>,
    next: usize,
    /// What is made, for messages.
    path: PathBuf,
}

impl Team {
    pub(super) fn start(threads: usize, blocks: BlockFormat, path: &Path) -> Result<Self, Error> {
        let workers = (0..threads).map(|_| Worker::start(blocks, path));
        Ok(Self {
            workers: workers.collect::<Result<_, _>>()?,
            out: VecDeque::new(),
            next: 0,
            path: path.to_owned(),
        })
    }

    /// Whether the oldest batch must be taken back before another one is given out.
    pub(super) fn is_busy(&self) -> bool {
        self.out.len() >= BATCHES_OF_WORKER * self.workers.len()
    }

    /// Gives a batch out. Not when the team is busy.
    pub(super) fn give(&mut self, batch: Batch) -> Result<(), Error> {
        let worker = self.next;
        let batches = self
            .workers
            .get(worker)
            .and_then(|worker| worker.batches.as_ref());
        batches
            .and_then(|batches| batches.send(batch).ok())
            .ok_or_else(|| self.died())?;
        self.out.push_back(worker);
        self.next = (worker + 1) % self.workers.len();
        Ok(())
    }

    /// Takes the oldest batch back, waiting for it; `None` when none is out.
    pub(super) fn take(&mut self) -> Result<Option<Batch>, Error> {
        let Some(oldest) = self.out.pop_front() else {
            return Ok(None);
        };
        let compressed = self
            .workers
            .get(oldest)
            .map(|worker| worker.compressed.recv());
        match compressed {
            Some(Ok(Ok(batch))) => Ok(Some(batch)),
            Some(Ok(Err(error))) => Err(Error::format(&self.path, error)),
            Some(Err(_)) | None => Err(self.died()),
        }
    }

    fn died(&self) -> Error {
        let source = std::io::Error::other("a thread that compresses has panicked");
        Error::io("compression", &self.path, source)
    }
}

impl Worker {
    fn start(blocks: BlockFormat, path: &Path) -> Result<Self, Error> {
        let mut encoder = BlockEncoder::new(blocks).map_err(|error| Error::format(path, error))?;
        let (batches, taken) = sync_channel::<Batch>(BATCHES_OF_WORKER);
        let (done, compressed) = sync_channel(BATCHES_OF_WORKER);
        let work = move || {
            for mut batch in taken {
                let encoded = encoder.encode_all(&batch.raw, &mut batch.encoded);
                if done.send(encoded.map(|()| batch)).is_err() {
                    // Nobody wants it any more.
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("compress".to_owned())
            .spawn(work)
            .map_err(|error| Error::io("starting a thread", path, error))?;
        Ok(Self {
            batches: Some(batches),
            compressed,
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.batches.take());
        if let Some(thread) = self.thread.take() {
            // A panic was told when its batch was missed. It waits at most for a batch: there is room for all that is out.
            let _ = thread.join();
        }
    }
}
