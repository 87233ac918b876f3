//! Promise: what cannot be served is refused with one clear line and the documented exit code, and nothing stays behind.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::guest::{Daemon, Setup, char_devices, eventually, on_a_kernel, run, sh, succeeds};

/// Runs `refusals` against a daemon; its open files, its threads and the kernel's devices must be the same afterwards.
pub(crate) fn leaves_nothing(daemon: Daemon, refusals: impl FnOnce(&Daemon)) {
    // Threads for blocking calls come and go: the first calls make the first of them.
    let _ = daemon.client(&["create", "first", "raw:/nonexistent"]);
    let links = || fs::read_dir("/dev/blockyard").unwrap().count();
    let (devices, files, links_before) = (char_devices(), daemon.open_files(), links());
    refusals(&daemon);
    assert_eq!(char_devices(), devices);
    eventually("the daemon closes what it opened", || {
        (daemon.open_files() == files).then_some(())
    });
    assert_eq!(daemon.names(), [""; 0]);
    assert_eq!(links(), links_before);
    // A user's mistake is one line of the log, and no error.
    let ended = daemon.terminate();
    let told: Vec<_> = ended
        .log
        .lines()
        .filter(|line| line.contains("device=first"))
        .collect();
    assert!(
        matches!(told[..], [line] if line.contains("WARN") && line.contains("create refused")),
        "{}",
        ended.log
    );
}

/// A file of that many bytes.
fn file(directory: &Path, name: &str, bytes: u64) -> String {
    let path = directory.join(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path.display().to_string()
}

/// A spec that must be refused, with options, exit code and words of the line.
pub(crate) type Case<'a> = (&'a str, &'a [&'a str], i32, &'a [&'a str]);

pub(crate) fn refuse_each(daemon: &Daemon, cases: &[Case<'_>]) {
    for (spec, options, code, words) in cases {
        let ran = daemon.client(&[&["create", "dev", spec], *options].concat());
        println!("{}", ran.refused(*code, words));
    }
}

#[test]
fn files_that_cannot_back_a_device() {
    on_a_kernel(|| {
        leaves_nothing(Daemon::start(), |daemon| {
            let scratch = tempfile::tempdir().unwrap();
            let dir = scratch.path().display().to_string();
            sh(&format!(
                "cd {dir}; mkfifo fifo; ln -s a b; ln -s b a; truncate -s 1M good; touch empty; truncate -s 1000 odd"
            ));
            let raw = |name: &str| format!("raw:{dir}/{name}");
            refuse_each(
                daemon,
                &[
                    (
                        &raw("none"),
                        &[],
                        3,
                        &["none", "does not exist", "truncate"],
                    ),
                    (&raw(""), &[], 2, &["is a directory"]),
                    ("raw:/dev/null", &[], 2, &["/dev/null", "neither"]),
                    (&raw("fifo"), &[], 2, &["fifo", "neither"]),
                    (&raw("a"), &[], 2, &["symbolic links"]),
                    (&raw("good/below"), &[], 2, &["below", "no directory"]),
                    (&raw("good/"), &[], 2, &["no directory"]),
                    (&raw(&"n".repeat(300)), &[], 2, &["too long"]),
                    ("raw:/proc/version", &["--read-only"], 2, &["neither"]),
                    (&raw("empty"), &[], 2, &["is empty", "--size"]),
                    (&raw("odd"), &[], 2, &["1000 bytes", "multiple of 512"]),
                    (
                        &raw("good"),
                        &["--size", "512K"],
                        2,
                        &["more than the asked size", "nothing is cut off"],
                    ),
                    (
                        &raw("good"),
                        &["--size", "2M", "--read-only"],
                        2,
                        &["cannot grow", "read-only"],
                    ),
                    // The client makes a path absolute: the daemon has another directory.
                    ("raw:relative", &[], 3, &["/relative", "does not exist"]),
                ],
            );
        });
    });
}

/// A file that was extended for a device that could not be created stayed so.
#[test]
fn a_file_that_was_extended_in_vain_is_as_long_as_before() {
    on_a_kernel(|| {
        leaves_nothing(Daemon::start(), |daemon| {
            let image = daemon.file("short.img", 1);
            let spec = format!("raw:{}", image.display());
            let len = || fs::metadata(&image).unwrap().len();
            daemon
                .client(&["create", "long", &spec, "--size", "8M", "--queues", "64"])
                .refused(9, &["64 queues"]);
            assert_eq!(len(), 1 << 20);
            daemon.ok(&["create", "long", &spec, "--size", "8M"]);
            daemon.ok(&["remove", "long"]);
            // One that lived keeps its size.
            assert_eq!(len(), 8 << 20);
        });
    });
}

/// What a second name, a second node or a loop device reaches is still the same disk.
#[test]
fn disks_that_cannot_back_a_device() {
    on_a_kernel(|| {
        leaves_nothing(Daemon::start(), |daemon| {
            let image = daemon.file("disk.img", 8);
            let file = image.to_str().unwrap();
            let raw = |path: &str| format!("raw:{path}");
            let protected = succeeds(&["losetup", "-r", "-f", "--show", file]);
            let protected = protected.trim();
            daemon
                .client(&["create", "dev", &raw(protected)])
                .refused(7, &["read-only", "--read-only"]);
            daemon
                .client(&["create", "dev", &raw(file)])
                .refused(4, &["behind loop device", protected, "losetup -d"]);
            // Nobody writes: both may read.
            daemon.ok(&["create", "disk", &raw(protected), "--read-only"]);
            daemon.ok(&["create", "file", &raw(file), "--read-only"]);
            daemon.ok(&["remove", "disk", "file"]);
            succeeds(&["losetup", "-d", protected]);

            let disk = succeeds(&["losetup", "-f", "--show", file]);
            let disk = disk.trim();
            for options in [&[][..], &["--read-only"]] {
                let spec = raw(file);
                let words = [&["create", "dev", &spec], options].concat();
                daemon
                    .client(&words)
                    .refused(4, &["behind loop device", disk]);
            }
            daemon.ok(&["create", "disk", &raw(disk)]);
            // Another node of the same disk.
            let node = daemon.path("node").display().to_string();
            let minor = disk.trim_start_matches("/dev/loop");
            succeeds(&["mknod", &node, "b", "7", minor]);
            let in_use = ["in use", "one device at a time"];
            for path in [disk, &node] {
                for options in [&[][..], &["--read-only"]] {
                    let spec = raw(path);
                    let words = [&["create", "dev", &spec], options].concat();
                    daemon.client(&words).refused(4, &in_use);
                }
            }
            daemon.ok(&["remove", "disk"]);
            // Mounted, it changes below a reader.
            let mnt = daemon.path("mnt").display().to_string();
            fs::create_dir(&mnt).unwrap();
            succeeds(&["mke2fs", "-q", "-t", "ext4", disk]);
            succeeds(&["mount", disk, &mnt]);
            daemon
                .client(&["create", "dev", &raw(disk), "--read-only"])
                .refused(4, &in_use);
            succeeds(&["umount", &mnt]);
            succeeds(&["losetup", "-d", disk]);
        });
    });
}

#[test]
fn specs_and_sizes_that_cannot_be_served() {
    on_a_kernel(|| {
        leaves_nothing(Daemon::start(), |daemon| {
            let image = daemon.file("good.img", 1);
            let good = format!("raw:{}", image.display());
            refuse_each(
                daemon,
                &[
                    (&good, &["--size", "1000"], 2, &["1000", "512"]),
                    (&good, &["--size", "0"], 2, &["size 0"]),
                    ("null:0", &[], 2, &["size 0"]),
                    ("null:1000", &[], 2, &["512"]),
                    ("null:", &[], 2, &["null"]),
                    ("null:99999999999T", &[], 2, &["null"]),
                    ("raw:", &[], 2, &["path"]),
                    ("overlaybd:", &[], 2, &["path"]),
                    ("nothing", &[], 2, &["unknown spec", "nothing"]),
                    ("", &[], 2, &["unknown spec"]),
                    (
                        "null:1M",
                        &["--queues", "64"],
                        9,
                        &["64 queues", "one per CPU"],
                    ),
                ],
            );
        });
    });
}

#[test]
fn names_and_arguments_that_cannot_be_used() {
    on_a_kernel(|| {
        leaves_nothing(Daemon::start(), |daemon| {
            let long = "n".repeat(64);
            for name in ["a/b", "..", ".hidden", "", " ", "a b", "ü", "-x", &long] {
                let ran = daemon.client(&["create", "--", name, "null:1M"]);
                let word = if name.is_empty() { "NAME" } else { "name" };
                println!("{}", ran.refused(2, &[word]));
            }
            let cases: [(&[&str], i32, &str); 8] = [
                (&["create", "a"], 2, "SPEC"),
                (&["create", "a", "null:1M", "--queues", "0"], 2, "queues"),
                (&["create", "a", "null:1M", "--depth", "100000"], 2, "depth"),
                (&["create", "a", "null:1M", "--size", "8GB"], 2, "8GB"),
                (&["inspect", "none"], 3, "no device none"),
                (&["remove", "none"], 3, "no device none"),
                (&["remove"], 2, "--all"),
                (&["frobnicate"], 2, "frobnicate"),
            ];
            for (words, code, word) in cases {
                println!("{}", daemon.client(words).refused(code, &[word]));
            }
            // A name that is taken, by another request.
            daemon.create("taken", "null:1M");
            assert_eq!(
                daemon.create("taken", "null:1M"),
                daemon.create("taken", "null:1M")
            );
            daemon
                .client(&["create", "taken", "null:2M"])
                .refused(4, &["taken", "spec"]);
            daemon
                .client(&["create", "taken", "null:1M", "--depth", "2"])
                .refused(4, &["depth"]);
            daemon.ok(&["remove", "taken"]);
        });
    });
}

#[test]
fn a_file_has_one_writer_whoever_it_is() {
    on_a_kernel(|| {
        let other = Daemon::start();
        let served_elsewhere = other.file("theirs.img", 1);
        other.create("theirs", &format!("raw:{}", served_elsewhere.display()));
        leaves_nothing(Daemon::start(), |daemon| {
            let image = daemon.file("one.img", 1);
            let spec = format!("raw:{}", image.display());
            let in_use = ["in use by another device or process", "lslocks"];
            daemon.create("one", &spec);
            daemon.client(&["create", "two", &spec]).refused(4, &in_use);
            daemon
                .client(&["create", "two", &spec, "--read-only"])
                .refused(4, &in_use);
            let theirs = format!("raw:{}", served_elsewhere.display());
            daemon
                .client(&["create", "two", &theirs])
                .refused(4, &in_use);
            let link = daemon.path("link.img");
            symlink(&image, &link).unwrap();
            daemon
                .client(&["create", "two", &format!("raw:{}", link.display())])
                .refused(4, &in_use);
            let locked = daemon.file("locked.img", 1);
            let spec = format!("raw:{}", locked.display());
            let holder = File::open(&locked).unwrap();
            flock(&holder, FlockOperation::LockShared).unwrap();
            daemon.client(&["create", "two", &spec]).refused(4, &in_use);
            drop(holder);
            daemon.create("two", &spec);
            // A block device that is mounted.
            let below = daemon.file("below.img", 8);
            let mnt = daemon.path("mnt");
            fs::create_dir(&mnt).unwrap();
            let (below, mnt) = (below.to_str().unwrap(), mnt.to_str().unwrap());
            succeeds(&["mke2fs", "-q", "-t", "ext4", below]);
            succeeds(&["mount", "-o", "loop", below, mnt]);
            let source = succeeds(&["findmnt", "-no", "SOURCE", mnt]);
            daemon
                .client(&["create", "three", &format!("raw:{}", source.trim())])
                .refused(4, &["mounted or in use", "findmnt"]);
            succeeds(&["umount", mnt]);
            daemon.ok(&["remove", "--all"]);
            drop((run(&["rm", below]), image));
        });
        drop(other);
    });
}

#[test]
fn users_without_permission() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let directory = daemon.path("");
        succeeds(&["chmod", "755", directory.to_str().unwrap()]);
        let nobody = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ];
        let line = daemon
            .client_as(&nobody, &["list"])
            .refused(7, &["blockyard.sock"]);
        println!("{line}");
        daemon
            .client_as(&nobody, &["create", "a", "null:1M"])
            .refused(7, &["blockyard.sock"]);
        // A member of the socket's group may.
        let member = ["setpriv", "--reuid=65534", "--regid=0", "--clear-groups"];
        assert_eq!(daemon.client_as(&member, &["list"]).code, 0);
        daemon.stop();

        // A daemon that may not do everything: root, but without the power over other users' files.
        let setup = Setup {
            prefix: [
                "setpriv",
                "--bounding-set",
                "-dac_override,-dac_read_search",
                "--inh-caps",
                "-dac_override,-dac_read_search",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Setup::default()
        };
        let scratch = tempfile::tempdir().unwrap();
        let secret = file(scratch.path(), "secret", 1 << 20);
        succeeds(&["chown", "65534", &secret]);
        succeeds(&["chmod", "0600", &secret]);
        leaves_nothing(setup.start(), |daemon| {
            let ran = daemon.client(&["create", "dev", &format!("raw:{secret}")]);
            println!(
                "{}",
                ran.refused(7, &["secret", "may not be opened", "mode and owner"])
            );
        });
    });
}
