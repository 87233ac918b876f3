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
//! each armed tag once. The data of a zero-copy device's reads and writes is registered in the slot that the tag's command
//! named, if that is empty, until the commit. Whatever the server may not do is a violation: a commit of a tag it does not own, a second commit,
//! a fetch after an abort, data of a tag it does not own, a result that is neither an errno nor the request's length.

use std::collections::{BTreeMap, VecDeque};

use block::{QueueId, Request, Status, Tag};
use dataplane::CopyMode;
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
    /// Where the tag's last command asked for registration.
    asked: u16,
}

/// A command as the driver takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) at: TagRef,
    pub(crate) result: i32,
    /// Where to register the data of the tag's next request.
    pub(crate) slot: u16,
    pub(crate) token: Token,
}

/// The ring's table: which request is in each slot.
#[derive(Debug, Default)]
struct Table {
    slots: BTreeMap<u16, TagRef>,
    len: u16,
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
    copy_mode: CopyMode,
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
    table: Table,
    /// Completions of commands that the ring has still to deliver.
    pub(crate) completions: Vec<(Token, i32)>,
    pub(crate) answers: Vec<Answer>,
}

impl Driver {
    pub(crate) fn add_device(&mut self, depths: &[u16], copy_mode: CopyMode) -> DeviceIndex {
        let queues = depths.iter().map(|depth| Queue {
            tags: (0..*depth)
                .map(|_| Slot {
                    state: State::Idle,
                    pushed: Pushed::Nothing,
                    asked: 0,
                })
                .collect(),
            waiting: VecDeque::new(),
        });
        self.devices.push(Device {
            queues: queues.collect(),
            copy_mode,
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
        Command {
            at,
            result,
            slot: asked,
            token,
        }: Command,
        journal: &mut Journal,
    ) {
        let Some(slot) = self.slot_mut(at) else {
            return;
        };
        (slot.pushed, slot.asked) = (Pushed::Nothing, asked);
        match std::mem::replace(&mut slot.state, State::Armed(token)) {
            State::Idle => {}
            State::Owned(request) => {
                if result > 0 && result != request.success() || result < -4095 {
                    journal.violate(|| format!("commit of {request:?} with the result {result}"));
                }
                if let Some(registered) = request.registered {
                    self.table.slots.remove(&registered);
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
        let (stop, copy_mode) = (state.stop, state.copy_mode);
        for (id, queue) in (0..).zip(&mut state.queues) {
            match stop {
                Some(style) if style == StopStyle::Eager || is_answered => {
                    for slot in &mut queue.tags {
                        if let State::Armed(token) = slot.state {
                            slot.state = State::Aborted;
                            self.completions.push((token, UBLK_IO_RES_ABORT));
                        }
                    }
                }
                Some(_) => {}
                None => {
                    let mut register = |tag, request: &mut ClientRequest, asked| {
                        let at = TagRef {
                            device,
                            queue: QueueId(id),
                            tag,
                        };
                        if copy_mode == CopyMode::ZeroCopy {
                            self.table.register(at, request, asked);
                        }
                    };
                    dispatch(
                        queue,
                        turn,
                        (&mut pick, &mut register),
                        &mut self.completions,
                    );
                }
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

    /// The slots of the ring's table.
    pub(crate) const fn set_slots(&mut self, len: u16) {
        self.table.len = len;
    }

    /// How many slots there are, and how many have a request in them.
    pub(crate) fn slots(&self) -> (u16, usize) {
        (self.table.len, self.table.slots.len())
    }

    /// The request in a slot, for an operation that is pushed now.
    pub(crate) fn in_slot(&mut self, slot: u16, journal: &mut Journal) -> Option<TagRef> {
        let at = self.table.slots.get(&slot).copied();
        let at = at.filter(|at| self.owned_mut(*at).is_some());
        if at.is_none() {
            journal.violate(|| format!("a read into slot {slot}, which holds no request in work"));
        }
        at
    }

    /// The data of a request that an operation reads into, which the ring took before the commit.
    pub(crate) fn registered_data(
        &mut self,
        at: TagRef,
        offset: u32,
        len: usize,
    ) -> Option<&mut [u8]> {
        let start = usize::try_from(offset).ok()?;
        match &mut self.slot_mut(at)?.state {
            State::Owned(request) => request.data.get_mut(start..start.checked_add(len)?),
            State::Idle | State::Armed(_) | State::Aborted => None,
        }
    }

    /// Whether the data of the request in a tag is registered.
    pub(crate) fn is_registered(&mut self, at: TagRef) -> bool {
        self.owned_mut(at)
            .is_some_and(|request| request.registered.is_some())
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
                ..
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

impl Table {
    /// Registers the data of a request, if it has any and the slot is empty.
    fn register(&mut self, at: TagRef, request: &mut ClientRequest, slot: u16) {
        let is_possible = slot < self.len && !self.slots.contains_key(&slot);
        if is_possible && !request.data.is_empty() {
            self.slots.insert(slot, at);
            request.registered = Some(slot);
        }
    }
}

/// Gives waiting requests to armed tags, any of them.
fn dispatch(
    queue: &mut Queue,
    turn: u64,
    (pick, register): (
        &mut impl FnMut(usize) -> usize,
        &mut impl FnMut(Tag, &mut ClientRequest, u16),
    ),
    completions: &mut Vec<(Token, i32)>,
) {
    while !queue.waiting.is_empty() {
        let is_armed = |slot: &Slot| matches!(slot.state, State::Armed(_));
        let count = queue.tags.iter().filter(|slot| is_armed(slot)).count();
        if count == 0 {
            return;
        }
        let armed = (0..)
            .zip(&mut queue.tags)
            .filter(|(_, slot)| is_armed(slot))
            .nth(pick(count));
        let Some((tag, slot)) = armed else {
            return;
        };
        let (State::Armed(token), Some(mut request)) = (&slot.state, queue.waiting.pop_front())
        else {
            return;
        };
        completions.push((*token, UBLK_IO_RES_OK));
        request.owned_turn = turn;
        register(Tag(tag), &mut request, slot.asked);
        slot.state = State::Owned(request);
    }
}
