//! What an earlier run left, decided by comparing the journal with the kernel's own list.
//!
//! | kernel device | decision |
//! |---|---|
//! | no stamp of ours | ignored |
//! | stamp of another installation | reported |
//! | our stamp; its record cannot be read | reported: a newer version may understand it |
//! | our stamp; live and its server lives | reported |
//! | our stamp; dead, parked, or its server is dead | removed together with its record |
//!
//! A record without a kernel device of its stamp is dropped, unless a device that no record knows has its number:
//! then that device is reported and neither of them is touched. Records that cannot be read are reported and left.
//!
//! Adoption, when it comes, is decided in `decide_ours`: its candidates are those of [`StrayReason::Parked`] whose
//! record says live.

use std::collections::{BTreeMap, BTreeSet};

use block::DeviceId;

use crate::record::{DeviceRecord, Record, RecordError, StoredRecord, serial_of_key};
use crate::stamp::{Instance, Serial, Stamp};

/// The kernel's state of a device (`UBLK_S_DEV_*`, include/uapi/linux/ublk_cmd.h, Linux 6.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelState {
    /// Never started, or stopped.
    Dead,
    /// Started.
    Live,
    /// Its server died; I/O waits.
    Quiesced,
    /// Its server died; I/O fails.
    FailIo,
}

/// A device as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelDevice {
    /// The kernel's number.
    pub id: DeviceId,
    /// Its owner stamp, if it carries one of ours.
    pub stamp: Option<Stamp>,
    /// Its state.
    pub state: KernelState,
    /// Whether the process that serves it, by the kernel's account, lives and is not this one.
    pub server_alive: bool,
}

/// Why a device is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StrayReason {
    /// It serves nobody: never started, or stopped and not deleted.
    Dead,
    /// Its server died and the kernel keeps it for another.
    Parked,
    /// Its server died and the kernel has not noticed yet.
    Orphaned,
}

/// Why a device is only reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportReason {
    /// Another installation made it.
    OtherInstance,
    /// A living process serves it.
    LiveServer,
    /// Its record cannot be read.
    UnreadableRecord,
    /// It has the number of a device of ours, but not its stamp.
    StampMismatch {
        /// The serial of the record that has the same number.
        recorded: Serial,
    },
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Ours and left over: the device and its record are removed.
    Remove {
        /// The device.
        device: KernelDevice,
        /// The serial of its stamp.
        serial: Serial,
        /// Its record, if there is one.
        record: Option<DeviceRecord>,
        /// Why.
        reason: StrayReason,
    },
    /// Told to the operator, not touched.
    Report {
        /// The device.
        device: KernelDevice,
        /// Why.
        reason: ReportReason,
    },
    /// Somebody else's.
    Ignore {
        /// The device.
        device: KernelDevice,
    },
    /// A record of a device that does not exist any more: it is dropped.
    Stale {
        /// The record.
        record: DeviceRecord,
    },
    /// A record that cannot be read: told to the operator, not touched.
    Unreadable {
        /// Its key.
        key: String,
        /// Why.
        error: RecordError,
    },
}

/// Compares. Kernel devices first, in the order of the list, then records without one, then unreadable records.
#[must_use]
pub fn reconcile(
    instance: Instance,
    records: &[StoredRecord],
    kernel: &[KernelDevice],
) -> Vec<Finding> {
    let journal = Journal::read(records);
    let carried: BTreeSet<Serial> = carried_serials(instance, kernel).collect();
    // Records whose stamp no device carries, by the number that they name.
    let orphans: BTreeMap<DeviceId, Serial> = journal
        .devices
        .values()
        .filter(|record| !carried.contains(&record.serial))
        .filter_map(|record| Some((record.state.id()?, record.serial)))
        .collect();
    let mut mismatched = BTreeSet::new();
    let mut findings = Vec::with_capacity(kernel.len() + records.len());
    for device in kernel {
        let own = device.stamp.filter(|stamp| stamp.instance == instance);
        let record = own.and_then(|stamp| journal.devices.get(&stamp.serial));
        let orphan = orphans.get(&device.id).filter(|_| record.is_none());
        let report = |reason| Finding::Report {
            device: *device,
            reason,
        };
        findings.push(match (orphan, own) {
            (Some(recorded), _) => {
                mismatched.insert(*recorded);
                report(ReportReason::StampMismatch {
                    recorded: *recorded,
                })
            }
            (None, Some(own)) if journal.unreadable_serials.contains(&own.serial) => {
                report(ReportReason::UnreadableRecord)
            }
            (None, Some(own)) => decide_ours(*device, own.serial, record),
            (None, None) if device.stamp.is_some() => report(ReportReason::OtherInstance),
            (None, None) => Finding::Ignore { device: *device },
        });
    }
    let is_stale = |record: &DeviceRecord| {
        !carried.contains(&record.serial) && !mismatched.contains(&record.serial)
    };
    let Journal {
        devices,
        unreadable,
        ..
    } = journal;
    findings.extend(
        devices
            .into_values()
            .filter(is_stale)
            .map(|record| Finding::Stale { record }),
    );
    findings.extend(
        unreadable
            .into_iter()
            .map(|(key, error)| Finding::Unreadable { key, error }),
    );
    findings
}

/// The device records, read.
#[derive(Default)]
struct Journal {
    devices: BTreeMap<Serial, DeviceRecord>,
    unreadable: Vec<(String, RecordError)>,
    unreadable_serials: BTreeSet<Serial>,
}

impl Journal {
    fn read(records: &[StoredRecord]) -> Self {
        let mut journal = Self::default();
        for stored in records {
            match Record::decode(stored) {
                Ok(Record::Device(record)) => {
                    journal.devices.insert(record.serial, record);
                }
                Ok(Record::NextSerial(_)) => {}
                Err(error) => {
                    journal
                        .unreadable_serials
                        .extend(serial_of_key(&stored.key));
                    journal.unreadable.push((stored.key.clone(), error));
                }
            }
        }
        journal
    }
}

fn decide_ours(device: KernelDevice, serial: Serial, record: Option<&DeviceRecord>) -> Finding {
    let reason = match device.state {
        KernelState::Dead => StrayReason::Dead,
        KernelState::Quiesced | KernelState::FailIo => StrayReason::Parked,
        KernelState::Live if device.server_alive => {
            return Finding::Report {
                device,
                reason: ReportReason::LiveServer,
            };
        }
        KernelState::Live => StrayReason::Orphaned,
    };
    Finding::Remove {
        device,
        serial,
        record: record.cloned(),
        reason,
    }
}

/// The serial to continue with: the one that was journaled, else the one after the highest in sight.
pub(crate) fn next_serial(
    instance: Instance,
    records: &[StoredRecord],
    kernel: &[KernelDevice],
) -> Serial {
    let journaled = records
        .iter()
        .find_map(|stored| match Record::decode(stored) {
            Ok(Record::NextSerial(next)) => Some(next),
            Ok(Record::Device(_)) | Err(_) => None,
        });
    journaled.unwrap_or_else(|| {
        serials_in_sight(instance, records, kernel)
            .max()
            .unwrap_or(Serial::LAST)
            .following()
    })
}

/// Every serial of ours that a record or a kernel device carries.
pub(crate) fn serials_in_sight<'a>(
    instance: Instance,
    records: &'a [StoredRecord],
    kernel: &'a [KernelDevice],
) -> impl Iterator<Item = Serial> + 'a {
    let recorded = records
        .iter()
        .filter_map(|stored| serial_of_key(&stored.key));
    recorded.chain(carried_serials(instance, kernel))
}

fn carried_serials(
    instance: Instance,
    kernel: &[KernelDevice],
) -> impl Iterator<Item = Serial> + '_ {
    kernel
        .iter()
        .filter_map(|device| device.stamp)
        .filter(move |stamp| stamp.instance == instance)
        .map(|stamp| stamp.serial)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::Access;

    use super::*;
    use crate::record::RecordState;
    use crate::request::{CreateParams, CreateRequest};

    const OWN: u32 = 1;
    const OTHER: u32 = 2;

    fn instance(number: u32) -> Instance {
        Instance::new(number).unwrap()
    }

    fn serial(number: u32) -> Serial {
        Serial::new(number).unwrap()
    }

    fn device(id: u32, stamp: Option<(u32, u32)>, state: KernelState) -> KernelDevice {
        KernelDevice {
            id: DeviceId(id),
            stamp: stamp.map(|(number, of)| Stamp {
                instance: instance(number),
                serial: serial(of),
            }),
            state,
            server_alive: false,
        }
    }

    fn record(number: u32, state: RecordState) -> DeviceRecord {
        let request = CreateRequest::new(CreateParams {
            name: format!("vm-{number}").parse().unwrap(),
            spec: "null:8G".parse().unwrap(),
            size: None,
            access: Access::ReadWrite,
            queues: None,
            depth: None,
        });
        DeviceRecord {
            serial: serial(number),
            request: Arc::new(request.unwrap()),
            state,
        }
    }

    fn stored(record: &DeviceRecord) -> StoredRecord {
        let record = Record::Device(record.clone());
        StoredRecord {
            key: record.key(),
            value: record.encode().unwrap(),
        }
    }

    fn run(records: &[DeviceRecord], kernel: &[KernelDevice]) -> Vec<Finding> {
        let records: Vec<_> = records.iter().map(stored).collect();
        reconcile(instance(OWN), &records, kernel)
    }

    #[test]
    fn a_device_of_ours_is_removed_unless_a_living_process_serves_it() {
        let cases = [
            (KernelState::Dead, false, Some(StrayReason::Dead)),
            (KernelState::Dead, true, Some(StrayReason::Dead)),
            (KernelState::Quiesced, false, Some(StrayReason::Parked)),
            (KernelState::FailIo, false, Some(StrayReason::Parked)),
            (KernelState::Live, false, Some(StrayReason::Orphaned)),
            (KernelState::Live, true, None),
        ];
        let live = record(5, RecordState::Live { id: DeviceId(7) });
        for (state, server_alive, reason) in cases {
            for records in [vec![], vec![live.clone()]] {
                let device = KernelDevice {
                    server_alive,
                    ..device(7, Some((OWN, 5)), state)
                };
                let expected = match reason {
                    Some(reason) => Finding::Remove {
                        device,
                        serial: serial(5),
                        record: records.first().cloned(),
                        reason,
                    },
                    None => Finding::Report {
                        device,
                        reason: ReportReason::LiveServer,
                    },
                };
                assert_eq!(run(&records, &[device]), [expected], "{state:?}");
            }
        }
    }

    #[test]
    fn devices_of_others_are_ignored_or_reported_whatever_their_state() {
        for state in [
            KernelState::Dead,
            KernelState::Live,
            KernelState::Quiesced,
            KernelState::FailIo,
        ] {
            let foreign = device(1, None, state);
            let other = device(2, Some((OTHER, 5)), state);
            let report = Finding::Report {
                device: other,
                reason: ReportReason::OtherInstance,
            };
            assert_eq!(
                run(&[], &[foreign, other]),
                [Finding::Ignore { device: foreign }, report]
            );
        }
    }

    #[test]
    fn a_record_without_a_device_is_stale() {
        for state in [
            RecordState::Creating,
            RecordState::Added { id: DeviceId(7) },
            RecordState::Live { id: DeviceId(7) },
            RecordState::Stopping { id: None },
        ] {
            let record = record(5, state);
            let unrelated = device(8, None, KernelState::Live);
            assert_eq!(
                run(std::slice::from_ref(&record), &[unrelated]),
                [
                    Finding::Ignore { device: unrelated },
                    Finding::Stale { record }
                ]
            );
        }
    }

    #[test]
    fn a_number_with_another_stamp_is_reported_and_neither_side_touched() {
        let record = record(5, RecordState::Live { id: DeviceId(7) });
        for stamp in [None, Some((OTHER, 5)), Some((OWN, 6))] {
            let device = device(7, stamp, KernelState::Dead);
            let report = Finding::Report {
                device,
                reason: ReportReason::StampMismatch {
                    recorded: serial(5),
                },
            };
            assert_eq!(run(std::slice::from_ref(&record), &[device]), [report]);
        }
    }

    #[test]
    fn a_device_with_its_own_record_outweighs_an_old_record_of_its_number() {
        let old = record(
            5,
            RecordState::Stopping {
                id: Some(DeviceId(7)),
            },
        );
        let new = record(6, RecordState::Live { id: DeviceId(7) });
        let device = device(7, Some((OWN, 6)), KernelState::Quiesced);
        let remove = Finding::Remove {
            device,
            serial: serial(6),
            record: Some(new.clone()),
            reason: StrayReason::Parked,
        };
        assert_eq!(
            run(&[old.clone(), new], &[device]),
            [remove, Finding::Stale { record: old }]
        );
    }

    #[test]
    fn the_stamp_counts_and_not_the_number() {
        let record = record(5, RecordState::Added { id: DeviceId(7) });
        let device = device(9, Some((OWN, 5)), KernelState::Dead);
        assert!(matches!(
            &run(&[record], &[device])[..],
            [Finding::Remove {
                record: Some(_),
                ..
            }]
        ));
    }

    #[test]
    fn what_cannot_be_read_is_reported_and_its_device_left_alone() {
        let records = [StoredRecord {
            key: "device/000005".into(),
            value: b"{}".to_vec(),
        }];
        let device = device(7, Some((OWN, 5)), KernelState::Dead);
        let findings = reconcile(instance(OWN), &records, &[device]);
        assert!(matches!(
            &findings[..],
            [
                Finding::Report {
                    reason: ReportReason::UnreadableRecord,
                    ..
                },
                Finding::Unreadable { .. }
            ]
        ));
    }

    #[test]
    fn serials_continue_after_everything_in_sight() {
        let records = [stored(&record(5, RecordState::Creating))];
        let kernel = [
            device(1, Some((OWN, 9)), KernelState::Dead),
            device(2, Some((OTHER, 90)), KernelState::Dead),
        ];
        let next = |records: &[StoredRecord], kernel: &[KernelDevice]| {
            next_serial(instance(OWN), records, kernel).number()
        };
        assert_eq!(next(&[], &[]), 0);
        assert_eq!(next(&records, &[]), 6);
        assert_eq!(next(&records, &kernel), 10);
        let journaled = Record::NextSerial(serial(3));
        let journaled = StoredRecord {
            key: journaled.key(),
            value: journaled.encode().unwrap(),
        };
        assert_eq!(next(&[journaled], &kernel), 3);
    }
}
