//! What the daemon holds open for each device, by the manager's key. Control plane only; locked for moments, never across an await.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use block::DeviceId;
use dataplane::{CopyMode, Counters, CountersSnapshot, Placement};
use manager::{DeviceKey, DeviceName};

use super::backing::Backing;

/// The handles of one device.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// Its name, for the log.
    pub(crate) name: Option<DeviceName>,
    /// The number that its link points at, from `publish` to `unpublish`.
    pub(crate) published: Option<DeviceId>,
    /// When it became live.
    pub(crate) created: Option<SystemTime>,
    /// The open, locked backing, from the step `open` to the step `close`.
    pub(crate) backing: Option<Arc<Backing>>,
    /// How its data travels, from `add` on.
    pub(crate) copy_mode: Option<CopyMode>,
    /// Which shards serve it, from `attach` to `release`.
    pub(crate) placement: Option<Arc<Placement>>,
    /// Shards on which a part is attached, or may be.
    pub(crate) attached: Vec<usize>,
    /// Why it cannot be served in full any more.
    pub(crate) fault: Option<String>,
    /// Where each shard counts.
    pub(crate) counters: Vec<Arc<Counters>>,
}

/// See [`HandleTable::report`].
#[derive(Debug, Default)]
pub(crate) struct HandleReport {
    /// What its shards counted.
    pub(crate) figures: CountersSnapshot,
    /// Which they are.
    pub(crate) shards: Vec<usize>,
    /// When it became live.
    pub(crate) created: Option<SystemTime>,
    /// How its data travels.
    pub(crate) copy_mode: Option<CopyMode>,
    /// What [`HandleTable::fail`] remembers.
    pub(crate) fault: Option<String>,
}

/// The handles of all devices.
#[derive(Debug, Default)]
pub(crate) struct HandleTable(Mutex<HashMap<DeviceKey, Handles>>);

impl HandleTable {
    /// Looks at, or changes, what is held for a device.
    pub(crate) fn with<T>(&self, key: DeviceKey, change: impl FnOnce(&mut Handles) -> T) -> T {
        change(self.lock().entry(key).or_default())
    }

    /// Looks at what is held for a device, if anything is.
    pub(crate) fn peek<T>(&self, key: DeviceKey, look: impl FnOnce(&Handles) -> T) -> Option<T> {
        self.lock().get(&key).map(look)
    }

    /// Forgets a device; what was held comes back to be dropped where blocking is allowed.
    pub(crate) fn remove(&self, key: DeviceKey) -> Option<Handles> {
        self.lock().remove(&key)
    }

    /// What a view of a device shows beside what the manager knows.
    pub(crate) fn report(&self, key: DeviceKey) -> HandleReport {
        let mut report = HandleReport::default();
        if let Some(handles) = self.lock().get(&key) {
            for counters in &handles.counters {
                report.figures += counters.snapshot();
            }
            report.shards.clone_from(&handles.attached);
            report.created = handles.created;
            report.copy_mode = handles.copy_mode;
            report.fault.clone_from(&handles.fault);
        }
        report
    }

    /// Remembers the first reason why a device cannot be served in full; returns its name, empty when it is gone.
    pub(crate) fn fail(&self, key: DeviceKey, reason: &str) -> String {
        let mut table = self.lock();
        let Some(handles) = table.get_mut(&key) else {
            return String::new();
        };
        handles.fault.get_or_insert_with(|| reason.to_owned());
        let name = handles.name.as_ref();
        name.map(ToString::to_string).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DeviceKey, Handles>> {
        // Every change is a single assignment: a panic in between leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_stays_and_a_device_that_is_gone_has_none() {
        let table = HandleTable::default();
        let (there, gone) = (DeviceKey(1), DeviceKey(2));
        table.with(there, |handles| handles.name = "web".parse().ok());
        assert_eq!(table.fail(there, "tag 3 was refused"), "web");
        assert_eq!(table.fail(there, "tag 4 was refused"), "web");
        assert_eq!(
            table.report(there).fault.as_deref(),
            Some("tag 3 was refused")
        );
        assert_eq!(
            (table.fail(gone, "late"), table.report(gone).fault),
            (String::new(), None)
        );
    }
}
