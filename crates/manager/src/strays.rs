//! Taking down what an earlier run left: strays become devices that are on their way out from the beginning.

use std::collections::BTreeSet;
use std::time::Instant;

use block::DeviceId;

use crate::campaign::Campaign;
use crate::denied::{Denied, NotStray};
use crate::effect::Refusal;
use crate::fault::{Fault, FaultKind};
use crate::held::{Held, KernelHold, RecordMark};
use crate::manager::{Manager, Mode};
use crate::name::DeviceName;
use crate::reconcile::{Finding, KernelDevice, KernelState};
use crate::record::DeviceRecord;
use crate::stamp::{Instance, Stamp};
use crate::state::{Awaited, Ended, Input, Quarantined, State};
use crate::step::{Step, StopStep};
use crate::ticket::{DeviceKey, ReplyId};

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
            let stamp = Stamp {
                instance: self.instance,
                serial,
            };
            keys.extend(self.insert_stray(now, stamp, id, record));
        }
        for key in &keys {
            let fault = Fault::new(FaultKind::Cancelled, "left by an earlier run");
            self.work.push_back((*key, Input::Remove(fault)));
        }
        self.startup = Campaign::new(keys);
        self.settle(now);
    }

    /// Begins the removal of a device that somebody asked for by its number: of another installation, whose state is lost.
    pub(crate) fn on_remove_stray(&mut self, now: Instant, reply: ReplyId, found: KernelDevice) {
        let refused = |why| Denied::NotStray { id: found.id, why };
        let known = |stamp| self.devices.values().find(|device| device.stamp == stamp);
        let begun = match found.stamp {
            _ if self.mode != Mode::Running => Err(Denied::ShuttingDown {
                what: format!("ublk device {} is not removed", found.id.0),
            }),
            None => Err(refused(NotStray::Foreign)),
            Some(stamp) if let Some(device) = known(stamp) => {
                Err(refused(NotStray::Known(device.name.clone())))
            }
            Some(_) if found.state == KernelState::Live && found.server_alive => {
                Err(refused(NotStray::Served))
            }
            Some(stamp) => self
                .insert_stray(now, stamp, Some(found.id), None)
                .ok_or_else(|| refused(NotStray::Foreign)),
        };
        match begun {
            Err(denied) => self.reply(reply, Err(Refusal::Denied(denied))),
            Ok(key) => {
                if let Some(device) = self.devices.get_mut(&key) {
                    device.removers.push(reply);
                }
                let fault = Fault::new(FaultKind::Cancelled, "left by another installation");
                self.work.push_back((key, Input::Remove(fault)));
            }
        }
    }

    /// Puts a device that was left into the tables, on its way out.
    fn insert_stray(
        &mut self,
        now: Instant,
        stamp: Stamp,
        id: Option<DeviceId>,
        record: Option<DeviceRecord>,
    ) -> Option<DeviceKey> {
        let name = stray_name(self.instance, stamp, record.as_ref())?;
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
        let key = device.key;
        self.insert_device(device);
        Some(key)
    }
}

/// What a left-over device is called: its recorded name, or one made from its stamp.
fn stray_name(own: Instance, stamp: Stamp, record: Option<&DeviceRecord>) -> Option<DeviceName> {
    let Stamp { instance, serial } = stamp;
    match record {
        Some(record) => Some(record.request.name().clone()),
        None if instance == own => format!("stray-{serial}").parse().ok(),
        None => format!("stray-{}-{serial}", instance.number()).parse().ok(),
    }
}
