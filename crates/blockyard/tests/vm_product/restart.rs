//! Promise: a daemon that dies leaves nothing that the next one does not find: its own leftovers are removed, other
//! daemons' devices are left alone.

use std::fs;
use std::path::Path;

use crate::guest::{Daemon, Setup, char_devices, eventually, on_a_kernel, sh};

#[test]
fn after_a_crash_the_next_daemon_removes_what_was_left_and_says_so() {
    on_a_kernel(|| {
        let before = char_devices();
        let daemon = Daemon::start();
        let devices: Vec<_> = (0..5)
            .map(|index| daemon.create_sparse(&format!("dev{index}"), 8))
            .collect();
        sh(&format!(
            "dd if=/dev/zero of={} bs=1M count=4 oflag=direct status=none",
            devices[0].display()
        ));
        let scratch = daemon.crash();
        // Recovery is on: the kernel keeps the devices, and their links point at them.
        assert!(devices[0].exists());
        assert!(Path::new("/dev/blockyard/dev0").exists());
        let next = Setup::default().start_in(scratch);
        eventually("the leftovers are gone", || {
            (char_devices() == before).then_some(())
        });
        eventually("the list is empty", || {
            next.names().is_empty().then_some(())
        });
        assert_eq!(fs::read_dir("/dev/blockyard").unwrap().count(), 0);
        let log = next.log();
        for index in 0..5 {
            let line = log
                .lines()
                .find(|line| line.contains(&format!("device=\"dev{index}\"")));
            assert!(
                line.is_some_and(|line| line.contains("a device of an earlier run is removed")),
                "{log}"
            );
        }
        // The files are free again, and so are the names.
        next.create("dev0", &format!("raw:{}", next.path("dev0.img").display()));
        let ended = next.terminate();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
    });
}

#[test]
fn two_daemons_leave_each_other_alone() {
    on_a_kernel(|| {
        let first = Daemon::start();
        let device = first.create_sparse("first", 8);
        let second = Daemon::start();
        let status = second.see("/v1/status");
        let findings = status["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 1, "{status}");
        assert!(
            findings[0]["what"]
                .as_str()
                .unwrap()
                .contains("another installation"),
            "{status}"
        );
        assert!(
            second.log().contains("another installation"),
            "{}",
            second.log()
        );
        // Both serve; neither has lost a link.
        second.create_sparse("second", 8);
        for name in ["first", "second"] {
            assert!(
                Path::new("/dev/blockyard").join(name).exists(),
                "the link of {name}"
            );
        }
        sh(&format!(
            "dd if=/dev/zero of={} bs=1M count=8 oflag=direct conv=fsync status=none",
            device.display()
        ));
        // Nor can it take the name, and with it the link.
        let line = second
            .client(&["create", "first", "null:1M"])
            .refused(4, &["/dev/blockyard/first", "another daemon"]);
        println!("{line}");
        assert_eq!(second.names(), ["second"]);
        assert_eq!(fs::read_link("/dev/blockyard/first").unwrap(), device);
        second.ok(&["remove", "--all"]);
        assert_eq!(second.terminate().code, Some(0));
        assert_eq!(first.names(), ["first"]);
        sh(&format!("cmp -n 8M {} /dev/zero", device.display()));
        assert!(Path::new("/dev/blockyard/first").exists());
        first.stop();
    });
}

#[test]
fn a_crashed_daemons_devices_are_not_touched_by_another_installation() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let device = daemon.create_sparse("orphan", 8);
        let scratch = daemon.crash();
        let stranger = Daemon::start();
        let status = stranger.see("/v1/status");
        assert_eq!(status["findings"].as_array().unwrap().len(), 1, "{status}");
        stranger.ok(&["remove", "--all"]);
        assert_eq!(stranger.terminate().code, Some(0));
        assert!(device.exists());
        let heir = Setup::default().start_in(scratch);
        eventually("the orphan is gone", || (!device.exists()).then_some(()));
        eventually("the list is empty", || {
            heir.names().is_empty().then_some(())
        });
        assert_eq!(heir.terminate().code, Some(0));
    });
}

/// Without its journal a daemon did not know its own devices: their names stayed taken, and nothing removed them.
#[test]
fn a_lost_journal_or_state_directory_leaves_nothing_that_cannot_be_removed() {
    on_a_kernel(|| {
        let before = char_devices();
        let daemon = Daemon::start();
        let device = daemon.create_sparse("first", 8);
        let scratch = daemon.crash();
        let journal = sh(&format!(
            "find {} -name journal.redb",
            scratch.path().display()
        ));
        fs::write(journal.trim(), []).unwrap();
        let next = Setup::default().start_in(scratch);
        eventually("what the journal does not know is removed", || {
            (char_devices() == before).then_some(())
        });
        let log = next.log();
        assert!(log.contains("the journal was lost"), "{log}");
        assert!(!device.exists());
        // Its name is free.
        next.create_sparse("first", 8);
        drop(next.crash());

        // All of the state is gone.
        let living = Daemon::start();
        let theirs = living.create_sparse("theirs", 8);
        let stranger = Daemon::start();
        let status = stranger.see("/v1/status");
        let findings = status["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 2, "{status}");
        let number = |path: &Path| {
            let node = fs::canonicalize(path).unwrap();
            let name = node.file_name().unwrap().to_str().unwrap().to_owned();
            name.trim_start_matches("ublkb").to_owned()
        };
        let theirs = number(&theirs);
        let ids: Vec<_> = findings.iter().map(|f| f["id"].to_string()).collect();
        let lost = ids.iter().find(|id| **id != theirs).unwrap();
        assert!(findings[0]["what"].as_str().unwrap().contains("--stray"));
        stranger
            .client(&["remove", "--stray", &theirs])
            .refused(4, &["another daemon, which is running"]);
        stranger
            .client(&["remove", "--stray", "9999"])
            .refused(3, &["no ublk device 9999"]);
        stranger.ok(&["remove", "--stray", lost]);
        let status = stranger.see("/v1/status");
        assert_eq!(status["findings"].as_array().unwrap().len(), 1, "{status}");
        stranger.create("first", "null:1M");
        assert_eq!(stranger.terminate().code, Some(0));
        assert_eq!(living.terminate().code, Some(0));
        assert_eq!(char_devices(), before);
    });
}
