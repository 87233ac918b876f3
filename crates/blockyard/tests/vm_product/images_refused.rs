//! Promise: an image that cannot be served is refused with one clear line that names the file, and nothing stays behind; what is served
//! has one writer.

use std::path::Path;

use serde_json::{Value, json};

use crate::guest::{Daemon, Setup, binary, on_a_kernel, run, sh, succeeds};
use crate::images::{create_after_crash, create_upper, fixtures, write_config};
use crate::refused::{leaves_nothing, refuse_each};

/// The parent that a layer of the fixtures names and no layer has.
const UNKNOWN_UUID: &str = "0BD00BAD-0000-4000-8000-000000000BAD";

fn lower(name: &str) -> Value {
    json!({"file": fixtures().join(name)})
}

/// A configuration that must be refused, with exit code and words of the line.
type Refusal<'a> = (&'a str, String, i32, &'a [&'a str]);

fn refusals(folder: &Path) -> Vec<Refusal<'static>> {
    let noise = folder.join("noise");
    std::fs::write(&noise, [7; 8192]).unwrap();
    let [p0, p1, p2] = ["P0", "P1", "P2"].map(|name| lower(&format!("h_parent/{name}.lsmt")));
    let bottom = lower("b_stack4/L0.lsmt");
    let upper = json!({
        "data": fixtures().join("h_parent/upper_wrong_parent.data"),
        "index": fixtures().join("h_parent/upper_wrong_parent.index"),
    });
    let none = json!({"file": "/none/layer"});
    let of = |lowers: Value| json!({"lowers": lowers}).to_string();
    vec![
        (
            "missing",
            of(json!([bottom, none])),
            3,
            &["/none/layer", "does not exist"],
        ),
        (
            "order",
            of(json!([p0, p1])),
            2,
            &["order", "layer 1", "bottom first", UNKNOWN_UUID],
        ),
        (
            "many",
            of(json!(vec![&bottom; 256])),
            2,
            &["many", "256 lowers", "image merge"],
        ),
        (
            "noise",
            of(json!([{"file": noise}])),
            2,
            &["noise", "magic"],
        ),
        (
            "upper",
            json!({"lowers": [p2], "upper": upper}).to_string(),
            2,
            &["upper_wrong_parent.data", "parent"],
        ),
        (
            "empty",
            of(json!([])),
            2,
            &["empty", "neither lowers nor an upper"],
        ),
        (
            "folder",
            of(json!([{"file": folder}])),
            2,
            &["is a directory"],
        ),
        (
            "syntax",
            "{\"lowers\": [".to_owned(),
            2,
            &["syntax", "line 1"],
        ),
        ("nothing", String::new(), 2, &["nothing"]),
    ]
}

#[test]
fn images_that_cannot_be_served() {
    on_a_kernel(|| {
        leaves_nothing(Daemon::start(), |daemon| {
            let scratch = tempfile::tempdir().unwrap();
            for (name, config, code, words) in refusals(scratch.path()) {
                let file = scratch.path().join(name);
                std::fs::write(&file, config).unwrap();
                let spec = format!("overlaybd:{}", file.display());
                refuse_each(daemon, &[(&spec, &[], code, words)]);
            }
            let sized = json!({"lowers": [lower("b_stack4/L0.lsmt")]});
            let sized = write_config(&scratch.path().join("sized"), &sized);
            refuse_each(
                daemon,
                &[
                    ("overlaybd:/none/image.json", &[], 3, &["/none/image.json"]),
                    // Its layers say how large it is.
                    (&sized, &["--size", "1G"], 2, &["size"]),
                ],
            );
        });
    });
}

/// Layers of several sizes are one disk, as large as the top one says.
#[test]
fn layers_of_several_sizes_are_served_as_large_as_the_top_one() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        for (name, mib) in [("small", 8), ("large", 24)] {
            let raw = daemon.file(&format!("{name}.raw"), mib);
            sh(&format!(
                "dd if=/dev/urandom of={} bs=1M count={mib} conv=notrunc status=none",
                raw.display()
            ));
            let layer = daemon.path(&format!("{name}.layer"));
            let program = binary();
            let words = [
                &*program,
                Path::new("image"),
                Path::new("import"),
                &raw,
                &layer,
            ];
            succeeds(&words.map(|word| word.to_str().unwrap()));
        }
        for (lowers, mib) in [(["small", "large"], 24_u64), (["large", "small"], 8)] {
            let files = lowers.map(|name| json!({"file": daemon.path(&format!("{name}.layer"))}));
            let spec = write_config(&daemon.path("mixed.json"), &json!({"lowers": files}));
            let device = daemon.create("mixed", &spec);
            let size = succeeds(&["blockdev", "--getsize64", device.to_str().unwrap()]);
            assert_eq!(size.trim(), (mib << 20).to_string(), "{lowers:?}");
            succeeds(&[
                "cmp",
                device.to_str().unwrap(),
                daemon.path(&format!("{}.raw", lowers[1])).to_str().unwrap(),
            ]);
            daemon.ok(&["remove", "mixed"]);
        }
        daemon.stop();
    });
}

#[test]
fn an_upper_has_one_owner() {
    on_a_kernel(|| {
        let other = Daemon::start();
        let theirs = create_upper(&other, "theirs", "log", &[]);
        other.create("theirs", &theirs);
        leaves_nothing(Daemon::start(), |daemon| {
            let in_use = ["in use by another device or process", "lslocks"];
            for mode in ["log", "sparse"] {
                let spec = create_upper(daemon, mode, mode, &[]);
                daemon.create("one", &spec);
                let file = spec.trim_start_matches("overlaybd:");
                let copy = daemon.path("copy.json").display().to_string();
                succeeds(&["cp", file, &copy]);
                let copy = format!("overlaybd:{copy}");
                let raw = format!("raw:{}", daemon.path(&format!("{mode}.data")).display());
                refuse_each(
                    daemon,
                    &[
                        (&copy, &[], 4, &in_use),
                        (&copy, &["--read-only"], 4, &in_use),
                        (&raw, &[], 4, &["in use"]),
                        (&theirs, &[], 4, &in_use),
                        (&theirs, &["--read-only"], 4, &in_use),
                    ],
                );
                daemon.ok(&["remove", "one"]);
                // Served read-only, it is shared with readers and has no writer.
                daemon.ok(&["create", "one", &spec, "--read-only"]);
                daemon.ok(&["create", "two", &copy, "--read-only"]);
                refuse_each(daemon, &[(&spec, &[], 4, &in_use)]);
                daemon.ok(&["remove", "one", "two"]);
            }
        });
        // The lock of a process that was killed is nobody's.
        let scratch = other.crash();
        // The next daemon ends what the kernel keeps of the last one.
        let daemon = Setup::default().start_in(scratch);
        create_after_crash(&daemon, "theirs", &theirs);
        daemon.ok(&["remove", "theirs"]);
        let ended = daemon.terminate();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
    });
}

/// What cannot be written to is served read-only on demand, and refused otherwise.
#[test]
fn an_upper_in_a_directory_that_is_read_only() {
    on_a_kernel(|| {
        leaves_nothing(Daemon::start(), |daemon| {
            let spec = create_upper(daemon, "upper", "log", &[]);
            let here = daemon.path("");
            let there = daemon.path("there");
            std::fs::create_dir(&there).unwrap();
            let (here, there) = (here.display(), there.display());
            sh(&format!(
                "mount --bind {here} {there} && mount -o remount,bind,ro {there}"
            ));
            let text = std::fs::read_to_string(spec.trim_start_matches("overlaybd:")).unwrap();
            let text = text.replace(&here.to_string(), &format!("{there}/"));
            let config = daemon.path("protected.json");
            std::fs::write(&config, text).unwrap();
            let protected = format!("overlaybd:{}", config.display());
            refuse_each(
                daemon,
                &[(&protected, &[], 7, &["upper.data", "read-only"])],
            );
            daemon.ok(&["create", "dev", &protected, "--read-only"]);
            daemon.ok(&["remove", "dev"]);
            // Nor is there place for a new file.
            let program = binary();
            let output = format!("{there}/layer");
            let words = [program.to_str().unwrap(), "image", "commit", &spec, &output];
            run(&words).refused(7, &["there", "read-only"]);
            sh(&format!("umount {there}"));
        });
    });
}

/// A commit over an older layer that finds no room leaves that one, and nothing of its own.
#[test]
fn a_commit_without_room_leaves_the_old_layer() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let spec = create_upper(&daemon, "upper", "log", &[]);
        let device = daemon.create("dev", &spec);
        let device = device.to_str().unwrap();
        sh(&format!(
            "dd if=/dev/urandom of={device} bs=1M count=1 oflag=direct status=none"
        ));
        daemon.ok(&["remove", "dev"]);
        let full = daemon.path("full");
        std::fs::create_dir(&full).unwrap();
        let full = full.display().to_string();
        sh(&format!("mount -t tmpfs -o size=2M none {full}"));
        let layer = format!("{full}/layer");
        let program = binary();
        let commit = ["image", "commit", &spec, &layer, "--force"];
        let commit = [&[program.to_str().unwrap()], &commit[..]].concat();
        succeeds(&commit);
        let before = sh(&format!("sha256sum {layer}; ls -A {full}"));
        // The old one and a new one do not fit.
        let size = [
            "conv=notrunc",
            "seek=1",
            "bs=1M",
            "count=2",
            "if=/dev/urandom",
        ];
        let device = daemon.create("dev", &spec);
        sh(&format!(
            "dd of={} {} oflag=direct status=none",
            device.display(),
            size.join(" ")
        ));
        daemon.ok(&["remove", "dev"]);
        run(&commit).refused(9, &["layer", "No space left"]);
        assert_eq!(sh(&format!("sha256sum {layer}; ls -A {full}")), before);
        sh(&format!("umount {full}"));
        daemon.stop();
    });
}
