//! Every record of a layer prints as the reference's lists have it, padding included.

use overlaybd::lsmt::{RECORD_BYTES, Record};

use crate::fixture;

#[test]
fn indexes_are_listed_exactly() {
    let cases = [
        ("a_single/single.lsmt", "a_single/single.index.txt"),
        (
            "a_single_bigzero/bigzero_niluuid.lsmt",
            "a_single_bigzero/index.txt",
        ),
        ("i_warp/warp.fs.meta", "i_warp/index.txt"),
    ];
    for (name, list) in cases {
        let file = fixture::read(name);
        let layout = fixture::layout(&file).unwrap();
        let (records, rest) = fixture::slice(&file, layout.index()).as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty());
        let mut lines = String::new();
        for bytes in records {
            let record = Record::parse(*bytes).unwrap();
            assert_eq!(record.encode(), *bytes, "{name}");
            lines += &format!("{record}\n");
        }
        assert_eq!(lines, fixture::read_text(list), "{name}");
    }
}
