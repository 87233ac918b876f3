//! Taking many devices down as one undertaking: a shutdown, a `remove --all`, the clean-up at start.

use std::collections::BTreeSet;

use crate::fault::Failure;
use crate::name::DeviceName;
use crate::ticket::DeviceKey;

/// How it went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Devices of which nothing is left and nothing failed, in the order in which they ended.
    pub removed: Vec<DeviceName>,
    /// Devices of which a step failed, gone in the end or not.
    pub failed: Vec<Failure>,
}

/// An undertaking. It ends when none of its devices is pending.
#[derive(Debug)]
pub(crate) struct Campaign {
    total: usize,
    pending: BTreeSet<DeviceKey>,
    report: Report,
}

impl Campaign {
    /// An undertaking about these devices.
    pub(crate) fn new(pending: BTreeSet<DeviceKey>) -> Self {
        Self {
            total: pending.len(),
            pending,
            report: Report::default(),
        }
    }

    /// A device has ended.
    pub(crate) fn on_ended(&mut self, key: DeviceKey, outcome: &Result<DeviceName, Failure>) {
        if !self.pending.remove(&key) {
            return;
        }
        match outcome {
            Ok(name) => self.report.removed.push(name.clone()),
            Err(failure) => self.report.failed.push(failure.clone()),
        }
    }

    /// Whether it waits for this device.
    pub(crate) fn is_pending(&self, key: DeviceKey) -> bool {
        self.pending.contains(&key)
    }

    /// Whether every device has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.pending.is_empty()
    }

    /// The devices it waits for.
    pub(crate) fn pending(&self) -> impl Iterator<Item = DeviceKey> + '_ {
        self.pending.iter().copied()
    }

    /// How many devices it is about.
    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    /// How it went so far.
    pub(crate) const fn report(&self) -> &Report {
        &self.report
    }
}
