//! Headers and trailers survive a round trip byte by byte, but for the known differences between the two references.

use block::{ByteLen, ByteOffset, Sectors};
use overlaybd::lsmt::{Flags, HEADER_BYTES, Header};

use crate::fixture;

/// Files of the C++ reference with the flags of their first block.
const CPP: [(&str, u32); 18] = [
    ("a_empty/empty.lsmt", 0x07),
    ("a_single/single.lsmt", 0x07),
    ("a_single_bigzero/bigzero_niluuid.lsmt", 0x07),
    ("a_single_oddsize/odd196sectors.lsmt", 0x07),
    ("b_stack4/L3.lsmt", 0x07),
    ("b_stack4/merged_cpp.lsmt", 0x07),
    ("b_vsize/V2_0.lsmt", 0x07),
    ("d_rw/plain.data", 0x03),
    ("d_rw/plain.index", 0x01),
    ("d_rw/vsize0.data", 0x03),
    ("d_rw_cli/log_0GiB_noparent.data", 0x03),
    ("d_rw_cli/log_0GiB_noparent.index", 0x01),
    ("d_rw_cli/log_1GiB.data", 0x03),
    ("d_rw_cli/log_1GiB.index", 0x01),
    ("f_commit/plain_sealed_cpp.lsmt", 0x03),
    ("f_commit/flatten_cpp.lsmt", 0x07),
    ("h_parent/upper_wrong_parent.data", 0x03),
    ("i_warp/warp.fs.meta", 0x07),
];
/// Files of the Rust reference, which writes uuids in lower case and none as NULs.
const RUST: [(&str, u32); 6] = [
    ("b_stack4/merged_rust.lsmt", 0x07),
    ("d_rw_rust/log.data", 0x03),
    ("d_rw_rust/log.index", 0x01),
    ("d_rw_rust/hybrid.data", 0x23),
    ("d_rw_rust/hybrid.index", 0x21),
    ("f_commit/plain_sealed_rust.lsmt", 0x03),
];
const UUIDS: std::ops::Range<usize> = 56..130;

fn blocks(name: &str) -> Vec<Vec<u8>> {
    let file = fixture::read(name);
    let mut blocks = vec![file[..HEADER_BYTES].to_vec()];
    if name.ends_with(".lsmt") || name.ends_with(".meta") {
        blocks.push(file[file.len() - HEADER_BYTES..].to_vec());
    }
    blocks
}

fn parse(block: &[u8]) -> Header {
    Header::parse(block, "block", ByteOffset(0)).unwrap()
}

#[test]
fn blocks_of_the_cpp_reference_are_encoded_as_they_were() {
    for (name, flags) in CPP {
        let blocks = blocks(name);
        assert_eq!(parse(&blocks[0]).flags.bits(), flags, "{name}");
        for block in blocks {
            assert!(parse(&block).encode()[..] == block, "{name}");
        }
    }
}

#[test]
fn blocks_of_the_rust_reference_differ_in_the_text_of_uuids_only() {
    for (name, flags) in RUST {
        let blocks = blocks(name);
        assert_eq!(parse(&blocks[0]).flags.bits(), flags, "{name}");
        for mut block in blocks {
            let header = parse(&block);
            let mut encoded = header.encode();
            assert_eq!(parse(&encoded), header, "{name}");
            encoded[UUIDS].fill(0);
            block[UUIDS].fill(0);
            assert!(encoded[..] == block, "{name}");
        }
    }
}

#[test]
fn uppers_of_the_stock_tool_open_empty() {
    let sizes = [("log_0GiB_noparent", 0), ("log_1GiB", 1 << 30)];
    for (name, size) in sizes {
        let data = fixture::read(&format!("d_rw_cli/{name}.data"));
        let index = fixture::read(&format!("d_rw_cli/{name}.index"));
        let upper = fixture::log_loader(&data, &index).unwrap();
        let upper = upper.finish_strict().unwrap();
        assert_eq!(upper.header.virtual_size.len_bytes(), ByteLen(size));
        assert!(upper.index.is_empty());
        assert_eq!(upper.data_end(), Sectors(8));
        assert_eq!(upper.header.parent_uuid.is_some(), size != 0);
    }
}

#[test]
fn a_sealed_sparse_upper_says_so_in_its_trailer() {
    let file = fixture::sparse_sealed();
    assert_eq!(parse(&file).flags, Flags::SPARSE_DATA);
    let trailer = parse(&file[file.len() - HEADER_BYTES..]);
    assert_eq!(trailer.flags.bits(), 0x16);
}
