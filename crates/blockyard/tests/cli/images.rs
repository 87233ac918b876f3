//! `blockyard image`: right answers on the reference's files, and one clear line for everything that cannot be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Run, blockyard, run};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlaybd/tests/fixtures");
    path.join(name).to_str().unwrap().to_owned()
}

fn image(arguments: &[&str]) -> Run {
    run(blockyard(&[&["image"], arguments].concat()))
}

/// A configuration in a scratch directory.
fn config(scratch: &TempDir, name: &str, content: &Value) -> String {
    let path = scratch.path().join(name);
    fs::write(&path, content.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn lowers(names: &[&str]) -> Value {
    let files = names.iter().map(|name| json!({"file": fixture(name)}));
    json!({ "lowers": files.collect::<Vec<_>>() })
}

const STACK: [&str; 4] = [
    "b_stack4/L0.lsmt",
    "b_stack4/L1.lsmt",
    "b_stack4/L2.lsmt",
    "b_stack4/L3.lsmt",
];

fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_digest_of_an_image_is_the_references() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(&scratch, "image.json", &lowers(&STACK));
    let expected = fs::read(fixture("b_stack4/expected_L0..L3.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let want = format!("{}\n", expected["sha256"].as_str().unwrap());
    for name in [config.clone(), format!("overlaybd:{config}")] {
        assert_eq!(image(&["export", &name, "--sha256"]).ok(), want);
    }
    // The bytes themselves, on standard output and in a file.
    let raw = scratch.path().join("raw").to_str().unwrap().to_owned();
    image(&["export", &config, "--output", &raw]).ok();
    let stdout = blockyard(&["image", "export", &config]).output().unwrap();
    assert!(stdout.stdout == fs::read(&raw).unwrap());
    // A reader that has seen enough is no failure, and a device is no place for a new file.
    let mut piped = Command::new("bash");
    piped.args([
        "-o",
        "pipefail",
        "-c",
        r#""$0" image export "$1" | head -c 1 > /dev/null"#,
    ]);
    piped.args([env!("CARGO_BIN_EXE_blockyard"), &config]);
    run(piped).ok();
    image(&["export", &config, "--output", "/dev/null", "--force"]).refused(2);
    let line = image(&["export", &config, "--output", &raw]).refused(4);
    assert!(line.contains("raw exists already"), "{line}");
}

#[test]
fn records_are_listed_as_the_reference_lists_them() {
    for (layer, index) in [
        ("a_single/single.lsmt", "a_single/single.index.txt"),
        (
            "a_single_bigzero/bigzero_niluuid.lsmt",
            "a_single_bigzero/index.txt",
        ),
        ("c_longdata/long_lz4.zfile", "c_longdata/index.txt"),
    ] {
        let listed = image(&["records", &fixture(layer)]).ok();
        // The padding is listed there too; it is no record.
        let text = fs::read_to_string(fixture(index)).unwrap();
        let want: Vec<_> = text
            .lines()
            .filter(|line| *line != "1125899906842623 0 0 0 0")
            .collect();
        assert_eq!(listed.lines().collect::<Vec<_>>(), want, "{layer}");
    }
}

#[test]
fn layers_are_described_and_checked() {
    let zfile = fixture("c_zfile/merged_zstd_bs16384_crc1_hdr0.zfile");
    let info = image(&["info", &zfile, "--json"]);
    let facts = &info.json()["layers"][0];
    assert_eq!(facts["form"]["algorithm"], "zstd", "{facts}");
    assert_eq!(facts["form"]["block_bytes"], 16384, "{facts}");
    assert_eq!(facts["layer"]["virtual_bytes"], 4 << 20, "{facts}");
    let text = image(&["info", &zfile]).ok();
    assert!(
        text.contains("zstd") && text.contains("with checksums"),
        "{text}"
    );
    assert!(image(&["verify", &zfile]).ok().contains("0 findings"));
    let plain = image(&["verify", &fixture(STACK[0])]).ok();
    assert!(plain.contains("cannot be seen"), "{plain}");
    let damaged = image(&["verify", &fixture("h_corrupt/zfile_block_crc.zfile")]);
    assert_eq!(damaged.code, 2, "{damaged:?}");
    assert!(damaged.stdout.contains("damaged: "), "{damaged:?}");
    assert!(damaged.stdout.contains("block checksum"), "{damaged:?}");
}

#[test]
fn an_image_is_made_from_nothing_to_a_wrapped_layer() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (data, index) = (path("u.data"), path("u.index"));
    image(&["create", &data, &index, "--size", "4M"]).ok();
    image(&["resize", &data, "--index", &index, "--size", "6M"]).ok();
    let upper = json!({"lowers": lowers(&STACK)["lowers"], "upper": {"data": "u.data", "index": "u.index"}});
    let config = config(&scratch, "image.json", &upper);
    let info = image(&["info", &config, "--json"]).json();
    assert_eq!(info["disk_bytes"], 6 << 20, "{info}");
    image(&[
        "commit",
        &config,
        &path("committed"),
        "--uuid",
        "0BD00009-0000-4000-8000-000000000009",
    ])
    .ok();
    let committed = image(&["info", &path("committed"), "--json"]).json();
    let layer = &committed["layers"][0]["layer"];
    assert_eq!(layer["virtual_bytes"], 6 << 20, "{layer}");
    // It belongs on the top lower.
    let parent = layer["parent_uuid"].as_str().unwrap();
    assert!(
        parent.eq_ignore_ascii_case("0BD00067-0000-4000-8000-000000000067"),
        "{layer}"
    );
    let flat = path("flat.tar");
    image(&[
        "merge",
        &config,
        &flat,
        "--flatten",
        "--zfile",
        "zstd",
        "--tar",
    ])
    .ok();
    let alone = self::config(&scratch, "flat.json", &json!({"lowers": [{"file": flat}]}));
    let digest = |name: &str| image(&["export", name, "--sha256"]).ok();
    assert_eq!(digest(&alone), digest(&config));
    image(&["export", &config, "--output", &path("raw")]).ok();
    image(&["import", &path("raw"), &path("imported")]).ok();
    image(&[
        "compress",
        &path("imported"),
        &path("z"),
        "--zfile",
        "lz4",
        "--block-size",
        "65536",
    ])
    .ok();
    image(&["decompress", &path("z"), &path("back")]).ok();
    assert!(fs::read(path("back")).unwrap() == fs::read(path("imported")).unwrap());
    image(&["seal", &config]).ok();
    let sealed = image(&["info", &data, "--json"]).json();
    assert_eq!(
        sealed["layers"][0]["layer"]["virtual_bytes"],
        6 << 20,
        "{sealed}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn what_cannot_be_is_one_line_with_its_object() {
    let scratch = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &Value| config(&scratch, name, content);
    let missing = write(
        "missing.json",
        &json!({"lowers": [{"file": "/nonexistent/layer"}]}),
    );
    let order = write("order.json", &lowers(&[STACK[0], STACK[2]]));
    let many = write("many.json", &lowers(&[STACK[0]; 256]));
    let no_image = write(
        "no.json",
        &json!({"lowers": [{"file": fixture("MANIFEST.md")}]}),
    );
    let broken = scratch
        .path()
        .join("broken.json")
        .to_str()
        .unwrap()
        .to_owned();
    fs::write(&broken, "{nonsense").unwrap();
    let wrong_parent = write(
        "parent.json",
        &json!({
            "lowers": lowers(&["h_parent/P0.lsmt"])["lowers"],
            "upper": {
                "data": fixture("h_parent/upper_wrong_parent.data"),
                "index": fixture("h_parent/upper_wrong_parent.index"),
            },
        }),
    );
    let ahead = write(
        "ahead.json",
        &json!({"upper": {"data": fixture("d_rw/index_ahead.data"), "index": fixture("d_rw/index_ahead.index")}}),
    );
    let output = scratch.path().join("out").to_str().unwrap().to_owned();
    let before = names_in(scratch.path());
    let cases: [(&[&str], i32, &[&str]); 13] = [
        (
            &["export", &missing, "--sha256"],
            3,
            &["/nonexistent/layer"],
        ),
        (
            &["export", &order, "--sha256"],
            2,
            &["0BD00065", "0BD00064", "bottom first"],
        ),
        (
            &["merge", &many, &output],
            2,
            &["256 lowers", "at most 255"],
        ),
        (
            &["merge", &no_image, &output],
            2,
            &["MANIFEST.md", "neither ZFile nor LSMT"],
        ),
        (
            &["export", &broken, "--sha256"],
            2,
            &["broken.json", "not a valid configuration"],
        ),
        (
            &["export", &wrong_parent, "--sha256"],
            2,
            &["upper_wrong_parent.data", "--ignore-parent"],
        ),
        (&["export", &ahead, "--sha256"], 2, &["index_ahead.index"]),
        (
            &["export", "/nonexistent.json", "--sha256"],
            3,
            &["/nonexistent.json"],
        ),
        (&["commit", &order, &output], 2, &["0BD00065"]),
        (
            &["create", &output, "--size", "1M"],
            2,
            &["two files", "--mode sparse"],
        ),
        (
            &[
                "compress",
                &fixture(STACK[0]),
                &output,
                "--block-size",
                "1000",
            ],
            2,
            &["1000", "power of two"],
        ),
        (&["import", &broken, &output], 2, &["broken.json", "sector"]),
        (
            &["import", &fixture(STACK[0]), "/nonexistent/out"],
            3,
            &["/nonexistent", "directory"],
        ),
    ];
    for (arguments, code, words) in cases {
        let line = image(arguments).refused(code);
        for word in words {
            assert!(line.contains(word), "{word:?} is not in: {line}");
        }
    }
    image(&["export", &order, "--sha256", "--ignore-parent"]).ok();
    image(&["export", &wrong_parent, "--sha256", "--ignore-parent"]).ok();
    image(&["export", &ahead, "--sha256", "--drop-lost-records"]).ok();
    assert_eq!(names_in(scratch.path()), before);
}

#[test]
fn an_upper_in_use_and_a_full_disk_leave_everything_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (data, index) = (path("u.data"), path("u.index"));
    image(&["create", &data, &index, "--size", "4M"]).ok();
    let holder = fs::File::open(&data).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockShared).unwrap();
    let upper = ["--index", &index];
    for arguments in [&["seal", &data][..], &["resize", &data, "--size", "8M"]] {
        let line = image(&[arguments, &upper].concat()).refused(4);
        assert!(line.contains("u.data is in use"), "{line}");
    }
    drop(holder);
    let old = path("old");
    fs::write(&old, "an earlier layer").unwrap();
    let before = names_in(scratch.path());
    // A file may have 64 KiB: as if the file system were full. The signal that comes with it is ignored.
    let line = {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"trap "" XFSZ; ulimit -f 128; exec "$@""#, "sh"])
            .arg(env!("CARGO_BIN_EXE_blockyard"))
            .args(["image", "import", "--force"])
            .arg(PathBuf::from(fixture(STACK[0])))
            .arg(&old);
        run(command).refused(9)
    };
    assert!(line.contains("old"), "{line}");
    assert_eq!(fs::read_to_string(&old).unwrap(), "an earlier layer");
    assert_eq!(names_in(scratch.path()), before);
}

#[test]
fn the_session_of_the_documentation_works_line_by_line() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images.md");
    let documentation = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    assert!(lines.len() > 5);
    let scratch = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_blockyard"));
    let folder = binary.parent().unwrap().to_str().unwrap();
    let path = std::env::var("PATH").unwrap();
    for line in lines {
        let mut command = Command::new("bash");
        command
            .args(["-c", line])
            .env("PATH", format!("{folder}:{path}:/usr/sbin:/sbin"))
            .current_dir(scratch.path());
        let ran = run(command);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line}: {ran:?}");
    }
}
