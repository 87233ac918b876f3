//! A layer on another parent than it names is refused, with both uuids.

use overlaybd::ErrorKind;
use overlaybd::lsmt::{LOWERS_MAX, Layer, LayerIndex, Stack};

use crate::fixture;

fn layer(name: &str) -> Layer {
    fixture::layer(&fixture::read(name)).unwrap()
}

#[test]
fn every_link_of_a_stack_is_checked() {
    let [p0, p1, p2] = ["h_parent/P0.lsmt", "h_parent/P1.lsmt", "h_parent/P2.lsmt"].map(layer);
    let unknown = "0BD00BAD-0000-4000-8000-000000000BAD";
    let (uuid0, uuid1) = (
        p0.trailer.uuid.unwrap().to_string(),
        p1.trailer.uuid.unwrap().to_string(),
    );
    let cases: [(&[&Layer], [&str; 3]); 3] = [
        (&[&p0, &p1], ["layer 1", unknown, &uuid0]),
        (&[&p0, &p1, &p2], ["layer 1", unknown, &uuid0]),
        // The link from the top lower to the next, at which neither reference looks.
        (&[&p0, &p2], ["layer 1", &uuid1, &uuid0]),
    ];
    for (layers, words) in cases {
        let error = Stack::build(layers).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(Stack::build_unrelated(layers).is_ok());
    }
    assert!(Stack::build(&[&p1, &p2]).is_ok());
}

#[test]
fn an_upper_on_another_layer_is_refused() {
    let data = fixture::read("h_parent/upper_wrong_parent.data");
    let index = fixture::read("h_parent/upper_wrong_parent.index");
    let upper = fixture::log_loader(&data, &index).unwrap();
    let header = upper.finish_strict().unwrap().header;
    let p2 = layer("h_parent/P2.lsmt");
    let stack = Stack::build(&[&p2]).unwrap();
    let error = stack.check_upper(&header).unwrap_err().to_string();
    for uuid in [header.parent_uuid, p2.trailer.uuid] {
        assert!(error.contains(&uuid.unwrap().to_string()), "{error}");
    }
    assert!(Stack::build(&[]).unwrap().check_upper(&header).is_ok());
}

#[test]
fn none_is_never_a_mismatch() {
    let nil = layer("a_single_bigzero/bigzero_niluuid.lsmt");
    let named = layer("b_stack4/L1.lsmt");
    let without_parent = layer("b_stack4/L0.lsmt");
    assert!(Stack::build(&[&nil, &named]).is_ok());
    assert!(Stack::build(&[&named, &without_parent]).is_ok());
}

/// A tag is one byte: 255 lowers, and the last tag for an upper.
#[test]
fn one_layer_too_many_is_refused() {
    let empty = layer("a_empty/empty.lsmt");
    let stack = Stack::build(&[&empty; LOWERS_MAX]).unwrap();
    assert_eq!(stack.upper_index(), LayerIndex(u8::MAX));
    let error = Stack::build(&[&empty; LOWERS_MAX + 1]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
}
