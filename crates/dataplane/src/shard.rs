//! One shard: a ring, the devices it serves, and the turn that moves them all on.
//!
//! A turn enters the kernel once, handles every completion that is there, then starts requests from the run list: a queue may
//! start [`VISIT_UNITS`] worth of work, goes to the end of the list, and after [`TURN_UNITS`] the turn ends, so
//! that commits are submitted and completions are seen again soon. A busy device therefore delays another by one
//! visit, not by its whole queue. What is fetched and handed over has a budget of its own ([`crate::handing`]).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use block::Plan;
use reactor::buffer::PoolLimits;
use reactor::mailbox::Receiver;
use reactor::{Completion, Error, Op, Ring, Wait};
use slab::Slab;

use crate::buffers::SharedBuffers;
use crate::counters::ShardGauges;
use crate::device::{Device, Queue, StepRun};
use crate::in_kernel::{InKernel, OperationLimits};
use crate::message::{DeviceKey, Message, ShardEvent};
use crate::port::QueuePort;
use crate::slots::SlotTable;
use crate::token::Owner;

/// Work that one queue may start before the next one has its turn. A request costs 1 and 1 more per [`UNIT_BYTES`].
pub(crate) const VISIT_UNITS: u32 = 16;
/// Work that is started before the ring is entered again.
pub(crate) const TURN_UNITS: u32 = 128;
/// Bytes that cost as much as the request itself: copying them takes about as long.
pub(crate) const UNIT_BYTES: u64 = 32 << 10;

/// Bytes of zeros that are copied at a time.
const ZEROS_BYTES: usize = 64 << 10;

/// Limits of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLimits {
    /// Devices that can be attached.
    pub devices_max: u16,
    /// Buffers that all devices share, beside one small buffer per device.
    pub buffers: PoolLimits,
    /// Operations in the kernel.
    pub operations: OperationLimits,
    /// Bytes of requests' data that are made of fetched ones in a turn, at least. More wait for the next turn.
    pub handed_bytes: u32,
}

impl Default for ShardLimits {
    fn default() -> Self {
        Self {
            devices_max: 16_384,
            buffers: PoolLimits::default(),
            operations: OperationLimits::default(),
            // Below a millisecond of decompression.
            handed_bytes: 512 << 10,
        }
    }
}

/// Where a shard reports events; called on its thread, must not block.
pub type EventSink = Arc<dyn Fn(ShardEvent) + Send + Sync>;

/// How the shard's thread goes on after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Another turn.
    Continue,
    /// Control asked for the end.
    Exit,
}

/// A shard. The driver calls [`Shard::turn`] for ever.
pub struct Shard<R: Ring, Q: QueuePort<File = R::File>> {
    pub(crate) ring: R,
    pub(crate) mail: Receiver<Message<Q, R::File>>,
    /// The mailbox's wake-up as a file of this ring; polled once per batch of messages.
    pub(crate) mail_file: R::File,
    pub(crate) events: EventSink,
    pub(crate) gauges: Arc<ShardGauges>,
    pub(crate) limits: ShardLimits,
    pub(crate) buffers: SharedBuffers,
    pub(crate) in_kernel: InKernel,
    pub(crate) slots: SlotTable,
    pub(crate) keys: HashMap<DeviceKey, u32>,
    pub(crate) devices: Slab<Device<Q, R::File>>,
    pub(crate) queues: Slab<Queue<Q>>,
    pub(crate) steps: Slab<StepRun>,
    /// Steps that the attached devices can have in flight.
    pub(crate) steps_max: usize,
    /// Queues with requests that can be started.
    pub(crate) run_list: VecDeque<u32>,
    /// Steps that wait for a buffer or for operations to end, oldest first.
    pub(crate) waiting: VecDeque<u32>,
    /// Devices whose requests that wait may go on; see [`crate::paused`].
    pub(crate) woken: Vec<u32>,
    /// Devices with bytes that are to be handed over, and how many of a request's bytes were in this turn; see [`crate::handing`].
    pub(crate) handing: VecDeque<u32>,
    pub(crate) handed_bytes: u32,
    pub(crate) plan: Plan,
    pub(crate) zeros: Box<[u8]>,
    /// Requests being worked on, of all devices.
    pub(crate) in_flight: u64,
    pub(crate) exit: bool,
}

impl<R: Ring, Q: QueuePort<File = R::File>> Shard<R, Q> {
    /// A shard on `ring`, driven by `mail`. `mail_file` is the mailbox's wake-up as the ring knows it.
    ///
    /// # Errors
    /// When memory for buffers cannot be mapped, or the kernel refuses workers.
    pub fn new(
        ring: R,
        (mail, mail_file): (Receiver<Message<Q, R::File>>, R::File),
        events: EventSink,
        gauges: Arc<ShardGauges>,
        limits: ShardLimits,
    ) -> Result<Self, Error> {
        let slots = SlotTable::new(ring.slots());
        let mut shard = Self {
            ring,
            mail,
            mail_file,
            events,
            gauges,
            limits,
            buffers: SharedBuffers::new(limits.buffers, limits.devices_max)?,
            in_kernel: InKernel::new(limits.operations),
            slots,
            keys: HashMap::new(),
            devices: Slab::new(),
            queues: Slab::new(),
            steps: Slab::new(),
            steps_max: 0,
            run_list: VecDeque::new(),
            waiting: VecDeque::new(),
            woken: Vec::new(),
            handing: VecDeque::new(),
            handed_bytes: 0,
            plan: Plan::new(),
            zeros: zeros(),
            in_flight: 0,
            exit: false,
        };
        shard.gauges.slots.set(shard.ring.slots().into());
        shard.in_kernel.provide(&mut shard.ring, 0)?;
        shard.ring.push(
            Op::Poll {
                file: &shard.mail_file,
            },
            Owner::Mail.pack(),
        );
        Ok(shard)
    }

    /// One turn. Sleeps in the kernel when there is nothing to do.
    ///
    /// # Errors
    /// Only when the ring is broken.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        let is_idle = self.run_list.is_empty() && self.woken.is_empty() && self.handing.is_empty();
        let wait = if is_idle { Wait::One } else { Wait::Poll };
        self.ring.enter(wait)?;
        if wait == Wait::One {
            self.gauges.wake_ups.add(1);
        }
        self.hand_over_waiting();
        while let Some(completion) = self.ring.poll_completion() {
            self.handle_completion(completion);
        }
        self.resume_waiting();
        self.resume_paused();
        self.start_requests();
        self.buffers.report(&self.gauges);
        self.in_kernel.report(self.devices.len(), &self.gauges);
        self.gauges.tags_with_slot.set(self.slots.tags());
        self.gauges.in_flight.set(self.in_flight);
        Ok(if self.exit {
            Turn::Exit
        } else {
            Turn::Continue
        })
    }

    fn handle_completion(&mut self, completion: Completion) {
        match Owner::unpack(completion.token) {
            Some(Owner::Tag { queue, tag }) => self.handle_tag(queue, tag, completion.result),
            Some(Owner::Step { step }) => {
                self.handle_step(step, completion.result, completion.buffer)
            }
            Some(Owner::Mail) => {
                self.mail.clear();
                self.ring.push(
                    Op::Poll {
                        file: &self.mail_file,
                    },
                    Owner::Mail.pack(),
                );
                while let Some(message) = self.mail.try_receive() {
                    self.handle_message(message);
                }
            }
            None => debug_assert!(false, "a completion with a token that was never given out"),
        }
    }
}

/// Zeros in memory of their own: kernels that pin the pages they copy from (6.12) take a slow way for the kernel's shared
/// zero page, which is what fresh memory is until something was written to it.
fn zeros() -> Box<[u8]> {
    let mut zeros = vec![1; ZEROS_BYTES].into_boxed_slice();
    zeros.fill(0);
    zeros
}
