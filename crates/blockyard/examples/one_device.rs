//! Serves one device without daemon, journal or API: the data path alone, for measuring it.
//!
//! `one_device null SIZE_MIB | raw PATH | overlaybd CONFIG` prints the device's path and serves until its standard input ends. The figures of the
//! shard go to standard error then: how often its thread woke up in all, and how much was read without a copy.

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
use dataplane::{
    CopyMode, Counters, Dataplane, DataplaneConfig, DeviceKey, Part, QueueShape, ShardLimits,
    UblkQueue,
};
use image::serving::{Content, Library, ServeOptions, ServedImage, Workspace};
use image::{ImageConfig, ParentCheck};
use reactor::uring::{SLOTS_MAX, UringLimits};
use reactor::{NowMode, NowModes, RingFile};
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
    let Opened {
        target,
        files,
        profits,
    } = match kind.as_str() {
        "overlaybd" => open_image(&what),
        kind => open(kind, &what),
    };
    let control =
        ControlRing::open(Path::new(ublk::CONTROL_NODE), ControlLimits::default()).unwrap();
    let info = add(&control, &target.geometry(), wanted(&control, profits));
    let counters = Arc::new(Counters::default());
    let plane = attach(&info, target, files, Arc::clone(&counters));
    let start = Command::StartDev {
        device: info.device,
        server_pid: std::process::id(),
    };
    control.call(start, DEADLINE).unwrap();
    println!("{}", ublk::block_node(info.device).display());
    // Serve until whoever started this closes the pipe.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let wake_ups: u64 = plane.gauges().map(dataplane::ShardGauges::wake_ups).sum();
    let copied_not = counters.snapshot().zero_copy_bytes;
    eprintln!("wake-ups {wake_ups}, {copied_not} bytes by zero copy");
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

/// What is served.
struct Opened {
    target: Box<dyn Target>,
    files: Vec<RingFile>,
    /// Whether reads can go at once from a file into the request.
    profits: bool,
}

fn open(kind: &str, what: &str) -> Opened {
    if kind == "null" {
        let size = Sectors(what.parse::<u64>().unwrap() << 11);
        return Opened {
            target: Box::new(NullTarget::new(size, Access::ReadWrite)),
            files: Vec::new(),
            profits: false,
        };
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
    let file = OwnedFd::from(file);
    let modes = NowModes::probe(&file);
    Opened {
        target: Box::new(target),
        files: vec![RingFile::data(file, modes)],
        profits: modes.read() != NowMode::Never,
    }
}

fn open_image(path: &str) -> Opened {
    let config = ImageConfig::read(Path::new(path)).unwrap();
    let options = ServeOptions {
        access: Access::ReadWrite,
        parents: ParentCheck::Refuse,
    };
    let image = ServedImage::open(&config, options, &Library::default()).unwrap();
    let (mut modes, mut profits) = (Vec::new(), false);
    image.each_file(|file, content| {
        let probed = NowModes::probe(file);
        profits |= content == Content::AsItIs && probed.read() != NowMode::Never;
        modes.push(probed);
    });
    let workspace = Workspace::new(16 << 20);
    let (target, files) = image.instance(&workspace).unwrap();
    let files = files.into_iter().zip(modes);
    let files = files.map(|(file, modes)| RingFile::data_held_by(file, modes));
    Opened {
        target: Box::new(target),
        files: files.collect(),
        profits,
    }
}

/// As the daemon asks for them: zero copy where the kernel has it and a file profits.
fn wanted(control: &ControlRing, profits: bool) -> Features {
    let usual = Features::USER_COPY | Features::USER_RECOVERY | Features::USER_RECOVERY_REISSUE;
    let best = CopyMode::best(&ublk::probe(control).unwrap());
    match best {
        CopyMode::ZeroCopy if profits => usual | Features::AUTO_BUF_REG,
        CopyMode::ZeroCopy | CopyMode::UserCopy => usual,
    }
}

fn add(control: &ControlRing, geometry: &Geometry, features: Features) -> DeviceInfo {
    let device = NewDevice {
        device: None,
        queues: 1,
        depth: DEPTH,
        max_io_buf_bytes: MAX_IO_BYTES,
        features,
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

fn attach(
    info: &DeviceInfo,
    target: Box<dyn Target>,
    files: Vec<RingFile>,
    counters: Arc<Counters>,
) -> Dataplane {
    let copy_mode = CopyMode::of(info.features);
    let slots = match copy_mode {
        CopyMode::ZeroCopy => SLOTS_MAX,
        CopyMode::UserCopy => 0,
    };
    let config = DataplaneConfig {
        shards: 1,
        limits: ShardLimits::default(),
        ring: UringLimits {
            slots,
            ..UringLimits::default()
        },
    };
    let plane = Dataplane::start(config, Arc::new(|event| panic_on(&event))).unwrap();
    let char_device = Arc::new(CharDevice::open(&ublk::char_node(info.device)).unwrap());
    let shape = QueueShape {
        depth: DEPTH,
        desc_bytes: info.desc_bytes,
        copy_mode,
    };
    let queue = UblkQueue::map(char_device, block::QueueId(0), shape).unwrap();
    let part = Part {
        queues: vec![queue],
        target,
        files,
        counters,
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
