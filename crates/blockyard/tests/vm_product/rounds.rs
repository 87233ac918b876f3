//! Promise: devices come and go, many at once and under load, as often as one likes; nothing piles up.

use std::path::PathBuf;

use crate::guest::{
    Daemon, KernelExpects, LIMIT, Load, Setup, char_devices, eventually, on_a_kernel, poll_until,
};

/// Devices created and removed at once.
const DEVICES: usize = 8;
/// Rounds, unless `BLOCKYARD_ROUNDS` asks for another number.
const ROUNDS: usize = 20;

fn rounds() -> usize {
    std::env::var("BLOCKYARD_ROUNDS")
        .ok()
        .map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

#[test]
fn rounds_of_devices_removed_under_load_leave_nothing() {
    on_a_kernel(|| {
        let _errors = KernelExpects::lines_with("error, dev ublkb");
        let daemon = Setup::with_arguments(&["--shards", "2"]).start();
        let files: Vec<_> = (0..DEVICES)
            .map(|index| format!("raw:{}", daemon.file(&format!("{index}.img"), 64).display()))
            .collect();
        let names: Vec<_> = (0..DEVICES).map(|index| format!("dev{index}")).collect();
        let devices_before = char_devices();
        let mut first = None;
        let (mut files_max, mut threads_max) = (0, 0);
        for round in 0..rounds() {
            let paths: Vec<PathBuf> = std::thread::scope(|scope| {
                let creations: Vec<_> = names
                    .iter()
                    .zip(&files)
                    .map(|(name, spec)| scope.spawn(|| daemon.create(name, spec)))
                    .collect();
                creations
                    .into_iter()
                    .map(|creation| creation.join().unwrap())
                    .collect()
            });
            let loads: Vec<_> = paths
                .iter()
                .enumerate()
                .map(|(index, path)| {
                    if index % 2 == 0 {
                        Load::writing(path)
                    } else {
                        Load::reading(path)
                    }
                })
                .collect();
            eventually("every device is under load", || {
                let list = daemon.see("/v1/devices");
                let devices = list["devices"].as_array().unwrap();
                let is_busy = |device: &serde_json::Value| {
                    let count = |what: &str| device["stats"][what].as_u64().unwrap();
                    count("reads") + count("writes") >= 3
                };
                devices.iter().all(is_busy).then_some(())
            });
            let words: Vec<&str> = ["remove"]
                .into_iter()
                .chain(names.iter().map(String::as_str))
                .collect();
            let removed = daemon.client(&words);
            assert_eq!(removed.code, 0, "round {round}: {removed:#?}");
            for load in loads {
                let error = load.end();
                assert!(error.raw_os_error().is_some(), "round {round}: {error}");
            }
            assert_eq!(char_devices(), devices_before, "round {round}");
            // The first round makes threads and caches; from then on nothing is added but what comes and goes within limits.
            let files = daemon.open_files();
            let threads = daemon.threads_by_name();
            let first = first.get_or_insert_with(|| (files, threads.lasting()));
            assert!(files <= first.0 + 8, "round {round}: {files}, {first:?}");
            threads.assert_within_limits();
            assert_lasting(&daemon, &first.1, round);
            files_max = files_max.max(files);
            threads_max = threads_max.max(threads.count());
        }
        let (files, lasting) = first.map_or((0, 0), |(files, lasting)| (files, lasting.len()));
        println!(
            "figures: {} rounds of {DEVICES} devices under load, files {files} after the first and at most {files_max}, \
             threads {lasting} that last and at most {threads_max}",
            rounds()
        );
        daemon.stop();
    });
}

/// A worker of the kernel has its maker's name until it first runs, so one that has just begun is given time to say what it
/// is; a thread that was left behind stays.
fn assert_lasting(daemon: &Daemon, first: &[String], round: usize) {
    let is_as_first = || (daemon.threads_by_name().lasting() == first).then_some(());
    if poll_until(LIMIT, is_as_first).is_none() {
        let now = daemon.threads_by_name();
        panic!("round {round}: {now:?}, and these last since the first: {first:?}");
    }
}
