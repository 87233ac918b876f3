//! A stack of sealed layers as one disk, and what is under an upper.
//!
//! Size: that of the topmost layer that has one, even if a lower one is larger. What lies behind it is not part of the disk.
//!
//! Parents: a layer names the uuid of the layer it was written on. [`Stack::build`] refuses another one, because a layer over
//! the wrong parent gives wrong data without any other sign; the reference looks at it at most by halves. Merged and foreign
//! layers may carry stale names: [`Stack::build_unrelated`] takes them as they come. A layer that names no parent, or stands
//! on one without a uuid, is never a mismatch.

use block::{ByteOffset, Extent, Sectors};

use super::header::{self, Header};
use super::index::{Index, Segments};
use super::layer::Layer;
use super::lookup::{LayerIndex, Piece, Pieces, Source};
use super::merge::{self, LOWERS_MAX, MergeInput};
use super::mutable::{MutableIndex, MutableSegments};
use super::uuid::LayerUuid;
use crate::{Error, ErrorKind};

/// What a file of a stack is, in the order of [`LayerIndex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFile {
    /// The file of the layer at this place of the list.
    Own(usize),
    /// The target of the warp layer at this place of the list.
    Target(usize),
}

/// Sealed layers over one another.
#[derive(Clone, Debug)]
pub struct Stack {
    size: Sectors,
    index: Index,
    files: Vec<StackFile>,
    top_uuid: Option<LayerUuid>,
}

impl Stack {
    /// A stack of `layers`, bottom first, each on the parent that it names.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] with both uuids for a layer on another parent, [`ErrorKind::TooLarge`] beyond
    /// [`LOWERS_MAX`] files.
    pub fn build(layers: &[&Layer]) -> Result<Self, Error> {
        for (number, pair) in layers.windows(2).enumerate() {
            if let [below, layer] = pair {
                let what = format!("layer {}", number + 1);
                check_parent(&layer.trailer, below.trailer.uuid, &what)?;
            }
        }
        Self::build_unrelated(layers)
    }

    /// A stack of `layers`, bottom first, whatever parents they name.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond [`LOWERS_MAX`] files.
    pub fn build_unrelated(layers: &[&Layer]) -> Result<Self, Error> {
        let mut files = Vec::new();
        let mut inputs = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            let tag = file_tag(files.len())?;
            files.push(StackFile::Own(number));
            let target_tag = if layer.has_target() {
                files.push(StackFile::Target(number));
                file_tag(files.len() - 1)?
            } else {
                tag
            };
            inputs.push(MergeInput {
                index: &layer.index,
                tag,
                target_tag,
            });
        }
        let mut sizes = layers.iter().rev().map(|layer| layer.trailer.virtual_size);
        Ok(Self {
            size: sizes.find(|size| size.0 != 0).unwrap_or_default(),
            index: merge::merge(&inputs)?,
            files,
            top_uuid: layers.last().and_then(|layer| layer.trailer.uuid),
        })
    }

    /// The size of the disk; 0 if no layer has one.
    #[must_use]
    pub const fn size(&self) -> Sectors {
        self.size
    }

    /// The size of the disk with an upper of `header` on it.
    #[must_use]
    pub const fn size_under(&self, header: &Header) -> Sectors {
        match header.virtual_size {
            Sectors(0) => self.size,
            size => size,
        }
    }

    /// Refuses an upper of `header` that was written on another layer than the top one.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] with both uuids.
    pub fn check_upper(&self, header: &Header) -> Result<(), Error> {
        check_parent(header, self.top_uuid, "upper")
    }

    /// The merged index. Tags are [`LayerIndex`]es.
    #[must_use]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// What each [`LayerIndex`] is.
    #[must_use]
    pub fn files(&self) -> &[StackFile] {
        &self.files
    }

    /// The index of an upper's data in [`Stack::resolve_under`]: behind all files of the stack.
    #[must_use]
    pub fn upper_index(&self) -> LayerIndex {
        LayerIndex(u8::try_from(self.files.len()).unwrap_or(u8::MAX))
    }

    /// What `extent` consists of, up to the size of the disk. A hole reads as zeros. Allocates nothing.
    #[must_use]
    pub fn resolve(&self, extent: Extent) -> Pieces<Segments<'_>> {
        self.index.pieces(clamped(extent, self.size))
    }

    /// What `extent` of a disk of `size` consists of when `upper` is on the stack. Allocates nothing.
    #[must_use]
    pub fn resolve_under<'a>(
        &'a self,
        upper: &'a MutableIndex,
        size: Sectors,
        extent: Extent,
    ) -> StackPieces<'a> {
        StackPieces {
            stack: self,
            above: upper.pieces(clamped(extent, size)),
            below: None,
        }
    }

    /// What an upper shows of the stack in `extent` where it has nothing itself. Not cut to the size of the stack: the upper's
    /// counts. Allocates nothing.
    #[must_use]
    pub fn resolve_below(&self, extent: Extent) -> Pieces<Segments<'_>> {
        self.index.pieces(extent)
    }

    /// One index of the stack and `upper` on it, for flattening. Tags are [`LayerIndex`]es.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond the segments of an index.
    pub fn index_under(&self, upper: &MutableIndex) -> Result<Index, Error> {
        let too_large = |fault: super::OrderFault| {
            let detail = fault.to_string();
            Error::new(ErrorKind::TooLarge, "merged index", ByteOffset(0), detail)
        };
        let upper_tag = self.upper_index().0;
        let upper = upper.to_index_tagged(upper_tag).map_err(too_large)?;
        merge::overlay(&self.index, &upper).map_err(too_large)
    }
}

fn file_tag(number: usize) -> Result<u8, Error> {
    // The last tag is the upper's.
    let tag = u8::try_from(number).ok().filter(|tag| *tag < u8::MAX);
    tag.ok_or_else(|| {
        let detail = format!("more than {LOWERS_MAX} files");
        Error::new(ErrorKind::TooLarge, "stack", ByteOffset(0), detail)
    })
}

fn check_parent(header: &Header, below: Option<LayerUuid>, what: &str) -> Result<(), Error> {
    match (header.parent_uuid, below) {
        (Some(parent), Some(below)) if parent != below => Err(Error::new(
            ErrorKind::Corrupt,
            format!("parent uuid of {what}"),
            ByteOffset(header::PARENT_UUID_AT as u64),
            format!("is {parent}, but the layer below is {below}"),
        )),
        _ => Ok(()),
    }
}

/// The part of `extent` on a disk of `size`.
fn clamped(extent: Extent, size: Sectors) -> Extent {
    let start = extent.start.0.min(size.0);
    let len = extent.len.0.min(size.0 - start);
    Extent {
        start: Sectors(start),
        len: Sectors(len),
    }
}

/// The pieces of an extent of a stack with an upper, in order and without gaps.
#[derive(Clone, Debug)]
pub struct StackPieces<'a> {
    stack: &'a Stack,
    above: Pieces<MutableSegments<'a>>,
    below: Option<Pieces<Segments<'a>>>,
}

impl Iterator for StackPieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if let Some(piece) = self.below.as_mut().and_then(Iterator::next) {
            return Some(piece);
        }
        self.below = None;
        let piece = self.above.next()?;
        match piece.source {
            Source::Hole => {
                let below = self.below.insert(self.stack.index.pieces(piece.extent));
                below.next()
            }
            Source::Zero => Some(piece),
            Source::Data { offset, .. } => {
                let layer = self.stack.upper_index();
                let source = Source::Data { layer, offset };
                Some(Piece { source, ..piece })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clamping_never_overflows() {
        let extent = |start, len| Extent {
            start: Sectors(start),
            len: Sectors(len),
        };
        let cases = [
            (extent(0, 5), extent(0, 5)),
            (extent(5, 10), extent(5, 5)),
            (extent(10, 1), extent(10, 0)),
            (extent(u64::MAX, u64::MAX), extent(10, 0)),
        ];
        for (whole, want) in cases {
            assert_eq!(clamped(whole, Sectors(10)), want);
        }
    }
}
