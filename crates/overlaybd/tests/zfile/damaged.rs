//! Every damaged file of `h_corrupt` that is a ZFile or an archive: refused by the right kind, or read right.

use block::{ByteLen, ByteOffset};
use overlaybd::zfile::{BLOCKS_MAX, Flags, HeaderBlock, Opener, Part};

use crate::allocations::assert_bounded;
use crate::files::{json, layer, names, read, sha256, slice};

/// What must come of a file.
enum Answer {
    /// Refused, with this kind.
    Refused(&'static str),
    /// The undamaged layer.
    Read,
    /// Nothing notices the damage, or the compressor does; no panic is all that is asked.
    Any,
}

use Answer::{Any, Read, Refused};

const ANSWERS: [(&str, Answer); 21] = [
    ("tar_hdr_cksum.tar", Refused("Unknown")),
    ("tar_trunc.tar", Refused("Truncated")),
    ("zfile_algo9.zfile", Refused("Checksum")),
    ("zfile_block_crc.zfile", Refused("BlockChecksum")),
    ("zfile_block_crc_field.zfile", Refused("BlockChecksum")),
    ("zfile_block_nocrc.zfile", Any),
    ("zfile_bs_128k.zfile", Refused("Checksum")),
    ("zfile_bs_badvalue.zfile", Refused("Checksum")),
    ("zfile_hdr0_fields_garbage.zfile", Read),
    ("zfile_hdr_digest.zfile", Refused("Checksum")),
    ("zfile_hdr_magic.zfile", Refused("Unknown")),
    ("zfile_hdr_reserved.zfile", Refused("Checksum")),
    ("zfile_index_size_huge.zfile", Refused("Checksum")),
    ("zfile_jump_flip.zfile", Refused("Corrupt")),
    ("zfile_jump_zero_len.zfile", Refused("Corrupt")),
    ("zfile_trl_digest_hdr0.zfile", Refused("Checksum")),
    ("zfile_trl_ignored_hdr1.zfile", Read),
    ("zfile_trl_reserved_hdr0.zfile", Refused("Checksum")),
    ("zfile_trunc_1.zfile", Refused("Corrupt")),
    ("zfile_trunc_511.zfile", Refused("Truncated")),
    ("zfile_trunc_half_hdr1.zfile", Refused("Truncated")),
];

fn check(name: &str, file: &[u8], answer: &Answer) {
    let intact = json("c_zfile/decompressed_blob.json");
    match (layer(file), answer) {
        (_, Any) => {}
        (Ok(layer), Read) => assert_eq!(sha256(&layer), intact["sha256"], "{name}"),
        (Err(refusal), Refused(kind)) => assert_eq!(refusal.kind(), *kind, "{name}: {refusal:?}"),
        (Ok(_), Refused(kind)) => panic!("{name} was read, not refused as {kind}"),
        (Err(refusal), Read) => panic!("{name} was refused: {refusal:?}"),
    }
}

#[test]
fn every_damaged_file_gets_its_answer() {
    for (name, answer) in &ANSWERS {
        check(name, &read(&format!("h_corrupt/{name}")), answer);
    }
    assert_bounded();
}

#[test]
fn the_answers_cover_the_group_and_are_those_of_its_list() {
    let ours = |name: &str| name.starts_with("zfile_") || name.starts_with("tar_");
    let files: Vec<String> = names("h_corrupt")
        .into_iter()
        .filter(|name| ours(name))
        .collect();
    let covered: Vec<&str> = ANSWERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, covered);
    let results = json("h_corrupt/results.json");
    for result in results.as_array().unwrap() {
        let name = result["file"].as_str().unwrap();
        let Some((_, answer)) = ANSWERS.iter().find(|(known, _)| *known == name) else {
            assert!(!ours(name), "{name} is listed and has no answer");
            continue;
        };
        let right = result["right_answer"].as_str().unwrap();
        match answer {
            Refused(_) => assert!(right.starts_with("reject"), "{name}: {right}"),
            Read => assert!(right.contains("right content"), "{name}: {right}"),
            Any => assert!(right.contains("undetectable"), "{name}: {right}"),
        }
    }
}

/// Older files have no digest: the fields themselves must be judged.
#[test]
fn the_same_damage_in_files_without_digest_is_noticed_too() {
    for (name, kind) in [
        ("zfile_algo9.zfile", "Unsupported"),
        ("zfile_bs_128k.zfile", "Unsupported"),
        ("zfile_bs_badvalue.zfile", "Unsupported"),
        ("zfile_index_size_huge.zfile", "TooLarge"),
        ("zfile_jump_zero_len.zfile", "Corrupt"),
    ] {
        let mut file = read(&format!("h_corrupt/{name}"));
        let trailer = file.len() - 512;
        for block in [0, trailer] {
            file[block + 32] &= !u8::try_from(Flags::DIGEST).unwrap();
        }
        check(name, &file, &Refused(kind));
    }
    assert_bounded();
}

#[test]
fn a_promise_of_a_billion_blocks_allocates_nothing() {
    let file = read("c_zfile/merged_lz4_bs4096_crc1_hdr1.zfile");
    let block = file.first_chunk().unwrap();
    let header = HeaderBlock::parse(block, Part::Header, ByteOffset(0)).unwrap();
    let promise = HeaderBlock {
        index_size: BLOCKS_MAX,
        original_file_size: BLOCKS_MAX * 4096,
        ..header
    };
    let mut opener = Opener::new(ByteLen(1 << 50)).unwrap();
    opener.handle_read(&promise.encode()).unwrap();
    let asked = opener.poll_read().unwrap();
    assert_eq!(asked.len, ByteLen(1 << 20));
    // A read that comes short is an error, not the end of the table.
    assert!(opener.handle_read(slice(&file, asked)).is_err());
    assert_bounded();
}
