//! Statistics that a shard writes and anyone reads.
//!
//! Each object has one writer, the shard's thread; plain relaxed loads and stores suffice and no locked instruction is
//! needed per I/O. Readers see each figure exactly, but not all figures of one instant.

use std::sync::atomic::{AtomicU64, Ordering};

use block::{Op, Request, Status};

/// A figure with one writer.
#[derive(Debug, Default)]
pub(crate) struct Figure(AtomicU64);

impl Figure {
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of one device on one shard.
#[derive(Debug, Default)]
pub struct Counters {
    reads: Figure,
    writes: Figure,
    flushes: Figure,
    discards: Figure,
    write_zeroes: Figure,
    read_bytes: Figure,
    written_bytes: Figure,
    pub(crate) zero_copy_bytes: Figure,
    errors: Figure,
    pub(crate) in_flight: Figure,
}

/// What [`Counters`] held when they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountersSnapshot {
    /// Reads that succeeded.
    pub reads: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Discards that succeeded.
    pub discards: u64,
    /// Write-zeroes that succeeded.
    pub write_zeroes: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Bytes of successful writes.
    pub written_bytes: u64,
    /// Bytes of reads that went from the file into the request without a copy.
    pub zero_copy_bytes: u64,
    /// Requests of any kind that failed.
    pub errors: u64,
    /// Requests being worked on.
    pub in_flight: u64,
}

impl Counters {
    pub(crate) fn record(&self, request: &Request, status: Status) {
        if !status.is_ok() {
            self.errors.add(1);
            return;
        }
        match request.op {
            Op::Read => {
                self.reads.add(1);
                self.read_bytes.add(request.data_len_bytes());
            }
            Op::Write => {
                self.writes.add(1);
                self.written_bytes.add(request.data_len_bytes());
            }
            Op::Flush => self.flushes.add(1),
            Op::Discard => self.discards.add(1),
            Op::WriteZeroes => self.write_zeroes.add(1),
        }
    }

    pub(crate) fn record_refused(&self) {
        self.errors.add(1);
    }

    /// The figures now.
    #[must_use]
    pub fn snapshot(&self) -> CountersSnapshot {
        CountersSnapshot {
            reads: self.reads.value(),
            writes: self.writes.value(),
            flushes: self.flushes.value(),
            discards: self.discards.value(),
            write_zeroes: self.write_zeroes.value(),
            read_bytes: self.read_bytes.value(),
            written_bytes: self.written_bytes.value(),
            zero_copy_bytes: self.zero_copy_bytes.value(),
            errors: self.errors.value(),
            in_flight: self.in_flight.value(),
        }
    }
}

impl std::ops::AddAssign for CountersSnapshot {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.write_zeroes += other.write_zeroes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.zero_copy_bytes += other.zero_copy_bytes;
        self.errors += other.errors;
        self.in_flight += other.in_flight;
    }
}

/// Figures of one shard.
#[derive(Debug, Default)]
pub struct ShardGauges {
    pub(crate) devices: Figure,
    pub(crate) in_flight: Figure,
    pub(crate) buffers_in_use: Figure,
    pub(crate) buffers_max: Figure,
    pub(crate) operations_in_kernel: Figure,
    pub(crate) operations_max: Figure,
    pub(crate) tags_with_slot: Figure,
    pub(crate) slots: Figure,
    pub(crate) wake_ups: Figure,
}

impl ShardGauges {
    /// Devices attached.
    #[must_use]
    pub fn devices(&self) -> u64 {
        self.devices.value()
    }

    /// Requests being worked on, as of the shard's last turn.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight.value()
    }

    /// Buffers that I/O in flight holds, as of the shard's last turn.
    #[must_use]
    pub fn buffers_in_use(&self) -> u64 {
        self.buffers_in_use.value()
    }

    /// The most buffers it can hold.
    #[must_use]
    pub fn buffers_max(&self) -> u64 {
        self.buffers_max.value()
    }

    /// Operations on files that the kernel works on, as of the shard's last turn.
    #[must_use]
    pub fn operations_in_kernel(&self) -> u64 {
        self.operations_in_kernel.value()
    }

    /// The most operations that the kernel may be given: those that all devices share, and one for each device.
    #[must_use]
    pub fn operations_max(&self) -> u64 {
        self.operations_max.value()
    }

    /// Tags that have a slot for zero copy. More than there are slots share them.
    #[must_use]
    pub fn tags_with_slot(&self) -> u64 {
        self.tags_with_slot.value()
    }

    /// Slots for zero copy.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots.value()
    }

    /// How often the shard's thread came out of the kernel. An idle shard does not.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.wake_ups.value()
    }
}
