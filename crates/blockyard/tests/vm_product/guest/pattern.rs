//! Content that says where it belongs: a block that is lost, stale or misplaced does not match.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// One piece of writing or reading.
const CHUNK_BYTES: usize = 1 << 20;

/// A stream of bytes, different for each seed. Every word depends on the seed and on its own position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    pub(crate) seed: u64,
}

impl Pattern {
    /// Writes the first `mib` MiB to a new file and makes them durable.
    pub(crate) fn write(self, path: &Path, mib: u64) {
        let mut file = File::create(path).unwrap();
        for index in 0..mib {
            file.write_all(&self.chunk(index)).unwrap();
        }
        file.sync_all().unwrap();
    }

    /// Asserts that the file, or device, begins with the first `mib` MiB.
    pub(crate) fn check(self, path: &Path, mib: u64) {
        let mut file = File::open(path).unwrap();
        let mut buffer = vec![0; CHUNK_BYTES];
        for index in 0..mib {
            file.read_exact(&mut buffer).unwrap();
            let is_right = buffer == self.chunk(index);
            assert!(is_right, "{}: MiB {index} is wrong", path.display());
        }
    }

    fn chunk(self, index: u64) -> Vec<u8> {
        let words = (CHUNK_BYTES / 8) as u64;
        (index * words..(index + 1) * words)
            .flat_map(|word| mix(self.seed ^ word).to_le_bytes())
            .collect()
    }
}

/// The finaliser of SplitMix64: neighbours become unrelated.
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
