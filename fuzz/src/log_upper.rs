//! A log upper. Input: two bytes that say how long the data file is said to be (in sectors), then the index file, whose header is
//! the data file's too but for what the flags say.
#![no_main]

use block::ByteLen;
use libfuzzer_sys::fuzz_target;
use overlaybd::lsmt::{HEADER_BYTES, LogFiles, LogLayout};

fuzz_target!(|input: &[u8]| {
    let Some((len, index)) = input.split_first_chunk::<2>() else {
        return;
    };
    let header = index.get(..HEADER_BYTES).unwrap_or(index);
    let mut data_header = header.to_vec();
    // Bit 1 of the flags: a data file.
    if let Some(flags) = data_header.get_mut(28) {
        *flags |= 2;
    }
    for byte in data_header.iter_mut().skip(32).take(8) {
        *byte = 0;
    }
    let files = LogFiles {
        data_header: &data_header,
        data_len: ByteLen(u64::from(u16::from_le_bytes(*len)) * 512 + 7),
        index_header: header,
        index_len: ByteLen(index.len() as u64),
    };
    let load = || {
        let layout = LogLayout::parse(&files).ok()?;
        let records = layout.records();
        let start = usize::try_from(records.offset.0).ok()?;
        let bytes = &index[start..start + usize::try_from(records.len.0).ok()?];
        let mut loader = layout.loader();
        for chunk in bytes.chunks(1000) {
            loader.push(chunk).ok()?;
        }
        Some(loader)
    };
    let strict = load().and_then(|loader| loader.finish_strict().ok());
    let repaired = load().and_then(|loader| loader.finish_repaired().ok());
    if let Some(strict) = strict {
        let repaired = repaired.expect("what is sound needs no repair");
        assert!(
            strict.index == repaired.index,
            "a repair leaves what is sound"
        );
        assert!(strict.index.to_index().is_ok());
    }
});
