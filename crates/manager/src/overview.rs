//! Looking at the manager: devices, counts, limits, the progress of a shutdown.

use crate::campaign::Campaign;
use crate::device::Device;
use crate::manager::Manager;
use crate::name::DeviceName;
use crate::step::{Step, StopStep};
use crate::view::{DeviceCounts, DeviceView, Phase, Progress, ProgressEntry, StatusView};

impl Manager {
    /// One device.
    #[must_use]
    pub fn device(&self, name: &DeviceName) -> Option<DeviceView> {
        let key = self.names.get(name)?;
        self.devices.get(key).map(Device::view)
    }

    /// Every device, oldest first.
    pub fn devices(&self) -> impl Iterator<Item = DeviceView> + '_ {
        self.devices.values().map(Device::view)
    }

    /// The manager as a whole.
    #[must_use]
    pub fn status(&self) -> StatusView {
        let mut counts = DeviceCounts::default();
        for device in self.devices.values() {
            match device.phase() {
                Phase::Creating => counts.creating += 1,
                Phase::Live => counts.live += 1,
                Phase::Stopping => counts.stopping += 1,
                Phase::Quarantined => counts.quarantined += 1,
            }
        }
        StatusView {
            devices: counts,
            devices_max: self.settings.devices_max,
            turns_held: self.turns.held(),
            turns_waiting: self.turns.waiting(),
            turns_max: self.turns.max(),
            late_answers: self.late_answers,
            records_owed: self.ledger.owed(),
            shutdown: self
                .shutdown
                .as_ref()
                .map(|shutdown| self.progress(shutdown)),
        }
    }

    fn progress(&self, shutdown: &Campaign) -> Progress {
        let report = shutdown.report();
        let in_progress = shutdown
            .pending()
            .filter_map(|key| self.devices.get(&key))
            .filter_map(|device| match device.state.step() {
                None | Some(Step::Stop(StopStep::Turn)) => None,
                Some(step) => Some(ProgressEntry {
                    name: device.name.clone(),
                    step,
                    since: device.since,
                }),
            })
            .collect();
        Progress {
            total: shutdown.total(),
            done: report.removed.len() + report.failed.len(),
            failed: report.failed.clone(),
            in_progress,
        }
    }
}
