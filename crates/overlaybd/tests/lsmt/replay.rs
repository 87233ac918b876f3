//! Replaying the operations of a fixture gives the index file that the reference wrote.

use std::num::NonZeroU16;

use block::{Extent, Sectors};
use overlaybd::lsmt::{
    Appended, HEADER_SECTORS, HybridWrite, MutableIndex, RECORD_BYTES, RecordGroup, Segment,
    WriteStep,
};

use crate::fixture;

/// The C++ reference splits larger writes: 4 MiB.
pub(crate) const IO_SECTORS_MAX: u64 = 8192;

/// The segments of a script, and the bytes that its records make in the index file, with the tag that the reference gives an
/// upper over so many lowers.
pub(crate) fn replay(script: &str, tag: u8) -> (Vec<Segment>, Vec<u8>) {
    let mut segments = Vec::new();
    let mut bytes = Vec::new();
    let mut data_end = HEADER_SECTORS;
    let mut group = RecordGroup::new(NonZeroU16::MIN);
    for line in script.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "gc" => {
                let records = usize::try_from(number(1)).unwrap() / RECORD_BYTES;
                let records = u16::try_from(records).unwrap();
                group = RecordGroup::new(NonZeroU16::new(records).unwrap());
            }
            "sync" => write(&mut group, &mut bytes),
            "exit" => return (segments, bytes),
            "w" | "d" => {
                let appended = split(number(1) / 512, number(2) / 512, words[0], &mut data_end);
                for segment in appended {
                    segments.push(segment);
                    group.try_push(segment.with_tag(tag)).unwrap();
                    if group.is_full() {
                        write(&mut group, &mut bytes);
                    }
                }
            }
            _ => {}
        }
    }
    write(&mut group, &mut bytes);
    (segments, bytes)
}

fn write(group: &mut RecordGroup, bytes: &mut Vec<u8>) {
    group.pad();
    bytes.extend(group.as_bytes());
    group.clear();
}

fn split(start: u64, len: u64, op: &str, data_end: &mut Sectors) -> Vec<Segment> {
    let mut all = Vec::new();
    let (mut start, end) = (start, start + len);
    while start < end {
        let extent = Extent {
            start: Sectors(start),
            len: Sectors(IO_SECTORS_MAX.min(end - start)),
        };
        let appended = match op {
            "w" => Appended::written(extent, *data_end),
            // Discards are not split at the limit of a write.
            _ => Appended::discarded(
                Extent {
                    len: Sectors(end - start),
                    ..extent
                },
                *data_end,
            ),
        };
        let segments: Vec<_> = appended.map(Result::unwrap).collect();
        let last = segments.last().unwrap();
        (start, *data_end) = (last.end().0, last.moffset_end());
        all.extend(segments);
    }
    all
}

#[test]
fn records_are_appended_as_the_reference_does() {
    let cases = [
        ("d_rw/plain.ops", "d_rw/plain.index", 0),
        ("d_rw/groupcommit.ops", "d_rw/groupcommit.index", 0),
        ("d_rw/crash.ops", "d_rw/crash.index", 0),
        ("d_rw/stacked_tag4.ops", "d_rw/stacked_tag4.index", 4),
        ("d_rw/grown6M.ops", "d_rw/grown6M.index", 0),
        ("d_rw/beyond.ops", "d_rw/beyond.index", 0),
        ("d_rw/vsize0.ops", "d_rw/vsize0.index", 4),
        ("d_rw_rust/ops", "d_rw_rust/log.index", 0),
    ];
    for (script, index, tag) in cases {
        let (_, bytes) = replay(&fixture::read_text(script), tag);
        assert!(bytes == fixture::read(index)[4096..], "{index}");
    }
}

#[test]
fn a_torn_tail_is_cut_and_unsynced_writes_are_not_there() {
    let open = |name: &str| {
        let data = fixture::read(&format!("d_rw/{name}.data"));
        let index = fixture::read(&format!("d_rw/{name}.index"));
        let upper = fixture::log_loader(&data, &index).unwrap();
        (upper.finish_repaired().unwrap(), data.len(), index.len())
    };
    let (torn, _, index_len) = open("torn_index");
    assert_eq!(torn.index_len.0 as usize, index_len - 9);
    let (ahead, _, index_len) = open("index_ahead");
    assert_eq!(ahead.index_len.0 as usize, index_len - 16);
    assert_eq!(ahead.records_dropped, 1);
    let (plain, ..) = open("plain");
    let (crash, data_len, _) = open("crash");
    assert_eq!(crash.index, plain.index);
    assert_eq!(crash.data_len.0 as usize, data_len);
}

/// The Rust reference discards as a log does, and overwrites what it has data for.
#[test]
fn a_hybrid_upper_appends_as_the_reference_does() {
    let mut index = MutableIndex::new();
    let mut data_end = HEADER_SECTORS;
    let mut bytes = Vec::new();
    for line in fixture::read_text("d_rw_rust/ops").lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let extent = Extent {
            start: Sectors(number(1) / 512),
            len: Sectors(number(2) / 512),
        };
        let appended: Vec<_> = if words[0] == "w" {
            HybridWrite::new(&index, extent, data_end)
                .filter_map(|step| match step.unwrap() {
                    WriteStep::Append(segment) => Some(segment),
                    WriteStep::Overwrite { .. } => None,
                })
                .collect()
        } else {
            Appended::discarded(extent, data_end)
                .map(Result::unwrap)
                .collect()
        };
        for segment in appended {
            bytes.extend(segment.encode());
            data_end = segment.moffset_end();
            index.insert(segment);
        }
    }
    assert!(bytes == fixture::read("d_rw_rust/hybrid.index")[4096..]);
    let data_len = fixture::read("d_rw_rust/hybrid.data").len() as u64;
    assert_eq!(data_end.offset_bytes().0, data_len);
}
