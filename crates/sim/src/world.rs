//! A run: epochs of a shard with devices that come and go under load, each ended in order or by a power cut.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use dataplane::message::Message;
use dataplane::{Counters, OperationLimits, Shard, ShardGauges, ShardLimits};
use fastrand::Rng;
use reactor::buffer::PoolLimits;
use reactor::mailbox::{self, Sender};

use crate::config::{Config, Report};
use crate::failure::Failure;
use crate::faults::Faults;
use crate::file::{SimFile, Watch};
use crate::host::SimHost;
use crate::notice::Notice;
use crate::port::SimQueue;
use crate::ring::SimRing;
use crate::slot::{Attached, Slot, Verdict};

/// Steps an orderly end may take; every device has then had the time of several slow operations per phase.
const CLOSING_STEPS_MAX: u32 = 50_000;

/// Where an epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Devices come and go.
    Open,
    /// They only go.
    Closing,
}

pub(crate) struct World {
    pub(crate) host: SimHost,
    shard: Shard<SimRing, SimQueue>,
    pub(crate) mail: Sender<Message<SimQueue, SimFile>>,
    pub(crate) notify: mpsc::Sender<Notice>,
    pub(crate) notices: mpsc::Receiver<Notice>,
    gauges: Arc<ShardGauges>,
    pub(crate) rng: Rng,
    pub(crate) slots: Vec<Slot>,
    /// Devices that were abandoned or released, while their operations are under way and until the end of a step.
    pub(crate) ghosts: Vec<Rc<Watch>>,
    pub(crate) keys: u64,
    step: u32,
    config: Config,
    pub(crate) report: Report,
    /// Of every device that was attached.
    pub(crate) counters: Vec<Arc<Counters>>,
}

/// Plays one seed.
///
/// # Errors
/// The first rule that was broken, with how to see it again.
pub fn run(seed: u64, config: &Config) -> Result<Report, Failure> {
    let mut rng = Rng::with_seed(seed);
    let mut slots: Vec<Slot> = (0..rng.usize(1..=config.devices_max.max(1)))
        .map(|_| Slot::new(&mut rng))
        .collect();
    let mut writes = 0;
    for slot in &mut slots {
        writes += 1;
        slot.prefill(writes);
    }
    let mut report = Report::default();
    for epoch in 0..config.epochs {
        let failure = |step, what| Failure {
            seed,
            epoch,
            step,
            what,
        };
        let mut world = World::new(std::mem::take(&mut slots), rng.fork(), config)
            .map_err(|what| failure(0, what))?;
        world.host.0.borrow_mut().requests = writes;
        if let Err(what) = world.play() {
            return Err(failure(world.step, what));
        }
        report += world.report();
        writes = world.host.0.borrow().requests;
        slots = world.slots;
    }
    Ok(report)
}

impl World {
    fn new(slots: Vec<Slot>, mut rng: Rng, config: &Config) -> Result<Self, String> {
        let faults = *rng
            .choice(&[Faults::NONE, Faults::REORDER, Faults::ROUGH, Faults::STORM])
            .unwrap_or(&Faults::ROUGH);
        let at_once = *rng.choice(&[0, 5_000, 10_000]).unwrap_or(&0);
        let faults = Faults { at_once, ..faults };
        let host = SimHost::new(rng.u64(..), config.faults.unwrap_or(faults));
        // Few slots, so that tags have to share them.
        host.set_slots(*rng.choice(&[0, 16, 48, 1024]).unwrap_or(&0));
        let (notify, notices) = mpsc::channel();
        let (mail, receiver) = mailbox::channel().map_err(|error| error.to_string())?;
        let gauges = Arc::new(ShardGauges::default());
        // Few buffers and operations, so that steps have to wait for them.
        let buffers = PoolLimits([rng.u16(0..6), rng.u16(0..3), rng.u16(0..2)]);
        let operations = OperationLimits {
            per_device: rng.u32(1..8),
            shared: rng.u32(0..8),
        };
        let handed_bytes = *rng.choice(&[1, 8 << 10, 512 << 10]).unwrap_or(&1);
        let devices_max = u16::try_from(slots.len()).unwrap_or(u16::MAX);
        let events = notify.clone();
        let shard = Shard::new(
            host.ring(),
            (receiver, host.mail_file()),
            // The world is gone only when the shard is.
            Arc::new(move |event| drop(events.send(Notice::Event(event)))),
            Arc::clone(&gauges),
            ShardLimits {
                devices_max,
                buffers,
                operations,
                handed_bytes,
            },
        )
        .map_err(|error| error.to_string())?;
        let report = Report::default();
        let config = *config;
        Ok(Self {
            host,
            shard,
            mail,
            notify,
            notices,
            gauges,
            rng,
            slots,
            ghosts: Vec::new(),
            keys: 0,
            step: 0,
            config,
            report,
            counters: Vec::new(),
        })
    }

    fn play(&mut self) -> Result<(), String> {
        for _ in 0..self.config.steps {
            self.step(Stage::Open)?;
        }
        if self.rng.u8(0..3) == 0 {
            return self.cut_power();
        }
        for _ in 0..CLOSING_STEPS_MAX {
            self.step(Stage::Closing)?;
            if self.is_closed() {
                return self.check_end();
            }
        }
        Err(format!(
            "the end does not come: {:?}",
            self.slots
                .iter()
                .map(|slot| &slot.attached)
                .collect::<Vec<_>>()
        ))
    }

    fn step(&mut self, stage: Stage) -> Result<(), String> {
        self.step += 1;
        for index in 0..self.slots.len() {
            self.act(index, stage);
        }
        self.ghosts.retain(|watch| watch.in_flight.get() > 0);
        let hung = self.host.0.borrow().hung();
        self.report.hanging_steps += u64::from(hung > 0);
        let is_released = match stage {
            Stage::Open => self.rng.u16(0..400) == 0,
            // What hangs is released only when its device has got away, or needs the help.
            Stage::Closing => {
                self.rng.u8(0..100) == 0 || self.slots.iter().all(|slot| slot.attached.is_none())
            }
        };
        if is_released {
            self.host.0.borrow_mut().release_one();
        }
        let turn = catch_unwind(AssertUnwindSafe(|| self.shard.turn()));
        match turn {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(format!("the ring failed: {error}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text =
                    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                return Err(format!("the shard panicked: {}", text.unwrap_or_default()));
            }
        }
        self.take_notices()?;
        self.take_answers()?;
        self.check()
    }

    pub(crate) fn take_answers(&mut self) -> Result<(), String> {
        let turns = self.host.0.borrow().turns;
        for answer in self.host.take_answers() {
            let is_its = |attached: &Attached| attached.device == answer.device;
            let slot = self
                .slots
                .iter_mut()
                .find(|slot| slot.attached.as_ref().is_some_and(is_its));
            let Some(slot) = slot else {
                return Err(format!("an answer of a device that is gone: {answer:?}"));
            };
            match slot.on_answer(&answer)? {
                Verdict::Succeeded => self.report.succeeded += 1,
                Verdict::Failed => self.report.failed += 1,
                Verdict::Unseen => {
                    self.report.unseen += 1;
                    continue;
                }
            }
            if slot
                .attached
                .as_ref()
                .is_some_and(|attached| !attached.watch.may_hang.get())
            {
                let latency = turns - answer.request.owned_turn;
                self.report.latency_max_turns = self.report.latency_max_turns.max(latency);
            }
        }
        Ok(())
    }

    /// Rules that hold after every step.
    fn check(&self) -> Result<(), String> {
        let kernel = self.host.0.borrow();
        if let Some(violation) = kernel.journal.violation() {
            return Err(violation.clone());
        }
        for attached in self.slots.iter().filter_map(|slot| slot.attached.as_ref()) {
            if attached.watch.hung.get() > 0 {
                continue;
            }
            for request in kernel.driver.owned(attached.device) {
                let age = kernel.turns - request.owned_turn;
                if age > self.config.patience_turns {
                    return Err(format!("not answered for {age} turns: {request:?}"));
                }
                if kernel.is_idle && age > 1 {
                    return Err(format!(
                        "the shard sleeps, nothing of {attached:?} hangs, but this waits: {request:?}; hanging elsewhere: {}",
                        kernel.hung()
                    ));
                }
            }
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        let kernel = self.host.0.borrow();
        let is_gone = |slot: &Slot| slot.attached.is_none();
        kernel.is_idle && kernel.hung() == 0 && self.slots.iter().all(is_gone)
    }

    fn check_end(&mut self) -> Result<(), String> {
        let in_flight = self.host.0.borrow().buffers_in_flight();
        let leaks = (
            in_flight,
            self.gauges.buffers_in_use(),
            self.gauges.operations_in_kernel(),
            self.gauges.devices(),
        );
        let slots = (
            self.host.0.borrow().driver.slots().1,
            self.gauges.tags_with_slot(),
        );
        if leaks != (0, 0, 0, 0) || slots != (0, 0) {
            return Err(format!(
                "left over: (buffers in the ring, buffers, operations, devices) {leaks:?}, (requests in slots, tags) {slots:?}"
            ));
        }
        for slot in &mut self.slots {
            slot.settle_lingering();
            if slot.is_lingering() {
                return Err("an operation is under way in a ring that sleeps".to_owned());
            }
            slot.check_content()?;
        }
        Ok(())
    }

    fn cut_power(&mut self) -> Result<(), String> {
        self.report.power_cuts += 1;
        let survival = *self.rng.choice(&[0, 5, 10]).unwrap_or(&0);
        for slot in &mut self.slots {
            slot.rest = 0;
            slot.cut_power(|| self.rng.u8(0..10) < survival)?;
        }
        Ok(())
    }

    fn report(&self) -> Report {
        let kernel = self.host.0.borrow();
        let zero_copy = self.counters.iter();
        Report {
            zero_copy_bytes: zero_copy
                .map(|counters| counters.snapshot().zero_copy_bytes)
                .sum(),
            turns: kernel.turns,
            events: kernel.journal.events(),
            trace_hash: kernel.journal.hash(),
            ..self.report
        }
    }
}
