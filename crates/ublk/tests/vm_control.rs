//! Control commands against a real driver. Needs root and `/dev/ublk-control`: run inside a test machine, on the oldest
//! and on the newest kernel that is supported. Elsewhere each test says that it was skipped.
#![expect(clippy::print_stdout, reason = "skips and figures must be visible")]
#![expect(clippy::disallowed_methods, reason = "tests measure time")]
#![expect(
    clippy::unwrap_used,
    reason = "set-up code of tests may fail like tests"
)]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use block::{Access, DeviceId, Geometry, QueueId, Sectors, Tag, Zeroing};
use ublk::{
    CONTROL_NODE, CharDevice, Command, CommandKind, ControlLimits, ControlRing, DeviceInfo,
    DeviceParams, DeviceState, ErrorKind, Features, IoDescriptor, NewDevice, OwnerStamp, Quirk,
    Reply, SYSFS_CLASS, TransferLimits, char_node, list_devices, probe, survey_devices,
};

/// Ample: the machine may be emulated and busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// Ids are the host's and are used again at once, so tests that add and delete devices take turns.
static TURN: Mutex<()> = Mutex::new(());

/// The control ring and the turn that goes with it.
fn control() -> Option<(ControlRing, MutexGuard<'static, ()>)> {
    let node = Path::new(CONTROL_NODE);
    if !node.exists() {
        println!("skipped: no {CONTROL_NODE}");
        return None;
    }
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let control = ControlRing::open(node, ControlLimits::default()).unwrap();
    Some((control, turn))
}

fn new_device(serial: u32) -> NewDevice {
    NewDevice {
        device: None,
        queues: 1,
        depth: 4,
        max_io_buf_bytes: 1 << 20,
        features: Features::USER_COPY | Features::USER_RECOVERY | Features::USER_RECOVERY_REISSUE,
        owner: OwnerStamp::new(0xaaa, serial).unwrap(),
    }
}

fn params() -> DeviceParams {
    DeviceParams::for_geometry(
        &Geometry {
            size: Sectors(1 << 21),
            access: Access::ReadWrite,
            logical_block_shift: 9,
            physical_block_shift: 12,
            volatile_cache: true,
            zeroing: Zeroing::Deallocate {
                granularity_bytes: 4096,
            },
        },
        TransferLimits {
            max_sectors: 2048,
            max_io_buf_bytes: 1 << 20,
        },
    )
    .unwrap()
}

fn add(control: &ControlRing, serial: u32) -> DeviceInfo {
    let reply = control.call(Command::AddDev(new_device(serial)), DEADLINE);
    *reply.unwrap().info().unwrap()
}

fn set_params(control: &ControlRing, device: DeviceId) {
    let params = params();
    let reply = control.call(Command::SetParams { device, params }, DEADLINE);
    assert_eq!(reply, Ok(Reply::Done));
}

/// Deletes and waits until the kernel has let go of the id: succeeds only if nothing holds the device.
fn delete(control: &ControlRing, device: DeviceId) {
    let reply = control.call(Command::DelDev(device), DEADLINE);
    assert_eq!(reply, Ok(Reply::Done), "device {device}");
    assert_gone(control, device);
}

/// After `DelDevAsync`: nobody promises when the last reference goes. Closing leaves it to work of the kernel that a busy machine
/// delays: a device was seen in state `Dead` once, just after its char device was closed.
fn await_gone(control: &ControlRing, device: DeviceId) {
    let begin = Instant::now();
    while control.call(Command::GetDevInfo(device), DEADLINE).is_ok() {
        assert!(begin.elapsed() < DEADLINE, "device {device} stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_gone(control, device);
}

fn assert_gone(control: &ControlRing, device: DeviceId) {
    let error = control
        .call(Command::GetDevInfo(device), DEADLINE)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        !list_devices(Path::new(SYSFS_CLASS))
            .unwrap()
            .contains(&device)
    );
    assert!(!char_node(device).exists());
}

#[test]
fn the_probe_agrees_with_the_kernel() {
    let Some((control, _turn)) = control() else {
        return;
    };
    let probe = probe(&control).unwrap();
    println!("release {}, features {}", probe.release, probe.features);
    for (quirk, reason) in probe.quirks.reasons() {
        println!("quirk {quirk:?}: {reason}");
    }
    println!("teardown {:?}", probe.quirks.teardown());
    assert!(
        probe
            .features
            .contains(Features::USER_COPY | Features::USER_RECOVERY)
    );
    assert!(probe.features.unknown().is_empty());
    assert!(probe.ublks_max.is_some_and(|limit| limit > 0));
    // The table of kernels and the driver's own word must not contradict each other.
    let is_old = probe.quirks.has(Quirk::FixedFilesPinDevices);
    assert_eq!(
        is_old,
        !probe.features.contains(Features::USER_RECOVERY_FAIL_IO)
    );
}

#[test]
fn a_device_is_added_described_and_deleted() {
    let Some((control, _turn)) = control() else {
        return;
    };
    let granted = add(&control, 1);
    let device = granted.device;
    assert_eq!(
        (granted.queues, granted.depth, granted.desc_bytes),
        (1, 4, 24)
    );
    assert!(granted.features.contains(new_device(1).features));
    set_params(&control, device);

    let reply = control.call(Command::GetParams(device), DEADLINE).unwrap();
    let found = *reply.params().unwrap();
    assert!(found.numbers.is_some());
    assert_eq!(
        DeviceParams {
            numbers: None,
            ..found
        },
        params()
    );

    for command in [Command::GetDevInfo(device), Command::GetDevInfo2(device)] {
        let reply = control.call(command, DEADLINE).unwrap();
        let info = reply.info().unwrap();
        assert_eq!(info.state, DeviceState::Dead);
        assert_eq!(info.owner, OwnerStamp::new(0xaaa, 1));
        assert_eq!(info.features, granted.features);
        assert_eq!(info.max_io_buf_bytes, 1 << 20);
    }

    let queue = QueueId(0);
    let reply = control.call(Command::GetQueueAffinity { device, queue }, DEADLINE);
    let Ok(Reply::Affinity(cpus)) = reply else {
        unreachable!("{reply:?}")
    };
    assert!(cpus.cpus().count() > 0);

    let survey = survey_devices(&control, Path::new(SYSFS_CLASS), DEADLINE).unwrap();
    let own = survey.iter().find(|one| one.device == device).unwrap();
    assert_eq!(own.info.as_ref().unwrap().owner, OwnerStamp::new(0xaaa, 1));

    delete(&control, device);
}

#[test]
fn refusals_name_the_reason() {
    let Some((control, _turn)) = control() else {
        return;
    };
    let probe = probe(&control).unwrap();
    let device = add(&control, 2).device;
    let mut same = new_device(2);
    same.device = Some(device);
    let kind = |command| control.call(command, DEADLINE).unwrap_err().kind();
    assert_eq!(kind(Command::AddDev(same)), ErrorKind::Exists);
    assert_eq!(
        kind(Command::StopDev(DeviceId(1_000_000))),
        ErrorKind::NotFound
    );
    let size = Sectors(8);
    let expected = if probe.features.contains(Features::UPDATE_SIZE) {
        ErrorKind::NotFound
    } else {
        ErrorKind::Unsupported
    };
    assert_eq!(kind(Command::UpdateSize { device, size }), expected);
    // Never started: up to 6.15 that is an argument, later a state.
    let expected = if probe.features.contains(Features::PER_IO_DAEMON) {
        ErrorKind::Busy
    } else {
        ErrorKind::Invalid
    };
    assert_eq!(kind(Command::StartUserRecovery(device)), expected);
    let mut many = new_device(2);
    many.queues = 0;
    assert_eq!(kind(Command::AddDev(many)), ErrorKind::Invalid);
    delete(&control, device);
}

#[test]
fn the_char_device_maps_its_descriptors_and_is_let_go() {
    let Some((control, _turn)) = control() else {
        return;
    };
    let info = add(&control, 3);
    set_params(&control, info.device);
    let char_device = CharDevice::open(&char_node(info.device)).unwrap();
    let map = char_device
        .map_queue(QueueId(0), info.depth, info.desc_bytes)
        .unwrap();
    assert_eq!(map.descriptor(Tag(0)), Some(IoDescriptor::default()));
    assert_eq!(map.descriptor(Tag(info.depth)), None);
    let second = CharDevice::open(&char_node(info.device)).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Busy);
    assert!(
        char_device
            .map_queue(QueueId(1), info.depth, info.desc_bytes)
            .is_err()
    );
    // No request is in the tag: user copy is refused, and reads nothing.
    let mut buffer = [0; 512];
    assert!(
        char_device
            .copy_from_request(QueueId(0), Tag(0), 0, &mut buffer)
            .is_err()
    );
    assert!(
        char_device
            .copy_to_request(QueueId(0), Tag(0), 0, &buffer)
            .is_err()
    );
    drop(map);
    drop(char_device);
    delete(&control, info.device);
}

#[test]
fn thousands_of_pipelined_questions_are_answered_for_the_right_device() {
    const DEVICES: u32 = 64;
    const QUESTIONS: usize = 2000;
    let Some((control, _turn)) = control() else {
        return;
    };
    let devices: Vec<_> = (0..DEVICES)
        .map(|serial| add(&control, serial).device)
        .collect();
    let (sender, receiver) = mpsc::channel();
    let begin = Instant::now();
    for index in 0..QUESTIONS {
        let serial = index % devices.len();
        let sender = sender.clone();
        control.submit(
            Command::GetDevInfo(devices[serial]),
            DEADLINE,
            Box::new(move |outcome| sender.send((serial, outcome)).unwrap()),
        );
    }
    drop(sender);
    let mut answers = 0;
    for (serial, outcome) in receiver {
        let reply = outcome.unwrap();
        let info = reply.info().unwrap();
        assert_eq!(info.device, devices[serial]);
        assert_eq!(info.owner.unwrap().serial(), u32::try_from(serial).unwrap());
        answers += 1;
    }
    assert_eq!(answers, QUESTIONS);
    println!("{QUESTIONS} questions in {:?}", begin.elapsed());
    let begin = Instant::now();
    let (sender, receiver) = mpsc::channel();
    for device in devices.iter().copied() {
        let sender = sender.clone();
        control.submit(
            Command::DelDevAsync(device),
            DEADLINE,
            Box::new(move |outcome| sender.send(outcome).unwrap()),
        );
    }
    drop(sender);
    assert!(
        receiver
            .into_iter()
            .all(|outcome| outcome == Ok(Reply::Done))
    );
    println!("{DEVICES} deletions in {:?}", begin.elapsed());
    for device in devices {
        await_gone(&control, device);
    }
}

#[test]
fn a_start_without_a_server_ends_at_its_deadline_and_leaves_nothing() {
    let Some((control, _turn)) = control() else {
        return;
    };
    let device = add(&control, 5).device;
    set_params(&control, device);
    let char_device = CharDevice::open(&char_node(device)).unwrap();
    let deadline = Duration::from_millis(500);
    let start = Command::StartDev {
        device,
        server_pid: std::process::id(),
    };
    let begin = Instant::now();
    let error = control.call(start, deadline).unwrap_err();
    println!("{error} (after {:?})", begin.elapsed());
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.operation(), CommandKind::StartDev.name());
    assert_eq!(error.device(), Some(device));
    assert!(begin.elapsed() >= deadline);
    assert_eq!((control.in_flight(), control.stuck()), (0, 0));
    let reply = control.call(Command::DelDevAsync(device), DEADLINE);
    assert_eq!(reply, Ok(Reply::Done));
    drop(char_device);
    await_gone(&control, device);
    // The id is free again, so nothing pins the old device.
    let mut same = new_device(5);
    same.device = Some(device);
    let begin = Instant::now();
    while control.call(Command::AddDev(same), DEADLINE).is_err() {
        assert!(
            begin.elapsed() < DEADLINE,
            "the id of device {device} stays taken"
        );
    }
    delete(&control, device);
}

#[test]
fn the_last_handle_cancels_what_is_under_way() {
    let Some((control, _turn)) = control() else {
        return;
    };
    let device = add(&control, 6).device;
    set_params(&control, device);
    let char_device = CharDevice::open(&char_node(device)).unwrap();
    let (sender, receiver) = mpsc::channel();
    let start = Command::StartDev {
        device,
        server_pid: std::process::id(),
    };
    control.submit(
        start,
        Duration::from_secs(3600),
        Box::new(move |outcome| sender.send(outcome).unwrap()),
    );
    // A question answered later means that the start has been sent.
    control.call(Command::GetFeatures, DEADLINE).unwrap();
    drop(control);
    // Waits for nothing: the drop returned after the callback.
    let error = receiver.try_recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other);
    drop(char_device);
    let control = ControlRing::open(Path::new(CONTROL_NODE), ControlLimits::default()).unwrap();
    delete(&control, device);
}
