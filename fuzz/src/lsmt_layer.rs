//! A sealed layer: ends, records, the index, and looking things up in it; as a plain and as a warp layer.
#![no_main]

use block::{ByteLen, Extent, Sectors};
use libfuzzer_sys::fuzz_target;
use overlaybd::FileRange;
use overlaybd::lsmt::{LayerEnds, Layout, Stack};

fn slice(file: &[u8], range: FileRange) -> Option<&[u8]> {
    let start = usize::try_from(range.offset.0).ok()?;
    file.get(start..start.checked_add(usize::try_from(range.len.0).ok()?)?)
}

fn open(file: &[u8], parse: fn(LayerEnds, &[u8], &[u8]) -> Result<Layout, overlaybd::Error>) {
    let Ok(ends) = LayerEnds::of_file(ByteLen(file.len() as u64)) else {
        return;
    };
    let (Some(header), Some(trailer)) = (slice(file, ends.header), slice(file, ends.trailer))
    else {
        panic!("the ends of a file lie in it");
    };
    let Ok(layout) = parse(ends, header, trailer) else {
        return;
    };
    let index = slice(file, layout.index()).expect("an index that was accepted lies in the file");
    let mut loader = layout.loader();
    for chunk in index.chunks(1000) {
        if loader.push(chunk).is_err() {
            return;
        }
    }
    let Ok(layer) = loader.finish() else { return };
    let Ok(stack) = Stack::build_unrelated(&[&layer]) else {
        return;
    };
    for start in [
        0,
        1,
        1000,
        stack.size().0 / 2,
        stack.size().0.saturating_sub(3),
        u64::MAX - 5,
    ] {
        let extent = Extent {
            start: Sectors(start),
            len: Sectors(5000),
        };
        let mut at = start;
        for piece in stack.resolve(extent) {
            assert_eq!(piece.extent.start.0, at, "pieces meet");
            assert!(piece.extent.len.0 > 0, "no piece is empty");
            at += piece.extent.len.0;
        }
    }
}

fuzz_target!(|file: &[u8]| {
    open(file, Layout::parse);
    open(file, Layout::parse_warp);
});
