//! Every stack of `cases.json` reads as it should, or is another module's.

use std::collections::BTreeMap;

use block::{Extent, Sectors};
use overlaybd::lsmt::{Layer, MutableIndex, SparseLayout, Stack};
use serde_json::Value;

use crate::exceptions::{NOT_KEPT, REPAIRED, UNRELATED, WITHOUT_FILE};
use crate::fixture;

/// Cases that `zfile` and `tar` open, by group: their lowers are no LSMT files as they lie there.
const OF_OTHER_MODULES: [(&str, usize); 4] = [
    ("b_stack4", 1),
    ("c_longdata", 2),
    ("c_zfile", 16),
    ("g_tar", 6),
];
struct Upper {
    data: Vec<u8>,
    index: MutableIndex,
    header: overlaybd::lsmt::Header,
}

#[test]
fn every_stack_reads_as_the_reference_reads_it() {
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    let mut without_file = Vec::new();
    let mut images = BTreeMap::new();
    let mut read = 0;
    let cases = fixture::read_json("cases.json");
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let group = case["group"].as_str().unwrap();
        if is_of_other_module(case) {
            *others.entry(group.to_owned()).or_default() += 1;
        } else if group == "d_rw_rust" && case["index"].is_null() {
            without_file.push(name);
        } else {
            let (sha256, image) = check(name, case);
            images.insert(sha256, image);
            read += 1;
        }
    }
    let others: Vec<_> = others.iter().map(|(g, n)| (g.as_str(), *n)).collect();
    assert_eq!(others, OF_OTHER_MODULES);
    assert_eq!(without_file, WITHOUT_FILE);
    assert_eq!(read, 50);
    check_expected_files(&images);
}

fn lowers(case: &Value) -> Vec<&str> {
    let lowers = case["lowers"].as_array().unwrap();
    lowers.iter().map(|name| name.as_str().unwrap()).collect()
}

fn is_of_other_module(case: &Value) -> bool {
    lowers(case)
        .iter()
        .any(|name| name.ends_with(".zfile") || name.ends_with(".tar"))
}

/// Reads a case; the image and its hash.
fn check(name: &str, case: &Value) -> (String, Vec<u8>) {
    let (layers, mut files) = open_lowers(&lowers(case));
    let upper = open_upper(name, case);
    let layers: Vec<_> = layers.iter().collect();
    let strict = Stack::build(&layers);
    assert_eq!(strict.is_err(), UNRELATED.contains(&name), "{name}");
    let stack = Stack::build_unrelated(&layers).unwrap();
    let image = match &upper {
        None => {
            let files: Vec<_> = files.iter().map(Vec::as_slice).collect();
            fixture::image(stack.size(), &files, |extent| stack.resolve(extent))
        }
        Some(upper) => {
            files.push(upper.data.clone());
            let files: Vec<_> = files.iter().map(Vec::as_slice).collect();
            let size = stack.size_under(&upper.header);
            let image = fixture::image(size, &files, |extent| {
                stack.resolve_under(&upper.index, size, extent)
            });
            // One merged index gives the same disk as two over one another.
            let merged = stack.index_under(&upper.index).unwrap();
            let flat = fixture::image(size, &files, |extent| {
                let len = extent.len.0.min(size.0 - extent.start.0);
                merged.pieces(Extent {
                    len: Sectors(len),
                    ..extent
                })
            });
            assert!(image == flat, "{name}: merged differs");
            image
        }
    };
    assert_eq!(
        image.len() as u64,
        case["vsize"].as_u64().unwrap(),
        "{name}"
    );
    let sha256 = fixture::sha256(&image);
    let is_same = sha256 == case["sha256"].as_str().unwrap();
    assert_eq!(is_same, !NOT_KEPT.contains(&name), "{name}");
    (sha256, image)
}

/// Layers, and the files in the order of a stack's tags.
fn open_lowers(names: &[&str]) -> (Vec<Layer>, Vec<Vec<u8>>) {
    let mut layers = Vec::new();
    let mut files = Vec::new();
    for name in names {
        if let Some((meta, target)) = name.split_once('+') {
            let meta = fixture::read(meta);
            let layout = fixture::warp_layout(&meta).unwrap();
            layers.push(fixture::load(layout, &meta).unwrap());
            files.extend([meta, fixture::read(target)]);
            continue;
        }
        let file = match *name {
            "e_sparse/aligned4k_sealed.lsmt" => fixture::sparse_sealed(),
            name => fixture::read(name),
        };
        layers.push(fixture::layer(&file).unwrap_or_else(|err| panic!("{name}: {err}")));
        files.push(file);
    }
    (layers, files)
}

fn open_upper(name: &str, case: &Value) -> Option<Upper> {
    let data_name = case["data"].as_str()?;
    let Some(index_name) = case["index"].as_str() else {
        return Some(open_sparse(data_name));
    };
    let data = fixture::read(data_name);
    let index = fixture::read(index_name);
    let loader = || fixture::log_loader(&data, &index).unwrap();
    let strict = loader().finish_strict();
    assert_eq!(strict.is_err(), REPAIRED.contains(&name), "{name}");
    let upper = loader().finish_repaired().unwrap();
    assert_eq!(upper.records_dropped > 0, REPAIRED.contains(&name));
    if let Ok(strict) = strict {
        assert_eq!(
            (strict.index, strict.index_len),
            (upper.index.clone(), upper.index_len)
        );
    }
    Some(Upper {
        header: upper.header,
        index: upper.index,
        data,
    })
}

fn open_sparse(name: &str) -> Upper {
    let (data, ranges) = fixture::sparse_file(name.trim_start_matches("e_sparse/"));
    let extents = fixture::read_json(&name.replace(".data", ".extents.json"));
    let ends = ranges.iter().map(|r| (r.offset.0, r.offset.0 + r.len.0));
    let want = extents["data_extents"].as_array().unwrap();
    let want = want
        .iter()
        .map(|pair| (pair[0].as_u64().unwrap(), pair[1].as_u64().unwrap()));
    assert!(ends.eq(want), "{name}");
    let len = block::ByteLen(data.len() as u64);
    let layout = SparseLayout::parse(&data, len).unwrap();
    Upper {
        index: layout.index(ranges).unwrap(),
        header: layout.header().clone(),
        data,
    }
}

/// Hashes of images that no case gives: what only the running device showed.
const NOT_OF_A_CASE: [&str; 2] = [
    "e_sparse/ideal_discard_on_b_stack4.json",
    "e_sparse/ideal_sector512_on_b_stack4.json",
];
/// Groups whose expected images are of LSMT files.
const GROUPS: [&str; 11] = [
    "a_empty",
    "a_single",
    "a_single_bigzero",
    "a_single_oddsize",
    "b_stack4",
    "b_vsize",
    "d_rw",
    "d_rw_rust",
    "e_sparse",
    "f_commit",
    "i_warp",
];

/// The files of hashes beside the blobs: every one is of an image that a case gave, chunk by chunk.
fn check_expected_files(images: &BTreeMap<String, Vec<u8>>) {
    let mut not_of_a_case = Vec::new();
    let mut checked = 0;
    for group in GROUPS {
        for name in fixture::names_in(group) {
            if !name.ends_with(".json") {
                continue;
            }
            let expected = fixture::read_json(&name);
            let Some(chunks) = expected["sha256_64k"].as_array() else {
                continue;
            };
            let Some(image) = images.get(expected["sha256"].as_str().unwrap()) else {
                not_of_a_case.push(name);
                continue;
            };
            assert_eq!(image.len() as u64, expected["vsize"].as_u64().unwrap());
            let hashes = image.chunks(64 << 10).map(fixture::sha256);
            let want = chunks.iter().map(|chunk| chunk.as_str().unwrap());
            assert!(hashes.eq(want), "{name}");
            checked += 1;
        }
    }
    assert_eq!(not_of_a_case, NOT_OF_A_CASE);
    assert_eq!(checked, 33);
}
