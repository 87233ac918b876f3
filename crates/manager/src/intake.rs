//! Requests: each is queued, already satisfied, or denied with a named reason.

use std::sync::Arc;
use std::time::Instant;

use crate::campaign::Campaign;
use crate::creating;
use crate::denied::Denied;
use crate::device::{Creator, Device};
use crate::effect::{Answer, Refusal};
use crate::fault::{Fate, Fault, FaultKind};
use crate::held::Held;
use crate::lifecycle::Admission;
use crate::manager::{Manager, Mode};
use crate::name::DeviceName;
use crate::request::CreateRequest;
use crate::stamp::Stamp;
use crate::state::{Input, State};
use crate::step::{Step, StopStep};
use crate::ticket::ReplyId;

/// The most requests that may wait for the outcome of one device, or for one `remove --all`: far more than the
/// clients of one host, and a bound on memory.
const WAITERS_MAX: usize = 1024;

/// What a request to create meets under its name.
enum Meeting {
    /// The device is live.
    Satisfied,
    /// The device is being made.
    Join,
    /// Not now.
    Denied(Denied),
}

impl Manager {
    pub(crate) fn on_create(&mut self, now: Instant, reply: ReplyId, request: CreateRequest) {
        let key = self.names.get(request.name());
        let existing = key.and_then(|key| self.devices.get_mut(key));
        let result = if self.mode != Mode::Running {
            Err(Denied::ShuttingDown {
                what: format!("device {} is not created", request.name()),
            })
        } else if let Some(device) = existing {
            match meet(device, &request) {
                Meeting::Satisfied => Ok(Some(Answer::Existing(Box::new(device.view())))),
                Meeting::Join => {
                    device.creators.push(Creator::Joined(reply));
                    Ok(None)
                }
                Meeting::Denied(denied) => Err(denied),
            }
        } else {
            self.begin_create(now, reply, request).map(|()| None)
        };
        match result {
            Ok(None) => {}
            Ok(Some(answer)) => self.reply(reply, Ok(answer)),
            Err(denied) => self.reply(reply, Err(Refusal::Denied(denied))),
        }
    }

    fn begin_create(
        &mut self,
        now: Instant,
        reply: ReplyId,
        request: CreateRequest,
    ) -> Result<(), Denied> {
        let name = request.name().clone();
        let limit = self.settings.devices_max;
        let has_room = self.devices.len() < limit;
        let serial = if has_room {
            self.serials.try_take()
        } else {
            None
        };
        let Some(serial) = serial else {
            return Err(Denied::LimitReached { name, limit });
        };
        let stamp = Stamp {
            instance: self.instance,
            serial,
        };
        let mut device = self.build_device(name, stamp, now);
        let key = device.key;
        let (state, actions) = creating::begin(Held::NOTHING);
        device.state = state;
        device.request = Some(Arc::new(request));
        device.creators.push(Creator::First(reply));
        self.insert_device(device);
        self.perform(now, key, actions);
        Ok(())
    }

    pub(crate) fn on_remove(&mut self, reply: ReplyId, name: &DeviceName) {
        match self.try_remove(reply, name) {
            Ok(()) => {}
            Err(denied) => self.reply(reply, Err(Refusal::Denied(denied))),
        }
    }

    fn try_remove(&mut self, reply: ReplyId, name: &DeviceName) -> Result<(), Denied> {
        let key = self.names.get(name).copied();
        let Some((key, device)) = key.and_then(|key| Some((key, self.devices.get_mut(&key)?)))
        else {
            return Err(Denied::NotFound { name: name.clone() });
        };
        if device.waiters() >= WAITERS_MAX {
            return Err(Denied::TooManyRequests { limit: WAITERS_MAX });
        }
        match (&device.state, device.state.admission()) {
            (State::Quarantined(quarantined), Admission::Begin) if self.mode != Mode::Running => {
                return Err(Denied::Quarantined {
                    name: name.clone(),
                    step: quarantined.step,
                });
            }
            (_, Admission::Begin) => {
                device.removers.push(reply);
                let fault = overtaken();
                self.work.push_back((key, Input::Remove(fault)));
            }
            (_, Admission::Join) => {
                device.removers.push(reply);
                // Removing one device never waits for others, unless all of them must go anyway.
                if self.mode == Mode::Running
                    && let Some(granted) = self.turns.try_promote(key)
                {
                    self.work.push_back((granted, Input::Turn));
                }
            }
            (_, Admission::Unanswered(step)) => {
                return Err(Denied::Unanswered {
                    name: name.clone(),
                    step,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn on_remove_all(&mut self, reply: ReplyId) {
        if self.removals.len() >= WAITERS_MAX {
            let denied = Denied::TooManyRequests { limit: WAITERS_MAX };
            self.reply(reply, Err(Refusal::Denied(denied)));
            return;
        }
        let campaign = self.begin_campaign(overtaken);
        self.removals.push((reply, campaign));
        self.finish_campaigns();
    }

    pub(crate) fn on_shutdown(&mut self) {
        if self.mode != Mode::Running {
            return;
        }
        let campaign = self.begin_campaign(shutting_down);
        self.mode = Mode::ShuttingDown;
        tracing::info!(devices = campaign.total(), "shutting down");
        self.shutdown = Some(campaign);
        self.finish_campaigns();
    }

    pub(crate) fn on_hurry(&mut self) {
        self.on_shutdown();
        if self.mode == Mode::Hurrying {
            return;
        }
        self.mode = Mode::Hurrying;
        tracing::warn!("no more waiting for I/O in flight");
        for key in self.devices.keys() {
            self.work.push_back((*key, Input::Hurry));
        }
    }

    /// Begins the removal of every device; those that cannot even be tried count as failed. A shutdown tries a
    /// quarantined device once more; during it nobody does, so that it ends.
    fn begin_campaign(&mut self, why: fn() -> Fault) -> Campaign {
        let mut campaign = Campaign::new(self.devices.keys().copied().collect());
        for (key, device) in &self.devices {
            let is_final =
                self.mode != Mode::Running && matches!(device.state, State::Quarantined(_));
            match device.state.admission() {
                Admission::Begin if !is_final => {
                    self.work.push_back((*key, Input::Remove(why())));
                }
                Admission::Join => {}
                Admission::Begin | Admission::Unanswered(_) => {
                    campaign.on_ended(*key, &device.removed(Fate::Quarantined));
                }
            }
        }
        campaign
    }
}

/// What a request to create meets in the device that has its name.
fn meet(device: &Device, request: &CreateRequest) -> Meeting {
    let name = || device.name.clone();
    let differences = match &device.request {
        Some(existing) => existing.differences(request),
        None => Vec::new(),
    };
    let busy = || {
        let step = device.state.step();
        Meeting::Denied(Denied::Busy {
            name: name(),
            step: step.unwrap_or(Step::Stop(StopStep::Turn)),
        })
    };
    let taken = |differences| {
        Meeting::Denied(Denied::NameTaken {
            name: name(),
            differences,
        })
    };
    match &device.state {
        State::Creating(creating) if creating.cancelled.is_some() => busy(),
        State::Creating(_) | State::Live(_) if !differences.is_empty() => taken(differences),
        State::Creating(_) if device.waiters() >= WAITERS_MAX => {
            Meeting::Denied(Denied::TooManyRequests { limit: WAITERS_MAX })
        }
        State::Creating(_) => Meeting::Join,
        State::Live(_) => Meeting::Satisfied,
        State::Stopping(_) | State::Gone(_) => busy(),
        State::Quarantined(quarantined) => Meeting::Denied(Denied::Quarantined {
            name: name(),
            step: quarantined.step,
        }),
    }
}

/// Why a creation ends that a removal overtook.
fn overtaken() -> Fault {
    let text = "the device was removed while it was being created; create it again";
    Fault::new(FaultKind::Cancelled, text)
}

/// Why a creation ends that the end of the daemon overtook.
fn shutting_down() -> Fault {
    let text = "the daemon is shutting down; ask again when it runs again";
    Fault::new(FaultKind::ShuttingDown, text)
}
