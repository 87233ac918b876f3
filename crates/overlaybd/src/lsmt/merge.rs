//! Merging the indexes of a stack into one: what is above hides what is below.
//!
//! Neighbours are merged first and their results then, so that a segment is copied log2(layers) times, not once for each
//! layer above it. Overlaying is associative, which makes this the same as applying the layers one by one.

use block::ByteOffset;

use super::index::{INDEX_RECORDS_MAX, Index, IndexBuilder, OrderFault};
use super::record::Segment;
use crate::{Error, ErrorKind};

/// The most files in a stack besides an upper: a tag is one byte and the upper has the last one.
pub const LOWERS_MAX: usize = 255;

/// One layer of a merge.
#[derive(Clone, Copy, Debug)]
pub struct MergeInput<'a> {
    /// Its index.
    pub index: &'a Index,
    /// The tag of its own segments in the result.
    pub tag: u8,
    /// The tag of segments in a warp layer's target, those with tag 1. The same as `tag` for other layers.
    pub target_tag: u8,
}

impl MergeInput<'_> {
    fn retagged(&self, segment: Segment) -> Segment {
        segment.with_tag(if segment.tag() == 0 {
            self.tag
        } else {
            self.target_tag
        })
    }
}

/// One index of `layers`, bottom first.
///
/// # Errors
/// [`ErrorKind::TooLarge`] for more than [`LOWERS_MAX`] layers or [`INDEX_RECORDS_MAX`] segments.
pub fn merge(layers: &[MergeInput<'_>]) -> Result<Index, Error> {
    if layers.len() > LOWERS_MAX {
        let detail = format!("{} layers, at most {LOWERS_MAX}", layers.len());
        return Err(too_large(detail));
    }
    merge_halves(layers).map_err(|fault| too_large(fault.to_string()))
}

fn too_large(detail: String) -> Error {
    Error::new(ErrorKind::TooLarge, "merged index", ByteOffset(0), detail)
}

/// Recursion ends after eight steps: there are at most 255 layers.
fn merge_halves(layers: &[MergeInput<'_>]) -> Result<Index, OrderFault> {
    match layers {
        [] => Ok(Index::default()),
        [layer] => {
            let mut all = IndexBuilder::new(INDEX_RECORDS_MAX);
            for segment in layer.index.segments() {
                all.push_joined(layer.retagged(segment))?;
            }
            Ok(all.finish())
        }
        _ => {
            let (lower, upper) = layers.split_at(layers.len() / 2);
            overlay(&merge_halves(lower)?, &merge_halves(upper)?)
        }
    }
}

/// One index of `lower` and what is above it. Tags stay.
pub(super) fn overlay(lower: &Index, upper: &Index) -> Result<Index, OrderFault> {
    let mut all = IndexBuilder::new(INDEX_RECORDS_MAX);
    let mut below = lower.segments();
    let mut next_below = below.next();
    for above in upper.segments() {
        let (start, end) = (above.start().0, above.end().0);
        while let Some(segment) = next_below {
            if let Some(visible) = segment.clipped(0, start) {
                all.push_joined(visible)?;
            }
            next_below = segment.clipped(end, u64::MAX);
            if next_below.is_some() {
                break;
            }
            next_below = below.next();
        }
        all.push_joined(above)?;
    }
    for segment in next_below.into_iter().chain(below) {
        all.push_joined(segment)?;
    }
    Ok(all.finish())
}

#[cfg(test)]
mod tests {
    use block::{Extent, Sectors};

    use super::*;

    fn index(segments: &[(u64, u64, u64)]) -> Index {
        let mut builder = IndexBuilder::new(100);
        for (start, len, moffset) in segments {
            let extent = Extent {
                start: Sectors(*start),
                len: Sectors(*len),
            };
            let segment = Segment::data(extent, Sectors(*moffset)).unwrap();
            builder.push(segment).unwrap();
        }
        builder.finish()
    }

    fn input(index: &Index, tag: u8) -> MergeInput<'_> {
        MergeInput {
            index,
            tag,
            target_tag: tag,
        }
    }

    fn lines(index: &Index) -> Vec<String> {
        index.segments().map(|s| s.to_string()).collect()
    }

    #[test]
    fn what_is_above_hides_what_is_below() {
        let bottom = index(&[(0, 10, 100), (20, 10, 200), (40, 5, 300)]);
        let middle = index(&[(5, 20, 50)]);
        let top = index(&[(22, 2, 8), (44, 10, 10)]);
        let layers = [input(&bottom, 0), input(&middle, 1), input(&top, 2)];
        let want = [
            "0 5 100 0 0",
            "5 17 50 0 1",
            "22 2 8 0 2",
            "24 1 69 0 1",
            "25 5 205 0 0",
            "40 4 300 0 0",
            "44 10 10 0 2",
        ];
        assert_eq!(lines(&merge(&layers).unwrap()), want);
    }

    #[test]
    fn one_segment_can_hide_many_and_be_cut_by_many() {
        let many = index(&[(0, 2, 8), (10, 2, 10), (20, 2, 12)]);
        let wide = index(&[(1, 20, 8)]);
        let over = merge(&[input(&many, 0), input(&wide, 1)]).unwrap();
        assert_eq!(lines(&over), ["0 1 8 0 0", "1 20 8 0 1", "21 1 13 0 0"]);
        let under = merge(&[input(&wide, 1), input(&many, 0)]).unwrap();
        let want = [
            "0 2 8 0 0",
            "2 8 9 0 1",
            "10 2 10 0 0",
            "12 8 19 0 1",
            "20 2 12 0 0",
        ];
        assert_eq!(lines(&under), want);
    }

    #[test]
    fn segments_of_a_target_get_their_own_tag() {
        let own = index(&[(0, 1, 8)]).segments().next().unwrap();
        let remote = index(&[(1, 1, 8)]).segments().next().unwrap().with_tag(1);
        let mut builder = IndexBuilder::new(2);
        builder.push(own).unwrap();
        builder.push(remote).unwrap();
        let warp = MergeInput {
            index: &builder.finish(),
            tag: 4,
            target_tag: 5,
        };
        let lines = lines(&merge(&[warp]).unwrap());
        assert_eq!(lines, ["0 1 8 0 4", "1 1 8 0 5"]);
    }

    #[test]
    fn too_many_layers_are_refused() {
        let empty = Index::default();
        let layers = [input(&empty, 0); LOWERS_MAX + 1];
        assert_eq!(merge(&layers).unwrap_err().kind, ErrorKind::TooLarge);
        assert!(merge(&layers[1..]).unwrap().is_empty());
        assert!(merge(&[]).unwrap().is_empty());
    }
}
