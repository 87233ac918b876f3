//! Taking down what an earlier run left: strays become devices that are on their way out from the beginning.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::campaign::Campaign;
use crate::fault::{Fault, FaultKind};
use crate::held::{Held, KernelHold, RecordMark};
use crate::manager::Manager;
use crate::name::DeviceName;
use crate::reconcile::Finding;
use crate::record::DeviceRecord;
use crate::stamp::{Serial, Stamp};
use crate::state::{Awaited, Ended, Input, Quarantined, State};
use crate::step::{Step, StopStep};

impl Manager {
    /// Begins the removal of everything that the findings say is to be removed.
    pub(crate) fn remove_strays(&mut self, now: Instant) {
        let mut keys = BTreeSet::new();
        let mut strays = Vec::new();
        for finding in &self.findings {
            match finding {
                Finding::Remove {
                    device,
                    serial,
                    record,
                    ..
                } => strays.push((*serial, Some(device.id), record.clone())),
                Finding::Stale { record } => {
                    strays.push((record.serial, None, Some(record.clone())));
                }
                Finding::Report { .. } | Finding::Ignore { .. } | Finding::Unreadable { .. } => {}
            }
        }
        for (serial, id, record) in strays {
            let Some(name) = stray_name(serial, record.as_ref()) else {
                continue;
            };
            let stamp = Stamp {
                instance: self.instance,
                serial,
            };
            let held = Held {
                record: match record {
                    Some(_) => RecordMark::Written,
                    None => RecordMark::None,
                },
                link: record.is_some(),
                disk: id.is_some(),
                kernel: id.map_or(KernelHold::Nothing, KernelHold::Added),
                ..Held::NOTHING
            };
            let mut device = self.build_device(name, stamp, now);
            device.request = record.map(|record| record.request);
            // As if an earlier try had failed: what follows is the same.
            device.state = State::Quarantined(Quarantined {
                step: Step::Stop(StopStep::Turn),
                awaited: Awaited::Nothing,
                held,
                ended: Ended::default(),
            });
            keys.insert(device.key);
            self.insert_device(device);
        }
        for key in &keys {
            let fault = Fault::new(FaultKind::Cancelled, "left by an earlier run");
            self.work.push_back((*key, Input::Remove(fault)));
        }
        self.startup = Campaign::new(keys);
        self.settle(now);
    }
}

/// What a left-over device is called: its recorded name, or one made from its serial.
fn stray_name(serial: Serial, record: Option<&DeviceRecord>) -> Option<DeviceName> {
    match record {
        Some(record) => Some(record.request.name().clone()),
        None => format!("stray-{serial}").parse().ok(),
    }
}
