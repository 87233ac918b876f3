//! Promise: where the kernel can, reads that need not wait go from the file into the request without a copy; what is read is the
//! same, whatever it takes to read it, and everybody can see which way it went.

use std::path::Path;

use serde_json::Value;

use crate::guest::{Daemon, KernelExpects, Pattern, Setup, on_a_kernel, run, sh, succeeds};

/// fio with verification, past the page cache of the device: every block carries a checksum and is read back.
const VERIFY: &str = "fio --group_reporting --minimal --ioengine=libaio --rw=randwrite --verify=crc32c --direct=1 \
                      --verify_fatal=1 --do_verify=1 --randseed=7";
const PATTERN: Pattern = Pattern { seed: 0x2c };
const MIB: u64 = 32;

fn mode_of_the_kernel(daemon: &Daemon) -> String {
    let status = daemon.see("/v1/status");
    status["kernel"]["copy_mode"].as_str().unwrap().to_owned()
}

/// Reads known content and what fio wrote, in all sizes; then asks whether it went this way.
fn read_all_ways(daemon: &Daemon, name: &str, spec: &str, mode: &str) -> Value {
    let device = daemon.create(name, spec);
    PATTERN.check(&device, MIB);
    sh(&format!(
        "{VERIFY} --bsrange=512-1M --iodepth=32 --size={MIB}M --name=verify --filename={}",
        device.display()
    ));
    let seen = daemon.see(&format!("/v1/devices/{name}"));
    assert_eq!(seen["stats"]["errors"], 0, "{seen}");
    let bytes = |figure: &str| seen["stats"][figure].as_u64().unwrap();
    let (read, uncopied) = (bytes("read_bytes"), bytes("zero_copy_bytes"));
    println!("{name}: {uncopied} of {read} bytes without a copy");
    assert_eq!(seen["copy_mode"], mode);
    if seen["copy_mode"] == "zero-copy" {
        assert!(uncopied > read / 2 && uncopied <= read, "{seen}");
    } else {
        assert_eq!(uncopied, 0, "{seen}");
    }
    daemon.ok(&["remove", name]);
    seen
}

#[test]
fn what_is_read_is_right_from_memory_from_a_file_system_and_from_a_disk() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let mode = mode_of_the_kernel(&daemon);
        let in_memory = daemon.path("memory.img");
        PATTERN.write(&in_memory, MIB);
        let spec = format!("raw:{}", in_memory.display());
        read_all_ways(&daemon, "memory", &spec, &mode);

        let below = daemon.file("below.img", 96);
        let mnt = daemon.path("mnt");
        let (below, mnt) = (below.to_str().unwrap(), mnt.to_str().unwrap());
        sh(&format!(
            "mkdir {mnt}; mke2fs -q -t ext4 {below}; mount -o loop {below} {mnt}"
        ));
        let on_ext4 = Path::new(mnt).join("disk.img");
        PATTERN.write(&on_ext4, MIB);
        let spec = format!("raw:{}", on_ext4.display());
        read_all_ways(&daemon, "ext4", &spec, &mode);
        succeeds(&["umount", mnt]);

        PATTERN.write(&in_memory, MIB);
        let disk = succeeds(&["losetup", "-f", "--show", in_memory.to_str().unwrap()]);
        // A disk is read directly: its data is not in memory, so every read waits, and what waits has a buffer of its own.
        read_all_ways(
            &daemon,
            "disk",
            &format!("raw:{}", disk.trim()),
            "user-copy",
        );
        succeeds(&["losetup", "-d", disk.trim()]);

        // Nothing to gain there, so nothing is asked for.
        daemon.create("null", "null:64M");
        assert_eq!(daemon.see("/v1/devices/null")["copy_mode"], "user-copy");
        daemon.stop();
    });
}

/// The first attempt of a read goes into the client's own memory. When it cannot be completed, its client gets an error and no
/// data, also from the page cache.
#[test]
fn a_read_that_fails_half_way_is_an_error_and_no_data() {
    on_a_kernel(|| {
        let _errors = KernelExpects::lines_with("error, dev ublkb");
        let daemon = Daemon::start();
        let image = daemon.path("short.img");
        PATTERN.write(&image, MIB);
        let device = daemon.create("short", &format!("raw:{}", image.display()));
        // An open that waits until the daemon has given its lease back; the program `truncate` would not wait.
        let resize = |len| {
            let file = std::fs::File::options().write(true).open(&image);
            file.unwrap().set_len(len).unwrap();
        };
        // The file ends in the middle of a block now, behind the daemon's back.
        resize(8_389_632);
        let (device, image) = (device.to_str().unwrap(), image.to_str().unwrap());
        let read = |skip_kib: u64, direct: &str| {
            let script = format!(
                "dd if={device} bs=64k skip={skip_kib} iflag=skip_bytes,{direct} count=1 status=none | wc -c",
                skip_kib = skip_kib << 10
            );
            run(&["bash", "-c", &script]).stdout.trim().to_owned()
        };
        for direct in ["direct", "fullblock"] {
            assert_eq!(read(0, direct), "65536");
            // From before the end to behind it, and behind it.
            assert_eq!(read(8160, "direct"), "0");
            assert_eq!(read(8704, "direct"), "0");
        }
        let seen = daemon.see("/v1/devices/short");
        assert!(seen["stats"]["errors"].as_u64().unwrap() > 0, "{seen}");
        // The file is whole again: what was there is, and the rest is zeros, never what an earlier read left behind.
        resize(32 << 20);
        sh(&format!(
            "blockdev --flushbufs {device}; cmp {device} {image}; cmp -i 8389632:0 -n 1M {device} /dev/zero"
        ));
        daemon.stop();
    });
}

/// A ring has 16,384 slots. More tags than that share them, and who finds its slot taken is served by user copy.
#[test]
fn more_tags_than_slots_are_served_all_the_same() {
    const DEVICES: usize = 20;
    on_a_kernel(|| {
        let daemon = Setup::with_arguments(&["--shards", "1"]).start();
        let jobs: Vec<_> = (0..DEVICES)
            .map(|index| {
                let name = format!("deep{index}");
                let spec = format!("raw:{}", daemon.file(&format!("{name}.img"), 8).display());
                let device = daemon.create_with(&name, &spec, &["--depth", "1024"]);
                format!("--name={name} --filename={}", device.display())
            })
            .collect();
        let shard = daemon.see("/v1/status")["shards"][0].clone();
        if mode_of_the_kernel(&daemon) == "zero-copy" {
            assert_eq!(shard["slots"]["limit"], 16_384, "{shard}");
            assert_eq!(shard["slots"]["in_use"], DEVICES << 10, "{shard}");
        } else {
            assert_eq!(shard["slots"]["limit"], 0, "{shard}");
        }
        sh(&format!(
            "{VERIFY} --bs=4k --iodepth=64 --size=2M {}",
            jobs.join(" ")
        ));
        for index in 0..DEVICES {
            let seen = daemon.see(&format!("/v1/devices/deep{index}"));
            assert_eq!(seen["stats"]["errors"], 0, "{seen}");
        }
        daemon.stop();
    });
}
