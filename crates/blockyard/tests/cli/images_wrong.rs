//! `blockyard image`: nothing that is read is destroyed, and arguments that contradict each other are refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::{Run, blockyard, run};

/// A folder with a layer, a log upper with data over it, and their image.
struct Scratch(TempDir);

fn image(arguments: &[&str]) -> Run {
    run(blockyard(&[&["image"], arguments].concat()))
}

impl Scratch {
    fn new() -> Self {
        let scratch = Self(tempfile::tempdir().unwrap());
        fs::write(scratch.file("raw"), [7; 1 << 16]).unwrap();
        image(&["import", &scratch.file("raw"), &scratch.file("base")]).ok();
        let (data, index) = (scratch.file("data"), scratch.file("index"));
        image(&["create", &data, &index, "--size", "64K"]).ok();
        let config =
            json!({"lowers": [{"file": "base"}], "upper": {"data": "data", "index": "index"}});
        fs::write(scratch.file("image.json"), config.to_string()).unwrap();
        scratch
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// What every file holds.
    fn content(&self) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut content: Vec<_> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| (path.display().to_string(), fs::read(path).unwrap()))
            .collect();
        content.sort();
        content
    }

    /// Each must be refused with the code and the words, and change nothing.
    fn refuses(&self, cases: &[(&[&str], i32, &[&str])]) {
        let before = self.content();
        for (arguments, code, words) in cases {
            let line = image(arguments).refused(*code);
            for word in *words {
                assert!(line.contains(word), "{word:?} is not in: {line}");
            }
        }
        assert!(self.content() == before);
    }
}

/// `commit image.json upper.data --force` replaced the upper by what was committed of it.
#[test]
fn a_new_file_never_takes_the_place_of_what_it_is_made_from() {
    let scratch = Scratch::new();
    let [config, base, data, index, raw] =
        ["image.json", "base", "data", "index", "raw"].map(|name| scratch.file(name));
    let (link, hard) = (scratch.file("link"), scratch.file("hard"));
    symlink(&base, &link).unwrap();
    fs::hard_link(&data, &hard).unwrap();
    let words: &[&str] = &["made from", "another name"];
    scratch.refuses(&[
        (&["commit", &config, &data, "--force"], 2, words),
        (&["commit", &config, &hard, "--force"], 2, words),
        (&["commit", &config, &index, "--force"], 2, words),
        (
            &["commit", &data, "--index", &index, &data, "--force"],
            2,
            words,
        ),
        (&["merge", &config, &link, "--force"], 2, words),
        (&["merge", &config, &config, "--force"], 2, words),
        (&["export", &config, "--output", &base, "--force"], 2, words),
        (&["compress", &raw, &raw, "--force"], 2, words),
        (&["decompress", &base, &link, "--force"], 2, words),
        (&["import", &raw, &raw, "--force"], 2, words),
    ]);
}

/// What is sealed is a layer: an upper that was opened once more would write over its trailer.
#[test]
fn an_upper_that_was_sealed_is_no_upper_any_more() {
    let scratch = Scratch::new();
    let [config, base, data, index] =
        ["image.json", "base", "data", "index"].map(|name| scratch.file(name));
    let sparse = scratch.file("sparse");
    image(&["create", &sparse, "--mode", "sparse", "--size", "64K"]).ok();
    image(&["seal", &data, "--index", &index]).ok();
    image(&["seal", &sparse]).ok();
    let words: &[&str] = &["was sealed", "last of the lowers"];
    scratch.refuses(&[
        (&["export", &config, "--sha256"], 2, words),
        (&["seal", &data, "--index", &index], 2, words),
        (
            &["resize", &data, "--index", &index, "--size", "1M"],
            2,
            words,
        ),
        (&["resize", &sparse, "--size", "1M"], 2, words),
        (&["seal", &sparse], 2, words),
    ]);
    let lowers = json!({"lowers": [{"file": base}, {"file": data}, {"file": sparse}]});
    let layers = scratch.file("layers.json");
    fs::write(&layers, lowers.to_string()).unwrap();
    image(&["export", &layers, "--sha256"]).ok();
}

#[test]
fn arguments_that_contradict_each_other_are_refused() {
    let scratch = Scratch::new();
    let [config, data, index, raw, new] =
        ["image.json", "data", "index", "raw", "new"].map(|name| scratch.file(name));
    let [list, pipe] = ["list", "pipe"].map(|name| scratch.file(name));
    fs::write(&list, "[1]").unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        Path::new(&pipe),
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    scratch.refuses(&[
        (
            &["import", &raw, &new, "--block-size", "8192"],
            2,
            &["--zfile"],
        ),
        (&["import", &raw, &new, "--no-checksums"], 2, &["--zfile"]),
        (&["create", &new, &new, "--size", "1M"], 2, &["two names"]),
        (
            &["create", &new, &index, "--mode", "sparse", "--size", "1M"],
            2,
            &["no index file"],
        ),
        (&["create", &new, "--mode", "sparse"], 2, &["--size"]),
        (
            &["create", &new, "--mode", "sparse", "--size", "9E"],
            2,
            &["at most"],
        ),
        (
            &["resize", &data, "--index", &index, "--size", "32K"],
            2,
            &["32768 bytes is smaller than 65536 bytes"],
        ),
        (
            &["export", &list, "--sha256"],
            2,
            &["an object with lowers"],
        ),
        (&["info", &list], 2, &["an object with lowers"]),
        (&["info", &pipe], 2, &["no regular file"]),
        (&["verify", &pipe], 2, &["no regular file"]),
        (
            &["export", &config, "--output", &pipe, "--force"],
            2,
            &["no regular file"],
        ),
    ]);
}

/// A ZFile may hold anything; it was said to be damaged unless that was a layer.
#[test]
fn a_zfile_of_anything_is_sound() {
    let scratch = Scratch::new();
    let [raw, compressed] = ["raw", "compressed"].map(|name| scratch.file(name));
    image(&["compress", &raw, &compressed]).ok();
    let facts = image(&["info", &compressed]).ok();
    assert!(
        facts.contains("lz4, 16 blocks of 4096 bytes") && facts.contains("is no layer"),
        "{facts}"
    );
    let verdict = image(&["verify", &compressed]).ok();
    assert!(verdict.contains("is no layer\n0 findings"), "{verdict}");
    // As a lower it is none.
    let lowers = json!({"lowers": [{"file": compressed}]});
    fs::write(scratch.file("image.json"), lowers.to_string()).unwrap();
    let wrong = image(&["verify", &scratch.file("image.json")]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    let mut bytes = fs::read(&compressed).unwrap();
    // In the first block.
    bytes[600] ^= 1;
    fs::write(&compressed, bytes).unwrap();
    let damaged = image(&["verify", &compressed]);
    assert_eq!(damaged.code, 2, "{damaged:?}");
    assert!(
        damaged.stdout.contains("block 2 at byte 572") && damaged.stdout.contains("1 finding\n"),
        "{damaged:?}"
    );
}
