//! What goes to the journal: the changes of each step, and removals that failed and are owed.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::Device;
use crate::effect::Change;
use crate::fault::{Fault, FaultKind};
use crate::record::{DeviceRecord, Record, device_key};
use crate::stamp::Serial;
use crate::step::Step;
use crate::ticket::Ticket;

/// The removals that are under way or owed. Keys are never used again while a removal is owed (serials are not), so a
/// late removal harms nothing. Bounded: creates fail too when the journal does, so nothing new comes to be owed.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    owed: BTreeSet<String>,
    under_way: BTreeMap<Ticket, BTreeSet<String>>,
}

impl Ledger {
    /// How many removals are owed.
    pub(crate) fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Adds to a write what is owed, and remembers its removals until the write is answered.
    pub(crate) fn on_write(&mut self, ticket: Ticket, changes: &mut Vec<Change>) {
        let owed = std::mem::take(&mut self.owed);
        changes.extend(owed.into_iter().map(|key| Change::Delete { key }));
        let removed: BTreeSet<_> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Delete { key } => Some(key.clone()),
                Change::Put { .. } => None,
            })
            .collect();
        if !removed.is_empty() {
            self.under_way.insert(ticket, removed);
        }
    }

    /// A write is durable.
    pub(crate) fn on_durable(&mut self, ticket: Ticket) {
        self.under_way.remove(&ticket);
    }

    /// A write has failed: its removals are owed again.
    pub(crate) fn on_failed(&mut self, ticket: Ticket) {
        if let Some(keys) = self.under_way.remove(&ticket) {
            self.owed.extend(keys);
        }
    }
}

/// The changes of the journal that a step makes.
pub(crate) fn changes(device: &Device, step: Step, next: Serial) -> Result<Vec<Change>, Fault> {
    let encode = |record: &Record| match record.encode() {
        Ok(value) => Ok(Change::Put {
            key: record.key(),
            value,
        }),
        Err(error) => Err(Fault::new(FaultKind::Internal, error.to_string())),
    };
    let Some(state) = device.record_state(step)? else {
        return Ok(vec![Change::Delete {
            key: device_key(device.stamp.serial),
        }]);
    };
    let Some(request) = device.request.clone() else {
        return Err(Fault::new(
            FaultKind::Internal,
            "a device without a request has no record; this is a bug",
        ));
    };
    let record = Record::Device(DeviceRecord {
        serial: device.stamp.serial,
        request,
        state,
    });
    let mut changes = vec![encode(&record)?];
    if matches!(step, Step::Create(_)) {
        changes.push(encode(&Record::NextSerial(next))?);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::DeviceKey;

    #[test]
    fn a_failed_removal_goes_with_the_next_write() {
        let ticket = |attempt| Ticket {
            device: DeviceKey(1),
            attempt,
        };
        let delete = |key: &str| Change::Delete { key: key.into() };
        let mut ledger = Ledger::default();
        let mut changes = vec![delete("a")];
        ledger.on_write(ticket(1), &mut changes);
        assert_eq!(ledger.owed(), 0);
        ledger.on_failed(ticket(1));
        ledger.on_failed(ticket(1));
        assert_eq!(ledger.owed(), 1);

        let mut changes = vec![delete("b")];
        ledger.on_write(ticket(2), &mut changes);
        assert_eq!(changes, [delete("b"), delete("a")]);
        ledger.on_durable(ticket(2));
        ledger.on_failed(ticket(2));
        assert_eq!(ledger.owed(), 0);
    }
}
