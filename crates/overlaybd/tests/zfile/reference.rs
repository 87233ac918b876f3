//! Every file of the groups `c_zfile` and `g_tar`: read, and written again with equal bytes.

use block::ByteLen;
use overlaybd::zfile::{
    Algorithm, BlockChecksums, BlockDecoder, BlockFormat, BlockSize, Completion, Flags,
    HeaderBlock, Options, Part, Writer,
};
use overlaybd::{FileRange, tar};

use crate::allocations::{allocations_in, assert_bounded};
use crate::files::{json, layer, names, open, payload, read, read_all, sha256, slice};

/// The options in a file's name: `merged_zstd_bs4096_crc1_hdr1`, `plain_zeros_300K_lz4_bs4096`. `None` if there are none.
fn options_of(name: &str) -> Option<Options> {
    let name = name.strip_suffix(".zfile")?;
    let options = |algorithm, bytes: &str, checksums, completion| {
        Some(Options {
            blocks: BlockFormat {
                algorithm,
                block_size: BlockSize::try_new(bytes.parse().ok()?)?,
                checksums,
            },
            completion,
        })
    };
    let algorithm = |name| match name {
        "lz4" => Some(Algorithm::Lz4),
        "zstd" => Some(Algorithm::Zstd),
        _ => None,
    };
    let parts: Vec<&str> = name.split('_').collect();
    match parts.as_slice() {
        ["merged", "tool", "lz4", "4k"] => options(
            Algorithm::Lz4,
            "4096",
            BlockChecksums::Crc32c,
            Completion::TrailerOnly,
        ),
        ["merged", name, size, crc, hdr] => options(
            algorithm(name)?,
            size.strip_prefix("bs")?,
            if *crc == "crc1" {
                BlockChecksums::Crc32c
            } else {
                BlockChecksums::Absent
            },
            if *hdr == "hdr1" {
                Completion::HeaderOverwritten
            } else {
                Completion::TrailerOnly
            },
        ),
        ["plain", .., name, size] => options(
            algorithm(name)?,
            size.strip_prefix("bs")?,
            BlockChecksums::Crc32c,
            Completion::HeaderOverwritten,
        ),
        _ => None,
    }
}

/// The digest that a file of `c_zfile` must decompress to.
fn digest_of(name: &str) -> String {
    let expected = if name.starts_with("merged_") {
        json("c_zfile/decompressed_blob.json")
    } else {
        let (payload, _) = name.rsplit_once("_bs").unwrap();
        let (payload, _) = payload.rsplit_once('_').unwrap();
        json(&format!("c_zfile/{payload}.expected.json"))
    };
    expected["sha256"].as_str().unwrap().to_owned()
}

/// Writes a file in pushes of `piece` bytes.
fn write(raw: &[u8], options: Options, piece: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::begin(options, &mut out).unwrap();
    for piece in raw.chunks(piece) {
        writer.push(piece, &mut out).unwrap();
    }
    let finished = writer.finish(&mut out).unwrap();
    assert_eq!(finished.file_len, ByteLen(out.len() as u64));
    if let Some(header) = finished.header {
        out[..header.len()].copy_from_slice(&header);
    }
    out
}

#[test]
fn every_zfile_of_the_reference_is_read_and_written_again_with_equal_bytes() {
    let (mut files, mut option_sets) = (0, std::collections::HashSet::new());
    for name in names("c_zfile") {
        if name.ends_with(".json") {
            continue;
        }
        let options = options_of(&name).unwrap_or_else(|| panic!("{name} is not covered"));
        let file = read(&format!("c_zfile/{name}"));
        assert_eq!(
            open(&file).unwrap().header().blocks,
            options.blocks,
            "{name}"
        );
        let raw = read_all(&file).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
        assert_eq!(sha256(&raw), digest_of(&name), "{name}");
        for piece in [1000, 1 << 20] {
            let written = write(&raw, options, piece);
            assert!(written == file, "{name}: other bytes than the reference's");
        }
        option_sets.insert(options);
        files += 1;
    }
    assert_eq!((files, option_sets.len()), (40, 15));
    assert_bounded();
}

/// What our zstd (1.5.7) makes of `c_longdata/long_zstd64.zfile`. The reference's (1.5.4) made one of its 161 blocks seven
/// bytes longer: the bytes of a file depend on the library's version. A change here means that digests of new blobs change.
const LONG_ZSTD64_SHA256: &str = "4cf1034a7bbd228fff139e33c843a19d0d49c75e06c86e3f2a34efac76406a2e";

/// What the stock tools wrote elsewhere in the fixtures: longer files and wrapped ones.
#[test]
fn files_of_the_stock_tools_are_read_and_written_again_alike() {
    for name in [
        "b_stack4/merged_tool.zfile",
        "c_longdata/long_lz4.zfile",
        "c_longdata/long_zstd64.zfile",
        "g_tar/commit_zt.tar",
        "g_tar/go_like_ustar_zstd.tar",
        "j_ext4/ext4_l1.tar",
        "j_ext4/ext4_l2.tar",
    ] {
        let file = read(name);
        let file = if name.ends_with(".tar") {
            payload(&file).unwrap()
        } else {
            &file
        };
        let flags = u64::from(file[32]);
        let options = Options {
            blocks: open(file).unwrap().header().blocks,
            completion: if flags & Flags::HEADER_OVERWRITTEN == 0 {
                Completion::TrailerOnly
            } else {
                Completion::HeaderOverwritten
            },
        };
        let raw = read_all(file).unwrap();
        let written = write(&raw, options, 65_537);
        if name == "c_longdata/long_zstd64.zfile" {
            assert_eq!(written.len() + 7, file.len());
            assert!(read_all(&written).unwrap() == raw);
            assert_eq!(sha256(&written), LONG_ZSTD64_SHA256);
        } else {
            assert!(written == file, "{name}");
        }
    }
    assert_bounded();
}

#[test]
fn reading_blocks_allocates_nothing() {
    for name in [
        "merged_lz4_bs4096_crc1_hdr1.zfile",
        "merged_zstd_bs65536_crc1_hdr1.zfile",
    ] {
        let file = read(&format!("c_zfile/{name}"));
        let zfile = open(&file).unwrap();
        let mut decoder = BlockDecoder::new(zfile.header().blocks).unwrap();
        let mut raw = vec![0; 64 << 10];
        let allocations = allocations_in(|| {
            for piece in zfile.pieces(FileRange::new(0, zfile.len().0)) {
                let stored = slice(&file, piece.stored);
                let raw = &mut raw[..piece.raw_len as usize];
                decoder.decode(stored, raw).unwrap();
            }
        });
        assert_eq!(allocations, 0, "{name}");
    }
}

#[test]
fn every_wrapper_leads_to_its_layer() {
    let merged = json("c_zfile/decompressed_blob.json")["sha256"].clone();
    for name in names("g_tar") {
        let file = match name.as_str() {
            "expected.json" | "expected_commit_zt.json" => continue,
            _ => read(&format!("g_tar/{name}")),
        };
        let layer = layer(&file).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
        let (digest, payload_at) = match name.as_str() {
            "obdtar_lz4.tar" => (sha256(&layer), 1536),
            "go_like_ustar_zstd.tar" | "ustar_raw_lsmt.tar" | "gnu_format.tar" => {
                (sha256(&layer), 512)
            }
            "pax_long_header.tar" => (sha256(&layer), 2048),
            "commit_zt.tar" => {
                // The same commit as in f_commit under another uuid, which only header and trailer have.
                let plain = read("f_commit/plain_commit_cpp.lsmt");
                let content = |layer: &[u8]| layer[4096..layer.len() - 4096].to_vec();
                assert!(content(&layer) == content(&plain));
                (merged.as_str().unwrap().to_owned(), 1536)
            }
            other => panic!("{other} is not covered"),
        };
        assert_eq!(digest, merged, "{name}");
        let payload = payload(&file).unwrap();
        let at = slice(&file, FileRange::new(payload_at, payload.len() as u64));
        assert!(at == payload, "{name}");
    }
    assert_bounded();
}

#[test]
fn a_wrapper_is_written_as_the_reference_writes_it() {
    for name in ["obdtar_lz4.tar", "commit_zt.tar"] {
        let file = read(&format!("g_tar/{name}"));
        let payload = payload(&file).unwrap();
        let len = ByteLen(payload.len() as u64);
        let mut written = tar::wrapper(len).to_vec();
        written.extend_from_slice(payload);
        let padding = usize::try_from(tar::padding_len(len).0).unwrap();
        written.resize(written.len() + padding, 0);
        assert!(written == file, "{name}");
    }
}

#[test]
fn a_header_and_a_table_are_shown_line_by_line() {
    let file = read("c_zfile/merged_lz4_bs4096_crc1_hdr1.zfile");
    let block = file.first_chunk().unwrap();
    let header = HeaderBlock::parse(block, Part::Header, block::ByteOffset(0)).unwrap();
    let shown = header.to_string();
    for line in [
        "digest             0xde45bd8d",
        "flags              0x1b header data header_overwritten digest",
        "index_offset       198551",
        "index_size         96",
        "original_file_size 390656",
        "index_crc          0x2780ba66",
        "algorithm          1 lz4",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    let one_byte = open(&read("c_zfile/plain_one_byte_lz4_bs4096.zfile")).unwrap();
    assert_eq!(one_byte.table().to_string(), "0 512 6\n");
}
