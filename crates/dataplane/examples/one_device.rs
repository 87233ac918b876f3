//! Serves one device without daemon, journal or API: the data path alone, for measuring it.
//!
//! `one_device null SIZE_MIB | raw PATH` prints the device's path and serves until its standard input ends. The figures of the
//! shard go to standard error then: how often its thread woke up in all.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measuring tool: any failure ends it"
)]

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use block::holes::HoleMap;
use block::{Access, Geometry, NullTarget, RawFeatures, RawTarget, Sectors, Target, Zeroing};
use dataplane::{Counters, Dataplane, DataplaneConfig, DeviceKey, Part, ShardLimits, UblkQueue};
use reactor::{NowModes, RingFile};
use ublk::{
    CharDevice, Command, ControlLimits, ControlRing, DeviceInfo, DeviceParams, Features, NewDevice,
    OwnerStamp, TransferLimits,
};

const DEADLINE: Duration = Duration::from_secs(30);
const DEPTH: u16 = 64;
const MAX_IO_BYTES: u32 = 1 << 20;
const KEY: DeviceKey = DeviceKey(0);

fn main() {
    let mut args = std::env::args().skip(1);
    let (kind, what) = (args.next().unwrap(), args.next().unwrap());
    let (target, files) = open(&kind, &what);
    let control =
        ControlRing::open(Path::new(ublk::CONTROL_NODE), ControlLimits::default()).unwrap();
    let info = add(&control, &target.geometry());
    let plane = attach(&info, target, files);
    let start = Command::StartDev {
        device: info.device,
        server_pid: std::process::id(),
    };
    control.call(start, DEADLINE).unwrap();
    println!("{}", ublk::block_node(info.device).display());
    // Serve until whoever started this closes the pipe.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let wake_ups: u64 = plane.gauges().map(dataplane::ShardGauges::wake_ups).sum();
    eprintln!("wake-ups {wake_ups}");
    control
        .call(Command::StopDev(info.device), DEADLINE)
        .unwrap();
    let (done, released) = mpsc::channel();
    plane.release(0, KEY, Box::new(move |parts| done.send(parts).unwrap()));
    drop(released.recv().unwrap());
    control
        .call(Command::DelDev(info.device), DEADLINE)
        .unwrap();
}

fn open(kind: &str, what: &str) -> (Box<dyn Target>, Vec<OwnedFd>) {
    if kind == "null" {
        let size = Sectors(what.parse::<u64>().unwrap() << 11);
        return (
            Box::new(NullTarget::new(size, Access::ReadWrite)),
            Vec::new(),
        );
    }
    let file = File::options().read(true).write(true).open(what).unwrap();
    let size = Sectors(file.metadata().unwrap().len() / 512);
    let geometry = Geometry {
        size,
        access: Access::ReadWrite,
        logical_block_shift: 9,
        physical_block_shift: 12,
        volatile_cache: true,
        zeroing: Zeroing::Deallocate {
            granularity_bytes: 4096,
        },
    };
    let holes = Arc::new(HoleMap::all_data(size.len_bytes()));
    let target = RawTarget::new(geometry, RawFeatures { zero_range: false }, holes);
    (Box::new(target), vec![file.into()])
}

fn add(control: &ControlRing, geometry: &Geometry) -> DeviceInfo {
    let device = NewDevice {
        device: None,
        queues: 1,
        depth: DEPTH,
        max_io_buf_bytes: MAX_IO_BYTES,
        features: Features::USER_COPY | Features::USER_RECOVERY | Features::USER_RECOVERY_REISSUE,
        owner: OwnerStamp::new(1, 1).unwrap(),
    };
    let reply = control.call(Command::AddDev(device), DEADLINE).unwrap();
    let info = *reply.info().unwrap();
    let limits = TransferLimits {
        max_sectors: MAX_IO_BYTES >> 9,
        max_io_buf_bytes: MAX_IO_BYTES,
    };
    let params = DeviceParams::for_geometry(geometry, limits).unwrap();
    let set = Command::SetParams {
        device: info.device,
        params,
    };
    control.call(set, DEADLINE).unwrap();
    info
}

fn attach(info: &DeviceInfo, target: Box<dyn Target>, files: Vec<OwnedFd>) -> Dataplane {
    let config = DataplaneConfig {
        shards: 1,
        limits: ShardLimits::default(),
        ring: Default::default(),
    };
    let plane = Dataplane::start(config, Arc::new(|event| panic_on(&event))).unwrap();
    let char_device = Arc::new(CharDevice::open(&ublk::char_node(info.device)).unwrap());
    let queue = UblkQueue::map(char_device, block::QueueId(0), DEPTH, info.desc_bytes).unwrap();
    let files = files.into_iter().map(|file| {
        let modes = NowModes::probe(&file);
        RingFile::data(file, modes)
    });
    let part = Part {
        queues: vec![queue],
        target,
        files: files.collect(),
        counters: Arc::new(Counters::default()),
    };
    let (done, attached) = mpsc::channel();
    plane.attach(0, KEY, part, Box::new(move |ok| done.send(ok).unwrap()));
    assert!(attached.recv().unwrap());
    plane
}

#[expect(
    clippy::panic,
    reason = "a measuring tool: a protocol fault ends the shard"
)]
fn panic_on(event: &dataplane::ShardEvent) {
    panic!("{event:?}");
}
