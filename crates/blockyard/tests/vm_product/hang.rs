//! Promise: a device whose backing store hangs delays nobody else. It is named with its step when its time is over, the
//! exit status says that not all went in order, and a second signal ends the waiting.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use testvm::Deadline;

use crate::guest::{
    Daemon, DirectIo, Ended, Hang, Hanging, HungStore, KernelExpects, LIMIT, Setup, char_devices,
    eventually, on_a_kernel, poll_until, run,
};

/// Devices beside the hung one.
const OTHERS: usize = 20;
/// Time for I/O in flight, where the test waits for its end: enough for 20 healthy devices on a slow machine.
const DRAIN: Duration = Duration::from_secs(12);
/// Time for I/O in flight that nobody wants to wait for.
const DRAIN_LONG: Duration = Duration::from_secs(600);

fn setup(drain: Duration) -> Setup {
    Setup::configured(&format!("[deadlines]\ndrain_s = {}\n", drain.as_secs()))
}

fn create_others(daemon: &Daemon) {
    for index in 0..OTHERS {
        daemon.create_sparse(&format!("other{index}"), 16);
    }
}

/// How long 20 healthy devices take to go, from SIGTERM on.
fn usual_time() -> Duration {
    let before = char_devices().len();
    let mut daemon = setup(DRAIN).start();
    create_others(&daemon);
    let clock = Deadline::after(LIMIT);
    daemon.signal(Signal::TERM);
    eventually("the devices are gone", || {
        (char_devices().len() == before).then_some(())
    });
    let elapsed = clock.elapsed();
    assert!(
        daemon.wait(clock).is_some_and(|status| status.success()),
        "{}",
        daemon.log()
    );
    elapsed
}

/// A daemon with 20 healthy devices and one with a request that hangs; the client that waits; and what it waits for.
fn daemon_with_a_hung_device(
    store: &HungStore,
    drain: Duration,
) -> (Daemon, std::process::Child, Hanging<'_>) {
    let daemon = setup(drain).start();
    create_others(&daemon);
    let device = daemon.create("hung", &store.spec());
    let hanging = store.hang();
    let client = Command::new("dd")
        .args(store.io(&device))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("a request hangs", || {
        let seen = daemon.see("/v1/devices/hung");
        (seen["stats"]["in_flight"].as_u64().unwrap() > 0).then_some(())
    });
    (daemon, client, hanging)
}

/// Waits for the daemon's end. The kernel keeps a process for as long as requests of its rings are stuck below: then the store
/// is let go first.
fn end(mut daemon: Daemon, hanging: Hanging<'_>, clock: Deadline) -> Ended {
    let said = eventually("the daemon says how it went", || {
        let log = daemon.log();
        log.contains("all devices have ended")
            .then(|| clock.elapsed())
    });
    let alone = daemon.wait(Deadline::after(Duration::from_secs(5)));
    println!(
        "said how it went after {said:?}, ended before the store was let go: {}",
        alone.is_some()
    );
    drop(hanging);
    let status = alone.or_else(|| daemon.wait(Deadline::after(LIMIT)));
    let Some(status) = status else {
        panic!("the daemon does not end: {}", daemon.log());
    };
    Ended {
        code: status.code(),
        elapsed: said,
        log: daemon.log(),
    }
}

fn a_hung_device_delays_nobody(hang: Hang) {
    let usual = usual_time();
    let _errors = KernelExpects::lines_with("error, dev ublkb");
    let scratch = tempfile::tempdir().unwrap();
    let store = HungStore::new(hang, scratch.path());
    let before = char_devices().len();
    let (daemon, mut client, hanging) = daemon_with_a_hung_device(&store, DRAIN);
    let clock = Deadline::after(LIMIT);
    daemon.signal(Signal::TERM);
    let others = poll_until(DRAIN, || {
        (char_devices().len() == before + 1).then(|| clock.elapsed())
    });
    println!("20 devices alone: {usual:?}; beside a hung one: {others:?}");
    let others =
        others.unwrap_or_else(|| panic!("the others wait for the hung one: {}", daemon.log()));
    assert!(
        others < usual * 3 + Duration::from_secs(3),
        "{others:?} instead of {usual:?}"
    );
    let progress = eventually("the others have ended", || {
        let progress = daemon.see("/v1/status")["shutdown"].clone();
        (progress["done"] == OTHERS).then_some(progress)
    });
    assert_eq!(progress["total"], OTHERS + 1, "{progress}");
    assert_eq!(progress["in_progress"][0]["name"], "hung", "{progress}");
    assert_eq!(progress["in_progress"][0]["step"], "drain", "{progress}");
    let ended = end(daemon, hanging, clock);
    assert_eq!(ended.code, Some(8), "{}", ended.log);
    assert!(ended.elapsed >= DRAIN, "{:?}", ended.elapsed);
    let last = ended.log.lines().next_back().unwrap_or_default();
    assert!(
        last.starts_with("blockyard: serve: 1 devices did not stop in order: hung (step drain)"),
        "{last}"
    );
    // Its client was told, and nothing is left in the kernel.
    assert!(!client.wait().unwrap().success());
    assert_eq!(char_devices().len(), before);
}

#[test]
fn a_suspended_device_below_delays_nobody() {
    on_a_kernel(|| a_hung_device_delays_nobody(Hang::SuspendedDevice));
}

/// A write waits for a frozen file system in the system call itself, whatever flags it has: one that is made on a shard's own
/// thread would stop every device of the shard.
#[test]
fn a_frozen_file_system_below_delays_nobody() {
    on_a_kernel(|| a_hung_device_delays_nobody(Hang::FrozenFileSystem));
}

#[test]
fn a_second_signal_ends_the_waiting() {
    on_a_kernel(|| {
        let _errors = KernelExpects::lines_with("error, dev ublkb");
        let scratch = tempfile::tempdir().unwrap();
        let store = HungStore::new(Hang::SuspendedDevice, scratch.path());
        let (daemon, mut client, hanging) = daemon_with_a_hung_device(&store, DRAIN_LONG);
        // Some programs signal a process and then its group: that is one request to stop.
        daemon.signal(Signal::TERM);
        daemon.signal(Signal::INT);
        eventually("only the hung device is left", || {
            let status = daemon.see("/v1/status");
            let progress = &status["shutdown"];
            (progress["done"] == 20 && progress["in_progress"][0]["step"] == "drain").then_some(())
        });
        // Sooner it would count as the same signal twice.
        let clock = Deadline::after(Duration::from_secs(1));
        eventually("the first signal is a while ago", || {
            clock.remaining().is_zero().then_some(())
        });
        assert!(!daemon.log().contains("received again"), "{}", daemon.log());
        let clock = Deadline::after(LIMIT);
        daemon.signal(Signal::INT);
        // Within LIMIT, a fifth of the time for I/O in flight.
        let ended = end(daemon, hanging, clock);
        println!("ended {:?} after the second signal", ended.elapsed);
        // What was asked for was done: that is success, and the log says what it cost.
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        for text in [
            "signal received again",
            "requests in flight were answered with an error",
        ] {
            assert!(ended.log.contains(text), "{}", ended.log);
        }
        assert!(!client.wait().unwrap().success());
    });
}

#[test]
fn removing_a_hung_device_waits_for_it_alone() {
    on_a_kernel(|| {
        let _errors = KernelExpects::lines_with("error, dev ublkb");
        let scratch = tempfile::tempdir().unwrap();
        let store = HungStore::new(Hang::SuspendedDevice, scratch.path());
        let (daemon, mut client, hanging) = daemon_with_a_hung_device(&store, DRAIN);
        let socket = daemon.socket().to_owned();
        let mut removal = Command::new(crate::guest::binary());
        removal
            .args(["remove", "hung"])
            .env("BLOCKYARD_SOCKET", socket);
        let mut removal = removal.stderr(Stdio::piped()).spawn().unwrap();
        eventually("the removal has begun", || {
            (daemon.see("/v1/devices/hung")["state"] == "stopping").then_some(())
        });
        // Removals, and creations, go on beside it.
        daemon.ok(&["remove", "other0", "other1"]);
        daemon.create_sparse("fresh", 8);
        assert!(
            removal.try_wait().unwrap().is_none(),
            "it waits for the I/O in flight"
        );
        assert!(!client.wait().unwrap().success());
        let removal = removal.wait_with_output().unwrap();
        println!("remove: {removal:?}");
        assert!(!daemon.names().contains(&"hung".to_owned()));
        drop(hanging);
        drop(daemon);
    });
}

/// Requests that hang at once: more than a ring has threads for calls that block.
const HUNG_REQUESTS: usize = 40;

fn a_hung_device_takes_no_threads(hang: Hang) {
    let scratch = tempfile::tempdir().unwrap();
    let store = HungStore::new(hang, scratch.path());
    let daemon = Setup::with_arguments(&["--shards", "1"]).start();
    let neighbour = daemon.create_sparse("neighbour", 16);
    let device = daemon.create("hung", &store.spec());
    let hanging = store.hang();
    std::thread::scope(|scope| {
        let requests: Vec<_> = (0..HUNG_REQUESTS)
            .map(|index| {
                let device = &device;
                scope.spawn(move || request(hang, device, (16 << 20) + (index << 18) as u64))
            })
            .collect();
        let all_hang = poll_until(LIMIT, || {
            let seen = daemon.see("/v1/devices/hung");
            (seen["stats"]["in_flight"] == HUNG_REQUESTS).then_some(())
        });
        // A flush needs a thread of the ring's.
        let ran = run(&[
            "timeout",
            "60",
            "dd",
            "if=/dev/zero",
            &format!("of={}", neighbour.display()),
            "bs=1M",
            "count=4",
            "oflag=direct",
            "conv=fsync",
        ]);
        drop(hanging);
        assert!(all_hang.is_some(), "{HUNG_REQUESTS} requests in flight");
        assert_eq!(ran.code, 0, "{ran:#?}");
        for request in requests {
            request.join().unwrap().unwrap();
        }
    });
    daemon.stop();
}

fn request(hang: Hang, device: &Path, offset: u64) -> std::io::Result<()> {
    let mut device = DirectIo::open(device);
    match hang {
        Hang::SuspendedDevice => device.read(offset, 4096),
        Hang::FrozenFileSystem => device.write(offset, 4096),
    }
}

#[test]
fn many_reads_of_a_suspended_device_take_nothing_from_its_neighbour() {
    on_a_kernel(|| a_hung_device_takes_no_threads(Hang::SuspendedDevice));
}

#[test]
fn many_writes_to_a_frozen_file_system_take_nothing_from_its_neighbour() {
    on_a_kernel(|| a_hung_device_takes_no_threads(Hang::FrozenFileSystem));
}
