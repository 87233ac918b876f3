//! Every stack of the reference's `cases.json`, opened from files by a configuration, reads as the reference reads it.
//!
//! The groups whose layers are wrapped or compressed are read here through all formats at once.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test's fixtures are small and as they are; a panic is its failure"
)]

#[path = "../../overlaybd/tests/lsmt/exceptions.rs"]
mod exceptions;

use std::path::{Path, PathBuf};
use std::process::Command;

use block::Sectors;
use image::{ImageConfig, LostRecords, OpenOptions, ParentCheck, View};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use exceptions::{NOT_KEPT, REPAIRED, UNRELATED, WITHOUT_FILE};

/// Bytes of one read: no multiple of anything in the fixtures but of a sector.
const READ_BYTES: usize = 1021 * 512;
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlaybd/tests/fixtures")
}

fn run(command: &mut Command) {
    let status = command.status().expect("the program is installed");
    assert!(status.success(), "{command:?}");
}

/// The fixtures that need unpacking, in `scratch`: sparse files with their holes.
fn unpack(scratch: &Path) {
    let sparse = scratch.join("e_sparse");
    std::fs::create_dir(&sparse).unwrap();
    let archive = fixtures().join("e_sparse/sparse_files.tar");
    run(Command::new("tar")
        .args(["--sparse", "-xf"])
        .arg(archive)
        .arg("-C")
        .arg(&sparse));
    let sealed = std::fs::File::create(sparse.join("aligned4k_sealed.lsmt")).unwrap();
    run(Command::new("gzip")
        .arg("-dc")
        .arg(fixtures().join("e_sparse/aligned4k_sealed.lsmt.gz"))
        .stdout(sealed));
}

fn locate(scratch: &Path, name: &str) -> PathBuf {
    let unpacked = scratch.join(name);
    if unpacked.exists() {
        unpacked
    } else {
        fixtures().join(name)
    }
}

fn config(scratch: &Path, case: &Value) -> ImageConfig {
    let path = |name: &str| locate(scratch, name).to_str().unwrap().to_owned();
    let lowers: Vec<Value> = case["lowers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| match name.as_str().unwrap().split_once('+') {
            Some((meta, target)) => json!({"file": path(meta), "targetFile": path(target)}),
            None => json!({"file": path(name.as_str().unwrap())}),
        })
        .collect();
    let mut text = json!({"lowers": lowers});
    if let Some(data) = case["data"].as_str() {
        text["upper"] = json!({"data": path(data)});
        if let Some(index) = case["index"].as_str() {
            text["upper"]["index"] = json!(path(index));
        }
    }
    let text = text.to_string();
    ImageConfig::parse(Path::new("/case.json"), text.as_bytes()).unwrap()
}

fn sha256(view: &View) -> String {
    let mut digest = Sha256::new();
    let mut reader = view.reader().unwrap();
    let mut bytes = vec![0; READ_BYTES];
    let size = view.size().len_bytes().0;
    let mut at = 0;
    while at < size {
        let len = READ_BYTES.min(usize::try_from(size - at).unwrap());
        reader.read(Sectors(at / 512), &mut bytes[..len]).unwrap();
        digest.update(&bytes[..len]);
        at += len as u64;
    }
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check(name: &str, config: &ImageConfig, case: &Value) {
    let options = |parents, lost| OpenOptions { parents, lost };
    let strict = options(ParentCheck::Refuse, LostRecords::Refuse);
    let is_refused = UNRELATED.contains(&name) || REPAIRED.contains(&name);
    let opened = View::open(config, strict);
    assert_eq!(opened.is_err(), is_refused, "{name}: {:?}", opened.err());
    let lenient = options(ParentCheck::Ignore, LostRecords::Drop);
    let view = View::open(config, lenient).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let vsize = case["vsize"].as_u64().unwrap();
    assert_eq!(view.size().len_bytes().0, vsize, "{name}");
    let is_same = sha256(&view) == case["sha256"].as_str().unwrap();
    assert_eq!(is_same, !NOT_KEPT.contains(&name), "{name}");
}

#[test]
fn every_stack_reads_as_the_reference_reads_it() {
    let scratch = tempfile::tempdir().unwrap();
    unpack(scratch.path());
    let cases = std::fs::read(fixtures().join("cases.json")).unwrap();
    let cases: Value = serde_json::from_slice(&cases).unwrap();
    let mut without_file = Vec::new();
    let mut read = 0;
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        if case["group"] == "d_rw_rust" && case["index"].is_null() {
            without_file.push(name);
            continue;
        }
        check(name, &config(scratch.path(), case), case);
        read += 1;
    }
    assert_eq!(without_file, WITHOUT_FILE);
    assert_eq!(read, 75);
}

#[test]
fn each_damaged_file_is_refused_by_name_or_harmless() {
    let results = std::fs::read(fixtures().join("h_corrupt/results.json")).unwrap();
    let results: Value = serde_json::from_slice(&results).unwrap();
    let mut seen = 0;
    for result in results.as_array().unwrap() {
        let name = result["file"].as_str().unwrap();
        let path = fixtures().join("h_corrupt").join(name);
        let text = json!({"lowers": [{"file": path}]}).to_string();
        let config = ImageConfig::parse(Path::new("/case.json"), text.as_bytes()).unwrap();
        let options = OpenOptions {
            parents: ParentCheck::Refuse,
            lost: LostRecords::Refuse,
        };
        let outcome = View::open(&config, options).and_then(|view| {
            let mut reader = view.reader()?;
            let mut bytes = vec![0; 1 << 20];
            // A virtual size that is damaged need not be read to its end.
            for at in (0..view.size().0.min(1 << 16)).step_by(1 << 11) {
                reader.read(Sectors(at), &mut bytes)?;
            }
            Ok(())
        });
        let answer = result["right_answer"].as_str().unwrap();
        match &outcome {
            Err(error) => assert!(error.to_string().contains(name), "{name}: {error}"),
            Ok(()) => assert!(
                !answer.starts_with("reject") || answer.contains("undetectable"),
                "{name}: {answer}"
            ),
        }
        seen += 1;
    }
    assert_eq!(seen, 52);
}
