//! What the offline work makes, against the files that the reference programs made.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test's fixtures are small and as they are; a panic is its failure"
)]

use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::Sectors;
use image::offline::{
    self, Compression, NewUpper, Overwrite, Packing, Target, UpperFiles, Wrapping,
};
use image::{
    Blob, Error, ImageConfig, LayerFile, LayerKind, LostRecords, OpenOptions, ParentCheck, Upper,
    UpperConfig, View,
};
use overlaybd::lsmt::{LayerUuid, LogMode, NewLayer, UserTag};
use overlaybd::zfile::{Algorithm, BlockChecksums, BlockFormat, BlockSize, Completion, Options};
use serde_json::{Value, json};

const STRICT: OpenOptions = OpenOptions {
    parents: ParentCheck::Refuse,
    lost: LostRecords::Refuse,
};
const PLAIN: Packing = Packing {
    compression: Compression::Plain,
    wrapping: Wrapping::Bare,
    overwrite: Overwrite::Refuse,
    threads: NonZeroUsize::MIN,
};
const B_STACK4: [&str; 4] = [
    "b_stack4/L0.lsmt",
    "b_stack4/L1.lsmt",
    "b_stack4/L2.lsmt",
    "b_stack4/L3.lsmt",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../overlaybd/tests/fixtures")
        .join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

fn json_of(name: &str) -> Value {
    serde_json::from_slice(&read(name)).unwrap()
}

fn uuid(text: &str) -> Option<LayerUuid> {
    LayerUuid::from_text(text.as_bytes())
}

fn image(lowers: &[PathBuf], upper: Option<(PathBuf, PathBuf)>) -> ImageConfig {
    let lowers: Vec<_> = lowers.iter().map(|file| json!({"file": file})).collect();
    let mut text = json!({ "lowers": lowers });
    if let Some((data, index)) = upper {
        text["upper"] = json!({"data": data, "index": index});
    }
    ImageConfig::parse(Path::new("/test.json"), text.to_string().as_bytes()).unwrap()
}

fn b_stack4() -> Vec<PathBuf> {
    B_STACK4.iter().map(|name| fixture(name)).collect()
}

fn hash(config: &ImageConfig) -> String {
    let view = View::open(config, STRICT).unwrap();
    offline::hash(&view, &mut ()).unwrap()
}

fn blob(path: &Path) -> Blob {
    Blob::open(Arc::new(LayerFile::open_sealed(path).unwrap())).unwrap()
}

/// An upper of the fixtures, in files of its own.
fn copy_of(scratch: &Path, name: &str) -> UpperConfig {
    let copy = |ending: &str| {
        let file = format!("{name}.{ending}");
        let to = scratch.join(Path::new(&file).file_name().unwrap());
        std::fs::write(&to, read(&file)).unwrap();
        to
    };
    UpperConfig::Log {
        data: copy("data"),
        index: copy("index"),
    }
}

#[test]
fn commit_merge_and_flatten_make_the_references_data_and_records() {
    let scratch = tempfile::tempdir().unwrap();
    let made = |name: &str| scratch.path().join(name);
    let committed = NewLayer {
        virtual_size: Sectors(8192),
        uuid: uuid("0BD00258-0000-4000-8000-000000000258"),
        parent_uuid: uuid("0BD00067-0000-4000-8000-000000000067"),
        user_tag: UserTag::new(b"commit of d_rw/plain").unwrap(),
    };
    let target = |path, layer| Target {
        path,
        packing: PLAIN,
        layer,
    };
    let upper = Upper::open(&copy_of(scratch.path(), "d_rw/plain"), LostRecords::Refuse).unwrap();
    let commit = made("commit");
    offline::commit(&upper, &target(&commit, committed), &mut ()).unwrap();
    let view = View::open(&image(&b_stack4(), None), STRICT).unwrap();
    let merged = NewLayer {
        virtual_size: view.size(),
        uuid: uuid("0BD000BE-0000-4000-8000-0000000000BE"),
        ..NewLayer::default()
    };
    let merge = made("merge");
    offline::merge(&view, &target(&merge, merged), &mut ()).unwrap();
    for (path, reference) in [
        (&commit, "f_commit/plain_commit_rust.lsmt"),
        (&merge, "b_stack4/merged_rust.lsmt"),
    ] {
        let (made, want) = (std::fs::read(path).unwrap(), read(reference));
        assert_eq!(made.len(), want.len(), "{reference}");
        // The first and the last block hold uuids, which the two references write differently.
        let between = 4096..made.len() - 4096;
        assert!(made[between.clone()] == want[between], "{reference}");
    }
    let expected = json_of("f_commit/expected_on_b_stack4.json");
    let expected = expected["sha256"].as_str().unwrap();
    let mut lowers = b_stack4();
    lowers.push(commit.clone());
    assert_eq!(hash(&image(&lowers, None)), expected);
    drop(upper);
    let plain = (made("plain.data"), made("plain.index"));
    let view = View::open(&image(&b_stack4(), Some(plain)), STRICT).unwrap();
    let flat = made("flat");
    let layer = NewLayer {
        virtual_size: view.size(),
        ..NewLayer::default()
    };
    offline::flatten(&view, &target(&flat, layer), &mut ()).unwrap();
    assert_eq!(hash(&image(&[flat], None)), expected);
}

#[test]
fn the_data_of_a_warp_layers_target_become_the_merged_layers_own() {
    let scratch = tempfile::tempdir().unwrap();
    let warp = json!({"lowers": [{
        "file": fixture("i_warp/warp.fs.meta"),
        "targetFile": fixture("i_warp/target.bin"),
    }]});
    let config = ImageConfig::parse(Path::new("/w.json"), warp.to_string().as_bytes()).unwrap();
    let expected = json_of("i_warp/expected.json");
    assert_eq!(hash(&config), expected["sha256"].as_str().unwrap());
    let view = View::open(&config, STRICT).unwrap();
    let path = scratch.path().join("merged");
    let target = Target {
        path: &path,
        packing: PLAIN,
        layer: NewLayer {
            virtual_size: view.size(),
            ..NewLayer::default()
        },
    };
    offline::merge(&view, &target, &mut ()).unwrap();
    assert_eq!(
        hash(&image(&[path], None)),
        expected["sha256"].as_str().unwrap()
    );
}

#[test]
fn compressed_files_are_the_references_byte_for_byte_and_come_back() {
    let scratch = tempfile::tempdir().unwrap();
    let content = fixture("b_stack4/merged_cpp.lsmt");
    let mut seen = 0;
    for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
        for bytes in [1024, 2048, 4096, 8192, 16384, 32768, 65536] {
            for (crc, checksums) in [(0, BlockChecksums::Absent), (1, BlockChecksums::Crc32c)] {
                for (hdr, completion) in [
                    (0, Completion::TrailerOnly),
                    (1, Completion::HeaderOverwritten),
                ] {
                    let name =
                        format!("c_zfile/merged_{algorithm}_bs{bytes}_crc{crc}_hdr{hdr}.zfile");
                    if !fixture(&name).exists() {
                        continue;
                    }
                    seen += 1;
                    let packing = Packing {
                        compression: Compression::ZFile(Options {
                            blocks: BlockFormat {
                                algorithm,
                                block_size: BlockSize::try_new(bytes).unwrap(),
                                checksums,
                            },
                            completion,
                        }),
                        ..PLAIN
                    };
                    let file = LayerFile::open_sealed(&content).unwrap();
                    let path = scratch.path().join(format!("{seen}.zfile"));
                    offline::compress(&file, &path, packing, &mut ()).unwrap();
                    assert!(std::fs::read(&path).unwrap() == read(&name), "{name}");
                    let back = scratch.path().join(format!("{seen}.lsmt"));
                    offline::decompress(&blob(&path), &back, Overwrite::Refuse, &mut ()).unwrap();
                    assert!(std::fs::read(&back).unwrap() == read("b_stack4/merged_cpp.lsmt"));
                    let verdict = offline::check(
                        &blob(&path),
                        offline::Content::Layer(LayerKind::Own),
                        &mut (),
                    )
                    .unwrap();
                    assert_eq!((verdict.count, verdict.is_covered), (0, crc == 1), "{name}");
                }
            }
        }
    }
    assert_eq!(seen, 15);
}

#[test]
fn a_wrapped_and_compressed_layer_is_read_as_what_is_in_it() {
    let scratch = tempfile::tempdir().unwrap();
    let view = View::open(&image(&b_stack4(), None), STRICT).unwrap();
    let path = scratch.path().join("layer.tar");
    let options = Options {
        blocks: BlockFormat {
            algorithm: Algorithm::Zstd,
            block_size: BlockSize::DEFAULT,
            checksums: BlockChecksums::Crc32c,
        },
        completion: Completion::HeaderOverwritten,
    };
    let target = Target {
        path: &path,
        packing: Packing {
            compression: Compression::ZFile(options),
            wrapping: Wrapping::Tar,
            overwrite: Overwrite::Refuse,
            threads: NonZeroUsize::MIN,
        },
        layer: NewLayer {
            virtual_size: view.size(),
            ..NewLayer::default()
        },
    };
    offline::merge(&view, &target, &mut ()).unwrap();
    let listed = std::process::Command::new("tar")
        .arg("-tf")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(listed.stdout).unwrap(),
        "overlaybd.commit\n"
    );
    let want = json_of("b_stack4/expected_L0..L3.json");
    assert_eq!(
        hash(&image(std::slice::from_ref(&path), None)),
        want["sha256"].as_str().unwrap()
    );
    let facts =
        offline::describe_blob(&blob(&path), offline::Content::Layer(LayerKind::Own)).unwrap();
    assert_eq!(
        (facts.payload_offset, facts.layer.unwrap().virtual_bytes),
        (1536, 4 << 20)
    );
}

#[test]
fn export_and_import_leave_out_what_is_zero_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let config = image(&b_stack4(), None);
    let view = View::open(&config, STRICT).unwrap();
    let raw = scratch.path().join("raw");
    offline::export(&view, &raw, Overwrite::Refuse, &mut ()).unwrap();
    let metadata = std::fs::metadata(&raw).unwrap();
    assert_eq!(metadata.len(), 4 << 20);
    assert!(
        metadata.blocks() * 512 < 2 << 20,
        "{} blocks",
        metadata.blocks()
    );
    let layer = scratch.path().join("layer");
    let target = Target {
        path: &layer,
        packing: PLAIN,
        layer: NewLayer::default(),
    };
    let file = LayerFile::open_sealed(&raw).unwrap();
    offline::import(&file, &target, &mut ()).unwrap();
    assert_eq!(
        hash(&image(std::slice::from_ref(&layer), None)),
        hash(&config)
    );
    assert!(std::fs::metadata(&layer).unwrap().len() < 2 << 20);
    let again = offline::import(&file, &target, &mut ());
    assert!(matches!(again, Err(Error::Exists { .. })));
}

#[test]
fn an_upper_is_made_grown_sealed_and_stacked() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    for (mode, name) in [(LogMode::Append, "log"), (LogMode::Hybrid, "hybrid")] {
        let (data, index) = (
            path(&format!("{name}.data")),
            path(&format!("{name}.index")),
        );
        let new = NewUpper {
            files: UpperFiles::Log {
                data: data.clone(),
                index: index.clone(),
                mode,
            },
            size: Sectors(8192),
            uuid: uuid("0BD00001-0000-4000-8000-000000000001"),
            parent_uuid: None,
        };
        offline::create(&new).unwrap();
        assert!(matches!(offline::create(&new), Err(Error::Exists { .. })));
        let config = UpperConfig::Log {
            data: data.clone(),
            index,
        };
        let upper = Upper::open(&config, LostRecords::Refuse).unwrap();
        assert_eq!(offline::describe_upper(&upper).mode, name);
        let smaller = offline::resize(&upper, Sectors(8191)).unwrap_err();
        assert!(smaller.to_string().contains("only grows"), "{smaller}");
        offline::resize(&upper, Sectors(12288)).unwrap();
        drop(upper);
        let upper = Upper::open(&config, LostRecords::Refuse).unwrap();
        assert_eq!(upper.header().virtual_size, Sectors(12288));
        offline::seal(&upper).unwrap();
        drop(upper);
        let view = View::open(&image(&[data], None), STRICT).unwrap();
        assert_eq!(view.size(), Sectors(12288));
    }
    let data = path("sparse");
    let new = |size| NewUpper {
        files: UpperFiles::Sparse { data: data.clone() },
        size,
        uuid: None,
        parent_uuid: None,
    };
    assert!(offline::create(&new(Sectors(0))).is_err());
    // It could be written, and read by nobody.
    let huge = offline::create(&new(Sectors(1 << 50))).unwrap_err();
    assert!(huge.to_string().contains("at most"), "{huge}");
    offline::create(&new(Sectors(8192))).unwrap();
    let config = UpperConfig::Sparse { data: data.clone() };
    let upper = Upper::open(&config, LostRecords::Refuse).unwrap();
    offline::resize(&upper, Sectors(16384)).unwrap();
    drop(upper);
    let upper = Upper::open(&config, LostRecords::Refuse).unwrap();
    assert_eq!(upper.header().virtual_size, Sectors(16384));
    assert!(upper.index().is_empty());
}

#[test]
fn a_sealed_upper_reads_as_before_and_commits_to_the_same_layer() {
    let scratch = tempfile::tempdir().unwrap();
    let config = copy_of(scratch.path(), "d_rw/plain");
    let upper = Upper::open(&config, LostRecords::Refuse).unwrap();
    offline::seal(&upper).unwrap();
    drop(upper);
    let data = scratch.path().join("plain.data");
    let want = json_of("f_commit/expected.json");
    assert_eq!(
        hash(&image(std::slice::from_ref(&data), None)),
        want["sha256"].as_str().unwrap()
    );
    let path = scratch.path().join("again");
    let target = Target {
        path: &path,
        packing: PLAIN,
        layer: image::read_trailer(&blob(&data)).unwrap(),
    };
    offline::commit_sealed(&blob(&data), &target, &mut ()).unwrap();
    let (made, want) = (
        std::fs::read(&path).unwrap(),
        read("f_commit/plain_commit_rust.lsmt"),
    );
    let between = 4096..made.len() - 4096;
    assert!(made[between.clone()] == want[between]);
}

#[test]
fn damage_is_found_where_it_is() {
    for (name, part) in [
        ("h_corrupt/zfile_block_crc.zfile", "block checksum"),
        ("h_corrupt/zfile_block_crc_field.zfile", "block checksum"),
        ("h_corrupt/lsmt_idx_overlap.lsmt", "index record"),
    ] {
        let verdict = offline::check(
            &blob(&fixture(name)),
            offline::Content::Layer(LayerKind::Own),
            &mut (),
        )
        .unwrap();
        assert!(verdict.count > 0, "{name}");
        let found = &verdict.findings[0];
        assert!(found.path.ends_with(name), "{found:?}");
        assert!(found.what.contains(part), "{found:?}");
    }
}

/// Batches of blocks go to threads and come back in order; the last one is short.
#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let raw = scratch.path().join("raw");
    for len in [0, 1, 4096, (1 << 20) - 1, 1 << 20, (7 << 20) + 513] {
        let mut content = vec![0; len];
        for part in content.chunks_mut(3000) {
            // Some compress well and some not at all.
            let noise = random.bool();
            part.fill_with(|| if noise { random.u8(..) } else { 7 });
        }
        std::fs::write(&raw, content).unwrap();
        for (algorithm, block_bytes) in [(Algorithm::Lz4, 4096), (Algorithm::Zstd, 65536)] {
            let made = |threads: usize| {
                let packing = Packing {
                    compression: Compression::ZFile(Options {
                        blocks: BlockFormat {
                            algorithm,
                            block_size: BlockSize::try_new(block_bytes).unwrap(),
                            checksums: BlockChecksums::Crc32c,
                        },
                        completion: Completion::HeaderOverwritten,
                    }),
                    threads: NonZeroUsize::new(threads).unwrap(),
                    overwrite: Overwrite::Replace,
                    ..PLAIN
                };
                let file = LayerFile::open_sealed(&raw).unwrap();
                let path = scratch.path().join("made");
                offline::compress(&file, &path, packing, &mut ()).unwrap();
                std::fs::read(path).unwrap()
            };
            let alone = made(1);
            assert!(
                [2, 5].iter().all(|threads| made(*threads) == alone),
                "{len}"
            );
            let back = scratch.path().join("back");
            let blob = blob(&scratch.path().join("made"));
            offline::decompress(&blob, &back, Overwrite::Replace, &mut ()).unwrap();
            assert!(
                std::fs::read(&back).unwrap() == std::fs::read(&raw).unwrap(),
                "{len}"
            );
        }
    }
}
