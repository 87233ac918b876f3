//! A ZFile: header, trailer, jump table, and the first blocks.
#![no_main]

use block::ByteLen;
use libfuzzer_sys::fuzz_target;
use overlaybd::FileRange;
use overlaybd::zfile::{BlockDecoder, Opener};

/// Blocks that are decoded of each file: bounds the time of one input.
const BLOCKS_MAX: usize = 16;

fn slice(file: &[u8], range: FileRange) -> Option<&[u8]> {
    let start = usize::try_from(range.offset.0).ok()?;
    file.get(start..start.checked_add(usize::try_from(range.len.0).ok()?)?)
}

fuzz_target!(|file: &[u8]| {
    let Ok(mut opener) = Opener::new(ByteLen(file.len() as u64)) else {
        return;
    };
    while let Some(range) = opener.poll_read() {
        let bytes = slice(file, range).expect("what the opener asks for lies in the file");
        if opener.handle_read(bytes).is_err() {
            return;
        }
    }
    let Ok(zfile) = opener.finish() else { return };
    let Ok(mut decoder) = BlockDecoder::new(zfile.header().blocks) else {
        return;
    };
    let whole = FileRange::new(0, zfile.len().0);
    for piece in zfile.pieces(whole).take(BLOCKS_MAX) {
        let stored = slice(file, piece.stored).expect("a block that was accepted lies in the file");
        let mut raw = vec![0; piece.raw_len as usize];
        // A damaged block is an error, and nothing else.
        let _ = decoder.decode(stored, &mut raw);
    }
});
