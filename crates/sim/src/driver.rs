//! The kernel's ublk driver: devices, queues, tags, and the requests of clients in them.
//!
//! ```text
//!            FETCH                 a request
//!   Idle ------------> Armed <---------------------> Owned (by the server)
//!                        |             COMMIT_AND_FETCH
//!                        | stop: no started request is left, or this tag is idle
//!                        v
//!                     Aborted
//! ```
//!
//! Modelled as for a device with user recovery: STOP fails what the server has not seen, waits for what it has, and aborts
//! each armed tag once. Whatever the server may not do is a violation: a commit of a tag it does not own, a second commit,
//! a fetch after an abort, data of a tag it does not own, a result that is neither an errno nor the request's length.

use std::collections::VecDeque;

use block::{QueueId, Request, Status, Tag};
use reactor::Token;
use ublk::abi::io::{
    UBLK_IO_RES_ABORT, UBLK_IO_RES_OK, UBLK_U_IO_COMMIT_AND_FETCH_REQ, UBLK_U_IO_FETCH_REQ,
};

use crate::journal::Journal;
use crate::request::{AnsweredBy, ClientRequest};

/// A device of the simulated driver; never used twice in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceIndex(pub(crate) usize);

/// One tag of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagRef {
    pub(crate) device: DeviceIndex,
    pub(crate) queue: QueueId,
    pub(crate) tag: Tag,
}

/// When STOP gives up the armed tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopStyle {
    /// Idle tags at once, the others when their request is answered.
    Eager,
    /// All of them after the last request was answered.
    Patient,
}

/// The tag's side of a command that the server has pushed and the driver has not looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pushed {
    Nothing,
    Command,
}

#[derive(Debug)]
enum State {
    Idle,
    Armed(Token),
    Owned(Box<ClientRequest>),
    Aborted,
}

#[derive(Debug)]
struct Slot {
    state: State,
    pushed: Pushed,
}

#[derive(Debug)]
struct Queue {
    tags: Vec<Slot>,
    /// Requests that wait for a tag.
    waiting: VecDeque<Box<ClientRequest>>,
}

#[derive(Debug)]
struct Device {
    queues: Vec<Queue>,
    stop: Option<StopStyle>,
}

/// An answered request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) device: DeviceIndex,
    pub(crate) request: Box<ClientRequest>,
    pub(crate) by: AnsweredBy,
}

/// The driver.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    devices: Vec<Device>,
    /// Completions of commands that the ring has still to deliver.
    pub(crate) completions: Vec<(Token, i32)>,
    pub(crate) answers: Vec<Answer>,
}

impl Driver {
    pub(crate) fn add_device(&mut self, depths: &[u16]) -> DeviceIndex {
        let queues = depths.iter().map(|depth| Queue {
            tags: (0..*depth)
                .map(|_| Slot {
                    state: State::Idle,
                    pushed: Pushed::Nothing,
                })
                .collect(),
            waiting: VecDeque::new(),
        });
        self.devices.push(Device {
            queues: queues.collect(),
            stop: None,
        });
        DeviceIndex(self.devices.len() - 1)
    }

    /// The server hands a command to the ring. Returns whether the driver will look at it.
    pub(crate) fn on_push(&mut self, at: TagRef, code: u32, journal: &mut Journal) -> bool {
        let Some(slot) = self.slot_mut(at) else {
            journal.violate(|| format!("a command for {at:?}, which does not exist"));
            return false;
        };
        let is_right = match (&slot.state, code) {
            (State::Idle, UBLK_U_IO_FETCH_REQ)
            | (State::Owned(_), UBLK_U_IO_COMMIT_AND_FETCH_REQ) => true,
            (State::Idle | State::Armed(_) | State::Owned(_) | State::Aborted, _) => false,
        };
        if slot.pushed == Pushed::Command || !is_right {
            journal.violate(|| format!("command {code:#x} for {at:?}, which is {slot:?}"));
            return false;
        }
        slot.pushed = Pushed::Command;
        true
    }

    /// The driver looks at a command.
    pub(crate) fn handle_command(
        &mut self,
        at: TagRef,
        result: i32,
        token: Token,
        journal: &mut Journal,
    ) {
        let Some(slot) = self.slot_mut(at) else {
            return;
        };
        slot.pushed = Pushed::Nothing;
        match std::mem::replace(&mut slot.state, State::Armed(token)) {
            State::Idle => {}
            State::Owned(request) => {
                if result > 0 && result != request.success() || result < -4095 {
                    journal.violate(|| format!("commit of {request:?} with the result {result}"));
                }
                let by = AnsweredBy::Server(result);
                self.answers.push(Answer {
                    device: at.device,
                    request,
                    by,
                });
            }
            before @ (State::Armed(_) | State::Aborted) => {
                journal.violate(|| format!("a command for {at:?} while it was {before:?}"));
            }
        }
    }

    /// A client's request enters a queue.
    pub(crate) fn issue(&mut self, device: DeviceIndex, request: Box<ClientRequest>) {
        let Some(state) = self.devices.get_mut(device.0) else {
            return;
        };
        if state.stop.is_some() {
            self.answers.push(Answer {
                device,
                request,
                by: AnsweredBy::Kernel,
            });
        } else if let Some(queue) = state.queues.get_mut(usize::from(request.queue.0)) {
            queue.waiting.push_back(request);
        }
    }

    /// STOP_DEV.
    pub(crate) fn stop(&mut self, device: DeviceIndex, style: StopStyle) {
        let Some(state) = self.devices.get_mut(device.0) else {
            return;
        };
        state.stop = Some(style);
        for request in state
            .queues
            .iter_mut()
            .flat_map(|queue| queue.waiting.drain(..))
        {
            self.answers.push(Answer {
                device,
                request,
                by: AnsweredBy::Kernel,
            });
        }
    }

    /// Moves on what can move: requests into armed tags, or armed tags out of a stopped device. `pick` chooses among `n`.
    pub(crate) fn settle(
        &mut self,
        device: DeviceIndex,
        turn: u64,
        mut pick: impl FnMut(usize) -> usize,
    ) {
        let Some(state) = self.devices.get_mut(device.0) else {
            return;
        };
        let is_answered = state.owned().next().is_none();
        for queue in &mut state.queues {
            match state.stop {
                Some(style) if style == StopStyle::Eager || is_answered => {
                    for slot in &mut queue.tags {
                        if let State::Armed(token) = slot.state {
                            slot.state = State::Aborted;
                            self.completions.push((token, UBLK_IO_RES_ABORT));
                        }
                    }
                }
                Some(_) => {}
                None => dispatch(queue, turn, &mut pick, &mut self.completions),
            }
        }
    }

    /// The request in a tag, as its descriptor says.
    pub(crate) fn request(&mut self, at: TagRef, journal: &mut Journal) -> Result<Request, Status> {
        match self.owned_mut(at) {
            Some(request) => request.parsed,
            None => {
                journal.violate(|| {
                    format!("the descriptor of {at:?} was read without owning the tag")
                });
                Err(Status::Io)
            }
        }
    }

    /// The data of a request that the server works on, from `offset` on.
    pub(crate) fn data(
        &mut self,
        at: TagRef,
        offset: u32,
        len: usize,
        journal: &mut Journal,
    ) -> &mut [u8] {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let data = self
            .owned_mut(at)
            .and_then(|request| request.data.get_mut(start..start.saturating_add(len)));
        match data {
            Some(data) => data,
            None => {
                journal.violate(|| {
                    format!("{len} bytes at {offset} of {at:?} were copied, which the server does not own")
                });
                &mut []
            }
        }
    }

    /// The requests of a device that the server works on.
    pub(crate) fn owned(&self, device: DeviceIndex) -> impl Iterator<Item = &ClientRequest> {
        self.devices
            .get(device.0)
            .into_iter()
            .flat_map(Device::owned)
    }

    /// As [`Driver::owned`], without those whose commit is under way.
    pub(crate) fn in_work_mut(
        &mut self,
        device: DeviceIndex,
    ) -> impl Iterator<Item = &mut ClientRequest> {
        let queues = self
            .devices
            .get_mut(device.0)
            .into_iter()
            .flat_map(|device| &mut device.queues);
        queues
            .flat_map(|queue| &mut queue.tags)
            .filter_map(|slot| match &mut slot.state {
                State::Owned(request) if slot.pushed == Pushed::Nothing => Some(&mut **request),
                _ => None,
            })
    }

    /// Requests of a device that were not answered yet.
    pub(crate) fn unanswered(&self, device: DeviceIndex) -> usize {
        let waiting = self
            .devices
            .get(device.0)
            .into_iter()
            .flat_map(|device| &device.queues);
        waiting.map(|queue| queue.waiting.len()).sum::<usize>() + self.owned(device).count()
    }

    /// Whether every tag was fetched: START_DEV would have completed.
    pub(crate) fn is_ready(&self, device: DeviceIndex) -> bool {
        self.all_tags(device, |state| !matches!(state, State::Idle))
    }

    /// Whether the kernel has given up every tag.
    pub(crate) fn is_aborted(&self, device: DeviceIndex) -> bool {
        self.all_tags(device, |state| matches!(state, State::Aborted))
    }

    fn all_tags(&self, device: DeviceIndex, test: impl Fn(&State) -> bool) -> bool {
        let queues = self.devices.get(device.0).map(|device| &device.queues);
        queues
            .into_iter()
            .flatten()
            .flat_map(|queue| &queue.tags)
            .all(|slot| test(&slot.state))
    }

    fn slot_mut(&mut self, at: TagRef) -> Option<&mut Slot> {
        let queue = self
            .devices
            .get_mut(at.device.0)?
            .queues
            .get_mut(usize::from(at.queue.0))?;
        queue.tags.get_mut(usize::from(at.tag.0))
    }

    /// The request in a tag, unless the server has answered it already.
    fn owned_mut(&mut self, at: TagRef) -> Option<&mut ClientRequest> {
        match self.slot_mut(at)? {
            Slot {
                state: State::Owned(request),
                pushed: Pushed::Nothing,
            } => Some(request),
            _ => None,
        }
    }
}

impl Device {
    fn owned(&self) -> impl Iterator<Item = &ClientRequest> {
        let tags = self.queues.iter().flat_map(|queue| &queue.tags);
        tags.filter_map(|slot| match &slot.state {
            State::Owned(request) => Some(&**request),
            _ => None,
        })
    }
}

/// Gives waiting requests to armed tags, any of them.
fn dispatch(
    queue: &mut Queue,
    turn: u64,
    pick: &mut impl FnMut(usize) -> usize,
    completions: &mut Vec<(Token, i32)>,
) {
    while !queue.waiting.is_empty() {
        let is_armed = |slot: &&mut Slot| matches!(slot.state, State::Armed(_));
        let count = queue.tags.iter_mut().filter(is_armed).count();
        if count == 0 {
            return;
        }
        let Some(slot) = queue.tags.iter_mut().filter(is_armed).nth(pick(count)) else {
            return;
        };
        let (State::Armed(token), Some(mut request)) = (&slot.state, queue.waiting.pop_front())
        else {
            return;
        };
        completions.push((*token, UBLK_IO_RES_OK));
        request.owned_turn = turn;
        slot.state = State::Owned(request);
    }
}
