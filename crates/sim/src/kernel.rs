//! The simulated kernel: one clock, what was pushed, what is under way, and what has completed.

use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use block::{QueueId, Tag};
use fastrand::Rng;
use reactor::{Completion, Op, Token, Wait};
use ublk::abi::io::UBLK_AUTO_BUF_REG_FALLBACK;

use crate::driver::{Command, DeviceIndex, Driver, TagRef};
use crate::faults::Faults;
use crate::file::{Node, SimFile};
use crate::journal::Journal;
use crate::operation::{Action, Operation, RegisteredRead, roll};

/// An operation as it was pushed. The ring's user must keep the file open until the ring is entered.
#[derive(Debug)]
struct Pushed {
    file: Weak<Node>,
    what: What,
}

#[derive(Debug)]
enum What {
    Poll(Token),
    Command(Command),
    Registered(RegisteredRead),
    Disk(Box<Operation>),
}

#[derive(Debug)]
enum Event {
    Command(Command),
    Disk(Box<Operation>),
    Deliver { token: Token, result: i32 },
}

/// Everything behind the ring.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) driver: Driver,
    pub(crate) journal: Journal,
    /// Times the ring was entered.
    pub(crate) turns: u64,
    /// Whether the last entry would have slept for ever.
    pub(crate) is_idle: bool,
    pub(crate) mail_waits: bool,
    now: u64,
    sequence: u64,
    pub(crate) requests: u64,
    pushed: Vec<Pushed>,
    /// By time, then in random order.
    due: BTreeMap<(u64, u32, u64), Event>,
    hung: Vec<Operation>,
    poll: Option<Token>,
    ready: VecDeque<Completion>,
    buffers: usize,
    /// Answers that were failures, as far as somebody counted.
    pub(crate) failures: u64,
    /// Operations on disks under way, and how many may block without delaying others.
    operations: u32,
    operations_max: u32,
}

impl Kernel {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            faults,
            driver: Driver::default(),
            journal: Journal::new(),
            turns: 0,
            failures: 0,
            is_idle: false,
            mail_waits: false,
            requests: 0,
            now: 0,
            sequence: 0,
            pushed: Vec::new(),
            due: BTreeMap::new(),
            hung: Vec::new(),
            poll: None,
            ready: VecDeque::new(),
            buffers: 0,
            operations: 0,
            operations_max: 0,
        }
    }

    pub(crate) fn push(&mut self, op: Op<'_, SimFile>, token: Token) {
        let (file, action, (offset, len), buffer) = match op {
            Op::Poll { file } => return self.hold(file, What::Poll(token)),
            Op::Command {
                file,
                code,
                payload,
                address,
            } => {
                return self.push_command(file, (code, payload, address), token);
            }
            Op::ReadRegistered {
                file,
                offset_bytes,
                len_bytes,
                slot,
                start_bytes,
            } => {
                let place = (slot, start_bytes);
                return self.push_registered(file, (offset_bytes, len_bytes), place, token);
            }
            Op::Read {
                file,
                offset_bytes,
                len_bytes,
                buffer,
            } => (
                file,
                Action::Read,
                (offset_bytes, len_bytes.into()),
                Some(buffer),
            ),
            Op::Write {
                file,
                offset_bytes,
                len_bytes,
                buffer,
                mode,
            } => (
                file,
                Action::Write(mode),
                (offset_bytes, len_bytes.into()),
                Some(buffer),
            ),
            Op::Sync { file } => (file, Action::Sync(None), (0, 0), None),
            Op::Allocate {
                file,
                offset_bytes,
                len_bytes,
                mode,
            } => (
                file,
                Action::Allocate { mode },
                (offset_bytes, len_bytes),
                None,
            ),
        };
        let operation = Operation {
            token,
            // Replaced when the ring takes the operation; until then the file is the pusher's to keep open.
            node: Rc::new(Node::Mail),
            action,
            offset: usize::try_from(offset).unwrap_or(usize::MAX),
            len: usize::try_from(len).unwrap_or(usize::MAX),
            buffer,
            result: None,
        };
        self.push_operation(file, operation);
    }

    fn push_operation(&mut self, file: &SimFile, operation: Operation) {
        self.buffers += usize::from(operation.buffer.is_some());
        self.operations += 1;
        if self.operations > self.operations_max {
            let (operations, max) = (self.operations, self.operations_max);
            self.journal
                .violate(|| format!("{operations} operations where {max} may block"));
        }
        if let Node::Disk(opened) = &*file.0 {
            opened.watch.on_begin(operation.action.allocations());
        }
        self.hold(file, What::Disk(Box::new(operation)));
    }

    fn push_registered(
        &mut self,
        file: &SimFile,
        (offset, len): (u64, u32),
        (slot, start): (u16, u32),
        token: Token,
    ) {
        let read = RegisteredRead {
            at: self.driver.in_slot(slot, &mut self.journal),
            start,
            offset,
            len,
            token,
        };
        self.hold(file, What::Registered(read));
    }

    fn push_command(
        &mut self,
        file: &SimFile,
        (code, payload, address): (u32, [u8; 16], u64),
        token: Token,
    ) {
        let Node::Device(device) = &*file.0 else {
            return self.journal.violate(|| format!("a command to {file:?}"));
        };
        let (at, result) = parse_command(*device, payload);
        if self.driver.on_push(at, code, &mut self.journal) {
            // `struct ublk_auto_buf_reg`: the index comes first, then the flag without which a request could be lost.
            let slot = u16::try_from(address & 0xffff).unwrap_or(u16::MAX);
            if address >> 16 != u64::from(UBLK_AUTO_BUF_REG_FALLBACK) {
                self.journal
                    .violate(|| format!("a command with the address {address:#x}"));
            }
            let command = Command {
                at,
                result,
                slot,
                token,
            };
            self.hold(file, What::Command(command));
        }
    }

    fn hold(&mut self, file: &SimFile, what: What) {
        let file = Rc::downgrade(&file.0);
        self.pushed.push(Pushed { file, what });
    }

    /// One entry of the ring.
    pub(crate) fn enter(&mut self, wait: Wait) {
        self.turns += 1;
        self.now += 1;
        self.is_idle = false;
        for pushed in std::mem::take(&mut self.pushed) {
            let Some(node) = pushed.file.upgrade() else {
                self.journal.violate(|| {
                    format!("a file was closed before the ring took {:?}", pushed.what)
                });
                continue;
            };
            self.take(node, pushed.what);
        }
        if wait == Wait::One && roll(&mut self.rng, self.faults.spurious_wake) {
            return;
        }
        loop {
            self.run_due();
            if self.mail_waits
                && let Some(token) = self.poll.take()
            {
                self.mail_waits = false;
                self.ready.push_back(Completion {
                    token,
                    result: 1,
                    buffer: None,
                });
            }
            if wait == Wait::Poll || !self.ready.is_empty() {
                return;
            }
            let Some(((next, ..), _)) = self.due.first_key_value() else {
                self.is_idle = true;
                return;
            };
            self.now = *next;
        }
    }

    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        let completion = self.ready.pop_front()?;
        if completion.buffer.is_some() {
            self.buffers -= 1;
        }
        let result = u64::from(completion.result.cast_unsigned());
        self.journal.record([self.now, completion.token.0, result]);
        Some(completion)
    }

    pub(crate) fn allow_blocking(&mut self, operations: u32) {
        self.operations_max = self.operations_max.max(operations);
    }

    pub(crate) const fn buffers_in_flight(&self) -> usize {
        self.buffers
    }

    /// Operations on disks that hang now.
    pub(crate) fn hung(&self) -> usize {
        self.hung.len()
    }

    /// Lets one hanging operation go on.
    pub(crate) fn release_one(&mut self) {
        if self.hung.is_empty() {
            return;
        }
        let operation = self.hung.swap_remove(self.rng.usize(0..self.hung.len()));
        if let Some(opened) = operation.opened() {
            opened.watch.hung.set(opened.watch.hung.get() - 1);
        }
        self.schedule(Event::Disk(Box::new(operation)));
    }

    /// Lets the driver move on and delivers what it completes.
    pub(crate) fn settle(&mut self, device: DeviceIndex) {
        let (rng, turn) = (&mut self.rng, self.turns);
        self.driver
            .settle(device, turn, |count| rng.usize(0..count));
        for (token, result) in std::mem::take(&mut self.driver.completions) {
            self.schedule(Event::Deliver { token, result });
        }
    }

    fn take(&mut self, node: Rc<Node>, what: What) {
        match what {
            What::Poll(token) => self.poll = Some(token),
            What::Command(command) => self.schedule(Event::Command(command)),
            What::Registered(read) => {
                let result = self.read_registered(&node, &read);
                let token = read.token;
                self.schedule(Event::Deliver { token, result });
            }
            What::Disk(mut operation) => {
                operation.node = node;
                operation.prepare();
                if self.rng.bool() {
                    operation.perform(&self.faults, &mut self.rng, &mut self.driver);
                }
                let watch = operation.opened().map(|opened| Rc::clone(&opened.watch));
                match watch.filter(|watch| watch.may_hang.get()) {
                    Some(watch) if roll(&mut self.rng, self.faults.hang) => {
                        watch.hung.set(watch.hung.get() + 1);
                        self.hung.push(*operation);
                    }
                    _ => self.schedule(Event::Disk(operation)),
                }
            }
        }
    }

    fn schedule(&mut self, event: Event) {
        let is_slow = roll(&mut self.rng, self.faults.slow);
        let max = if is_slow {
            self.faults.slow_ticks_max
        } else {
            self.faults.delay_ticks_max
        };
        let (delay, order) = match max {
            0 => (0, 0),
            max => (u64::from(self.rng.u16(0..=max)), self.rng.u32(..)),
        };
        self.sequence += 1;
        self.due
            .insert((self.now + delay, order, self.sequence), event);
    }

    fn run_due(&mut self) {
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            match entry.remove() {
                Event::Deliver { token, result } => {
                    self.ready.push_back(Completion {
                        token,
                        result,
                        buffer: None,
                    });
                }
                Event::Command(command) => {
                    self.driver.handle_command(command, &mut self.journal);
                    self.settle(command.at.device);
                }
                Event::Disk(mut operation) => {
                    operation.perform(&self.faults, &mut self.rng, &mut self.driver);
                    self.operations -= 1;
                    if let Some(opened) = operation.opened() {
                        opened.watch.on_end(operation.action.allocations());
                    }
                    let Operation {
                        token,
                        result,
                        buffer,
                        ..
                    } = *operation;
                    self.ready.push_back(Completion {
                        token,
                        result: result.unwrap_or(0),
                        buffer,
                    });
                }
            }
        }
    }
}

/// `struct ublksrv_io_cmd` of linux/ublk_cmd.h: queue, tag, result.
fn parse_command(device: DeviceIndex, payload: [u8; 16]) -> (TagRef, i32) {
    let [q0, q1, t0, t1, r0, r1, r2, r3, ..] = payload;
    let at = TagRef {
        device,
        queue: QueueId(u16::from_le_bytes([q0, q1])),
        tag: Tag(u16::from_le_bytes([t0, t1])),
    };
    (at, i32::from_le_bytes([r0, r1, r2, r3]))
}
