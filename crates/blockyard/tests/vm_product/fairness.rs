//! Promise: an idle device costs no CPU, and a busy one does not starve its neighbour on the same thread.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testvm::Deadline;

use crate::guest::{Daemon, DirectIo, LIMIT, Setup, on_a_kernel, poll_until, sh};

/// Devices that do nothing.
const IDLE: usize = 100;
/// For how long they are watched.
const WATCHED: Duration = Duration::from_secs(5);
/// Rounds of comparison; each measures alone and beside the busy device.
const ROUNDS: usize = 3;
/// Requests of the quiet device in one measurement.
const REQUESTS: usize = 2000;
/// Size of both devices.
const DEVICE_MIB: usize = 32;
/// The promise.
const RATIO_MAX: f64 = 3.0;
/// Series until one shows it.
const SERIES_MAX: usize = 3;

/// Threads that serve I/O, by number, with the times they went to sleep of their own.
fn shard_sleeps(daemon: &Daemon) -> Vec<(u32, u64)> {
    let mut shards = Vec::new();
    for thread in daemon.threads() {
        let directory = format!("/proc/{}/task/{thread}", daemon.pid());
        // Threads for blocking calls end on their own, also between two looks.
        let read =
            |name: &str| fs::read_to_string(format!("{directory}/{name}")).unwrap_or_default();
        if !read("comm").starts_with("shard") {
            continue;
        }
        let status = read("status");
        let sleeps = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        shards.push((thread, sleeps.unwrap().trim().parse().unwrap()));
    }
    shards.sort_unstable();
    shards
}

fn wake_ups(daemon: &Daemon) -> Vec<Value> {
    let status = daemon.see("/v1/status");
    let shards = status["shards"].as_array().unwrap();
    shards
        .iter()
        .map(|shard| shard["wake_ups"].clone())
        .collect()
}

#[test]
fn a_hundred_idle_devices_wake_nobody() {
    on_a_kernel(|| {
        let daemon = Setup::with_arguments(&["--shards", "2"]).start();
        let image = daemon.file("idle.img", 8);
        let spec = format!("raw:{}", image.display());
        daemon.create_many(1, IDLE, &json!({"spec": spec, "read_only": true}));
        // What the creations woke comes to rest: no thread of the shards moved between two looks.
        let at_rest = || {
            let before = shard_sleeps(&daemon);
            poll_until(Duration::from_millis(500), || {
                (shard_sleeps(&daemon) != before).then_some(())
            })
            .is_none()
        };
        assert!(poll_until(Duration::from_secs(30), || at_rest().then_some(())).is_some());
        let before = (wake_ups(&daemon), shard_sleeps(&daemon));
        assert_eq!(before.1.len(), 2, "two shards");
        // Nothing is waited for here: the time itself is what is asked about.
        let woken = poll_until(WATCHED, || {
            (shard_sleeps(&daemon) != before.1).then_some(())
        });
        assert!(
            woken.is_none(),
            "{before:?}, now {:?}",
            shard_sleeps(&daemon)
        );
        assert_eq!((wake_ups(&daemon), shard_sleeps(&daemon)), before);
        daemon.stop();
    });
}

/// Random writes of depth 64, until killed.
fn saturate(device: &str) -> Child {
    Command::new("fio")
        .args([
            "--name=busy",
            "--ioengine=libaio",
            "--direct=1",
            "--rw=randwrite",
            "--bs=4k",
            "--iodepth=64",
        ])
        .args([
            "--time_based",
            "--runtime=600",
            "--output=/dev/null",
            &format!("--filename={device}"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Median latency of reads at depth 1, in microseconds.
fn median_us(device: &str) -> f64 {
    let mut reader = DirectIo::open(Path::new(device));
    let latencies = (0..REQUESTS).map(|index| {
        // Scattered over the device; the stride shares no factor with its size.
        let offset = (index * 4099 % (DEVICE_MIB << 8)) << 12;
        let clock = Deadline::after(LIMIT);
        reader.read(offset as u64, 4096).unwrap();
        clock.elapsed().as_secs_f64() * 1e6
    });
    median(latencies.collect())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The quiet device's median latency beside a saturated one, in multiples of its latency alone.
fn ratio(daemon: &Daemon, [busy, quiet]: [&str; 2]) -> f64 {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(median_us(quiet));
        let mut load = saturate(busy);
        let clock = Deadline::after(LIMIT);
        let written = || {
            daemon.see("/v1/devices/busy")["stats"]["writes"]
                .as_u64()
                .unwrap()
        };
        let begun = written();
        while written() < begun + 1000 {
            assert!(!clock.remaining().is_zero(), "the load does not begin");
        }
        beside.push(median_us(quiet));
        load.kill().unwrap();
        load.wait().unwrap();
    }
    println!("median latency in us, alone {alone:.0?}, beside a saturating device {beside:.0?}");
    let ratio = median(beside) / median(alone);
    println!("ratio {ratio:.2}");
    ratio
}

#[test]
fn a_busy_device_triples_its_neighbours_latency_at_most() {
    on_a_kernel(|| {
        let daemon = Setup::with_arguments(&["--shards", "1"]).start();
        let [busy, quiet] = ["busy", "quiet"].map(|name| {
            let device = daemon
                .create_sparse(name, DEVICE_MIB as u64)
                .display()
                .to_string();
            sh(&format!(
                "dd if=/dev/urandom of={device} bs=1M count={DEVICE_MIB} oflag=direct status=none"
            ));
            device
        });
        // The machine is shared: what else runs on it can disturb one series, but not make an unfair server fair.
        let is_fair = (0..SERIES_MAX).any(|_| ratio(&daemon, [&busy, &quiet]) <= RATIO_MAX);
        assert!(
            is_fair,
            "more than {RATIO_MAX} in each of {SERIES_MAX} series"
        );
        daemon.stop();
    });
}
