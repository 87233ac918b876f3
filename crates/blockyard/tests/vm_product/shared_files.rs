//! Promise: what another process writes to a served file is what the device reads, also where the file had a hole. Nothing can keep
//! such a process out; it could read zeros for ever.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::guest::{Daemon, eventually, on_a_kernel, sh, succeeds};

const MIB: u64 = 1 << 20;

/// Reads a block of the device, past its cache.
fn first_byte(device: &Path, offset: u64) -> u8 {
    let (device, block) = (device.display(), offset / 4096);
    let text = sh(&format!(
        "dd if={device} bs=4096 skip={block} count=1 iflag=direct status=none | od -An -tu1 -N1"
    ));
    text.trim().parse().unwrap()
}

fn write_through(path: &Path, byte: u8, offset: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[byte; 4096], offset).unwrap();
}

/// File systems of several kinds: in memory, on a disk, and on another file system.
fn places(daemon: &Daemon) -> [(&'static str, PathBuf); 3] {
    let (ext4, overlay) = (daemon.path("ext4"), daemon.path("overlay"));
    let (image, on_ext4, on_overlay) = (
        daemon.file("fs.img", 256),
        ext4.display(),
        overlay.display(),
    );
    sh(&format!(
        "mke2fs -q -t ext4 {image}; mkdir {on_ext4} {on_overlay}; mount -o loop {image} {on_ext4}
         mkdir {on_ext4}/l {on_ext4}/u {on_ext4}/w
         mount -t overlay -o lowerdir={on_ext4}/l,upperdir={on_ext4}/u,workdir={on_ext4}/w none {on_overlay}",
        image = image.display()
    ));
    [
        ("tmpfs", daemon.path("")),
        ("ext4", ext4.clone()),
        ("overlay", overlay.clone()),
    ]
}

#[test]
fn what_others_write_into_holes_is_read() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        for (name, directory) in places(&daemon) {
            let image = directory.join("shared.img");
            File::create(&image).unwrap().set_len(64 * MIB).unwrap();
            let spec = format!("raw:{}", image.display());

            // Who comes later: a process, and a loop device.
            let device = daemon.create("later", &spec);
            assert_eq!(first_byte(&device, 8 * MIB), 0, "{name}");
            write_through(&image, 1, 8 * MIB);
            assert_eq!(first_byte(&device, 8 * MIB), 1, "{name}: a later writer");
            let attached = succeeds(&["losetup", "-f", "--show", image.to_str().unwrap()]);
            let attached = attached.trim();
            // What the device gives up later is no more of a hole.
            sh(&format!("blkdiscard -o 0 -l 32M {}", device.display()));
            assert_eq!(first_byte(&device, 8 * MIB), 0, "{name}");
            sh(&format!(
                "printf '\\002%.0s' $(seq 4096) | dd of={attached} bs=4096 seek=2048 count=1 iflag=fullblock conv=fsync status=none"
            ));
            assert_eq!(first_byte(&device, 8 * MIB), 2, "{name}: a loop device");
            daemon.ok(&["remove", "later"]);
            succeeds(&["losetup", "-d", attached]);

            // A loop device that comes when nobody has opened the file yet.
            let device = daemon.create("loop", &spec);
            let attached = succeeds(&["losetup", "-f", "--show", image.to_str().unwrap()]);
            let attached = attached.trim();
            sh(&format!(
                "printf '\\003%.0s' $(seq 4096) | dd of={attached} bs=4096 seek=4096 count=1 iflag=fullblock conv=fsync status=none"
            ));
            assert_eq!(
                first_byte(&device, 16 * MIB),
                3,
                "{name}: a first loop device"
            );
            daemon.ok(&["remove", "loop"]);
            succeeds(&["losetup", "-d", attached]);

            // Who was there before, and takes no lock.
            let before = File::options().write(true).open(&image).unwrap();
            let device = daemon.create("before", &spec);
            before.write_all_at(&[4; 4096], 40 * MIB).unwrap();
            assert_eq!(first_byte(&device, 40 * MIB), 4, "{name}: an old writer");
            drop(before);
            daemon.ok(&["remove", "before"]);

            // Below a read-only device.
            let device = daemon.create_with("reader", &spec, &["--read-only"]);
            write_through(&image, 5, 48 * MIB);
            assert_eq!(first_byte(&device, 48 * MIB), 5, "{name}: below a reader");
            daemon.ok(&["remove", "reader"]);
            fs::remove_file(&image).unwrap();
        }
        let (ext4, overlay) = (daemon.path("ext4"), daemon.path("overlay"));
        sh(&format!("umount {} {}", overlay.display(), ext4.display()));
        daemon.stop();
    });
}

/// Leases that the daemon holds, by the kernel's list.
fn leases(daemon: &Daemon) -> usize {
    let (pid, locks) = (daemon.pid().to_string(), fs::read_to_string("/proc/locks"));
    let held =
        |line: &&str| line.contains("LEASE") && line.split_whitespace().any(|word| word == pid);
    locks.unwrap().lines().filter(held).count()
}

/// Work on the device keeps the lease of its file; who opens the file gets it at once and ends the lease of that file only.
#[test]
fn a_lease_ends_when_somebody_opens_the_file_and_not_before() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let image = daemon.file("open.img", 1);
        daemon.create("open", &format!("raw:{}", image.display()));
        let quiet = daemon.create_sparse("quiet", 8);
        assert_eq!(leases(&daemon), 2);
        let opened = File::open(&image).unwrap();
        assert_eq!(leases(&daemon), 1);
        drop(opened);
        // Nobody is asked any more: one that does not want to wait is welcome too.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(&image, flags, rustix::fs::Mode::empty()).unwrap();
        sh(&format!(
            "mke2fs -q {0}; blkdiscard -f {0}",
            quiet.display()
        ));
        assert_eq!(leases(&daemon), 1);
        // Written after the lease is given back, so perhaps after the file was opened.
        eventually("the log tells who lost its lease", || {
            let log = daemon.log();
            let mut told = log.lines().filter(|line| line.contains("opens the file"));
            matches!((told.next(), told.next()), (Some(line), None) if line.contains("open.img"))
                .then_some(())
        });
        daemon.ok(&["remove", "quiet"]);
        assert_eq!(leases(&daemon), 0);
        daemon.stop();
    });
}
