//! Damaged layers: refused, or read as they should, and never a panic or an allocation beyond the file's length.

use block::ByteOffset;
use overlaybd::lsmt::{HEADER_BYTES, Header, LogLoader, Record, Stack};
use overlaybd::{Error, ErrorKind};
use proptest::prelude::*;

use crate::fixture;

/// Damaged files of other modules.
const OF_OTHER_MODULES: [(&str, usize); 2] = [("zfile_", 19), ("tar_", 2)];
const LSMT: usize = 31;

/// What a damaged file must do.
#[derive(Debug, PartialEq)]
enum Duty {
    Refuse,
    RefuseOrRight,
    Right,
    /// The format cannot tell: any answer.
    NoPanic,
}

fn duty(file: &str, right_answer: &str) -> Duty {
    match right_answer {
        "accept or reject" => Duty::RefuseOrRight,
        answer if answer.starts_with("reject") => Duty::Refuse,
        answer if answer.starts_with("undetectable") => Duty::NoPanic,
        answer if answer.contains("right content") => Duty::Right,
        answer if answer.starts_with("accept is harmless") => Duty::RefuseOrRight,
        answer => panic!("{file}: {answer}"),
    }
}

fn read(file: &[u8]) -> Result<String, Error> {
    let layer = fixture::layer(file)?;
    let stack = Stack::build(&[&layer])?;
    let image = fixture::image(stack.size(), &[file], |extent| stack.resolve(extent));
    Ok(fixture::sha256(&image))
}

#[test]
fn each_damaged_layer_does_its_duty() {
    let right = fixture::read_json("a_single/expected.json");
    let right = right["sha256"].as_str().unwrap();
    let results = fixture::read_json("h_corrupt/results.json");
    let names = |prefix: &str| {
        let all = results.as_array().unwrap().iter();
        let all: Vec<_> = all
            .map(|r| {
                (
                    r["file"].as_str().unwrap(),
                    r["right_answer"].as_str().unwrap(),
                )
            })
            .filter(|(file, _)| file.starts_with(prefix))
            .collect();
        all
    };
    for (prefix, count) in OF_OTHER_MODULES {
        assert_eq!(names(prefix).len(), count);
    }
    let others: usize = OF_OTHER_MODULES.iter().map(|(_, count)| count).sum();
    assert_eq!(names("lsmt_").len(), LSMT);
    assert_eq!(names("").len(), LSMT + others);
    for (name, answer) in names("lsmt_") {
        let file = fixture::read(&format!("h_corrupt/{name}"));
        let is_right = read(&file).map(|sha256| sha256 == right);
        let is_done = match duty(name, answer) {
            Duty::Refuse => is_right.is_err(),
            Duty::RefuseOrRight => is_right.clone().unwrap_or(true),
            Duty::Right => is_right == Ok(true),
            Duty::NoPanic => true,
        };
        assert!(is_done, "{name}: want {answer}, got {is_right:?}");
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let cases = [
        ("lsmt_hdr_magic", ErrorKind::NotThisFormat, "header", 0),
        ("lsmt_hdr_not_header", ErrorKind::Corrupt, "header", 28),
        ("lsmt_hdr_version9", ErrorKind::Unsupported, "header", 132),
        ("lsmt_trl_magic", ErrorKind::Corrupt, "trailer", 274_432),
        (
            "lsmt_trl_notsealed",
            ErrorKind::Corrupt,
            "trailer",
            274_432 + 28,
        ),
        (
            "lsmt_idx_overlap",
            ErrorKind::Corrupt,
            "index record 1",
            270_352,
        ),
        (
            "lsmt_idx_len0",
            ErrorKind::Corrupt,
            "index record 0",
            270_336,
        ),
        (
            "lsmt_idx_moffset_out",
            ErrorKind::Corrupt,
            "index record 1",
            270_352,
        ),
        ("lsmt_trunc_4096", ErrorKind::Truncated, "layer", 4096),
    ];
    for (name, kind, what, offset) in cases {
        let file = fixture::read(&format!("h_corrupt/{name}.lsmt"));
        let error = fixture::layer(&file).unwrap_err();
        assert_eq!(
            (error.kind, error.what.as_str(), error.offset),
            (kind, what, ByteOffset(offset)),
            "{name}: {error}"
        );
    }
}

/// Memory for an index is taken by its loader, so an index that does not fit must have been refused before there is one.
#[test]
fn an_impossible_index_is_refused_before_memory_is_taken() {
    for name in [
        "lsmt_trl_index_offset_huge",
        "lsmt_trl_index_offset_unaligned",
        "lsmt_trl_index_size_huge",
        "lsmt_trl_index_size_plus1",
        "lsmt_trl_index_size_1000001",
    ] {
        let file = fixture::read(&format!("h_corrupt/{name}.lsmt"));
        assert!(fixture::layout(&file).is_err(), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Any bytes over the parts that are parsed, and any length.
    #[test]
    fn no_damage_makes_a_layer_panic(
        damage in prop::collection::vec((0usize..8192 + 1024, any::<u8>()), 1..6),
        cut in prop::option::of(0usize..9000),
    ) {
        let mut file = small_layer();
        for (at, byte) in damage {
            let at = at % file.len();
            file[at] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut);
        }
        if let Ok(layer) = fixture::layer(&file) {
            // Whatever is accepted points into the file.
            for segment in layer.index.segments().filter(|s| !s.is_zeroed()) {
                prop_assert!(segment.moffset_end().len_bytes().0 <= file.len() as u64);
            }
        }
    }

    /// A record that is accepted is written back as it was.
    #[test]
    fn any_16_bytes_are_a_record_or_a_fault(bytes in any::<[u8; 16]>(), is_padding in any::<bool>()) {
        let mut bytes = bytes;
        if is_padding {
            bytes[..8].copy_from_slice(&Record::Padding.encode()[..8]);
        }
        match Record::parse(bytes) {
            Ok(Record::Segment(segment)) => prop_assert_eq!(segment.encode(), bytes),
            Ok(Record::Padding) => prop_assert!(is_padding),
            Err(_) => {}
        }
    }

    /// Any fields behind a right magic, and back.
    #[test]
    fn any_header_is_parsed_or_refused(fields in prop::collection::vec(any::<u8>(), 366)) {
        let mut block = fixture::read("a_empty/empty.lsmt");
        block.truncate(HEADER_BYTES);
        block[24..390].copy_from_slice(&fields);
        // Most sizes and versions are refused; let half of the blocks pass.
        if fields[0] % 2 == 0 {
            block[48..56].fill(0);
            block[132] = 1;
        }
        if let Ok(header) = Header::parse(&block, "header", ByteOffset(0)) {
            let again = Header::parse(&header.encode(), "header", ByteOffset(0));
            prop_assert_eq!(again, Ok(header));
        }
    }

    #[test]
    fn no_damage_makes_an_upper_panic(
        damage in prop::collection::vec((0usize..4208, any::<u8>()), 1..6),
        cut in 0usize..=4208,
    ) {
        let data = fixture::read("d_rw/plain.data");
        let mut index = fixture::read("d_rw/plain.index");
        for (at, byte) in damage {
            index[at] = byte;
        }
        index.truncate(cut);
        let loader = fixture::log_loader(&data, &index);
        if let Ok(upper) = loader.and_then(LogLoader::finish_repaired) {
            prop_assert!(upper.index_len.0 <= index.len() as u64);
            prop_assert!(upper.data_len.0 <= data.len() as u64);
        }
    }
}

/// A layer without padding records, so that most damage hits something.
fn small_layer() -> Vec<u8> {
    let file = fixture::read("f_commit/plain_sealed_rust.lsmt");
    let mut small = file[..4096].to_vec();
    let layer = fixture::layer(&file).unwrap();
    let data = fixture::slice(&file, fixture::layout(&file).unwrap().index());
    let mut trailer = layer.trailer;
    small.extend(vec![0; 512]);
    trailer.index_offset = ByteOffset(small.len() as u64);
    // Only zeros and short data have a place in 512 bytes; the rest is refused, which is an answer too.
    small.extend(&data[..160]);
    small.extend(trailer.encode());
    small
}
