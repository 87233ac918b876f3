//! What a run consists of, and what it saw.

use crate::faults::Faults;

/// The size of a run. Everything else follows from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How unkind the kernel is; `None` lets the seed choose.
    pub faults: Option<Faults>,
    /// How often a shard is started, and ended in order or by a power cut.
    pub epochs: u32,
    /// Steps of each epoch before it ends; one step is one turn of the shard.
    pub steps: u32,
    /// Devices that can be attached at the same time, at least 1.
    pub devices_max: usize,
    /// Turns within which a request must be answered unless its own device hangs: twice what the slowest of 30,000 seeds took, a device
    /// with one operation at a time and requests of many pieces.
    pub patience_turns: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            faults: None,
            epochs: 2,
            steps: 400,
            devices_max: 6,
            patience_turns: 6_000,
        }
    }
}

/// What a run saw. Two runs of one seed and configuration are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Turns of the shards.
    pub turns: u64,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that failed as they had to or could.
    pub failed: u64,
    /// Bytes that were read without a copy.
    pub zero_copy_bytes: u64,
    /// Requests that the kernel failed itself at a stop.
    pub unseen: u64,
    /// Devices attached.
    pub attached: u64,
    /// Devices that a shard refused because operations of released devices held its buffers.
    pub refused: u64,
    /// Devices released.
    pub released: u64,
    /// Devices abandoned.
    pub abandoned: u64,
    /// Requests that were in flight when their device was abandoned.
    pub abandoned_requests: u64,
    /// Devices whose target panicked.
    pub poisoned: u64,
    /// Files that were cut short.
    pub truncated: u64,
    /// Steps after which some operation was hanging.
    pub hanging_steps: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// The most turns that the server had a request.
    pub latency_max_turns: u64,
    /// Completions that the rings delivered.
    pub events: u64,
    /// Hash over all of them, in order.
    pub trace_hash: u64,
}

impl std::ops::AddAssign for Report {
    /// Sums what can be summed, keeps the maximum of maxima, and mixes the hashes.
    fn add_assign(&mut self, other: Self) {
        self.turns += other.turns;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.zero_copy_bytes += other.zero_copy_bytes;
        self.unseen += other.unseen;
        self.attached += other.attached;
        self.refused += other.refused;
        self.released += other.released;
        self.abandoned += other.abandoned;
        self.abandoned_requests += other.abandoned_requests;
        self.poisoned += other.poisoned;
        self.truncated += other.truncated;
        self.hanging_steps += other.hanging_steps;
        self.power_cuts += other.power_cuts;
        self.latency_max_turns = self.latency_max_turns.max(other.latency_max_turns);
        self.events += other.events;
        self.trace_hash = self.trace_hash.rotate_left(1) ^ other.trace_hash;
    }
}
