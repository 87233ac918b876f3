//! Promise: a daemon that cannot start says why in one line, ends with the documented exit code and changes nothing.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::guest::{Daemon, Leftovers, Setup, on_a_kernel, sh, succeeds};

/// Runs a daemon in `scratch` that must be refused.
fn refused(setup: &Setup, scratch: &Path, code: i32, words: &[&str]) {
    let before = Leftovers::now();
    println!("{}", setup.run_in(scratch).refused(code, words));
    before.assert_nothing_more();
}

#[test]
fn sockets_that_are_taken_stale_or_blocked() {
    on_a_kernel(|| {
        let first = Daemon::start();
        first.create("mine", "null:1M");
        let elsewhere = tempfile::tempdir().unwrap();
        let second = Setup {
            state_dir: Some(elsewhere.path().join("state")),
            ..Setup::default()
        };
        refused(
            &second,
            &first.path(""),
            4,
            &["blockyard.sock", "in use by another daemon", "--socket"],
        );
        // The first one has not noticed.
        assert_eq!(first.names(), ["mine"]);
        first.stop();

        let blocked = tempfile::tempdir().unwrap();
        fs::write(blocked.path().join("blockyard.sock"), "mine").unwrap();
        refused(
            &Setup::default(),
            blocked.path(),
            4,
            &["blockyard.sock", "is not a socket"],
        );
        assert_eq!(
            fs::read(blocked.path().join("blockyard.sock")).unwrap(),
            b"mine"
        );

        // A socket that nobody listens on is replaced.
        let stale = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(stale.path().join("blockyard.sock")).unwrap());
        Setup::default().start_in(stale).stop();

        let long = format!("/tmp/{}/blockyard.sock", "d".repeat(120));
        refused(
            &Setup::with_arguments(&["--socket", &long]),
            blocked.path(),
            2,
            &["--socket"],
        );
    });
}

#[test]
fn state_directories_that_cannot_be_used() {
    on_a_kernel(|| {
        let scratch = tempfile::tempdir().unwrap();
        let in_state = |dir: &Path| Setup {
            state_dir: Some(dir.to_owned()),
            ..Setup::default()
        };
        let first = Daemon::start();
        first.create("mine", "null:1M");
        refused(
            &in_state(&first.path("state")),
            scratch.path(),
            4,
            &["journal", "in use by another daemon"],
        );
        assert_eq!(first.names(), ["mine"]);
        first.stop();

        let mnt = scratch.path().join("mnt");
        fs::create_dir(&mnt).unwrap();
        sh(&format!("mount -t tmpfs -o ro none {}", mnt.display()));
        refused(
            &in_state(&mnt),
            scratch.path(),
            7,
            &["state directory", "mnt", "ead-only"],
        );
        refused(
            &in_state(&mnt.join("new")),
            scratch.path(),
            7,
            &["state directory", "mnt/new", "ead-only"],
        );
        succeeds(&["umount", mnt.to_str().unwrap()]);

        sh(&format!(
            "mount -t tmpfs -o size=64k none {mnt}; dd if=/dev/zero of={mnt}/fill bs=4k 2>/dev/null || true",
            mnt = mnt.display()
        ));
        refused(
            &in_state(&mnt),
            scratch.path(),
            9,
            &["state directory", "pace"],
        );
        succeeds(&["umount", mnt.to_str().unwrap()]);

        let file = scratch.path().join("file");
        fs::write(&file, "no directory").unwrap();
        refused(
            &in_state(&file),
            scratch.path(),
            2,
            &["state directory", "is a file", "--state-dir"],
        );
        fs::create_dir(scratch.path().join("damaged")).unwrap();
        fs::write(
            scratch.path().join("damaged/journal.redb"),
            "no journal at all",
        )
        .unwrap();
        refused(
            &in_state(&scratch.path().join("damaged")),
            scratch.path(),
            1,
            &["journal.redb", "move it away"],
        );
    });
}

#[test]
fn configurations_that_cannot_be_used() {
    on_a_kernel(|| {
        let scratch = tempfile::tempdir().unwrap();
        refused(
            &Setup::configured("shard = 1\n"),
            scratch.path(),
            2,
            &["`shard`", "line 1", "blockyard.toml"],
        );
        refused(
            &Setup::configured("[deadlines]\nstop_s = 0\n"),
            scratch.path(),
            2,
            &["stop_s", "1 to 86400"],
        );
        let missing = Setup::with_arguments(&["--config", "/nonexistent/x.toml"]);
        refused(&missing, scratch.path(), 2, &["/nonexistent/x.toml"]);
        refused(
            &Setup::with_arguments(&["--shards", "0"]),
            scratch.path(),
            2,
            &["--shards"],
        );
    });
}

/// The kernel tells a process under this personality the release that a program of the 2.6 series would expect.
#[test]
fn kernels_that_are_too_old() {
    on_a_kernel(|| {
        let old = Setup {
            prefix: ["setarch", "--uname-2.6"].map(str::to_owned).to_vec(),
            ..Setup::default()
        };
        let scratch = tempfile::tempdir().unwrap();
        let words = ["Linux 2.6.", "too old", "Linux 6.8 or newer"];
        refused(&old, scratch.path(), 6, &words);
    });
}

#[test]
fn hosts_without_ublk_and_users_without_rights() {
    on_a_kernel(|| {
        let scratch = tempfile::tempdir().unwrap();
        succeeds(&["chmod", "777", scratch.path().to_str().unwrap()]);
        let nobody = Setup {
            prefix: [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Setup::default()
        };
        refused(
            &nobody,
            scratch.path(),
            7,
            &["/dev/ublk-control", "ermission"],
        );
        if !testvm::is_guest() {
            testvm::skip("the driver of a host in use is not unloaded");
            return;
        }
        let limit = "/sys/module/ublk_drv/parameters/ublks_max";
        let limit = fs::read_to_string(limit).unwrap();
        succeeds(&["rmmod", "ublk_drv"]);
        refused(
            &Setup::default(),
            scratch.path(),
            6,
            &["/dev/ublk-control", "modprobe ublk_drv"],
        );
        succeeds(&[
            "modprobe",
            "ublk_drv",
            &format!("ublks_max={}", limit.trim()),
        ]);
        Setup::default().start().stop();
    });
}
