//! Promise: whatever is served goes when it is told to: one device, all of them, mounted ones, hundreds at once.

use rustix::process::Signal;
use serde_json::json;
use testvm::Deadline;

use crate::guest::{
    Daemon, KernelExpects, LIMIT, Setup, char_devices, eventually, on_a_kernel, run, sh, succeeds,
};

/// Devices of the large daemon.
const MANY: usize = 300;
/// Enough of them to have started every thread that there is to start.
const FEW: usize = 60;

#[test]
fn remove_all_and_an_interrupt_take_everything_down() {
    on_a_kernel(|| {
        let before = char_devices();
        let daemon = Daemon::start();
        for round in 0..2 {
            for index in 0..10 {
                daemon.create_sparse(&format!("dev{index}"), 8);
            }
            if round == 0 {
                daemon.ok(&["remove", "--all"]);
                assert_eq!(daemon.names(), [""; 0]);
                assert_eq!(char_devices(), before);
                let report = daemon.json(&["remove", "--all"]);
                assert_eq!(report["removed"].as_array().unwrap().len(), 0, "{report}");
            }
        }
        // These would kill it and leave its devices.
        for signal in [Signal::USR1, Signal::USR2, Signal::ALARM] {
            daemon.signal(signal);
        }
        eventually("the signals are seen", || {
            (daemon.log().matches("signal ignored").count() == 3).then_some(())
        });
        let ended = daemon.end_by(Signal::INT);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(
            ended.log.contains("signal received; all devices stop"),
            "{}",
            ended.log
        );
    });
}

#[test]
fn three_hundred_devices_come_and_go_with_the_same_threads() {
    on_a_kernel(|| {
        let before = char_devices().len();
        let daemon = Setup::with_arguments(&["--shards", "2"]).start();
        let create = |from: usize, to: usize| {
            daemon.create_many(from, to, &json!({"spec": "null:1M"}));
            daemon.threads_by_name()
        };
        let few = create(1, FEW);
        let clock = Deadline::after(LIMIT);
        let many = create(FEW + 1, MANY);
        println!(
            "{} threads at {FEW} devices, {} at {MANY}, {:?} between",
            few.count(),
            many.count(),
            clock.elapsed()
        );
        assert_eq!(few.lasting(), many.lasting());
        many.assert_within_limits();
        assert!(char_devices().len() >= before + MANY);
        let ended = daemon.terminate();
        println!(
            "{MANY} devices stopped and the daemon ended in {:?}",
            ended.elapsed
        );
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert_eq!(char_devices().len(), before);
    });
}

/// What a daemon in the background of a terminal gets when that is closed.
#[test]
fn the_end_of_the_terminal_takes_everything_down() {
    on_a_kernel(|| {
        let before = char_devices();
        let daemon = Daemon::start();
        daemon.create_sparse("dev", 8);
        let ended = daemon.end_by(Signal::HUP);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert_eq!(char_devices(), before);
    });
}

/// A removal is an order, not a question: the device goes away under the file system as a disk that is pulled out. Who
/// wants a clean file system unmounts first. Its number is free when the file system is unmounted; until then the device is
/// kept aside.
#[test]
fn a_mounted_device_is_pulled_out_like_a_disk() {
    on_a_kernel(|| {
        let _errors = KernelExpects::lines_with("rror");
        let daemon = Setup::configured("[deadlines]\nawait_gone_s = 2\n").start();
        let device = daemon.create_sparse("mounted", 64);
        let mnt = daemon.path("mnt");
        let mnt = mnt.to_str().unwrap();
        sh(&format!(
            "mke2fs -q -t ext4 {device}; mkdir {mnt}; mount {device} {mnt}; echo kept > {mnt}/kept; sync -f {mnt}",
            device = device.display()
        ));
        let removal = daemon.client(&["remove", "mounted"]);
        println!(
            "{}",
            removal.refused(
                8,
                &["await_gone", "still holds it", "findmnt -S", "quarantined"]
            )
        );
        let seen = daemon.see("/v1/devices/mounted");
        assert_eq!(seen["state"], "quarantined", "{seen}");
        let ran = run(&[
            "sh",
            "-c",
            &format!("echo lost > {mnt}/lost && sync {mnt}/lost"),
        ]);
        assert_ne!(ran.code, 0, "{ran:#?}");
        // Neither the name nor the file is free for others meanwhile.
        daemon
            .client(&["create", "mounted", "null:1M"])
            .refused(4, &["mounted", "quarantined"]);
        succeeds(&["umount", mnt]);
        daemon.ok(&["remove", "mounted"]);
        assert_eq!(daemon.names(), [""; 0]);
        let image = daemon.path("mounted.img");
        let image = image.to_str().unwrap();
        // What was synced before is there once the file system's own journal has been replayed.
        let repaired = run(&["e2fsck", "-fp", image]);
        assert!(repaired.code <= 1, "{repaired:#?}");
        assert_eq!(succeeds(&["debugfs", "-R", "cat kept", image]), "kept\n");
        assert_eq!(daemon.terminate().code, Some(0));
    });
}
