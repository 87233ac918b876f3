//! An archive around a layer.
#![no_main]

use block::ByteLen;
use libfuzzer_sys::fuzz_target;
use overlaybd::sniff::Verdict;
use overlaybd::tar::PayloadFinder;

fuzz_target!(|file: &[u8]| {
    let verdict = Verdict::of(&file[..file.len().min(512)]);
    assert!(!verdict.to_string().is_empty());
    let mut finder = PayloadFinder::new(ByteLen(file.len() as u64));
    let mut reads = 0;
    while let Some(range) = finder.poll_read() {
        reads += 1;
        assert!(reads < 100, "few blocks are looked at");
        let start = usize::try_from(range.offset.0)
            .unwrap_or(usize::MAX)
            .min(file.len());
        let end = usize::try_from(range.end().0)
            .unwrap_or(usize::MAX)
            .min(file.len());
        if finder.handle_read(&file[start..end]).is_err() {
            return;
        }
    }
    let payload = finder.payload().expect("nothing more is to be read");
    assert!(
        payload.end().0 <= file.len() as u64,
        "the payload lies in the file"
    );
});
