//! Control and clients of a world: devices come, are used, and go in every order that is legal.

use std::rc::Rc;
use std::sync::{Arc, mpsc};

use block::holes::HoleMap;
use block::{ByteLen, ByteOffset, NullTarget, QueueId, RawFeatures, RawTarget, Target};
use dataplane::message::Message;
use dataplane::{Attachment, CopyMode, Counters, DeviceKey, ShardEvent};

use crate::driver::StopStyle;
use crate::file::SimFile;
use crate::handing::{HandingTarget, Writers};
use crate::life::{Act, Life};
use crate::notice::{Notice, released_notice, tell};
use crate::pattern::SECTOR;
use crate::port::SimQueue;
use crate::slot::{Attached, Kind, Slot};
use crate::target::PanickingTarget;
use crate::traffic;
use crate::world::{Stage, World};

/// Sizes of what is handed over.
const PIECES_BYTES: [u32; 5] = [512, 1536, 4096, 20 << 10, 128 << 10];

impl World {
    pub(crate) fn act(&mut self, index: usize, stage: Stage) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.settle_lingering();
        let Some(attached) = &mut slot.attached else {
            slot.rest = slot.rest.saturating_sub(1);
            // An operation that ends late would change the content behind a new device's back: control must wait for it.
            if stage == Stage::Open && slot.rest == 0 && !slot.is_lingering() {
                self.attach(index);
            }
            return;
        };
        // STOP must not overlap the fetches.
        if !attached.life.is_attached || !self.host.0.borrow().driver.is_ready(attached.device) {
            return;
        }
        attached.life.steps_left = attached.life.steps_left.saturating_sub(1);
        if stage == Stage::Closing || attached.life.steps_left == 0 {
            attached.life.begin_end(&mut self.rng);
        }
        if attached.life.is_ending() && attached.watch.hung.get() > 0 && self.rng.u8(0..32) == 0 {
            attached.life.give_up();
        }
        if let Some(act) = attached.life.next_act(&mut self.rng) {
            let (key, device) = (attached.key, attached.device);
            let style = if self.rng.bool() {
                StopStyle::Eager
            } else {
                StopStyle::Patient
            };
            match act {
                Act::Drain => self.send(|notify| {
                    Message::Drain(key, Box::new(move |()| tell(&notify, Notice::Drained(key))))
                }),
                Act::Abandon => self.send(|notify| {
                    Message::Abandon(
                        key,
                        Box::new(move |count| tell(&notify, Notice::Abandoned(key, count))),
                    )
                }),
                Act::Stop => self.host.stop(device, style),
                Act::Release => self.send(|notify| {
                    Message::Release(
                        key,
                        Box::new(move |released| tell(&notify, released_notice(key, released))),
                    )
                }),
            }
        }
        self.issue(index, stage);
    }

    fn send(&self, message: impl FnOnce(mpsc::Sender<Notice>) -> Message<SimQueue, SimFile>) {
        // The receiver lives in the shard, which lives as long as the world.
        drop(self.mail.send(message(self.notify.clone())));
        self.host.ring_mail();
    }

    fn attach(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        self.keys += 1;
        let key = DeviceKey(self.keys);
        let depth_max = if self.rng.u8(0..5) == 0 { 64 } else { 16 };
        let depths: Vec<u16> = (0..self.rng.usize(1..=3))
            .map(|_| self.rng.u16(1..=depth_max))
            .collect();
        let modes = [CopyMode::UserCopy, CopyMode::ZeroCopy];
        let copy_mode = *self.rng.choice(&modes).unwrap_or(&CopyMode::UserCopy);
        let (device, queues) = self.host.add_device(&depths, copy_mode);
        let (file, watch) = self.host.open_watched(&slot.disk, device);
        watch.may_hang.set(self.rng.u8(0..4) == 0);
        let mut target = target_of(slot);
        if self.rng.u8(0..2) == 0 {
            // Of each size of buffer, and larger than the requests.
            watch.hands_over.set(true);
            let writers = if self.rng.bool() {
                Writers::OneAtATime
            } else {
                Writers::Together
            };
            let piece_bytes = *self.rng.choice(&PIECES_BYTES).unwrap_or(&4096);
            target = Box::new(HandingTarget::new(target, piece_bytes, writers));
        }
        if self.rng.u8(0..6) == 0 {
            target = Box::new(PanickingTarget::new(target, self.rng.u32(0..200)));
        }
        let counters = Arc::new(Counters::default());
        let queue_count = u16::try_from(depths.len()).unwrap_or(1);
        let life = Life::new(&mut self.rng);
        slot.attached = Some(Attached {
            key,
            device,
            queues: queue_count,
            watch,
            life,
        });
        let attachment = Attachment {
            key,
            queues,
            target,
            files: vec![file],
            counters: Arc::clone(&counters),
        };
        self.counters.push(counters);
        self.send(|notify| {
            Message::Attach(
                attachment,
                Box::new(move |done| tell(&notify, Notice::Attached(key, done))),
            )
        });
    }

    fn issue(&mut self, index: usize, stage: Stage) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let Some(attached) = &slot.attached else {
            return;
        };
        // A stopped disk takes no requests; a few come while it is being closed.
        if attached.life.is_stopped || stage == Stage::Closing && self.rng.u8(0..8) > 0 {
            return;
        }
        let (device, queues) = (attached.device, attached.queues);
        let life = &attached.life;
        let doom = if life.is_drained || life.is_abandoned {
            Some(block::Status::Gone)
        } else {
            Some(block::Status::Io).filter(|_| life.is_poisoned)
        };
        let burst = if self.rng.u8(0..40) == 0 {
            self.rng.u8(0..40)
        } else {
            self.rng.u8(0..3)
        };
        // A burst meets one queue, so that it can be more than a turn's work.
        let first = self.rng.u16(0..queues);
        for _ in 0..burst {
            // Unlimited clients would only make a longer queue in front of the tags.
            if self.host.unanswered(device) > 128 {
                return;
            }
            let queue = QueueId(if burst > 2 {
                first
            } else {
                self.rng.u16(0..queues)
            });
            let op = traffic::client_op(&mut self.rng, slot.geometry.size.0);
            let geometry = slot.geometry;
            self.host
                .issue_at((device, queue), op, &geometry, |request| {
                    request.doom = doom;
                    request.model_time = slot.on_issue(request);
                });
        }
        if slot.kind != Kind::Null && self.rng.u16(0..8_000) == 0 {
            let kernel = &mut *self.host.0.borrow_mut();
            kernel.requests += 1;
            let sectors = self.rng.usize(0..slot.disk.borrow().sectors());
            slot.truncate(kernel.requests, sectors);
            self.report.truncated += 1;
        }
    }

    pub(crate) fn take_notices(&mut self) -> Result<(), String> {
        while let Ok(notice) = self.notices.try_recv() {
            self.handle_notice(notice)?;
        }
        Ok(())
    }

    fn handle_notice(&mut self, notice: Notice) -> Result<(), String> {
        let key = match &notice {
            Notice::Attached(key, _)
            | Notice::Drained(key)
            | Notice::Abandoned(key, _)
            | Notice::Released(key, _) => *key,
            Notice::Event(ShardEvent::TargetPanicked { key, .. }) => *key,
            Notice::Event(event) => return Err(format!("{event:?}")),
        };
        let is_its = |slot: &Slot| {
            slot.attached
                .as_ref()
                .is_some_and(|attached| attached.key == key)
        };
        let Some(index) = self.slots.iter().position(is_its) else {
            // Control asked for something and the device was released meanwhile.
            return match notice {
                Notice::Drained(_) | Notice::Abandoned(_, 0) => Ok(()),
                other => Err(format!("{other:?} of a device that is gone")),
            };
        };
        let Some(attached) = self
            .slots
            .get_mut(index)
            .and_then(|slot| slot.attached.as_mut())
        else {
            return Ok(());
        };
        match notice {
            Notice::Attached(_, true) => {
                attached.life.is_attached = true;
                self.report.attached += 1;
            }
            Notice::Attached(_, false) => {
                // A shard may refuse when what is left of abandoned devices holds its buffers, and for no other reason here.
                if self.ghosts.is_empty() {
                    return Err(format!("a shard that is not full refused {attached:?}"));
                }
                self.detach(index);
                self.report.refused += 1;
            }
            Notice::Drained(_) => attached.life.is_drained = true,
            Notice::Abandoned(_, count) => {
                attached.life.is_abandoned = true;
                self.ghosts.push(Rc::clone(&attached.watch));
                self.report.abandoned += 1;
                self.report.abandoned_requests += count as u64;
            }
            Notice::Event(_) => {
                if attached.life.is_poisoned {
                    return Err(format!(
                        "a target was called after it had panicked: {attached:?}"
                    ));
                }
                attached.life.is_poisoned = true;
                self.report.poisoned += 1;
            }
            Notice::Released(_, None) => {
                return Err("an attached device was not known to the shard".to_owned());
            }
            Notice::Released(_, Some(returned)) => {
                check_released(attached, returned, self.host.unanswered(attached.device))?;
                self.take_answers()?;
                self.detach(index);
                self.report.released += 1;
            }
        }
        Ok(())
    }

    fn detach(&mut self, index: usize) {
        let rest = self.rng.u32(0..60);
        if let Some(slot) = self.slots.get_mut(index) {
            let watch = slot.attached.take().map(|attached| attached.watch);
            self.ghosts.extend(watch);
            slot.rest = rest;
        }
    }
}

/// A device came back with so many queues and files; nothing of it may be left with the kernel.
fn check_released(
    attached: &Attached,
    (queues, files, is_aborted): (usize, usize, bool),
    unanswered: usize,
) -> Result<(), String> {
    let is_whole = queues == usize::from(attached.queues) && files == 1;
    if !is_whole || !is_aborted || !attached.life.is_stopped || unanswered > 0 {
        return Err(format!(
            "{attached:?} was released with {queues} queues, {files} files, {unanswered} requests unanswered, all tags aborted: {is_aborted}"
        ));
    }
    Ok(())
}

/// A new target for a disk, with its holes as control would find them.
fn target_of(slot: &Slot) -> Box<dyn Target> {
    let Kind::Raw { zero_range } = slot.kind else {
        return Box::new(NullTarget::new(slot.geometry.size, slot.geometry.access));
    };
    let holes = HoleMap::all_holes(slot.geometry.size.len_bytes());
    for (sector, is_allocated) in (0..).zip(slot.disk.borrow().allocation()) {
        if is_allocated {
            holes.mark_data(ByteOffset(sector * SECTOR as u64), ByteLen(SECTOR as u64));
        }
    }
    Box::new(RawTarget::new(
        slot.geometry,
        RawFeatures { zero_range },
        Arc::new(holes),
    ))
}
