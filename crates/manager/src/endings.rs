//! What follows when a device is live, gone or quarantined: replies, reports, tables.

use std::time::Instant;

use crate::campaign::Campaign;
use crate::device::Creator;
use crate::effect::{Answer, Effect, Refusal};
use crate::fault::{Fate, StepFailure};
use crate::manager::Manager;
use crate::state::State;
use crate::ticket::{DeviceKey, ReplyId};

impl Manager {
    /// A device is live: answers those who wait for it.
    pub(crate) fn on_born(&mut self, now: Instant, key: DeviceKey) {
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        device.on_entered(now);
        let creators = std::mem::take(&mut device.creators);
        let view = device.view();
        for creator in creators {
            let (id, answer) = match creator {
                Creator::First(id) => (id, Answer::Created(Box::new(view.clone()))),
                Creator::Joined(id) => (id, Answer::Existing(Box::new(view.clone()))),
            };
            self.reply(id, Ok(answer));
        }
    }

    /// A device is gone or quarantined: answers everyone who waits for it.
    pub(crate) fn on_ended(&mut self, now: Instant, key: DeviceKey) {
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        device.since = now;
        let fate = match device.state {
            State::Gone(_) => Fate::Gone,
            State::Creating(_) | State::Live(_) | State::Stopping(_) | State::Quarantined(_) => {
                Fate::Quarantined
            }
        };
        let creators = std::mem::take(&mut device.creators);
        let removers = std::mem::take(&mut device.removers);
        let failed_create = device.failed_create(fate);
        let outcome = device.removed(fate);
        let StepFailure { step, fault, .. } = &failed_create.first;
        let is_refused = !creators.is_empty() && fault.kind.is_refusal_of(*step);
        if is_refused {
            tracing::warn!(device = %failed_create.name, err = %fault, "create refused");
        }
        match &outcome {
            Ok(_) if is_refused => {}
            Ok(name) => tracing::info!(device = %name, "gone"),
            Err(failure) => {
                tracing::error!(device = %failure.name, err = %failure, "removal failed")
            }
        }
        for creator in creators {
            let (Creator::First(id) | Creator::Joined(id)) = creator;
            self.reply(id, Err(Refusal::Failed(Box::new(failed_create.clone()))));
        }
        for id in removers {
            let result = outcome.clone();
            self.reply(
                id,
                result
                    .map(|name| Answer::Removed { name })
                    .map_err(|failure| Refusal::Failed(Box::new(failure))),
            );
        }
        if fate == Fate::Gone {
            self.forget(key);
        }
        self.startup.on_ended(key, &outcome);
        for (_, removal) in &mut self.removals {
            removal.on_ended(key, &outcome);
        }
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.on_ended(key, &outcome);
        }
        self.finish_campaigns();
    }

    /// Answers every undertaking that has come to its end, the shutdown last.
    pub(crate) fn finish_campaigns(&mut self) {
        let (done, removals) = std::mem::take(&mut self.removals)
            .into_iter()
            .partition(|(_, removal)| removal.is_done());
        self.removals = removals;
        let done: Vec<(ReplyId, Campaign)> = done;
        for (id, removal) in done {
            self.reply(id, Ok(Answer::RemovedAll(removal.report().clone())));
        }
        let is_over = self.shutdown.as_ref().is_some_and(Campaign::is_done);
        if self.is_shutdown_reported || !is_over {
            return;
        }
        // A device that came back from quarantine by a late answer may have waiters though the shutdown has counted it.
        let is_waited_for =
            !self.removals.is_empty() || self.devices.values().any(|device| device.waiters() > 0);
        if let Some(shutdown) = self.shutdown.as_ref().filter(|_| !is_waited_for) {
            self.is_shutdown_reported = true;
            self.effects.push_back(Effect::ShutdownDone {
                report: shutdown.report().clone(),
            });
        }
    }

    fn forget(&mut self, key: DeviceKey) {
        self.timers.disarm(key);
        if let Some(device) = self.devices.remove(&key) {
            // The serials of other installations are theirs.
            if device.stamp.instance == self.instance {
                self.serials.on_gone(device.stamp.serial);
            }
            if self.names.get(&device.name) == Some(&key) {
                self.names.remove(&device.name);
            }
        }
    }
}
