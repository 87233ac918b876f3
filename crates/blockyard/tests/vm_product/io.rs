//! Promise: data comes back as it was written, whatever the size, depth and path of the I/O; space that is given up is
//! given back; a read-only device stays as it is.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::guest::{Daemon, KernelExpects, Pattern, on_a_kernel, run, sh, succeeds};

/// fio with verification: every block carries a checksum and is read back.
const VERIFY: &str = "fio --group_reporting --minimal --ioengine=libaio --rw=randwrite --verify=crc32c \
                      --verify_fatal=1 --do_verify=1 --randseed=7";

/// What the file takes on its file system, in KiB.
fn used_kib(file: &Path) -> u64 {
    std::fs::metadata(file).unwrap().blocks() / 2
}

#[test]
fn verified_writes_of_mixed_sizes_on_two_devices_at_once() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let [one, two] = ["one", "two"].map(|name| daemon.create_sparse(name, 64));
        sh(&format!(
            "{VERIFY} --direct=1 --bsrange=512-1M --iodepth=32 --fsync=32 --size=48M \
             --name=one --filename={} --name=two --filename={}",
            one.display(),
            two.display()
        ));
        for name in ["one", "two"] {
            let seen = daemon.see(&format!("/v1/devices/{name}"));
            assert!(seen["stats"]["flushes"].as_u64().unwrap() > 0, "{seen}");
            assert_eq!(seen["stats"]["errors"], 0, "{seen}");
        }
        daemon.stop();
    });
}

#[test]
fn verified_writes_through_the_page_cache_and_through_two_queues() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let buffered = daemon.create_sparse("buffered", 32);
        let file = daemon.file("queues.img", 64);
        let spec = format!("raw:{}", file.display());
        let queues = daemon.create_with("queues", &spec, &["--queues", "2", "--depth", "16"]);
        sh(&format!(
            "{VERIFY} --direct=0 --bsrange=512-256k --iodepth=8 --end_fsync=1 --size=24M --name=buffered --filename={}",
            buffered.display()
        ));
        sh(&format!(
            "{VERIFY} --direct=1 --bsrange=4k-128k --iodepth=16 --numjobs=2 --size=24M --offset_increment=32M \
             --name=queues --filename={}",
            queues.display()
        ));
        let seen = daemon.see("/v1/devices/queues");
        assert_eq!(seen["queues"], 2, "{seen}");
        assert_eq!(seen["stats"]["errors"], 0, "{seen}");
        daemon.stop();
    });
}

/// Disks were read and written through their page cache: what they refused to zero showed in the cache all the same, so
/// neither discard nor write-zeroes was offered, and disks with blocks of 4096 bytes were refused.
#[test]
fn disks_are_served_directly_with_their_block_size_and_give_space_back() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        for block in ["512", "4096"] {
            let name = format!("disk{block}");
            let image = daemon.file(&format!("{name}.img"), 64);
            let attach = ["losetup", "-f", "--show", "-b", block];
            let disk = succeeds(&[&attach[..], &[image.to_str().unwrap()]].concat());
            let device = daemon.create(&name, &format!("raw:{}", disk.trim()));
            let node = std::fs::canonicalize(&device).unwrap();
            let queue = format!(
                "/sys/block/{}/queue",
                node.file_name().unwrap().to_str().unwrap()
            );
            let limit = |name: &str| std::fs::read_to_string(format!("{queue}/{name}")).unwrap();
            assert_eq!(limit("logical_block_size").trim(), block);
            for offered in ["discard_max_bytes", "write_zeroes_max_bytes"] {
                assert_ne!(limit(offered).trim(), "0", "{offered}");
            }
            sh(&format!(
                "{VERIFY} --direct=1 --bsrange={block}-256k --iodepth=16 --fsync=32 --size=32M --name=disk --filename={}",
                device.display()
            ));
            // The loop device's own cache holds some of it back from the file.
            succeeds(&["sync"]);
            let full = used_kib(&image);
            let device = device.to_str().unwrap();
            sh(&format!(
                "blkdiscard -o 0 -l 16M {device}; blkdiscard -z -o 16M -l 8M {device}
                 cmp -n 24M {device} /dev/zero; sync"
            ));
            let left = used_kib(&image);
            assert!(
                left + (14 << 10) < full,
                "{block}: {full} KiB, then {left} KiB"
            );
            daemon.ok(&["remove", &name]);
            // The disk itself says the same: nothing was only in a cache.
            sh(&format!("cmp -n 24M {} /dev/zero", disk.trim()));
            succeeds(&["losetup", "-d", disk.trim()]);
        }
        daemon.stop();
    });
}

#[test]
fn trimmed_space_is_given_back() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let device = daemon.create_sparse("trim", 256);
        let image = daemon.path("trim.img");
        let mnt = daemon.path("mnt");
        sh(&format!(
            "mkdir {mnt}; mke2fs -q -t ext4 {device}; mount {device} {mnt}",
            mnt = mnt.display(),
            device = device.display()
        ));
        Pattern { seed: 1 }.write(&mnt.join("big"), 96);
        let full = used_kib(&image);
        assert!(full >= 96 << 10, "{full} KiB");
        sh(&format!(
            "rm {mnt}/big; sync -f {mnt}; fstrim {mnt}",
            mnt = mnt.display()
        ));
        let trimmed = used_kib(&image);
        assert!(
            trimmed < full - (90 << 10),
            "{full} KiB, then {trimmed} KiB"
        );
        succeeds(&["umount", mnt.to_str().unwrap()]);
        succeeds(&["e2fsck", "-fn", device.to_str().unwrap()]);
        daemon.stop();
    });
}

#[test]
fn discarded_and_zeroed_ranges_read_as_zeros_and_their_neighbours_stay() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let device = daemon.create_sparse("zero", 32);
        let image = daemon.path("zero.img");
        // By which command, and whether it gives space back.
        let cases = [
            ("blkdiscard -f -o 8M -l 16M", true),
            ("blkdiscard -f -z -o 8M -l 16M", false),
            ("fallocate -z -o 8M -l 16M", false),
            ("fallocate -p -o 8M -l 16M", true),
        ];
        for (command, is_freed) in cases {
            let target = device.display();
            let fill = daemon.path("fill");
            Pattern { seed: 2 }.write(&fill, 32);
            sh(&format!(
                "dd if={fill} of={target} bs=1M oflag=direct conv=fsync status=none",
                fill = fill.display()
            ));
            let full = used_kib(&image);
            sh(&format!(
                "{command} {target}; blockdev --flushbufs {target}"
            ));
            let now = used_kib(&image);
            assert_eq!(
                now < full - (15 << 10),
                is_freed,
                "{command}: {full} KiB, then {now} KiB"
            );
            let fill = fill.display();
            sh(&format!(
                "cmp -n 8M {fill} {target}; cmp -i 8M:0 -n 16M {target} /dev/zero; cmp -i 24M -n 8M {fill} {target}
                 dd if={target} bs=1M skip=8 count=16 iflag=direct status=none | cmp -n 16M - /dev/zero"
            ));
        }
        daemon.stop();
    });
}

#[test]
fn a_read_only_device_refuses_writes_and_leaves_its_file_alone() {
    on_a_kernel(|| {
        let _errors = KernelExpects::lines_with("error, dev ublkb");
        let daemon = Daemon::start();
        let image = daemon.path("ro.img");
        Pattern { seed: 3 }.write(&image, 4);
        let spec = format!("raw:{}", image.display());
        let device = daemon.create_with("ro", &spec, &["--read-only"]);
        let target = device.to_str().unwrap();
        assert_eq!(succeeds(&["blockdev", "--getro", target]).trim(), "1");
        for write in [
            format!("dd if=/dev/zero of={target} bs=4k count=1 oflag=direct status=none"),
            format!("blkdiscard -f {target}"),
            format!("blkdiscard -f -z {target}"),
        ] {
            let ran = run(&["sh", "-c", &write]);
            assert_ne!(ran.code, 0, "{ran:#?}");
        }
        // Not even when the kernel is told to forget that it is read-only.
        succeeds(&["blockdev", "--setrw", target]);
        let ran = run(&[
            "dd",
            "if=/dev/zero",
            &format!("of={target}"),
            "bs=4k",
            "count=1",
            "oflag=direct",
        ]);
        assert_ne!(ran.code, 0, "{ran:#?}");
        Pattern { seed: 3 }.check(&device, 4);
        Pattern { seed: 3 }.check(&image, 4);
        // A second reader of the same file is welcome, a writer is not.
        daemon.create_with("ro2", &spec, &["--read-only"]);
        daemon
            .client(&["create", "rw", &spec])
            .refused(4, &["ro.img", "in use"]);
        assert_eq!(daemon.terminate().code, Some(0));
    });
}
