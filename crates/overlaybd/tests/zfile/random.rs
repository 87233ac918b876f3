//! Random bytes through the writer and back, and random damage to valid files.

use block::ByteLen;
use overlaybd::zfile::{
    Algorithm, BlockChecksums, BlockFormat, BlockSize, Completion, Options, Writer,
};
use overlaybd::{FileRange, tar};
use proptest::prelude::*;

use crate::allocations::assert_bounded;
use crate::files::{layer, open, read_all, read_range};

/// What a damaged layer must begin with to be looked at to its end.
const LSMT_MAGIC: &[u8] =
    b"LSMT\x00\x01\x02\x00\x65\x7e\x63\xd2\x94\x44\x08\x4c\xa2\xd2\xc8\xec\x4f\xcf\xae\x8a";

fn any_options() -> impl Strategy<Value = Options> {
    (any::<bool>(), 9_u32..=16, any::<bool>(), any::<bool>()).prop_map(
        |(zstd, shift, checksums, overwritten)| Options {
            blocks: BlockFormat {
                algorithm: if zstd {
                    Algorithm::Zstd
                } else {
                    Algorithm::Lz4
                },
                block_size: BlockSize::try_new(1 << shift).unwrap(),
                checksums: if checksums {
                    BlockChecksums::Crc32c
                } else {
                    BlockChecksums::Absent
                },
            },
            completion: if overwritten {
                Completion::HeaderOverwritten
            } else {
                Completion::TrailerOnly
            },
        },
    )
}

/// Runs of zeros, of text and of random bytes.
fn any_raw() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((0_u8..3, 0_usize..70_000, any::<u64>()), 0..5).prop_map(|runs| {
        let mut raw = Vec::new();
        for (kind, len, seed) in runs {
            let mut random = fastrand::Rng::with_seed(seed);
            match kind {
                0 => raw.resize(raw.len() + len, 0),
                1 => raw.extend((0..len).map(|_| b"quick brown fox"[random.usize(0..15)])),
                _ => raw.extend((0..len).map(|_| random.u8(..))),
            }
        }
        raw
    })
}

fn write(raw: &[u8], options: Options, piece: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::begin(options, &mut out).unwrap();
    for piece in raw.chunks(piece) {
        writer.push(piece, &mut out).unwrap();
    }
    if let Some(header) = writer.finish(&mut out).unwrap().header {
        out[..header.len()].copy_from_slice(&header);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_back_at_any_place(
        raw in any_raw(),
        options in any_options(),
        piece in 1_usize..100_000,
        places in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..100_000), 1..8),
    ) {
        let file = write(&raw, options, piece);
        prop_assert!(read_all(&file).unwrap() == raw);
        let zfile = open(&file).unwrap();
        for (place, len) in places {
            let begin = place.index(raw.len() + 1);
            let end = (begin + len).min(raw.len());
            let wanted = FileRange::new(begin as u64, len as u64);
            let got = read_range(&file, &zfile, wanted).unwrap();
            prop_assert!(got == raw[begin..end]);
        }
    }

    #[test]
    fn damage_never_panics_and_never_allocates(
        options in any_options(),
        wrapped in any::<bool>(),
        digest in any::<bool>(),
        damage in prop::collection::vec((0_u8..4, any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut raw = LSMT_MAGIC.to_vec();
        raw.extend((0..9000_u32).flat_map(u32::to_le_bytes));
        let mut file = write(&raw, options, raw.len());
        let trailer = file.len() - 512;
        if !digest {
            // Without digests the damage reaches the fields and the table.
            file[32] &= !16;
            file[trailer + 32] &= !16;
        }
        let mut tar_len = 0;
        if wrapped {
            let wrapper = tar::wrapper(ByteLen(file.len() as u64));
            tar_len = wrapper.len();
            file.splice(..0, wrapper);
        }
        let len = file.len();
        for (place, index, value) in damage {
            // Where the fields are, or anywhere.
            let at = match place {
                0 => tar_len + 32 + index.index(57),
                1 => tar_len + trailer + 32 + index.index(57),
                2 => tar_len + trailer - 1 - index.index(36),
                _ => index.index(len),
            };
            file[at] = value;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(len));
        }
        // Either is right; a damaged wrapper has no checksum for what is behind it.
        let _ = layer(&file);
        assert_bounded();
    }
}
