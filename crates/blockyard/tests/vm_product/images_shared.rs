//! Promise: devices over the same layers share them: one open file and one index for each, however many devices there are.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::json;

use crate::guest::{Daemon, binary, eventually, on_a_kernel, succeeds};
use crate::images::{sha256, write_config};

/// Devices over one image.
const DEVICES: usize = 64;
/// Layers of the image.
const LAYERS: u64 = 4;
/// Of the index of a layer.
const RECORDS: u64 = 5000;
const BLOCK_BYTES: u64 = 4096;
/// What a record takes in memory, at least.
const RECORD_BYTES: u64 = 16;

/// A layer whose data lies in every eighth block, at another one for each layer.
fn layer(daemon: &Daemon, number: u64) -> PathBuf {
    let raw = daemon.path("raw");
    let file = File::create(&raw).unwrap();
    file.set_len(RECORDS * 8 * BLOCK_BYTES).unwrap();
    for record in 0..RECORDS {
        let stamp = (number * RECORDS + record + 1).to_le_bytes().repeat(512);
        let offset = (record * 8 + 2 * number) * BLOCK_BYTES;
        file.write_all_at(&stamp, offset).unwrap();
    }
    let layer = daemon.path(&format!("{number}.layer"));
    let program = binary();
    let words = [&*program, "image".as_ref(), "import".as_ref(), &raw, &layer];
    let words = words.map(|word| word.to_str().unwrap());
    succeeds(&[&words[..], &["--zfile", "lz4"]].concat());
    layer
}

/// What the daemon has open of `files`, and its own memory.
fn open_and_kib(daemon: &Daemon, files: &[PathBuf]) -> (usize, u64) {
    let fds = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let open = fds.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let open = open.filter(|path| files.contains(path)).count();
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let own = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let own = own.unwrap().trim().trim_end_matches(" kB");
    (open, own.parse().unwrap())
}

#[test]
fn many_devices_have_one_copy_of_a_layer() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let layers: Vec<_> = (0..LAYERS).map(|number| layer(&daemon, number)).collect();
        let lowers: Vec<_> = layers.iter().map(|file| json!({"file": file})).collect();
        let spec = write_config(&daemon.path("image.json"), &json!({"lowers": lowers}));
        let program = binary();
        let program = program.to_str().unwrap();
        let sum = succeeds(&[program, "image", "export", &spec, "--sha256"]);
        let none = open_and_kib(&daemon, &layers);
        assert_eq!(none.0, 0);
        let first = daemon.create("dev0", &spec);
        assert!(sum.contains(&sha256(&first)), "{sum}");
        let one = open_and_kib(&daemon, &layers);
        assert_eq!(one.0, layers.len());
        for device in 1..DEVICES {
            daemon.create(&format!("dev{device}"), &spec);
        }
        // Before it is read: each shard has a cache, of which the first device filled one.
        let many = open_and_kib(&daemon, &layers);
        let last = daemon.see("/v1/devices/dev63")["path"].to_string();
        assert!(sum.contains(&sha256(last.trim_matches('"').as_ref())));
        assert_eq!(many.0, layers.len());
        let index_kib = LAYERS * RECORDS * RECORD_BYTES / 1024;
        println!(
            "figures: an image of {LAYERS} layers and {} records in memory ({index_kib} KiB); files of layers {} at 1 device and {} at {DEVICES}; \
             own memory {} KiB at 0 devices, {} KiB at 1, {} KiB at {DEVICES}",
            LAYERS * RECORDS,
            one.0,
            many.0,
            none.1,
            one.1,
            many.1
        );
        let each_kib = (many.1 - one.1) / (DEVICES as u64 - 1);
        assert!(each_kib < index_kib, "{each_kib} KiB for each device");
        daemon.ok(&["remove", "--all"]);
        // Who used them last has closed them, and the next one finds them anew.
        assert_eq!(open_and_kib(&daemon, &layers).0, 0);
        let files = daemon.open_files();
        for _ in 0..3 {
            for device in 0..8 {
                daemon.create(&format!("dev{device}"), &spec);
            }
            assert_eq!(open_and_kib(&daemon, &layers).0, layers.len());
            daemon.ok(&["remove", "--all"]);
        }
        eventually("everything is closed", || {
            (daemon.open_files() <= files).then_some(())
        });
        daemon.stop();
    });
}
