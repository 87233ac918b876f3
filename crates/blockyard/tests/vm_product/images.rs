//! Promise: an image is served with the content that its format gives it, writes to its upper come back, and what was flushed survives
//! the death of the daemon.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::guest::{
    Daemon, DirectIo, KernelExpects, Setup, binary, eventually, on_a_kernel, sh, succeeds,
};

/// Images that the reference implementation wrote, with the right answers.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlaybd/tests/fixtures")
}

/// What cannot be served as it is: the file is not there, the format does not keep it, or it stands on a parent that it does not
/// name. Each has its own test in `overlaybd` and `image` (`exceptions.rs`).
const OTHER_TESTS: [&str; 5] = [
    "d_rw_rust sparse alone",
    "e_sparse discard (ideal)",
    "e_sparse one 512B write (ideal)",
    "b_stack4 listed in the wrong order",
    "i_warp + L3 on top",
];

pub(crate) fn sha256(path: &Path) -> String {
    let printed = succeeds(&["sha256sum", path.to_str().unwrap()]);
    printed.split(' ').next().unwrap().to_owned()
}

pub(crate) fn write_config(path: &Path, config: &Value) -> String {
    std::fs::write(path, config.to_string()).unwrap();
    format!("overlaybd:{}", path.display())
}

/// Unpacks the sparse uppers of the reference, which are kept in an archive.
fn unpack_sparse(daemon: &Daemon) {
    let archive = fixtures().join("e_sparse/sparse_files.tar");
    std::fs::create_dir(daemon.path("e_sparse")).unwrap();
    let (archive, folder) = (archive.display(), daemon.path("e_sparse"));
    sh(&format!(
        "tar --sparse -xf {archive} -C {}",
        folder.display()
    ));
    let sealed = fixtures().join("e_sparse/aligned4k_sealed.lsmt.gz");
    sh(&format!(
        "gzip -dc {} > {}/aligned4k_sealed.lsmt",
        sealed.display(),
        folder.display()
    ));
}

/// A file of the fixtures, or what was unpacked of it.
fn located(name: &str, daemon: &Daemon) -> PathBuf {
    let unpacked = daemon.path(name);
    if unpacked.exists() {
        unpacked
    } else {
        fixtures().join(name)
    }
}

/// The configuration of a case; its upper is a copy in `folder`, for the daemon writes to it.
fn config_of(case: &Value, daemon: &Daemon, folder: &Path) -> Value {
    let lowers = case["lowers"].as_array().unwrap().iter();
    let lowers = lowers.map(|lower| {
        let path = |name: &str| json!(located(name, daemon));
        match lower.as_str().unwrap().split_once('+') {
            Some((meta, target)) => json!({"file": path(meta), "targetFile": path(target)}),
            None => json!({"file": path(lower.as_str().unwrap())}),
        }
    });
    let mut config = json!({"lowers": lowers.collect::<Vec<_>>(), "unknown": 1});
    for key in ["data", "index"] {
        let Some(name) = case[key].as_str() else {
            continue;
        };
        let from = located(name, daemon);
        let to = folder.join(key);
        let paths = [&from, &to].map(|path| path.to_str().unwrap());
        // Holes are what a sparse upper is made of.
        succeeds(&[&["cp", "--sparse=always"], &paths[..]].concat());
        config["upper"][key] = json!(to);
    }
    config
}

#[test]
fn every_image_of_the_reference_is_served_with_its_content() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let cases = std::fs::read(fixtures().join("cases.json")).unwrap();
        let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
        unpack_sparse(&daemon);
        let mut served = 0;
        for case in &cases {
            let name = case["name"].as_str().unwrap();
            if OTHER_TESTS.contains(&name) {
                continue;
            }
            let folder = tempfile::tempdir_in(daemon.path("")).unwrap();
            let result = folder.path().join("result");
            let mut config = config_of(case, &daemon, folder.path());
            config["resultFile"] = json!(result);
            let spec = write_config(&folder.path().join("image.json"), &config);
            let device = daemon.create_with("case", &spec, &["--queues", "2"]);
            assert_eq!(sha256(&device), case["sha256"].as_str().unwrap(), "{name}");
            assert_eq!(std::fs::read_to_string(result).unwrap(), "success");
            daemon.ok(&["remove", "case"]);
            served += 1;
        }
        assert_eq!(served, cases.len() - OTHER_TESTS.len());
        // One upper's log needed a repair, and the daemon says so.
        let ended = daemon.terminate();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        let told = ended.log.lines().filter(|line| line.contains("WARN"));
        assert_eq!(told.count(), 1, "{}", ended.log);
    });
}

/// The tree of a mounted file system: `sha256:...` of each file, `dir`, `symlink -> target` of a symbolic link.
fn tree(root: &Path) -> std::collections::BTreeMap<String, String> {
    let mut tree = std::collections::BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
            let what = if kind.is_dir() {
                folders.push(path.clone());
                "dir".to_owned()
            } else if kind.is_symlink() {
                format!(
                    "symlink -> {}",
                    std::fs::read_link(&path).unwrap().display()
                )
            } else {
                format!("sha256:{}", sha256(&path))
            };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            tree.insert(name.to_owned(), what);
        }
    }
    tree
}

#[test]
fn a_file_system_in_two_layers_mounts_and_its_tree_is_right() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let expected = std::fs::read(fixtures().join("j_ext4/expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let lower = |name: &str| json!({"file": fixtures().join("j_ext4").join(name)});
        let config = json!({"lowers": [lower("ext4_l1.tar"), lower("ext4_l2.tar")]});
        let spec = write_config(&daemon.path("ext4.json"), &config);
        let device = daemon.create("ext4", &spec);
        assert_eq!(sha256(&device), expected["sha256"].as_str().unwrap());
        // Without an upper nobody writes, and whoever looks is told.
        let getro = succeeds(&["blockdev", "--getro", device.to_str().unwrap()]);
        assert_eq!(getro.trim(), "1");
        assert_eq!(daemon.see("/v1/devices/ext4")["read_only"], true);
        let mounted = daemon.path("mounted");
        std::fs::create_dir(&mounted).unwrap();
        // Its journal is clean; without `noload` the kernel would want to write all the same.
        succeeds(&[
            "mount",
            "-o",
            "ro,noload",
            device.to_str().unwrap(),
            mounted.to_str().unwrap(),
        ]);
        let found = json!(tree(&mounted));
        succeeds(&["umount", mounted.to_str().unwrap()]);
        assert_eq!(found, expected["tree"]);
        daemon.stop();
    });
}

/// A stack of two zstd layers and one that is plain, of 64 MiB; what it holds is in `base.raw`.
fn stack(daemon: &Daemon) -> Vec<PathBuf> {
    let raw = daemon.file("base.raw", 64);
    sh(&format!(
        "fio --minimal --name=base --filename={} --rw=randwrite --bsrange=4k-256k --size=64M --io_size=40M \
         --buffer_compress_percentage=60 --refill_buffers --randseed=3 --ioengine=psync",
        raw.display()
    ));
    let layer = |name: &str| daemon.path(name);
    let image = |words: &[&str]| {
        let program = binary();
        succeeds(&[&[program.to_str().unwrap(), "image"], words].concat())
    };
    let first = layer("first.obd");
    image(&[
        "import",
        raw.to_str().unwrap(),
        first.to_str().unwrap(),
        "--zfile",
        "zstd",
    ]);
    vec![first]
}

pub(crate) fn create_upper(daemon: &Daemon, name: &str, mode: &str, lowers: &[PathBuf]) -> String {
    let data = daemon.path(&format!("{name}.data"));
    let index = daemon.path(&format!("{name}.index"));
    let program = binary();
    let mut words = vec![
        program.to_str().unwrap(),
        "image",
        "create",
        data.to_str().unwrap(),
    ];
    let mut upper = json!({"data": data});
    if mode != "sparse" {
        words.push(index.to_str().unwrap());
        upper["index"] = json!(index);
    }
    words.extend(["--size", "64M", "--mode", mode]);
    succeeds(&words);
    let lowers = lowers.iter().map(|file| json!({"file": file}));
    let config = json!({"lowers": lowers.collect::<Vec<_>>(), "upper": upper});
    write_config(&daemon.path(&format!("{name}.json")), &config)
}

#[test]
fn verified_writes_to_uppers_over_a_compressed_stack() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let lowers = stack(&daemon);
        for mode in ["log", "hybrid", "sparse"] {
            let spec = create_upper(&daemon, mode, mode, &lowers);
            let device = daemon.create_with(mode, &spec, &["--queues", "2"]);
            assert_eq!(sha256(&device), sha256(&daemon.path("base.raw")), "{mode}");
            // Parts of blocks as well, so that a sparse upper has to copy up.
            sh(&format!(
                "fio --group_reporting --minimal --ioengine=libaio --rw=randwrite --verify=crc32c --verify_fatal=1 \
                 --do_verify=1 --randseed=7 --direct=1 --bsrange=512-256k --iodepth=16 --fsync=32 --size=48M --name={mode} \
                 --filename={}",
                device.display()
            ));
            let before = sha256(&device);
            let seen = daemon.see(&format!("/v1/devices/{mode}"));
            assert_eq!(seen["stats"]["errors"], 0, "{seen}");
            daemon.ok(&["remove", mode]);
            // Offline it is the same disk, and served again.
            let program = binary();
            let program = program.to_str().unwrap();
            let offline = succeeds(&[program, "image", "export", &spec, "--sha256"]);
            assert!(offline.contains(&before), "{mode}: {offline}");
            let again = daemon.create(mode, &spec);
            assert_eq!(sha256(&again), before, "{mode}");
            daemon.ok(&["remove", mode]);
        }
        daemon.stop();
    });
}

/// Blocks of 4 KiB that a writer has sent, and those of them that a flush has promised.
struct Writer {
    device: DirectIo,
    random: fastrand::Rng,
    progress: Progress,
}

/// Of each block, the number of the newest write; 0 is what was there before.
#[derive(Clone, Default)]
struct Progress {
    sent: Vec<u64>,
    promised: Vec<u64>,
    next: u64,
}

const BLOCKS: usize = 2048;
const BLOCK_BYTES: usize = 4096;

impl Writer {
    /// Writes until it is told to stop, or the device fails.
    fn write(&mut self, is_over: &AtomicBool) -> std::io::Result<()> {
        let progress = &mut self.progress;
        while !is_over.load(Ordering::Relaxed) {
            for _ in 0..self.random.u32(1..40) {
                let block = self.random.usize(0..BLOCKS);
                progress.next += 1;
                progress.sent[block] = progress.next;
                let stamps = progress.next.to_le_bytes().repeat(BLOCK_BYTES / 8);
                self.device
                    .write_bytes((block * BLOCK_BYTES) as u64, &stamps)?;
            }
            let sent = progress.sent.clone();
            self.device.flush()?;
            progress.promised = sent;
        }
        Ok(())
    }
}

impl Progress {
    /// Each block of the disk is whole, and at least what was promised of it.
    fn check(&mut self, disk: &[u8]) {
        for (block, bytes) in disk.chunks_exact(BLOCK_BYTES).take(BLOCKS).enumerate() {
            let (stamps, _) = bytes.as_chunks::<8>();
            let found = u64::from_le_bytes(stamps[0]);
            let is_whole = stamps.iter().all(|stamp| *stamp == stamps[0]);
            assert!(is_whole, "block {block} is torn");
            let possible = self.promised[block]..=self.sent[block];
            assert!(
                possible.contains(&found),
                "block {block} is {found}, not of {possible:?}"
            );
            self.sent[block] = found;
            self.promised[block] = found;
        }
    }
}

/// How many times the daemon is killed for each kind of upper.
fn kills() -> u64 {
    std::env::var("BLOCKYARD_ROUNDS")
        .ok()
        .map_or(3, |rounds| rounds.parse().unwrap())
}

/// Creates a device of the name of one that a crash has left, as soon as that one is removed.
pub(crate) fn create_after_crash(daemon: &Daemon, name: &str, spec: &str) -> PathBuf {
    eventually("what a crash left is removed", || {
        let ran = daemon.client(&["create", name, spec]);
        if ran.code == 0 {
            return Some(PathBuf::from(ran.stdout.trim()));
        }
        println!("{}", ran.refused(4, &["is being removed"]));
        None
    })
}

#[test]
fn what_was_flushed_survives_a_killed_daemon() {
    on_a_kernel(|| {
        let _expected = KernelExpects::lines_with("I/O error");
        let mut writes = Vec::new();
        for mode in ["log", "hybrid", "sparse"] {
            let mut daemon = Daemon::start();
            let spec = create_upper(&daemon, "upper", mode, &[]);
            let mut progress = Progress {
                sent: vec![0; BLOCKS],
                promised: vec![0; BLOCKS],
                next: 0,
            };
            for round in 0..kills() {
                let device = create_after_crash(&daemon, "upper", &spec);
                let mut writer = Writer {
                    device: DirectIo::open(&device),
                    random: fastrand::Rng::with_seed(round),
                    progress,
                };
                let is_over = Arc::new(AtomicBool::new(false));
                let told = Arc::clone(&is_over);
                let writing = std::thread::spawn(move || {
                    // It ends with an error, or because it is told to.
                    drop(writer.write(&told));
                    writer.progress
                });
                // The time that is written for; no event ends it.
                std::thread::park_timeout(Duration::from_millis(300 + 137 * (round % 5)));
                let scratch = daemon.crash();
                is_over.store(true, Ordering::Relaxed);
                // The next daemon ends what the kernel keeps of the last one.
                daemon = Setup::default().start_in(scratch);
                progress = writing.join().unwrap();
                assert!(progress.promised.iter().any(|write| *write > 0));
                let exported = daemon.path("exported");
                let program = binary();
                let words = [program.to_str().unwrap(), "image", "export", &spec];
                let output = ["--force", "--output", exported.to_str().unwrap()];
                succeeds(&[&words[..], &output].concat());
                progress.check(&std::fs::read(&exported).unwrap());
            }
            writes.push(format!("{} to a {mode} upper", progress.next));
            let ended = daemon.terminate();
            assert_eq!(ended.code, Some(0), "{}", ended.log);
        }
        println!(
            "figures: {} rounds of a kill in mid-write for each kind of upper; writes: {}",
            kills(),
            writes.join(", ")
        );
    });
}

/// The disk of a guest that lives in an upper: a file system is made, used, checked, and gives space back.
#[test]
fn a_file_system_on_an_upper_is_sound_and_gives_space_back() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        for mode in ["log", "sparse"] {
            let spec = create_upper(&daemon, mode, mode, &[]);
            let device = daemon.create(mode, &spec);
            let device = device.to_str().unwrap();
            let mounted = daemon.path(&format!("{mode}.mounted"));
            std::fs::create_dir(&mounted).unwrap();
            let mounted = mounted.to_str().unwrap();
            let data = daemon.path(&format!("{mode}.data"));
            let used_kib = || std::fs::metadata(&data).unwrap().blocks() / 2;
            sh(&format!(
                "mkfs.ext4 -q {device} && mount {device} {mounted}"
            ));
            sh(&format!(
                "dd if=/dev/urandom of={mounted}/a bs=1M count=24 status=none && cp {mounted}/a {mounted}/b && sync {mounted}/b"
            ));
            let full = used_kib();
            let sum = sh(&format!("sha256sum < {mounted}/b"));
            sh(&format!(
                "rm {mounted}/a && sync && fstrim {mounted} && sync"
            ));
            let after = used_kib();
            assert!(full > 48 << 10, "{mode}: {full} KiB");
            assert!(
                after < full - (22 << 10),
                "{mode}: {full} KiB, then {after} KiB"
            );
            sh(&format!("umount {mounted}"));
            daemon.ok(&["remove", mode]);
            daemon.create(mode, &spec);
            sh(&format!("e2fsck -fn {device} && mount {device} {mounted}"));
            assert_eq!(sh(&format!("sha256sum < {mounted}/b")), sum, "{mode}");
            sh(&format!("umount {mounted}"));
            daemon.ok(&["remove", mode]);
        }
        daemon.stop();
    });
}
