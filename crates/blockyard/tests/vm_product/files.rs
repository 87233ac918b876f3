//! Promise: a file becomes a disk that a real file system with real files lives on, and what is written is in the file.

use std::path::Path;

use crate::guest::{Daemon, Pattern, on_a_kernel, run, sh, succeeds};

/// Real files: at least so many.
const FILES: usize = 2_000;
/// Written in one piece and synced, in MiB.
const WRITTEN_MIB: u64 = 200;
const PATTERN: Pattern = Pattern { seed: 0xb10c };

#[test]
fn two_thousand_real_files_and_200_mib_live_on_a_served_file() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let image = daemon.file("disk.img", 512);
        let device = daemon.create("disk", &format!("raw:{}", image.display()));
        let scratch = image.parent().unwrap().display().to_string();
        let mnt = format!("{scratch}/mnt");
        let count = sh(&format!(
            "cd /; {{ find usr/share usr/include usr/lib -type f -size +0 -size -48k -print0 || true; }} |
             head -z -n 2200 > {scratch}/list; tr -cd '\\0' < {scratch}/list | wc -c
             xargs -0 sha256sum < {scratch}/list > {scratch}/sums; mkdir {mnt}"
        ));
        assert!(count.trim().parse::<usize>().unwrap() >= FILES, "{count}");
        sh(&format!(
            "mke2fs -q -t ext4 {device}; mount {device} {mnt}
             tar -C / --null -T {scratch}/list -cf - | tar -C {mnt} -xf -
             umount {mnt}; mount {device} {mnt}",
            device = device.display()
        ));
        check(&mnt, &scratch);
        let written = Path::new(&mnt).join("written");
        PATTERN.write(&written, WRITTEN_MIB);
        succeeds(&["sync", "-f", &mnt]);
        succeeds(&["umount", &mnt]);
        succeeds(&["e2fsck", "-fn", device.to_str().unwrap()]);
        let seen = daemon.see("/v1/devices/disk");
        assert!(
            seen["stats"]["written_bytes"].as_u64().unwrap() >= WRITTEN_MIB << 20,
            "{seen}"
        );
        assert!(seen["stats"]["flushes"].as_u64().unwrap() > 0, "{seen}");
        assert_eq!(seen["stats"]["errors"], 0, "{seen}");
        daemon.ok(&["remove", "disk"]);
        assert!(!device.exists());

        // The daemon is out of the way: the file itself, on the kernel's own loop driver, holds the change.
        succeeds(&["e2fsck", "-fn", image.to_str().unwrap()]);
        succeeds(&["mount", "-o", "loop,ro", image.to_str().unwrap(), &mnt]);
        check(&mnt, &scratch);
        PATTERN.check(&written, WRITTEN_MIB);
        succeeds(&["umount", &mnt]);
        daemon.stop();
    });
}

/// Asserts that every file below `mnt` has the checksum of its original.
fn check(mnt: &str, scratch: &str) {
    sh(&format!("cd {mnt}; sha256sum --quiet -c {scratch}/sums"));
}

#[test]
fn a_null_device_reads_zeros_drops_writes_and_says_so() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let device = daemon.create("null", "null:64M");
        let device = device.to_str().unwrap();
        assert_eq!(
            succeeds(&["blockdev", "--getsize64", device]).trim(),
            "67108864"
        );
        sh(&format!(
            "dd if=/dev/urandom of={device} bs=1M count=2 oflag=direct conv=fsync status=none
             blockdev --flushbufs {device}
             cmp -n 67108864 {device} /dev/zero"
        ));
        let help = run(&[
            "sh",
            "-c",
            &format!("{} create --help", crate::guest::binary().display()),
        ])
        .ok();
        assert!(help.contains("reads zeros and drops writes"), "{help}");
        daemon.stop();
    });
}
