//! Promise: a disk is served as it is: with its blocks, with what it can do to give space back, to nobody beside the one device, and
//! not while something else has it or a part of it.

use std::fs;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::guest::{Daemon, Pattern, on_a_kernel, sh, succeeds};

/// Where the driver of SCSI disks in memory lists its own.
const SCSI_DISKS: &str = "/sys/bus/pseudo/drivers/scsi_debug";
/// Where disks of the null driver are made.
const NULL_DISKS: &str = "/sys/kernel/config/nullb";

/// A SCSI disk in memory, the only one.
struct ScsiDisk {
    path: String,
}

impl ScsiDisk {
    fn new(options: &str) -> Self {
        sh(&format!(
            "modprobe sd_mod; modprobe scsi_debug dev_size_mb=64 delay=0 {options}
             timeout 30 sh -c 'until ls {SCSI_DISKS}/adapter*/host*/target*/*/block/sd*; do sleep 0.1; done'
             udevadm settle 2> /dev/null || true"
        ));
        let name = sh(&format!(
            "basename {SCSI_DISKS}/adapter*/host*/target*/*/block/sd*"
        ));
        Self {
            path: format!("/dev/{}", name.trim()),
        }
    }
}

impl Drop for ScsiDisk {
    fn drop(&mut self) {
        sh("timeout 30 sh -c 'until modprobe -r scsi_debug; do sleep 0.1; done'");
    }
}

/// A limit of a device's queue.
fn limit(device: &Path, name: &str) -> u64 {
    let node = fs::canonicalize(device).unwrap();
    let node = node.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(format!("/sys/block/{node}/queue/{name}")).unwrap();
    text.trim().parse().unwrap()
}

/// A file system on the device, with files that are there after it was mounted again.
fn file_system_lives(daemon: &Daemon, device: &Path) {
    let (device, mnt) = (device.display(), daemon.path("mnt"));
    let mnt = mnt.display();
    sh(&format!(
        "mkdir {mnt}; mke2fs -q -F -t ext4 {device}; mount {device} {mnt}
         dd if=/dev/urandom of={mnt}/data bs=1M count=16 status=none; sha256sum < {mnt}/data > {mnt}/sum
         dd if=/dev/zero of={mnt}/gone bs=1M count=8 conv=fsync status=none; rm {mnt}/gone; sync
         fstrim {mnt} || test $(cat /sys/block/$(basename $(readlink -f {device}))/queue/discard_max_bytes) = 0
         umount {mnt}; e2fsck -fn {device} > /dev/null 2>&1; blockdev --flushbufs {device}
         mount {device} {mnt}; sha256sum < {mnt}/data | cmp - {mnt}/sum; umount {mnt}; rmdir {mnt}"
    ));
}

/// A range in the middle is given up by each command; it reads as zeros and nothing beside it changes.
fn ranges_become_zeros(daemon: &Daemon, device: &Path, commands: &[&str]) {
    let fill = daemon.path("fill");
    Pattern { seed: 5 }.write(&fill, 32);
    let (fill, target) = (fill.display(), device.display());
    for command in commands {
        // The pages of the middle are in the device's cache when it is given up.
        sh(&format!(
            "dd if={fill} of={target} bs=1M oflag=direct conv=fsync status=none
             cmp -n 32M {fill} {target}
             {command} -o 8M -l 16M {target}
             for flags in '' iflag=direct; do
               dd if={target} bs=1M skip=8 count=16 $flags status=none | cmp -n 16M - /dev/zero
               dd if={target} bs=1M count=8 $flags status=none | cmp -n 8M - {fill}
               dd if={target} bs=1M skip=24 count=8 $flags status=none | cmp -i 0:24M -n 8M - {fill}
             done"
        ));
    }
}

/// Written and read back at every size that its blocks allow.
fn verifies(device: &Path) {
    let (device, block) = (device.display(), limit(device, "logical_block_size"));
    sh(&format!(
        "fio --minimal --ioengine=libaio --rw=randwrite --direct=1 --verify=crc32c --verify_fatal=1 --do_verify=1 \
         --randseed=7 --bsrange={block}-256k --iodepth=16 --fsync=32 --size=32M --name=disk --filename={device}"
    ));
}

/// The unit in which this disk gives space back, three blocks, is no power of two: ublk takes no such number, and the device
/// could not be created.
#[test]
fn a_scsi_disk_with_large_blocks_and_an_odd_unit_of_unmapping() {
    on_a_kernel(|| {
        let disk = ScsiDisk::new("sector_size=4096 lbpu=1 lbpws=1 lbprz=1 unmap_granularity=3");
        assert_eq!(
            limit(Path::new(&disk.path), "discard_granularity"),
            3 * 4096
        );
        let daemon = Daemon::start();
        // A device manager that looks at the disk at this moment.
        let looks = fs::File::open(&disk.path).unwrap();
        flock(&looks, FlockOperation::LockShared).unwrap();
        let device = daemon.create("disk", &format!("raw:{}", disk.path));
        drop(looks);
        assert_eq!(limit(&device, "logical_block_size"), 4096);
        assert_eq!(limit(&device, "discard_granularity"), 4096);
        assert_ne!(limit(&device, "discard_max_bytes"), 0);
        assert_ne!(limit(&device, "write_zeroes_max_bytes"), 0);
        verifies(&device);
        ranges_become_zeros(&daemon, &device, &["blkdiscard", "blkdiscard -z"]);
        file_system_lives(&daemon, &device);
        daemon.ok(&["remove", "disk"]);
        daemon
            .client(&[
                "create",
                "part",
                &format!("raw:{}", disk.path),
                "--size",
                "1M",
            ])
            .refused(2, &["more than the asked size"]);
        assert_eq!(daemon.terminate().code, Some(0));
    });
}

#[test]
fn a_disk_that_zeroes_nothing_by_itself_offers_no_discard_and_is_zeroed_by_writing() {
    on_a_kernel(|| {
        sh(&format!(
            "[ -d {NULL_DISKS} ] || mount -t configfs none /sys/kernel/config
             mkdir {NULL_DISKS}/nullb7; cd {NULL_DISKS}/nullb7
             echo 64 > size; echo 4096 > blocksize; echo 1 > memory_backed; echo 1 > discard; echo 1 > power"
        ));
        let disk = Path::new("/dev/nullb7");
        let daemon = Daemon::start();
        let device = daemon.create("disk", &format!("raw:{}", disk.display()));
        assert_eq!(limit(&device, "logical_block_size"), 4096);
        let zeroes = limit(disk, "write_zeroes_max_bytes") > 0;
        for offered in ["discard_max_bytes", "write_zeroes_max_bytes"] {
            assert_eq!(limit(&device, offered) > 0, zeroes, "{offered}");
        }
        verifies(&device);
        ranges_become_zeros(&daemon, &device, &["blkdiscard -z"]);
        file_system_lives(&daemon, &device);
        daemon.stop();
        sh(&format!(
            "echo 0 > {NULL_DISKS}/nullb7/power; rmdir {NULL_DISKS}/nullb7"
        ));
    });
}

/// A disk of which a part is mounted, served or behind a loop device is in use; another part of it is not.
#[test]
fn a_part_that_is_in_use_keeps_its_disk_and_not_its_neighbours() {
    on_a_kernel(|| {
        let disk = ScsiDisk::new("num_parts=2");
        let (whole, first, second) = (
            disk.path.clone(),
            format!("{}1", disk.path),
            format!("{}2", disk.path),
        );
        let daemon = Daemon::start();
        let is_refused = |by: &Daemon, path: &str, words: &[&str]| {
            for options in [&[][..], &["--read-only"]] {
                let spec = format!("raw:{path}");
                let create = [&["create", "refused", &spec], options].concat();
                by.client(&create).refused(4, words);
            }
        };
        let in_use = ["in use", "one device at a time"];
        let mnt = daemon.path("mnt").display().to_string();
        fs::create_dir(&mnt).unwrap();
        sh(&format!(
            "mke2fs -q -F -t ext4 {first}; mount {first} {mnt}"
        ));
        is_refused(&daemon, &whole, &in_use);
        is_refused(&daemon, &first, &in_use);
        daemon.create("second", &format!("raw:{second}"));
        is_refused(&daemon, &second, &in_use);
        succeeds(&["umount", &mnt]);
        is_refused(&daemon, &whole, &in_use);
        // Another daemon, and another node.
        let other = Daemon::start();
        let node = daemon.path("node").display().to_string();
        let number = fs::read_to_string(format!(
            "/sys/class/block/{}/dev",
            second.trim_start_matches("/dev/")
        ));
        let number = number.unwrap();
        let (major, minor) = number.trim().split_once(':').unwrap();
        succeeds(&["mknod", &node, "b", major, minor]);
        for path in [&second, &node, &whole] {
            is_refused(&other, path, &in_use);
        }
        daemon.ok(&["remove", "second"]);
        // Loop devices claim nothing.
        let attached = succeeds(&["losetup", "-f", "--show", &first]);
        let attached = attached.trim();
        for path in [&whole, &first] {
            is_refused(&daemon, path, &["behind loop device", attached]);
        }
        daemon.create("second", &format!("raw:{second}"));
        succeeds(&["losetup", "-d", attached]);
        daemon.create("first", &format!("raw:{first}"));
        assert_eq!(other.terminate().code, Some(0));
        assert_eq!(daemon.terminate().code, Some(0));
    });
}

/// The last part of a block cannot be read directly; the device could not be created and the refusal did not say of what.
#[test]
fn a_disk_that_ends_inside_a_block_is_refused_by_name() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let image = daemon.path("odd.img").display().to_string();
        sh(&format!("truncate -s $((1024 * 1024 + 512)) {image}"));
        let disk = succeeds(&["losetup", "-f", "--show", "-b", "4096", &image]);
        let disk = disk.trim();
        let len = succeeds(&["blockdev", "--getsize64", disk]);
        let ran = daemon.client(&["create", "disk", &format!("raw:{disk}")]);
        if len.trim() == "1049088" {
            ran.refused(2, &[disk, "1049088 bytes", "blocks of 4096", "resize"]);
        } else {
            // The kernel left the end out.
            assert_eq!((ran.code, len.trim()), (0, "1048576"), "{ran:#?}");
        }
        assert_eq!(daemon.terminate().code, Some(0));
        succeeds(&["losetup", "-d", disk]);
    });
}
