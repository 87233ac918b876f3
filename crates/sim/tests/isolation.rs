//! What one device does to another on the same shard: nothing, whether it saturates the shard, hangs or panics.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking, also outside of its own function"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use block::holes::HoleMap;
use block::{
    Access, Geometry, Handover, NullTarget, Plan, QueueId, RawFeatures, RawTarget, Request,
    RequestData, Sectors, Status, Target, Verdict, Zeroing,
};
use dataplane::message::Message;
use dataplane::{
    Attachment, CopyMode, Counters, DeviceKey, OperationLimits, Shard, ShardGauges, ShardLimits,
};
use reactor::buffer::PoolLimits;
use reactor::mailbox::{self, Sender};
use sim::{
    ClientOp, DeviceIndex, Faults, HandingTarget, SimDisk, SimFile, SimHost, SimQueue, SimRing,
    Writers,
};

const READ: u8 = ublk::abi::io::UBLK_IO_OP_READ;
const WRITE: u8 = ublk::abi::io::UBLK_IO_OP_WRITE;
const SECTORS: usize = 4096;

struct Scene {
    host: SimHost,
    shard: Shard<SimRing, SimQueue>,
    mail: Sender<Message<SimQueue, SimFile>>,
    geometry: Geometry,
    keys: BTreeMap<DeviceIndex, DeviceKey>,
}

impl Scene {
    fn new(faults: Faults, limits: ShardLimits) -> Self {
        let host = SimHost::new(1, faults);
        host.set_slots(1024);
        let (mail, receiver) = mailbox::channel().unwrap();
        let gauges = Arc::new(ShardGauges::default());
        let shard = Shard::new(
            host.ring(),
            (receiver, host.mail_file()),
            Arc::new(|_| {}),
            gauges,
            limits,
        )
        .unwrap();
        let geometry = Geometry {
            size: Sectors(SECTORS as u64),
            access: Access::ReadWrite,
            logical_block_shift: 9,
            physical_block_shift: 12,
            volatile_cache: true,
            zeroing: Zeroing::Deallocate {
                granularity_bytes: 4096,
            },
        };
        Self {
            host,
            shard,
            mail,
            geometry,
            keys: BTreeMap::new(),
        }
    }

    fn attach(&mut self, depths: &[u16], target: Box<dyn Target>, hangs: bool) -> DeviceIndex {
        self.try_attach(depths, target, hangs)
            .expect("the shard has room")
    }

    fn try_attach(
        &mut self,
        depths: &[u16],
        target: Box<dyn Target>,
        hangs: bool,
    ) -> Option<DeviceIndex> {
        let (device, queues) = self.host.add_device(depths, CopyMode::ZeroCopy);
        let disk = Rc::new(RefCell::new(SimDisk::new(SECTORS, SECTORS)));
        let file = if hangs {
            self.host.open_hanging(&disk, device)
        } else {
            self.host.open(&disk, device)
        };
        let key = DeviceKey(self.keys.len() as u64);
        self.keys.insert(device, key);
        let attachment = Attachment {
            key,
            queues,
            target,
            files: vec![file],
            counters: Arc::new(Counters::default()),
        };
        let (tell, told) = mpsc::channel();
        self.send(Message::Attach(
            attachment,
            Box::new(move |attached| tell.send(attached).unwrap()),
        ));
        told.try_recv().unwrap().then_some(device)
    }

    /// Sends a message and lets the shard handle it.
    fn send(&mut self, message: Message<SimQueue, SimFile>) {
        assert!(self.mail.send(message).is_ok());
        self.host.ring_mail();
        self.turn();
    }

    /// Ends a device, whatever it has in flight.
    fn abandon_and_release(&mut self, device: DeviceIndex) {
        let key = self.keys[&device];
        self.send(Message::Abandon(key, Box::new(|_| {})));
        self.host.stop_device(device);
        let (tell, told) = mpsc::channel();
        self.send(Message::Release(
            key,
            Box::new(move |released| tell.send(released.is_some()).unwrap()),
        ));
        let mut turns = 0;
        while told.try_recv() != Ok(true) {
            self.turn();
            turns += 1;
            assert!(turns < 10, "the device is not released");
        }
    }

    fn raw(&self) -> Box<dyn Target> {
        let holes = HoleMap::all_data(self.geometry.size.len_bytes());
        Box::new(RawTarget::new(
            self.geometry,
            RawFeatures { zero_range: true },
            Arc::new(holes),
        ))
    }

    fn null(&self) -> Box<dyn Target> {
        Box::new(NullTarget::new(self.geometry.size, Access::ReadWrite))
    }

    fn issue(&self, device: DeviceIndex, queue: u16, (code, start, len): (u8, u64, u32)) -> u64 {
        let op = ClientOp {
            code,
            fua: false,
            no_unmap: false,
            start,
            len,
        };
        self.host
            .issue((device, QueueId(queue)), op, &self.geometry)
    }

    fn turn(&mut self) {
        self.shard.turn().unwrap();
        assert_eq!(self.host.violation(), None);
    }
}

/// Keeps `busy` full on all its queues and `quiet` at depth 1; returns the longest that the server had a request of `quiet`.
fn latency_of_the_quiet_one(
    scene: &mut Scene,
    busy: (DeviceIndex, u16),
    quiet: DeviceIndex,
    op: (u8, u64, u32),
) -> u64 {
    let (mut worst, mut served, mut served_busy) = (0, 0, 0);
    for _ in 0..400 {
        for queue in 0..busy.1 {
            while scene.host.unanswered(busy.0) < usize::from(queue + 1) * 80 {
                scene.issue(busy.0, queue, op);
            }
        }
        if scene.host.unanswered(quiet) == 0 {
            scene.issue(quiet, 0, (READ, 8, 8));
        }
        scene.turn();
        for (device, _, latency) in scene.host.take_answered() {
            if device == quiet {
                served += 1;
                worst = worst.max(latency.unwrap());
            } else {
                served_busy += 1;
            }
        }
    }
    assert!(served > 100, "the quiet device was served {served} times");
    assert!(
        served_busy > 50,
        "the busy device was served {served_busy} times"
    );
    worst
}

#[test]
fn a_saturating_device_costs_a_quiet_one_at_most_a_turn_or_two() {
    // (queues of the busy device, its operation, turns allowed): a turn for the request, one for its commit; raw devices need
    // one more for the read. Eight visits of 16 units fill a turn of 128, so 20 busy queues can cost three turns.
    let table: [(u16, (u8, u64, u32), u64); 4] = [
        (1, (READ, 0, 8), 2),
        (3, (READ, 0, 8), 2),
        (3, (WRITE, 0, 256), 3),
        (20, (READ, 0, 8), 5),
    ];
    for (queues, op, turns_max) in table {
        let mut scene = Scene::new(Faults::NONE, ShardLimits::default());
        let target = scene.null();
        let busy = scene.attach(&vec![64; usize::from(queues)], target, false);
        let target = scene.null();
        let quiet = scene.attach(&[1], target, false);
        let worst = latency_of_the_quiet_one(&mut scene, (busy, queues), quiet, op);
        assert!(worst <= turns_max, "{queues} queues: {worst} turns");
    }
}

#[test]
fn a_device_that_uses_up_the_buffers_leaves_a_quiet_one_its_own() {
    let limits = ShardLimits {
        devices_max: 2,
        buffers: PoolLimits([4, 1, 1]),
        ..ShardLimits::default()
    };
    let mut scene = Scene::new(Faults::NONE, limits);
    let target = scene.raw();
    let busy = scene.attach(&[64], target, false);
    let target = scene.raw();
    let quiet = scene.attach(&[1], target, false);
    let worst = latency_of_the_quiet_one(&mut scene, (busy, 1), quiet, (WRITE, 0, 256));
    assert!(worst <= 4, "{worst} turns");
}

#[test]
fn while_every_operation_of_one_device_hangs_the_others_are_served() {
    let faults = Faults {
        hang: 10_000,
        ..Faults::NONE
    };
    let few = OperationLimits {
        per_device: 3,
        shared: 2,
    };
    // As few buffers as there can be, and some large ones: a device that gives a large one back needs a small one next.
    for (buffers, operations) in [
        (PoolLimits([0, 0, 0]), OperationLimits::default()),
        (PoolLimits([0, 1, 1]), OperationLimits::default()),
        (PoolLimits([3, 2, 1]), few),
        (PoolLimits([40, 2, 1]), few),
    ] {
        let mut scene = Scene::new(
            faults,
            ShardLimits {
                devices_max: 3,
                buffers,
                operations,
                ..ShardLimits::default()
            },
        );
        let target = scene.raw();
        let hanging = scene.attach(&[16], target, true);
        let others = [(); 2].map(|()| {
            let target = scene.raw();
            scene.attach(&[4], target, false)
        });
        let mut served = BTreeMap::new();
        for round in 0..60_u64 {
            for device in others {
                scene.issue(device, 0, (WRITE, round % 64, 200));
            }
            // The hanging one comes while the others hold large buffers, and may take what is left.
            if round < 10 {
                for _ in 0..4 {
                    scene.issue(hanging, 0, (WRITE, round, 1));
                }
            }
            scene.turn();
            for device in others {
                scene.issue(device, 0, (READ, round % 64, 1));
            }
            // 25 pieces of a page, one after the other when there is one buffer, then the read; some turns for the others.
            let mut turns = 0;
            while others
                .iter()
                .any(|device| scene.host.unanswered(*device) > 0)
            {
                scene.turn();
                turns += 1;
                assert!(
                    turns < 100,
                    "{buffers:?}, round {round}: a device that does not hang is not served"
                );
            }
            for (device, _, _) in scene.host.take_answered() {
                assert_ne!(device, hanging);
                *served.entry(device).or_insert(0) += 1;
            }
        }
        assert_eq!(served, others.map(|device| (device, 120)).into());
        assert_eq!(scene.host.unanswered(hanging), 40);
    }
}

/// The kernel keeps a request for as long as an operation reads into it. So no read that may hang goes into a request itself,
/// or a device on a store that hangs could not be stopped.
#[test]
fn requests_whose_reads_hang_are_answered_when_their_device_is_abandoned() {
    let faults = Faults {
        hang: 10_000,
        at_once: 3_000,
        ..Faults::NONE
    };
    let mut scene = Scene::new(faults, ShardLimits::default());
    let target = scene.raw();
    let hanging = scene.attach(&[32], target, true);
    let mut served = 0;
    for round in 0..200 {
        scene.issue(hanging, 0, (READ, round % 64, 64));
        scene.turn();
        served += scene.host.take_answered().len();
    }
    assert!(served > 0, "reads that need not wait are served");
    assert!(scene.host.unanswered(hanging) >= 32);
    scene.abandon_and_release(hanging);
    assert_eq!(scene.host.unanswered(hanging), 0);
}

#[test]
fn what_still_hangs_of_released_devices_never_leaves_a_new_one_without_a_buffer() {
    let faults = Faults {
        hang: 10_000,
        ..Faults::NONE
    };
    for buffers in [
        PoolLimits([0, 0, 0]),
        PoolLimits([2, 0, 0]),
        PoolLimits([0, 2, 1]),
    ] {
        let mut scene = Scene::new(
            faults,
            ShardLimits {
                devices_max: 3,
                buffers,
                ..ShardLimits::default()
            },
        );
        // Each leaves what it can get, until the shard refuses to promise anything to another device.
        let mut served = 0;
        for _ in 0..8 {
            let target = scene.raw();
            let Some(hanging) = scene.try_attach(&[16], target, true) else {
                break;
            };
            for sector in 0..16 {
                scene.issue(hanging, 0, (WRITE, sector, 1));
            }
            scene.turn();
            let target = scene.raw();
            if let Some(fresh) = scene.try_attach(&[1], target, false) {
                let mut turns = 0;
                scene.issue(fresh, 0, (READ, 0, 1));
                while scene.host.unanswered(fresh) > 0 {
                    scene.turn();
                    turns += 1;
                    assert!(turns < 10, "{buffers:?}: a new device is not served");
                }
                served += 1;
                scene.abandon_and_release(fresh);
            }
            scene.abandon_and_release(hanging);
        }
        assert!(served > 0);
    }
}

/// Plans of many steps at a full queue: requests beyond the device's steps failed for want of memory.
#[test]
fn requests_of_many_steps_wait_for_room_and_none_fails() {
    let slow = Faults {
        delay_ticks_max: 50,
        ..Faults::NONE
    };
    let mut scene = Scene::new(slow, ShardLimits::default());
    let target = HandingTarget::new(scene.raw(), 512, Writers::Together);
    let device = scene.attach(&[64], Box::new(target), false);
    let mut sent = 0;
    for start in 0..200 {
        let code = if start % 2 == 0 { WRITE } else { READ };
        scene.issue(device, 0, (code, start * 16, 16));
        sent += 1;
    }
    let mut answered = 0;
    for _ in 0..100_000 {
        scene.turn();
        answered += scene.host.take_answered().len();
        if answered == sent {
            break;
        }
    }
    assert_eq!((answered, scene.host.failures()), (sent, 0));
}

/// A target that has panicked wakes nobody: what waited for another request was never answered, and the device never drained.
#[test]
fn requests_that_wait_for_a_target_that_panics_are_answered() {
    let slow = Faults {
        delay_ticks_max: 20,
        ..Faults::NONE
    };
    let mut scene = Scene::new(slow, ShardLimits::default());
    let target = HandingTarget::new(scene.raw(), 4096, Writers::OneAtATime);
    let device = scene.attach(&[16], Box::new(PanickingAtEnd(Box::new(target))), false);
    for start in 0..8 {
        scene.issue(device, 0, (WRITE, start * 8, 8));
    }
    let mut answered = 0;
    for _ in 0..10_000 {
        scene.turn();
        answered += scene.host.take_answered().len();
        if answered == 8 {
            return;
        }
    }
    assert_eq!(answered, 8);
}

/// Panics when the first phase ends whose request is not waiting.
struct PanickingAtEnd(Box<dyn Target>);

impl Target for PanickingAtEnd {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn handle_request(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        self.0.handle_request(request, plan)
    }

    fn handle_phase_end(&mut self, _: &Request, _: Status, _: &mut Plan) -> Verdict {
        std::panic::resume_unwind(Box::new("at the end of a phase"))
    }

    fn handle_fetched(
        &mut self,
        request: &Request,
        fetched: &Handover,
        bytes: &[u8],
        data: &mut dyn RequestData,
    ) -> Status {
        self.0.handle_fetched(request, fetched, bytes, data)
    }

    fn fill_stored(
        &mut self,
        request: &Request,
        stored: &Handover,
        bytes: &mut [u8],
        data: &mut dyn RequestData,
    ) -> Status {
        self.0.fill_stored(request, stored, bytes, data)
    }

    fn handover_bytes_max(&self) -> u32 {
        self.0.handover_bytes_max()
    }
}

/// Counts the bytes that are handed over to it, as decompression would take time by them.
struct Counting(Box<dyn Target>, Arc<AtomicU64>);

impl Target for Counting {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn handle_request(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        self.0.handle_request(request, plan)
    }

    fn handle_phase_end(&mut self, request: &Request, status: Status, plan: &mut Plan) -> Verdict {
        self.0.handle_phase_end(request, status, plan)
    }

    fn handle_fetched(
        &mut self,
        request: &Request,
        fetched: &Handover,
        bytes: &[u8],
        data: &mut dyn RequestData,
    ) -> Status {
        self.1.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.0.handle_fetched(request, fetched, bytes, data)
    }

    fn handover_bytes_max(&self) -> u32 {
        self.0.handover_bytes_max()
    }
}

/// What was fetched was handed over as it came, a whole queue of it before a neighbour had its turn.
#[test]
fn a_device_that_decompresses_leaves_its_neighbours_their_turns() {
    const PIECE: u32 = 64 << 10;
    let budget = ShardLimits::default().handed_bytes;
    // Whether the data comes from the ring, or at once.
    for at_once in [0, 10_000] {
        let faults = Faults {
            at_once,
            ..Faults::NONE
        };
        let mut scene = Scene::new(faults, ShardLimits::default());
        let handed = Arc::new(AtomicU64::new(0));
        let raw = HandingTarget::new(scene.raw(), PIECE, Writers::Together);
        let target = Counting(Box::new(raw), Arc::clone(&handed));
        let busy = scene.attach(&[64], Box::new(target), false);
        let raw = HandingTarget::new(scene.raw(), PIECE, Writers::Together);
        let quiet = scene.attach(&[1], Box::new(raw), false);
        let (mut most, mut worst, mut served) = (0, 0, 0);
        for _ in 0..400 {
            while scene.host.unanswered(busy) < 80 {
                scene.issue(busy, 0, (READ, 0, PIECE / 512));
            }
            if scene.host.unanswered(quiet) == 0 {
                scene.issue(quiet, 0, (READ, 8, 8));
            }
            let before = handed.load(Ordering::Relaxed);
            scene.turn();
            most = most.max(handed.load(Ordering::Relaxed) - before);
            for (device, _, latency) in scene.host.take_answered() {
                if device == quiet {
                    served += 1;
                    worst = worst.max(latency.unwrap());
                }
            }
        }
        assert!(served > 50, "{served}");
        assert!(
            most >= u64::from(budget) && most <= u64::from(budget + PIECE),
            "{most}"
        );
        // A turn to start, one to fetch, one for its place behind the other's piece, one to commit.
        assert!(worst <= 4, "{worst} turns");
    }
}
