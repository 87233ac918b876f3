//! Indexes against a plain map from sectors to what they hold.

use block::{Extent, Sectors};
use overlaybd::lsmt::{
    Index, IndexBuilder, LayerIndex, LayerPlan, MergeInput, MutableIndex, NewLayer, Piece, Segment,
    Source, merge,
};
use proptest::prelude::*;

/// Sectors of the model's disk: small, so that segments meet often.
const DISK: u64 = 200;

/// A segment to insert: start, length, place in the file, zeros or data.
#[derive(Clone, Debug)]
struct Insert {
    start: u64,
    len: u64,
    moffset: u64,
    is_zeroed: bool,
}

impl Insert {
    fn segment(&self) -> Segment {
        let extent = Extent {
            start: Sectors(self.start),
            len: Sectors(self.len),
        };
        let make = if self.is_zeroed {
            Segment::zeroed
        } else {
            Segment::data
        };
        make(extent, Sectors(self.moffset)).unwrap()
    }
}

fn insert() -> impl Strategy<Value = Insert> {
    // Few places in the file, so that neighbours meet there too.
    (0..DISK - 1, 1..40u64, 8..60u64, any::<bool>()).prop_map(|(start, len, moffset, is_zeroed)| {
        Insert {
            start,
            len: len.min(DISK - start),
            moffset,
            is_zeroed,
        }
    })
}

fn inserts() -> impl Strategy<Value = Vec<Insert>> {
    prop::collection::vec(insert(), 0..40)
}

fn apply(model: &mut [Source], inserts: &[Insert], layer: u8) {
    for insert in inserts {
        for at in 0..insert.len {
            let source = if insert.is_zeroed {
                Source::Zero
            } else {
                Source::Data {
                    layer: LayerIndex(layer),
                    offset: Sectors(insert.moffset + at),
                }
            };
            model[usize::try_from(insert.start + at).unwrap()] = source;
        }
    }
}

fn mutable(inserts: &[Insert]) -> MutableIndex {
    let mut index = MutableIndex::new();
    inserts.iter().for_each(|i| index.insert(i.segment()));
    index
}

/// Each sector's source, out of pieces that must have no gaps.
fn sectors(pieces: impl Iterator<Item = Piece>, start: u64) -> Vec<Source> {
    let mut all = Vec::new();
    for piece in pieces {
        assert_eq!(piece.extent.start.0, start + all.len() as u64);
        assert!(piece.extent.len.0 > 0);
        for at in 0..piece.extent.len.0 {
            all.push(match piece.source {
                Source::Data { layer, offset } => Source::Data {
                    layer,
                    offset: Sectors(offset.0 + at),
                },
                source => source,
            });
        }
    }
    all
}

fn assert_sound(index: &Index) {
    let all: Vec<_> = index.segments().collect();
    for pair in all.windows(2) {
        assert!(pair[0].end() <= pair[1].start());
    }
}

const WHOLE: Extent = Extent {
    start: Sectors(0),
    len: Sectors(DISK),
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn inserting_overrides_what_it_covers(
        inserts in inserts(),
        start in 0..DISK,
        len in 0..DISK,
    ) {
        let mut model = vec![Source::Hole; DISK as usize];
        apply(&mut model, &inserts, 0);
        let index = mutable(&inserts);
        prop_assert_eq!(sectors(index.pieces(WHOLE), 0), &model[..]);
        let compact = index.to_index().unwrap();
        assert_sound(&compact);
        prop_assert_eq!(compact.len(), index.len());
        let len = len.min(DISK - start);
        let extent = Extent { start: Sectors(start), len: Sectors(len) };
        let want = &model[start as usize..(start + len) as usize];
        prop_assert_eq!(sectors(index.pieces(extent), start), want);
        prop_assert_eq!(sectors(compact.pieces(extent), start), want);
    }

    #[test]
    fn merging_is_applying_from_the_bottom(layers in prop::collection::vec(inserts(), 0..7)) {
        let mut model = vec![Source::Hole; DISK as usize];
        let mut indexes = Vec::new();
        for (layer, inserts) in (0u8..).zip(&layers) {
            apply(&mut model, inserts, layer);
            indexes.push(mutable(inserts).to_index().unwrap());
        }
        let inputs: Vec<_> = (0u8..)
            .zip(&indexes)
            .map(|(tag, index)| MergeInput { index, tag, target_tag: tag })
            .collect();
        let merged = merge(&inputs).unwrap();
        assert_sound(&merged);
        prop_assert_eq!(sectors(merged.pieces(WHOLE), 0), model);
    }

    /// A planned layer reads as its source does: each sector of its data is copied from where the source has it.
    #[test]
    fn a_commit_moves_data_and_changes_nothing_else(inserts in inserts()) {
        let source = mutable(&inserts).to_index().unwrap();
        let plan = LayerPlan::commit(&source, &NewLayer::default()).unwrap();
        let mut from_of = Vec::new();
        for copy in plan.copies() {
            let first = copy.from.offset.0 / 512;
            from_of.extend(first..first + copy.from.len.0 / 512);
        }
        let mut builder = IndexBuilder::new(1000);
        let (records, _) = plan.tail.as_chunks();
        for bytes in &records[..records.len() - 256] {
            match overlaybd::lsmt::Record::parse(*bytes) {
                Ok(overlaybd::lsmt::Record::Segment(segment)) => builder.push(segment).unwrap(),
                _ => break,
            }
        }
        let moved = sectors(builder.finish().pieces(WHOLE), 0);
        let back: Vec<_> = moved
            .into_iter()
            .map(|sector| match sector {
                Source::Data { layer, offset } => Source::Data {
                    layer,
                    offset: Sectors(from_of[offset.0 as usize - 8]),
                },
                other => other,
            })
            .collect();
        prop_assert_eq!(back, sectors(source.pieces(WHOLE), 0));
    }
}
