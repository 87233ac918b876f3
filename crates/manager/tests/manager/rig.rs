//! The rig: a driver, a kernel and a journal, with the invariants checked at every effect.
//!
//! Answers are given by the test: one at a time ([`Rig::answer`]) or by a script ([`Rig::run`]), which lets chosen steps
//! fail, panic or stay silent and answers all others at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use block::{Access, DeviceId, Geometry, Sectors, Zeroing};
use manager::{
    Answer, Change, Command, CreateParams, CreateRequest, Deadlines, DeviceKey, DeviceName,
    DeviceView, Effect, Event, Fault, FaultKind, Instance, Inventory, KernelDevice, Manager,
    Output, Record, RecordState, Refusal, ReplyId, Report, Settings, Stamp, Step, StepOrder,
    StopStep, StoredRecord, TeardownOrder, Ticket,
};

/// How a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Done,
    Fail(FaultKind),
    /// Fails, but a failed `add` has left its device in the kernel and says so.
    FailLeaving,
    /// Fails with this kind, and a failed `add` has left its device without saying so.
    FailHiding(FaultKind),
    Panic,
    /// No answer, ever.
    Silent,
}

/// A device of the kernel of this rig.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) stamp: Stamp,
    pub(crate) needs_stop: bool,
    pub(crate) is_deleted: bool,
}

pub(crate) struct Rig {
    pub(crate) manager: Manager,
    pub(crate) now: Instant,
    pub(crate) orders: Vec<StepOrder>,
    pub(crate) writes: Vec<(Ticket, Vec<Change>)>,
    pub(crate) replies: BTreeMap<ReplyId, Result<Answer, Refusal>>,
    pub(crate) asked: BTreeSet<ReplyId>,
    pub(crate) report: Option<Report>,
    pub(crate) kernel: BTreeMap<DeviceId, Kernel>,
    pub(crate) journal: BTreeMap<String, Vec<u8>>,
    /// Every step that was issued, as `name.step`.
    pub(crate) trace: Vec<String>,
    pub(crate) script: BTreeMap<&'static str, Vec<Reply>>,
    stop_limit: usize,
    is_shutting_down: bool,
    at_work: BTreeSet<DeviceKey>,
}

pub(crate) fn settings() -> Settings {
    Settings {
        devices_max: 100,
        stop_concurrency: 2,
        teardown_order: TeardownOrder::DeleteThenClose,
        deadlines: Deadlines::default(),
    }
}

pub(crate) fn name(text: &str) -> DeviceName {
    text.parse().unwrap()
}

pub(crate) fn params(text: &str) -> CreateParams {
    CreateParams {
        name: name(text),
        spec: "raw:/srv/a.img".parse().unwrap(),
        size: None,
        access: Access::ReadWrite,
        queues: None,
        depth: None,
    }
}

pub(crate) fn request(text: &str) -> CreateRequest {
    CreateRequest::new(params(text)).unwrap()
}

pub(crate) fn geometry() -> Geometry {
    Geometry {
        size: Sectors(8),
        access: Access::ReadWrite,
        logical_block_shift: 9,
        physical_block_shift: 12,
        volatile_cache: true,
        zeroing: Zeroing::Unsupported,
    }
}

impl Rig {
    pub(crate) fn new(settings: Settings) -> Self {
        Self::with_inventory(settings, Vec::new(), Vec::new())
    }

    pub(crate) fn with_inventory(
        settings: Settings,
        records: Vec<StoredRecord>,
        kernel: Vec<KernelDevice>,
    ) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "any instant will do to begin with"
        )]
        let now = Instant::now();
        let journal = records
            .iter()
            .map(|record| (record.key.clone(), record.value.clone()))
            .collect();
        let devices = kernel.iter().filter_map(|device| {
            let stamp = device.stamp?;
            let device_in_kernel = Kernel {
                stamp,
                needs_stop: true,
                is_deleted: false,
            };
            Some((device.id, device_in_kernel))
        });
        let inventory = Inventory {
            instance: Instance::new(1).unwrap(),
            records,
            kernel: kernel.clone(),
        };
        let mut rig = Self {
            kernel: devices.collect(),
            journal,
            manager: Manager::new(settings, &inventory, now),
            now,
            orders: Vec::new(),
            writes: Vec::new(),
            replies: BTreeMap::new(),
            asked: BTreeSet::new(),
            report: None,
            trace: Vec::new(),
            script: BTreeMap::new(),
            stop_limit: settings.stop_concurrency,
            is_shutting_down: false,
            at_work: BTreeSet::new(),
        };
        rig.pump();
        rig
    }

    /// Tells the manager and takes its effects.
    pub(crate) fn tell(&mut self, event: Event) {
        self.is_shutting_down |= matches!(event, Event::Shutdown | Event::Hurry);
        self.manager.handle_event(self.now, event);
        self.pump();
    }

    fn next_reply(&mut self) -> ReplyId {
        let id = ReplyId(self.asked.len() as u64);
        self.asked.insert(id);
        id
    }

    pub(crate) fn create(&mut self, request: CreateRequest) -> ReplyId {
        let reply = self.next_reply();
        self.tell(Event::Create { reply, request });
        reply
    }

    pub(crate) fn remove(&mut self, text: &str) -> ReplyId {
        let reply = self.next_reply();
        self.tell(Event::Remove {
            reply,
            name: name(text),
        });
        reply
    }

    pub(crate) fn remove_stray(&mut self, found: manager::KernelDevice) -> ReplyId {
        let reply = self.next_reply();
        self.tell(Event::RemoveStray { reply, found });
        reply
    }

    pub(crate) fn remove_all(&mut self) -> ReplyId {
        let reply = self.next_reply();
        self.tell(Event::RemoveAll { reply });
        reply
    }

    pub(crate) fn device(&self, text: &str) -> DeviceView {
        self.manager.device(&name(text)).unwrap()
    }

    pub(crate) fn failure(&self, id: ReplyId) -> &manager::Failure {
        match &self.replies[&id] {
            Err(Refusal::Failed(failure)) => failure,
            other => panic!("not a failure: {other:?}"),
        }
    }

    pub(crate) fn denial(&self, id: ReplyId) -> &'static str {
        match &self.replies[&id] {
            Err(Refusal::Denied(denied)) => denied.code(),
            other => panic!("not denied: {other:?}"),
        }
    }

    /// The order of this device and step that has not been answered.
    pub(crate) fn order(&self, device: &str, step: &str) -> Option<StepOrder> {
        self.orders
            .iter()
            .find(|order| order.name == name(device) && order.step.name() == step)
            .cloned()
    }

    /// Answers an order; the kernel changes now.
    pub(crate) fn answer(&mut self, ticket: Ticket, reply: Reply) {
        let index = self.orders.iter().position(|order| order.ticket == ticket);
        let order = self.orders.remove(index.unwrap());
        let event = match reply {
            Reply::Silent => return,
            Reply::Panic => {
                self.hide(&order);
                Event::Panicked {
                    ticket,
                    message: "boom".into(),
                }
            }
            Reply::Done => Event::Stepped {
                ticket,
                result: Ok(self.succeed(&order)),
            },
            Reply::Fail(kind) => Event::Stepped {
                ticket,
                result: Err(Fault::new(kind, "it failed")),
            },
            Reply::FailHiding(kind) => {
                self.hide(&order);
                Event::Stepped {
                    ticket,
                    result: Err(Fault::new(kind, "it failed")),
                }
            }
            Reply::FailLeaving => {
                let fault = Fault::new(FaultKind::Io, "it failed");
                let fault = match self.hide(&order) {
                    Some(id) => fault.leaving(id),
                    None => fault,
                };
                Event::Stepped {
                    ticket,
                    result: Err(fault),
                }
            }
        };
        self.tell(event);
    }

    /// Answers the oldest journal write.
    pub(crate) fn answer_write(&mut self, reply: Reply) {
        let (ticket, changes) = self.writes.remove(0);
        let result = match reply {
            Reply::Done => {
                for change in changes {
                    match change {
                        Change::Put { key, value } => self.journal.insert(key, value),
                        Change::Delete { key } => self.journal.remove(&key),
                    };
                }
                self.check_journal();
                Ok(())
            }
            Reply::Silent => return,
            Reply::Fail(_) | Reply::FailLeaving | Reply::FailHiding(_) | Reply::Panic => {
                Err(Fault::new(FaultKind::Journal, "no space"))
            }
        };
        self.tell(Event::Journaled { ticket, result });
    }

    /// Lets the time of the next deadline come.
    pub(crate) fn tick(&mut self) -> bool {
        let Some(at) = self.manager.poll_deadline() else {
            return false;
        };
        self.now = self.now.max(at);
        self.tell(Event::Tick);
        true
    }

    /// Answers everything by the script until nothing is left to answer or to wait for.
    pub(crate) fn run(&mut self) {
        loop {
            if let Some(order) = self.orders.first() {
                let (ticket, step) = (order.ticket, order.step.name());
                let reply = self.scripted(step);
                self.now += Duration::from_millis(1);
                self.answer(ticket, reply);
            } else if let Some((_, changes)) = self.writes.first() {
                let step = record_step(changes);
                let reply = self.scripted(step);
                self.answer_write(reply);
            } else if !self.tick() {
                return;
            }
        }
    }

    fn scripted(&mut self, step: &'static str) -> Reply {
        match self.script.get_mut(step) {
            Some(replies) if !replies.is_empty() => replies.remove(0),
            _ => Reply::Done,
        }
    }

    /// Nothing is left anywhere but the serial.
    pub(crate) fn assert_clean(&self) {
        assert!(self.kernel.is_empty(), "{:?}", self.kernel);
        assert!(self.journal.keys().all(|key| key == "serial"));
        assert_eq!(self.manager.devices().count(), 0);
        assert_eq!(self.manager.poll_deadline(), None);
        assert_eq!(self.manager.status().turns_held, 0);
        assert_eq!(self.manager.status().turns_waiting, 0);
    }

    fn pump(&mut self) {
        self.pump_effects();
        self.prune();
    }

    fn pump_effects(&mut self) {
        while let Some(effect) = self.manager.poll_effect() {
            match effect {
                Effect::Step(order) => {
                    self.check_order(&order);
                    self.trace.push(format!("{}.{}", order.name, order.step));
                    self.orders.push(*order);
                }
                Effect::Journal { ticket, changes } => {
                    let step = record_step(&changes);
                    if step == "record_removed" {
                        self.at_work.remove(&ticket.device);
                    }
                    self.trace.push(step.into());
                    self.writes.push((ticket, changes));
                }
                Effect::Reply { id, result } => {
                    assert!(self.asked.contains(&id));
                    assert!(self.replies.insert(id, result).is_none(), "replied twice");
                }
                Effect::ShutdownDone { report } => {
                    assert!(self.report.replace(report).is_none(), "done twice");
                    assert_eq!(self.asked.len(), self.replies.len(), "done before a reply");
                }
            }
        }
    }

    /// Forgets who does not stop any more: gone or quarantined.
    fn prune(&mut self) {
        let manager = &self.manager;
        self.at_work.retain(|key| {
            manager
                .devices()
                .any(|view| view.key == *key && view.phase == manager::Phase::Stopping)
        });
    }

    /// The invariants that each order must meet when it is issued.
    fn check_order(&mut self, order: &StepOrder) {
        assert!(order.deadline > self.now);
        let view = self
            .manager
            .devices()
            .find(|view| view.key == order.ticket.device);
        let key = view.map(|view| format!("device/{}", view.serial));
        let state = key
            .and_then(|key| Some((key.clone(), self.journal.get(&key)?.clone())))
            .map(
                |(key, value)| match Record::decode(&StoredRecord { key, value }).unwrap() {
                    Record::Device(record) => record.state,
                    Record::NextSerial(_) => panic!("a device's key holds a serial"),
                },
            );
        match &order.command {
            Command::Add { .. } => assert_eq!(state, Some(RecordState::Creating)),
            Command::Attach { id, .. } => {
                assert_eq!(state, Some(RecordState::Added { id: *id }));
                self.kernel.get_mut(id).unwrap().needs_stop = true;
            }
            Command::Start { id } => assert_eq!(state, Some(RecordState::Added { id: *id })),
            Command::Stop { .. } => {
                let overlapping = self.orders.iter().any(|other| {
                    other.ticket.device == order.ticket.device
                        && matches!(
                            other.command,
                            Command::Start { .. } | Command::Attach { .. }
                        )
                });
                assert!(!overlapping, "stop beside start or attach");
            }
            Command::Delete { id } => {
                let device = self.kernel.get(id);
                assert!(
                    device.is_none_or(|device| !device.needs_stop),
                    "not stopped: {:?}",
                    self.trace
                );
            }
            _ => {}
        }
        let is_stop = matches!(order.step, Step::Stop(_));
        // From here on the device only waits and closes, and others have their turn.
        let is_light = matches!(
            order.step,
            Step::Stop(StopStep::AwaitGone | StopStep::Close)
        );
        if is_light {
            self.at_work.remove(&order.ticket.device);
        } else if is_stop {
            self.prune();
            let is_new = self.at_work.insert(order.ticket.device);
            if is_new && self.is_shutting_down && self.stop_limit != 0 {
                assert!(self.at_work.len() <= self.stop_limit, "too many at a time");
            }
        }
    }

    /// The journal knows of every device of ours that the kernel has.
    fn check_journal(&self) {
        for device in self.kernel.values() {
            let key = format!("device/{}", device.stamp.serial);
            let is_ours = device.stamp.instance == Instance::new(1).unwrap();
            assert!(
                !is_ours || self.journal.contains_key(&key),
                "{key} forgotten"
            );
        }
    }

    fn add(&mut self, stamp: Stamp) -> DeviceId {
        let id = (0..).map(DeviceId).find(|id| !self.kernel.contains_key(id));
        let id = id.unwrap();
        self.kernel.insert(
            id,
            Kernel {
                stamp,
                needs_stop: false,
                is_deleted: false,
            },
        );
        id
    }

    /// An `add` that fails after it has made the device.
    fn hide(&mut self, order: &StepOrder) -> Option<DeviceId> {
        match order.command {
            Command::Add { stamp, .. } => Some(self.add(stamp)),
            _ => None,
        }
    }

    fn succeed(&mut self, order: &StepOrder) -> Output {
        match &order.command {
            Command::Open { .. } => {
                return Output::Opened {
                    geometry: geometry(),
                };
            }
            Command::Add { stamp, .. } => {
                return Output::Added {
                    id: self.add(*stamp),
                };
            }
            Command::Find { stamp } => {
                let found = self
                    .kernel
                    .iter()
                    .find(|(_, device)| device.stamp == *stamp);
                return Output::Found {
                    id: found.map(|(id, _)| *id),
                };
            }
            Command::Stop { id } => {
                if let Some(device) = self.kernel.get_mut(id) {
                    device.needs_stop = false;
                }
            }
            Command::Delete { id } => {
                if let Some(device) = self.kernel.get_mut(id) {
                    device.is_deleted = true;
                }
            }
            Command::AwaitGone { id, stamp } => {
                let device = self.kernel.get(id).filter(|device| device.stamp == *stamp);
                assert!(device.is_none_or(|device| device.is_deleted));
                if device.is_some() {
                    self.kernel.remove(id);
                }
            }
            Command::Attach { .. }
            | Command::Start { .. }
            | Command::Publish { .. }
            | Command::Unpublish
            | Command::Drain
            | Command::Abandon
            | Command::Release
            | Command::Close => {}
        }
        Output::Done
    }
}

/// Which step a journal write belongs to.
fn record_step(changes: &[Change]) -> &'static str {
    match &changes[0] {
        Change::Delete { .. } => "record_removed",
        Change::Put { key, value } => {
            let stored = StoredRecord {
                key: key.clone(),
                value: value.clone(),
            };
            match Record::decode(&stored).unwrap() {
                Record::NextSerial(_) => panic!("a serial is written with its device"),
                Record::Device(record) => match record.state {
                    RecordState::Creating => "record_creating",
                    RecordState::Added { .. } => "record_added",
                    RecordState::Live { .. } => "record_live",
                    RecordState::Stopping { .. } => "record_stopping",
                },
            }
        }
    }
}
