//! From a fetched tag to a started request, and from its end to the commit.

use std::panic::{AssertUnwindSafe, catch_unwind};

use block::{Access, Op as BlockOp, Request, Status, Tag, Verdict, Zeroing};
use reactor::{Op, Ring};
use ublk::tag::TagEvent;
use ublk::{IoCommand, commit_result};

use crate::device::{Device, Io, IoRef, Phase};
use crate::message::ShardEvent;
use crate::port::QueuePort;
use crate::shard::{Shard, TURN_UNITS, UNIT_BYTES, VISIT_UNITS};
use crate::steps::PlanRun;
use crate::token::Owner;

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    /// A fetch or commit command completed: the tag holds a request, or the kernel took it back for good.
    pub(crate) fn handle_tag(&mut self, queue_index: u32, tag: Tag, result: i32) {
        let Some(queue) = self.queues.get_mut(queue_index as usize) else {
            debug_assert!(false, "a tag of a queue that is gone");
            return;
        };
        let device = queue.device;
        match queue.tags.handle_completion(tag, result) {
            TagEvent::Serve => {
                queue.ready.push_back(tag);
                if !queue.is_runnable {
                    queue.is_runnable = true;
                    self.run_list.push_back(queue_index);
                }
            }
            TagEvent::Aborted => self.try_finish_release(device),
            TagEvent::Fault(fault) => {
                let detail = format!("queue {}, tag {tag}: {fault}", queue.port.id());
                if let Some(device) = self.devices.get(device as usize) {
                    (self.events)(ShardEvent::ProtocolFault {
                        key: device.key,
                        detail,
                    });
                }
                self.try_finish_release(device);
            }
        }
    }

    /// Starts requests from the run list, in turns.
    pub(crate) fn start_requests(&mut self) {
        let mut budget = TURN_UNITS;
        while budget > 0 {
            let Some(index) = self.run_list.pop_front() else {
                return;
            };
            let mut visit = VISIT_UNITS;
            let mut is_held = false;
            while visit > 0 {
                is_held = self.holds_queue(index);
                if is_held {
                    break;
                }
                let Some(tag) = self
                    .queues
                    .get_mut(index as usize)
                    .and_then(|queue| queue.ready.pop_front())
                else {
                    break;
                };
                let cost = self.start(index, tag);
                visit = visit.saturating_sub(cost);
                budget = budget.saturating_sub(cost);
            }
            let Some(queue) = self.queues.get_mut(index as usize) else {
                continue;
            };
            queue.is_runnable = !queue.ready.is_empty() && !is_held;
            if queue.is_runnable {
                self.run_list.push_back(index);
            }
        }
    }

    /// Starts the request in a tag; returns what it costs.
    fn start(&mut self, queue_index: u32, tag: Tag) -> u32 {
        let Some(queue) = self.queues.get_mut(queue_index as usize) else {
            return 1;
        };
        let io = IoRef {
            device: queue.device,
            queue: queue_index,
            tag,
        };
        let Some(device) = self.devices.get_mut(queue.device as usize) else {
            return 1;
        };
        let request = match admit(device, &queue.port, tag) {
            Ok(request) => request,
            Err(status) => {
                device.counters.record_refused();
                self.commit(io, -status.errno());
                return 1;
            }
        };
        queue.asking.on_request(request.op);
        self.plan.reset(0);
        let (target, plan) = (&mut device.target, &mut self.plan);
        let verdict = catch_unwind(AssertUnwindSafe(|| target.handle_request(&request, plan)));
        if let Some(status) = self.follow(io, &request, verdict) {
            // It ended without waiting for anything: nobody has seen it in flight.
            if let Some(device) = self.devices.get(io.device as usize) {
                device.counters.record(&request, status);
            }
            self.commit(io, commit_result(&request, status));
        }
        let units = request.data_len_bytes() / UNIT_BYTES;
        1 + u32::try_from(units).unwrap_or(VISIT_UNITS)
    }

    /// Does what the target decided, phase by phase, as far as it goes without waiting. The status when the request has ended;
    /// `None` when steps are in flight. A panic of the target poisons its device and nothing else.
    pub(crate) fn follow(
        &mut self,
        io: IoRef,
        request: &Request,
        mut verdict: std::thread::Result<Verdict>,
    ) -> Option<Status> {
        loop {
            if self.plan.take_wakes() {
                self.wake_others(io.device);
            }
            match verdict {
                Ok(Verdict::Complete(status)) => return Some(status),
                Ok(Verdict::Run) => {}
                Ok(Verdict::Wait) => {
                    self.park(io, request, PlanRun::NOTHING);
                    self.pause_for_others(io);
                    return None;
                }
                Err(panic) => {
                    self.poison(io, &*panic);
                    return Some(Status::Io);
                }
            }
            let run = self.run_plan(io, request);
            if run.outstanding > 0 {
                self.park(io, request, run);
                return None;
            }
            if self.is_paused_for_room(io) {
                self.park(io, request, run);
                return None;
            }
            verdict = self.end_phase(io, request, run.status);
        }
    }

    /// Asks the target how a request goes on whose steps have all ended; the shard's plan carries its cookie.
    fn end_phase(
        &mut self,
        io: IoRef,
        request: &Request,
        status: Status,
    ) -> std::thread::Result<Verdict> {
        let Some(device) = self.devices.get_mut(io.device as usize) else {
            return Ok(Verdict::Complete(Status::Gone));
        };
        if device.poisoned {
            return Ok(Verdict::Complete(Status::Io));
        }
        let cookie = self.plan.cookie;
        self.plan.reset(cookie);
        let (target, plan) = (&mut device.target, &mut self.plan);
        catch_unwind(AssertUnwindSafe(|| {
            target.handle_phase_end(request, status, plan)
        }))
    }

    pub(crate) fn poison(&mut self, io: IoRef, panic: &(dyn std::any::Any + Send)) {
        if let Some(device) = self.devices.get_mut(io.device as usize) {
            device.poisoned = true;
            let message = panic_message(panic);
            (self.events)(ShardEvent::TargetPanicked {
                key: device.key,
                message,
            });
        }
        // The target wakes nobody any more.
        self.wake_others(io.device);
    }

    /// Remembers a request whose steps are in flight.
    fn park(&mut self, io: IoRef, request: &Request, run: PlanRun) {
        let (Some(device), Some(slot)) = (
            self.devices.get_mut(io.device as usize),
            self.queues
                .get_mut(io.queue as usize)
                .and_then(|queue| queue.ios.get_mut(usize::from(io.tag.0))),
        ) else {
            debug_assert!(false, "a request without a device or tag");
            return;
        };
        if !slot.is_active {
            self.in_flight += 1;
            device.in_flight += 1;
            device.counters.in_flight.set(device.in_flight as u64);
        }
        *slot = Io {
            request: *request,
            outstanding: run.outstanding,
            status: run.status,
            cookie: self.plan.cookie,
            is_active: true,
        };
    }

    /// Counts a step of a parked request as ended; after the last one the request goes on.
    pub(crate) fn end_step(&mut self, io: IoRef, status: Status) {
        let slot = self
            .queues
            .get_mut(io.queue as usize)
            .and_then(|queue| queue.ios.get_mut(usize::from(io.tag.0)));
        let Some(slot) = slot else { return };
        slot.status = slot.status.and(status);
        slot.outstanding = slot.outstanding.saturating_sub(1);
        if slot.outstanding == 0 {
            self.go_on_after_phase(io);
        }
    }

    /// A parked request has nothing to wait for any more, but perhaps room.
    pub(crate) fn go_on_after_phase(&mut self, io: IoRef) {
        if self.is_paused_for_room(io) {
            return;
        }
        let Some(slot) = self.io(io) else { return };
        let (request, status, cookie) = (slot.request, slot.status, slot.cookie);
        self.plan.reset(cookie);
        let verdict = self.end_phase(io, &request, status);
        if let Some(status) = self.follow(io, &request, verdict) {
            self.complete(io, status);
        }
    }

    /// What is remembered of a parked request.
    pub(crate) fn io(&self, io: IoRef) -> Option<&Io> {
        let queue = self.queues.get(io.queue as usize)?;
        queue.ios.get(usize::from(io.tag.0))
    }

    /// Answers a parked request.
    pub(crate) fn complete(&mut self, io: IoRef, status: Status) {
        let (Some(device), Some(slot)) = (
            self.devices.get_mut(io.device as usize),
            self.queues
                .get_mut(io.queue as usize)
                .and_then(|queue| queue.ios.get_mut(usize::from(io.tag.0))),
        ) else {
            return;
        };
        debug_assert!(slot.is_active, "a request is answered once");
        slot.is_active = false;
        self.in_flight = self.in_flight.saturating_sub(1);
        device.in_flight = device.in_flight.saturating_sub(1);
        device.counters.in_flight.set(device.in_flight as u64);
        device.counters.record(&slot.request, status);
        let result = commit_result(&slot.request, status);
        self.commit(io, result);
        self.try_finish_drain(io.device);
    }

    /// Gives the tag back to the kernel together with the answer, and asks for its next request.
    pub(crate) fn commit(&mut self, io: IoRef, result: i32) {
        let Some(queue) = self.queues.get_mut(io.queue as usize) else {
            return;
        };
        if let Err(fault) = queue.tags.try_commit(io.tag) {
            debug_assert!(
                false,
                "commit of a tag that the server does not own: {fault}"
            );
            return;
        }
        let registration = queue.registration(io.tag);
        let command = IoCommand::commit_and_fetch(queue.port.id(), io.tag, result, registration);
        let owner = Owner::Tag {
            queue: io.queue,
            tag: io.tag,
        };
        let IoCommand {
            opcode: code,
            payload,
            address,
        } = command;
        self.ring.push(
            Op::Command {
                file: queue.port.file(),
                code,
                payload,
                address,
            },
            owner.pack(),
        );
    }
}

/// The request in a tag, if it is one that the target may see.
#[inline]
fn admit<Q: QueuePort>(device: &Device<Q, Q::File>, port: &Q, tag: Tag) -> Result<Request, Status> {
    let request = port.request(tag)?;
    if device.phase != Phase::Serving {
        return Err(Status::Gone);
    }
    if device.poisoned {
        return Err(Status::Io);
    }
    check(&request, &device.geometry)?;
    Ok(request)
}

/// What every target may rely on.
fn check(request: &Request, geometry: &block::Geometry) -> Result<(), Status> {
    if !request.extent.is_within(geometry.size) {
        return Err(Status::OutOfRange);
    }
    if request.is_modifying() && geometry.access == Access::ReadOnly {
        return Err(Status::ReadOnly);
    }
    let zeroing = matches!(request.op, BlockOp::Discard | BlockOp::WriteZeroes);
    if zeroing && geometry.zeroing == Zeroing::Unsupported {
        return Err(Status::Unsupported);
    }
    Ok(())
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
}
