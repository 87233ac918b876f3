//! A sparse upper. Input: the header, then pairs of words that are extents.
#![no_main]

use block::ByteLen;
use libfuzzer_sys::fuzz_target;
use overlaybd::FileRange;
use overlaybd::lsmt::{HEADER_BYTES, SparseLayout};

fuzz_target!(|input: &[u8]| {
    let (block, rest) = input.split_at(input.len().min(HEADER_BYTES));
    let Ok(layout) = SparseLayout::parse(block, ByteLen(u64::MAX)) else {
        return;
    };
    let words: Vec<u64> = rest
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u64::from(u32::from_le_bytes(*word)) * 256)
        .collect();
    let extents = words.as_chunks::<2>().0.iter();
    // Long extents are many records: a file of 2^40 bytes has 131,072 of them.
    let extents = extents.map(|[offset, len]| FileRange::new(*offset, len % (1 << 30)));
    if let Ok(index) = layout.index(extents.take(64)) {
        assert!(index.to_index().is_ok());
    }
});
