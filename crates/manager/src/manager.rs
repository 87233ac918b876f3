//! The manager: keeps the devices, moves them, and turns their actions into effects.
//!
//! `handle_event` takes one event, moves every device that it concerns, and returns; effects wait in a queue until the
//! driver polls them. Work per event is bounded by the number of devices (`devices_max`).
//! Requests are in `intake.rs`, endings and replies in `endings.rs`, the clean-up at start in `strays.rs`, views in
//! `overview.rs`; all of them act on the one struct here, in the one task that owns it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::campaign::Campaign;
use crate::device::{Device, is_record, output_of_write};
use crate::effect::{Answer, Effect, Refusal, StepOrder};
use crate::event::{Event, Output};
use crate::fault::{Fault, FaultKind};
use crate::ledger::{Ledger, changes};
use crate::name::DeviceName;
use crate::reconcile::{Finding, KernelDevice, next_serial, reconcile, serials_in_sight};
use crate::record::StoredRecord;
use crate::settings::Settings;
use crate::stamp::{Instance, SerialSource, Stamp};
use crate::state::{Action, Ended, Input, Patience, Rules, State};
use crate::step::{Step, StopStep};
use crate::ticket::{DeviceKey, ReplyId, Ticket};
use crate::timers::Timers;
use crate::turns::{Turns, Urgency};

/// What the manager starts from: found by the driver before it serves anyone.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// Which installation this is.
    pub instance: Instance,
    /// Everything in the journal.
    pub records: Vec<StoredRecord>,
    /// Every ublk device of the kernel, whoever made it.
    pub kernel: Vec<KernelDevice>,
}

/// How far the process is in its own life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Everything is possible.
    Running,
    /// No creates.
    ShuttingDown,
    /// And no waiting for I/O.
    Hurrying,
}

/// The core. See the crate's header for how it is driven.
#[derive(Debug)]
pub struct Manager {
    pub(crate) settings: Settings,
    pub(crate) instance: Instance,
    pub(crate) devices: BTreeMap<DeviceKey, Device>,
    pub(crate) names: BTreeMap<DeviceName, DeviceKey>,
    pub(crate) serials: SerialSource,
    pub(crate) turns: Turns,
    pub(crate) mode: Mode,
    pub(crate) shutdown: Option<Campaign>,
    pub(crate) removals: Vec<(ReplyId, Campaign)>,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) work: VecDeque<(DeviceKey, Input)>,
    next_key: u64,
    /// The clean-up at start.
    pub(crate) startup: Campaign,
    pub(crate) ledger: Ledger,
    pub(crate) timers: Timers,
    pub(crate) findings: Vec<Finding>,
    pub(crate) late_answers: u64,
    pub(crate) is_shutdown_reported: bool,
}

impl Manager {
    /// A manager that begins by removing what an earlier run has left.
    #[must_use]
    pub fn new(settings: Settings, inventory: &Inventory, now: Instant) -> Self {
        let Inventory {
            instance,
            records,
            kernel,
        } = inventory;
        let next = next_serial(*instance, records, kernel);
        let taken = serials_in_sight(*instance, records, kernel).collect();
        let mut manager = Self {
            settings,
            instance: *instance,
            devices: BTreeMap::new(),
            names: BTreeMap::new(),
            serials: SerialSource::new(next, taken),
            turns: Turns::new(settings.stop_concurrency),
            mode: Mode::Running,
            shutdown: None,
            removals: Vec::new(),
            effects: VecDeque::new(),
            work: VecDeque::new(),
            next_key: 1,
            startup: Campaign::new(BTreeSet::new()),
            ledger: Ledger::default(),
            timers: Timers::default(),
            findings: reconcile(*instance, records, kernel),
            late_answers: 0,
            is_shutdown_reported: false,
        };
        manager.remove_strays(now);
        manager
    }

    /// Takes one event. Poll effects and the deadline afterwards.
    pub fn handle_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Create { reply, request } => self.on_create(now, reply, request),
            Event::Remove { reply, name } => self.on_remove(reply, &name),
            Event::RemoveStray { reply, found } => self.on_remove_stray(now, reply, found),
            Event::RemoveAll { reply } => self.on_remove_all(reply),
            Event::Shutdown => self.on_shutdown(),
            Event::Hurry => self.on_hurry(),
            Event::Stepped { ticket, result } => self.on_answer(ticket, result),
            Event::Panicked { ticket, message } => {
                let message = format!("the task of the step panicked: {message}; this is a bug");
                self.on_answer(ticket, Err(Fault::new(FaultKind::Panicked, message)));
            }
            Event::Journaled { ticket, result } => {
                match &result {
                    Ok(()) => self.ledger.on_durable(ticket),
                    Err(_) => self.ledger.on_failed(ticket),
                }
                self.on_answer(ticket, output_of_write(result));
            }
            Event::Tick => {
                while let Some(key) = self.timers.poll_due(now) {
                    self.work.push_back((key, Input::Overdue));
                }
            }
        }
        self.settle(now);
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to send [`Event::Tick`], if nothing happens before.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Instant> {
        self.timers.poll_deadline()
    }

    /// What was found at start.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// A device of this run, not yet in any table.
    pub(crate) fn build_device(&mut self, name: DeviceName, stamp: Stamp, now: Instant) -> Device {
        let key = DeviceKey(self.next_key);
        self.next_key += 1;
        let state = State::Gone(Ended::default());
        Device::new(key, name, stamp, state, now)
    }

    /// Puts a device into the tables; an older one keeps its name.
    pub(crate) fn insert_device(&mut self, device: Device) {
        self.names.entry(device.name.clone()).or_insert(device.key);
        self.devices.insert(device.key, device);
    }

    fn on_answer(&mut self, ticket: Ticket, result: Result<Output, Fault>) {
        let device = self.devices.get_mut(&ticket.device);
        if device.is_some_and(|device| device.try_accept(ticket)) {
            self.timers.disarm(ticket.device);
            self.work.push_back((ticket.device, Input::Answer(result)));
        } else {
            self.late_answers += 1;
            tracing::debug!(device = %ticket.device, attempt = ticket.attempt, "late answer");
        }
    }

    /// Moves devices until none has anything to do. Each input leads to a bounded number of others.
    pub(crate) fn settle(&mut self, now: Instant) {
        while let Some((key, input)) = self.work.pop_front() {
            self.drive(now, key, input);
            while let Some(granted) = self.turns.poll_granted() {
                self.work.push_back((granted, Input::Turn));
            }
        }
    }

    fn drive(&mut self, now: Instant, key: DeviceKey, input: Input) {
        let rules = Rules {
            order: self.settings.teardown_order,
            patience: match self.mode {
                Mode::Running | Mode::ShuttingDown => Patience::Wait,
                Mode::Hurrying => Patience::Hurry,
            },
            elapsed: self.devices.get(&key).map_or(Duration::ZERO, |device| {
                now.saturating_duration_since(device.since)
            }),
        };
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        let actions = device.transition(input, &rules);
        self.perform(now, key, actions);
    }

    /// Does what a transition asks for.
    pub(crate) fn perform(&mut self, now: Instant, key: DeviceKey, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Issue(Step::Stop(StopStep::Turn)) => self.on_turn_wanted(now, key),
                Action::Issue(step) => self.issue(now, key, step),
                Action::LeaveTurn => self.turns.on_left(key),
                Action::Born => self.on_born(now, key),
                Action::Ended => self.on_ended(now, key),
            }
        }
    }

    fn issue(&mut self, now: Instant, key: DeviceKey, step: Step) {
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        let ticket = device.on_issued(now);
        let effect = if is_record(step) {
            changes(device, step, self.serials.next()).map(|mut changes| {
                self.ledger.on_write(ticket, &mut changes);
                Effect::Journal { ticket, changes }
            })
        } else {
            let limit = self.settings.deadlines.of(step);
            device.command(step).map(|command| {
                Effect::Step(Box::new(StepOrder {
                    ticket,
                    name: device.name.clone(),
                    step,
                    deadline: now + limit.unwrap_or_default(),
                    command,
                }))
            })
        };
        match effect {
            Ok(effect) => self.effects.push_back(effect),
            Err(fault) => self.work.push_back((key, Input::Answer(Err(fault)))),
        }
        match self.settings.deadlines.patience(step) {
            Some(limit) => self.timers.arm(key, now + limit),
            None => self.timers.disarm(key),
        }
    }

    fn on_turn_wanted(&mut self, now: Instant, key: DeviceKey) {
        self.timers.disarm(key);
        let is_in_campaign = self.startup.is_pending(key)
            || self
                .removals
                .iter()
                .any(|(_, removal)| removal.is_pending(key));
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        device.on_entered(now);
        let is_wanted_alone = !device.removers.is_empty() || !is_in_campaign;
        let urgency = if self.mode == Mode::Running && is_wanted_alone {
            Urgency::AtOnce
        } else {
            Urgency::Queued
        };
        if let Some(granted) = self.turns.on_wanted(key, urgency) {
            self.work.push_back((granted, Input::Turn));
        }
    }

    pub(crate) fn reply(&mut self, id: ReplyId, result: Result<Answer, Refusal>) {
        self.effects.push_back(Effect::Reply { id, result });
    }
}
