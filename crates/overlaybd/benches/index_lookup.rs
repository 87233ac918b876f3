//! How long does finding a sector in an index of a million segments take, against a binary search over the same records?
//!
//! Baseline: `partition_point` over an array of 16-byte records, which is how both references search. Rounds alternate; the
//! median and the spread of all rounds are shown. Run with `cargo bench -p overlaybd`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark reads the clock and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use block::{Extent, Sectors};
use overlaybd::lsmt::{Index, IndexBuilder, MutableIndex, Segment};

const ROUNDS: usize = 11;
const LOOKUPS: usize = 200_000;

fn main() {
    for segments in [1_000u64, 30_000, 1_000_000] {
        measure(segments);
    }
}

fn measure(segments: u64) {
    let mut builder = IndexBuilder::new(segments);
    let mut plain = Vec::new();
    let mut mutable = MutableIndex::new();
    for at in 0..segments {
        let extent = Extent {
            start: Sectors(at * 16),
            len: Sectors(8),
        };
        // Places that do not meet, so that nothing is joined.
        let segment = Segment::data(extent, Sectors(8 + at * 9)).unwrap();
        builder.push(segment).unwrap();
        mutable.insert(segment);
        plain.push(segment);
    }
    let index = builder.finish();
    // The numbers do not matter, only that no cache or predictor guesses them.
    let sectors: Vec<_> = (0..LOOKUPS as u64)
        .map(|at| Sectors(at.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (segments * 16)))
        .collect();
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        times[0].push(time(&sectors, |sector| search(&plain, sector)));
        times[1].push(time(&sectors, |sector| find(&index, sector)));
        times[2].push(time(&sectors, |sector| {
            mutable.segments_from(sector).next()
        }));
    }
    println!(
        "{segments} segments, {} bytes of index",
        index.memory_bytes()
    );
    for (name, times) in ["binary search", "index", "mutable index"]
        .iter()
        .zip(times)
    {
        show(name, times);
    }
}

fn search(plain: &[Segment], sector: Sectors) -> Option<Segment> {
    let at = plain.partition_point(|segment| segment.end() <= sector);
    plain.get(at).copied()
}

fn find(index: &Index, sector: Sectors) -> Option<Segment> {
    index.segments_from(sector).next()
}

/// Nanoseconds of one lookup.
fn time(sectors: &[Sectors], lookup: impl Fn(Sectors) -> Option<Segment>) -> f64 {
    let begin = Instant::now();
    for sector in sectors {
        black_box(lookup(*sector));
    }
    begin.elapsed().as_nanos() as f64 / sectors.len() as f64
}

fn show(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    let (first, last) = (times.first(), times.last());
    let spread = last.zip(first).map_or(0.0, |(last, first)| last - first);
    println!("  {name:<14} {middle:7.1} ns a lookup, spread {spread:.1}");
}
