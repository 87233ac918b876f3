//! The machine is what every other test takes for granted: the right kernel, ublk, writable scratch space, a clean log.
#![expect(
    clippy::unwrap_used,
    reason = "a test and what it calls fail by panicking"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use testvm::{KernelLog, in_guest, is_guest};

fn succeeds(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_kernel_is_of_a_tested_series_and_has_ublk() {
    in_guest(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        if is_guest() {
            let tested = release.starts_with("6.12.") || release.ends_with("-cloud-amd64\n");
            assert!(tested, "{release}");
        }
        assert!(Path::new("/dev/ublk-control").exists());
        let limit = fs::read_to_string("/sys/module/ublk_drv/parameters/ublks_max").unwrap();
        assert!(limit.trim().parse::<u32>().unwrap() >= 2000, "{limit}");
        // The modules of this very kernel can be loaded by name.
        assert!(
            Path::new("/lib/modules")
                .join(release.trim())
                .join("modules.dep")
                .exists()
        );
    });
}

#[test]
fn modules_with_dependencies_load() {
    in_guest(|| {
        for module in [
            "dm-mod",
            "dm-snapshot",
            "loop",
            "null_blk nr_devices=0",
            "xfs",
        ] {
            let words: Vec<&str> = module.split(' ').collect();
            succeeds("modprobe", &words);
        }
        assert!(succeeds("dmsetup", &["version"]).contains("Driver version"));
        assert!(Path::new("/dev/loop-control").exists());
    });
}

#[test]
fn scratch_space_is_writable_and_apart_from_the_host() {
    in_guest(|| {
        if !is_guest() {
            testvm::skip("it would write to the host's own directories");
            return;
        }
        for dir in ["/tmp", "/run", "/var/tmp", "/dev/shm", "/out", "/etc"] {
            let file = Path::new(dir).join("testvm-probe");
            fs::write(&file, dir).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), dir);
            fs::remove_file(&file).unwrap();
        }
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        for dir in ["/tmp", "/run", "/var/tmp", "/dev/shm"] {
            let line = format!("tmpfs {dir} tmpfs");
            assert!(mounts.contains(&line), "{dir}: {mounts}");
        }
        assert!(mounts.contains("overlay / overlay"), "{mounts}");
    });
}

#[test]
fn the_network_is_the_loopback_alone() {
    in_guest(|| {
        if !is_guest() {
            testvm::skip("it is about the guest");
            return;
        }
        let links = succeeds("ip", &["-brief", "address", "show", "up"]);
        assert!(links.contains("127.0.0.1"), "{links}");
        let names: Vec<_> = fs::read_dir("/sys/class/net")
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["lo"]);
    });
}

#[test]
fn the_kernel_log_is_clean_and_hung_tasks_are_watched() {
    in_guest(|| {
        let log = KernelLog::new(succeeds("dmesg", &[]));
        assert!(log.text().contains("Linux version"));
        assert_eq!(log.complaints(), []);
        if is_guest() {
            let value =
                |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
            assert_eq!(value("hung_task_timeout_secs").trim(), "120");
            assert_eq!(value("panic_on_oops").trim(), "1");
        }
    });
}
