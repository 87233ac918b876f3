//! What lies below an upper, or is all of a read-only image: reading the lowers.
//!
//! | the layer is | a read becomes |
//! |---|---|
//! | plain | the bytes as they are in its file, behind what it is wrapped in |
//! | compressed, the block in the cache | a copy |
//! | compressed | the stored bytes of neighbouring blocks, fetched together, decompressed here |

use std::sync::Arc;

use block::{
    ByteOffset, DataRange, Extent, FileIndex, Handover, Plan, STEPS_MAX, Sectors, Status, Step,
};
use overlaybd::FileRange;
use overlaybd::lsmt::{LayerIndex, Source};
use overlaybd::zfile::ZFile;

use super::cache::BlockKey;
use super::workspace::{Compressed, Sink, Workspace};
use crate::blob::{Blob, Form};
use crate::error::Error;
use crate::lowers::Lowers;

/// Stored bytes that are fetched together: as much as the middle size of buffer holds.
const FETCH_BYTES_MAX: u64 = 64 << 10;

/// The lowers of an image, with what it takes to decompress them.
#[derive(Clone, Debug)]
pub(super) struct Below {
    lowers: Arc<Lowers>,
    workspace: Workspace,
}

/// How bytes of a plain layer come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As they are, into the data of a read.
    Straight,
    /// Handed over, to memory. Nothing is taken from the cache, so that a piece is one step.
    HandedOver,
}

/// Bytes of a layer that a read needs.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    blob: &'a Blob,
    file: FileIndex,
    /// Where they begin in the layer's content.
    offset: ByteOffset,
    /// Where they go.
    data: DataRange,
    way: Way,
}

impl Below {
    /// Takes the memory that reading will need.
    pub(super) fn new(lowers: Arc<Lowers>, workspace: Workspace) -> Result<Self, Error> {
        for blob in lowers.blobs() {
            if let Form::Compressed(zfile) = blob.form() {
                let prepared = workspace.prepare(zfile.header().blocks);
                prepared.map_err(|error| Error::format(blob.path(), error))?;
            }
        }
        Ok(Self { lowers, workspace })
    }

    pub(super) const fn lowers(&self) -> &Arc<Lowers> {
        &self.lowers
    }

    /// Whether anything in `extent` is data, and not only zeros.
    pub(super) fn has_data(&self, extent: Extent) -> bool {
        self.first_data(extent).is_some()
    }

    /// The first and the last sector, that one not counted, of the first data in `extent`.
    pub(super) fn first_data(&self, extent: Extent) -> Option<(u64, u64)> {
        let is_data = |source| matches!(source, Source::Data { .. });
        let mut pieces = self.lowers.stack().resolve_below(extent);
        let first = pieces.find(|piece| is_data(piece.source))?.extent;
        let more = pieces.take_while(|piece| is_data(piece.source));
        let len: u64 = more.map(|piece| piece.extent.len.0).sum();
        Some((first.start.0, first.start.0 + first.len.0 + len))
    }

    /// The longest stored block, or what is fetched together if that is longer; 0 without a compressed layer.
    pub(super) fn fetch_bytes_max(&self) -> u32 {
        let stored = self.lowers.blobs().iter().filter_map(|blob| {
            let Form::Compressed(zfile) = blob.form() else {
                return None;
            };
            Some(zfile.header().blocks.stored_len_max())
        });
        let most = u32::try_from(FETCH_BYTES_MAX).unwrap_or(u32::MAX);
        stored.max().map_or(0, |stored| stored.max(most))
    }

    /// Plans the reading of data of a layer from sector `offset` of its content on, as far as the plan has room. Returns the bytes
    /// that are planned.
    pub(super) fn plan_data(
        &self,
        (layer, offset): (LayerIndex, Sectors),
        data: DataRange,
        way: Way,
        plan: &mut Plan,
    ) -> u32 {
        let Some(blob) = self.lowers.blobs().get(usize::from(layer.0)) else {
            return 0;
        };
        let wanted = Wanted {
            blob,
            file: FileIndex(layer.0.into()),
            offset: offset.offset_bytes(),
            data,
            way,
        };
        match blob.form() {
            Form::Plain => plan_plain(&wanted, plan),
            Form::Compressed(zfile) => self.plan_compressed(&wanted, zfile, plan),
        }
    }

    fn plan_compressed(&self, wanted: &Wanted<'_>, zfile: &ZFile, plan: &mut Plan) -> u32 {
        let Wanted {
            blob,
            file,
            offset,
            data,
            way,
        } = *wanted;
        let size = zfile.header().blocks.block_size;
        let workspace = self.workspace.lock();
        let is_cached = |block| {
            let key = BlockKey {
                blob: blob.number(),
                block,
            };
            way == Way::Straight && workspace.cache.holds(size, key)
        };
        let mut planned = 0;
        // Blocks that follow one another in the file and come the same way.
        let mut run: Option<Handover> = None;
        let wanted = FileRange::new(offset.0, data.len.into());
        for piece in zfile.pieces(wanted) {
            let cached = is_cached(piece.block);
            let stored_len = if cached {
                0
            } else {
                u32::try_from(piece.stored.len.0).unwrap_or(u32::MAX)
            };
            let joins = run.as_ref().is_some_and(|run| {
                let total = u64::from(run.len) + u64::from(stored_len);
                (run.len == 0) == cached && total <= FETCH_BYTES_MAX
            });
            if let Some(run) = run.as_mut().filter(|_| joins) {
                run.len += stored_len;
                run.data.len += piece.len;
                continue;
            }
            let next = Handover {
                file,
                offset: blob.in_file(piece.stored.offset),
                len: stored_len,
                data: DataRange {
                    start: data.start,
                    len: piece.len,
                },
                note: offset.0,
            };
            if let Some(done) = run.take() {
                if plan.push(Step::Fetch(done)).is_err() {
                    return planned;
                }
                planned += done.data.len;
            }
            run = Some(Handover {
                data: DataRange {
                    start: data.start + planned,
                    ..next.data
                },
                note: offset.0 + u64::from(planned),
                ..next
            });
        }
        if let Some(done) = run
            && plan.push(Step::Fetch(done)).is_ok()
        {
            planned += done.data.len;
        }
        planned
    }

    /// Takes over what one of the planned steps fetched.
    pub(super) fn handle_fetched(
        &self,
        fetched: &Handover,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Status {
        let Some(blob) = self.lowers.blobs().get(usize::from(fetched.file.0)) else {
            return Status::Io;
        };
        let start = fetched.data.start;
        let Form::Compressed(zfile) = blob.form() else {
            return sink.put(start, bytes);
        };
        let compressed = Compressed {
            blob: blob.number(),
            zfile,
        };
        let wanted = FileRange::new(fetched.note, fetched.data.len.into());
        let mut workspace = self.workspace.lock();
        if fetched.len == 0 {
            return workspace.copy_cached(compressed, wanted, (sink, start));
        }
        let stored_at = fetched.offset.0.saturating_sub(blob.payload().offset.0);
        workspace.decode(compressed, wanted, (bytes, stored_at), (sink, start))
    }
}

fn plan_plain(wanted: &Wanted<'_>, plan: &mut Plan) -> u32 {
    let Wanted {
        blob,
        file,
        offset,
        data,
        way,
    } = *wanted;
    let at = blob.in_file(offset);
    // The last sector of a target may go beyond its file's end; what is missing reads as zeros.
    let there = blob.file().len().0.saturating_sub(at.0);
    let stored = u32::try_from(there).map_or(data.len, |there| there.min(data.len));
    let steps = usize::from(stored > 0) + usize::from(stored < data.len);
    if plan.steps().len() + steps > STEPS_MAX {
        return 0;
    }
    let range = DataRange {
        len: stored,
        ..data
    };
    let mut planned = Ok(());
    if stored > 0 {
        planned = plan.push(match way {
            Way::Straight => Step::Read {
                file,
                offset: at,
                data: range,
            },
            Way::HandedOver => Step::Fetch(Handover {
                file,
                offset: at,
                len: stored,
                data: range,
                note: 0,
            }),
        });
    }
    // Memory is zeros already.
    if stored < data.len && way == Way::Straight {
        planned = planned.and(plan.push(Step::Zero {
            data: DataRange {
                start: data.start + stored,
                len: data.len - stored,
            },
        }));
    }
    if planned.is_ok() { data.len } else { 0 }
}
