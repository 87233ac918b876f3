//! After attach the I/O path neither allocates nor frees.
//!
//! A counting allocator counts while the shard's turn runs, except inside the simulated ring and queues: what they do is the
//! kernel's work.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also outside of its own function"
)]
#![expect(
    unsafe_code,
    reason = "a global allocator can only be written with unsafe code"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use block::holes::HoleMap;
use block::{
    Access, Geometry, NullTarget, QueueId, RawFeatures, RawTarget, Request, Sectors, Status, Tag,
};
use block::{Target, Zeroing};
use dataplane::message::Message;
use dataplane::{
    Attachment, CopyMode, Counters, DeviceKey, OperationLimits, QueuePort, Shard, ShardGauges,
    ShardLimits,
};
use reactor::buffer::PoolLimits;
use reactor::{Completion, Error, Op, Ring, Token, Wait, mailbox};
use sim::{
    ClientOp, DeviceIndex, Faults, HandingTarget, SimDisk, SimFile, SimHost, SimQueue, SimRing,
    Writers,
};
use ublk::abi::io::{
    UBLK_IO_OP_DISCARD, UBLK_IO_OP_FLUSH, UBLK_IO_OP_READ, UBLK_IO_OP_WRITE,
    UBLK_IO_OP_WRITE_ZEROES,
};

thread_local! {
    static IS_COUNTING: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct CountingAllocator;

fn count() {
    if IS_COUNTING.get() {
        COUNT.set(COUNT.get() + 1);
    }
}

// SAFETY: every call is handed to the system's allocator unchanged; the counter is a plain thread-local value without a
// destructor, whose access neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is the same for the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: `memory` came from the system's allocator with this layout, by the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; the caller keeps the contract for `new_size`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs `work` with counting switched to `is_counting`.
fn counting<T>(is_counting: bool, work: impl FnOnce() -> T) -> T {
    let before = IS_COUNTING.replace(is_counting);
    let result = work();
    IS_COUNTING.set(before);
    result
}

/// The simulated ring, not counted.
struct QuietRing(SimRing);

impl Ring for QuietRing {
    type File = SimFile;

    fn push(&mut self, op: Op<'_, SimFile>, token: Token) {
        counting(false, || self.0.push(op, token));
    }

    fn enter(&mut self, wait: Wait) -> Result<(), Error> {
        counting(false, || self.0.enter(wait))
    }

    fn poll_completion(&mut self) -> Option<Completion> {
        counting(false, || self.0.poll_completion())
    }

    fn slots(&self) -> u16 {
        self.0.slots()
    }

    fn may_read_registered(&mut self, file: &SimFile) -> bool {
        self.0.may_read_registered(file)
    }

    fn on_read_registered(&mut self, file: &SimFile, result: i32) {
        self.0.on_read_registered(file, result);
    }

    fn allow_blocking(&mut self, operations: u32) -> Result<(), Error> {
        self.0.allow_blocking(operations)
    }

    fn buffers_in_flight(&self) -> usize {
        self.0.buffers_in_flight()
    }
}

/// The simulated queue, not counted.
struct QuietQueue(SimQueue);

impl QueuePort for QuietQueue {
    type File = SimFile;

    fn id(&self) -> QueueId {
        self.0.id()
    }

    fn depth(&self) -> u16 {
        self.0.depth()
    }

    fn file(&self) -> &SimFile {
        self.0.file()
    }

    fn copy_mode(&self) -> CopyMode {
        self.0.copy_mode()
    }

    fn is_registered(&self, tag: Tag) -> bool {
        counting(false, || self.0.is_registered(tag))
    }

    fn request(&self, tag: Tag) -> Result<Request, Status> {
        counting(false, || self.0.request(tag))
    }

    fn copy_from_request(&self, tag: Tag, offset: u32, bytes: &mut [u8]) -> Status {
        counting(false, || self.0.copy_from_request(tag, offset, bytes))
    }

    fn copy_to_request(&self, tag: Tag, offset: u32, bytes: &[u8]) -> Status {
        counting(false, || self.0.copy_to_request(tag, offset, bytes))
    }
}

const SECTORS: usize = 1024;
const QUEUES: u16 = 2;
const DEPTH: u16 = 16;

fn geometry() -> Geometry {
    Geometry {
        size: Sectors(SECTORS as u64),
        access: Access::ReadWrite,
        logical_block_shift: 9,
        physical_block_shift: 12,
        volatile_cache: true,
        zeroing: Zeroing::Deallocate {
            granularity_bytes: 4096,
        },
    }
}

fn target(index: usize) -> Box<dyn Target> {
    if index == 0 {
        return Box::new(NullTarget::new(geometry().size, Access::ReadWrite));
    }
    let holes = Arc::new(HoleMap::all_holes(geometry().size.len_bytes()));
    let features = RawFeatures {
        zero_range: index.is_multiple_of(2),
    };
    let raw = Box::new(RawTarget::new(geometry(), features, holes));
    if index.is_multiple_of(3) {
        // Requests that wait for one another, and bytes that are handed over.
        return Box::new(HandingTarget::new(raw, 4096, Writers::OneAtATime));
    }
    raw
}

/// Few operations at a time, and little that is handed over in a turn, so that steps and bytes have to wait.
fn limits(devices: usize, buffers: PoolLimits) -> ShardLimits {
    ShardLimits {
        devices_max: u16::try_from(devices).unwrap(),
        buffers,
        operations: OperationLimits {
            per_device: 8,
            shared: 16,
        },
        handed_bytes: 8 << 10,
    }
}

/// Serves `requests` on `devices` with few or many buffers; returns the allocations and deallocations in the turns.
fn allocations(devices: usize, buffers: PoolLimits, requests: u64) -> u64 {
    // Slow operations, so that every tag of every device is in work at the same time.
    let faults = Faults {
        short: 500,
        again: 200,
        io_error: 20,
        at_once: 5_000,
        delay_ticks_max: 60,
        ..Faults::NONE
    };
    let host = SimHost::new(7, faults);
    // Fewer than there are tags.
    host.set_slots(u16::try_from(devices).unwrap() * DEPTH);
    let (mail, receiver) = mailbox::channel().unwrap();
    let limits = limits(devices, buffers);
    let gauges = Arc::new(ShardGauges::default());
    let ring = QuietRing(host.ring());
    let mut shard = Shard::new(
        ring,
        (receiver, host.mail_file()),
        Arc::new(|_| {}),
        gauges,
        limits,
    )
    .unwrap();
    let mut attached: Vec<DeviceIndex> = Vec::new();
    let counters = Arc::new(Counters::default());
    for index in 0..devices {
        let copy_mode = if index % 3 == 0 {
            CopyMode::UserCopy
        } else {
            CopyMode::ZeroCopy
        };
        let (device, queues) = host.add_device(&[DEPTH; QUEUES as usize], copy_mode);
        let disk = Rc::new(RefCell::new(SimDisk::new(SECTORS, SECTORS)));
        let attachment = Attachment {
            key: DeviceKey(index as u64),
            queues: queues.into_iter().map(QuietQueue).collect(),
            target: target(index),
            files: vec![host.open(&disk, device)],
            counters: Arc::clone(&counters),
        };
        let message = Message::Attach(attachment, Box::new(|attached| assert!(attached)));
        assert!(mail.send(message).is_ok());
        host.ring_mail();
        shard.turn().unwrap();
        attached.push(device);
    }
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut issued, mut answered) = (0, 0);
    COUNT.set(0);
    while answered < requests {
        for device in &attached {
            while issued < requests && host.unanswered(*device) < usize::from(DEPTH * QUEUES) {
                let queue = QueueId(rng.u16(0..QUEUES));
                host.issue((*device, queue), client_op(&mut rng), &geometry());
                issued += 1;
            }
        }
        counting(true, || shard.turn()).unwrap();
        answered += host.take_answered().len() as u64;
        assert_eq!(host.violation(), None);
    }
    let is_copied = counters.snapshot().zero_copy_bytes == 0;
    assert_eq!(is_copied, devices == 1, "the first device has no zero copy");
    COUNT.get()
}

fn client_op(rng: &mut fastrand::Rng) -> ClientOp {
    let codes = [
        UBLK_IO_OP_READ,
        UBLK_IO_OP_READ,
        UBLK_IO_OP_WRITE,
        UBLK_IO_OP_WRITE,
        UBLK_IO_OP_FLUSH,
        UBLK_IO_OP_DISCARD,
        UBLK_IO_OP_WRITE_ZEROES,
        // What no target serves takes the way of refusals.
        99,
    ];
    let len = rng.u32(1..=64);
    ClientOp {
        code: *rng.choice(&codes).unwrap(),
        fua: rng.bool(),
        no_unmap: rng.bool(),
        start: rng.u64(0..SECTORS as u64 - u64::from(len)),
        len,
    }
}

#[test]
fn the_counter_counts() {
    COUNT.set(0);
    counting(true, || drop(Box::new(7)));
    counting(false, || drop(Box::new(7)));
    assert_eq!(COUNT.get(), 2);
}

#[test]
fn ten_thousand_requests_allocate_nothing_from_the_first_one_on() {
    assert_eq!(allocations(1, PoolLimits::default(), 10_000), 0);
}

#[test]
fn many_devices_in_full_work_at_once_allocate_nothing() {
    assert_eq!(allocations(24, PoolLimits::default(), 10_000), 0);
}

#[test]
fn waiting_for_buffers_allocates_nothing() {
    assert_eq!(allocations(8, PoolLimits([4, 2, 1]), 10_000), 0);
}
