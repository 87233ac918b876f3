//! Promise: a full disk is the guest's ENOSPC and nothing worse; with space made, the same device works again. A full
//! state directory fails the change that needed it, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use crate::guest::{Daemon, KernelExpects, Pattern, Setup, on_a_kernel, run, sh, succeeds};

/// A tmpfs of that size, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(directory: &Path, size: &str) -> Self {
        fs::create_dir_all(directory).unwrap();
        sh(&format!(
            "mount -t tmpfs -o size={size} none {}",
            directory.display()
        ));
        Self(directory.to_owned())
    }

    /// Takes all space that is left.
    fn fill(&self) {
        let fill = self.0.join("fill");
        sh(&format!(
            "dd if=/dev/zero of={} bs=4k 2>/dev/null || true",
            fill.display()
        ));
    }

    fn free(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: a daemon that a failed test left may still use it.
        run(&["umount", "-l", self.0.to_str().unwrap_or_default()]);
    }
}

#[test]
fn a_full_disk_below_is_enospc_above_and_passes() {
    on_a_kernel(|| {
        let _errors = KernelExpects::lines_with("error, dev ublkb");
        let scratch = tempfile::tempdir().unwrap();
        let small = Small::mount(&scratch.path().join("small"), "16M");
        let daemon = Daemon::start();
        let image = small.0.join("disk.img");
        succeeds(&["truncate", "-s", "64M", image.to_str().unwrap()]);
        let device = daemon.create("full", &format!("raw:{}", image.display()));
        let other = daemon.create_sparse("other", 16);
        let fill = |target: &Path| {
            run(&[
                "dd",
                "if=/dev/zero",
                &format!("of={}", target.display()),
                "bs=1M",
                "count=16",
                "oflag=direct",
                "status=none",
            ])
        };
        small.fill();
        let ran = fill(&device);
        assert!(ran.stderr.contains("No space left on device"), "{ran:#?}");
        let seen = daemon.see("/v1/devices/full");
        assert_eq!(seen["state"], "live", "{seen}");
        assert!(seen["stats"]["errors"].as_u64().unwrap() > 0, "{seen}");
        // Reads of the full device and the whole other one go on.
        sh(&format!("cmp -n 1M {} /dev/zero", device.display()));
        fill(&other).ok();
        small.free();
        let source = daemon.path("source");
        Pattern { seed: 4 }.write(&source, 8);
        sh(&format!(
            "dd if={} of={} bs=1M oflag=direct conv=fsync status=none",
            source.display(),
            device.display()
        ));
        Pattern { seed: 4 }.check(&device, 8);
        assert_eq!(daemon.see("/v1/devices/other")["stats"]["errors"], 0);
        daemon.stop();
        Pattern { seed: 4 }.check(&image, 8);
    });
}

#[test]
fn a_full_state_directory_fails_the_creation_and_nothing_else() {
    on_a_kernel(|| {
        let scratch = tempfile::tempdir().unwrap();
        let small = Small::mount(&scratch.path().join("state"), "8M");
        let setup = Setup {
            state_dir: Some(small.0.clone()),
            ..Setup::default()
        };
        let daemon = setup.start();
        let before = daemon.create_sparse("before", 8);
        small.fill();
        // The journal takes space in pieces: what it has left is used up first.
        let refused = (0..2000).find_map(|index| {
            let ran = daemon.client(&["create", &format!("dev{index}"), "null:1M"]);
            (ran.code != 0).then_some((index, ran))
        });
        let Some((index, ran)) = refused else {
            panic!("2000 devices fit into a journal without space")
        };
        println!(
            "after {index} devices: {}",
            ran.refused(9, &["journal", "pace"])
        );
        assert_eq!(daemon.names().len(), index + 1);
        // What lives goes on, and can be removed even now.
        Pattern { seed: 5 }.write(&scratch.path().join("source"), 1);
        sh(&format!(
            "dd if={}/source of={} bs=1M oflag=direct status=none",
            scratch.path().display(),
            before.display()
        ));
        small.free();
        // The journal's file is closed after an error: the state directory is this daemon's all the same.
        let elsewhere = tempfile::tempdir().unwrap();
        let second = setup.run_in(elsewhere.path());
        second.refused(4, &["journal", "a second daemon"]);
        // With space made, creations work again.
        daemon.create("after", "null:1M");
        daemon.ok(&["remove", "after"]);
        let ended = daemon.terminate();
        println!("{}", ended.log);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        // And the journal is in order.
        let again = setup.start();
        assert_eq!(again.names(), [""; 0]);
        again.stop();
    });
}
