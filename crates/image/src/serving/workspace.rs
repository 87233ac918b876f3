//! What the images of a shard share to decompress: decoders, a buffer, the cache.

use std::sync::{Arc, Mutex, MutexGuard};

use block::{RequestData, Status};
use overlaybd::FileRange;
use overlaybd::zfile::{
    Algorithm, BlockChecksums, BlockDecoder, BlockError, BlockFormat, Piece, ZFile,
};

use super::cache::{BlockCache, BlockKey};

/// Bytes that are decompressed before they are copied into a request: few copies, and they fit a cache of the CPU.
const BATCH_BYTES: usize = 128 << 10;
/// Blocks of a fetch that are worth keeping: a long read is most likely not repeated.
const KEPT_BLOCKS_MAX: u64 = 2;

/// The workspace of one shard. Clones are the same workspace. Its lock is only ever taken by the shard's thread, and by control
/// when a device comes.
#[derive(Clone, Debug)]
pub struct Workspace(Arc<Mutex<Inner>>);

pub(super) struct Inner {
    decoders: [Option<BlockDecoder>; 4],
    batch: Box<[u8]>,
    pub(super) cache: BlockCache,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").finish_non_exhaustive()
    }
}

/// A compressed blob, as far as reading it goes.
#[derive(Clone, Copy)]
pub(super) struct Compressed<'a> {
    pub(super) blob: u64,
    pub(super) zfile: &'a ZFile,
}

/// Where decompressed bytes go.
pub(super) enum Sink<'a> {
    /// Into the data of a read.
    Request(&'a mut dyn RequestData),
    /// Into memory.
    Memory(&'a mut [u8]),
}

impl Sink<'_> {
    pub(super) fn put(&mut self, start: u32, bytes: &[u8]) -> Status {
        match self {
            Self::Request(data) => data.copy_to(start, bytes),
            Self::Memory(memory) => {
                let begin = start as usize;
                match memory.get_mut(begin..begin + bytes.len()) {
                    Some(part) => {
                        part.copy_from_slice(bytes);
                        Status::Ok
                    }
                    None => Status::Io,
                }
            }
        }
    }
}

impl Workspace {
    /// A workspace whose cache takes at most `cache_bytes` for each block size in use.
    #[must_use]
    pub fn new(cache_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            decoders: [const { None }; 4],
            batch: vec![0; BATCH_BYTES].into_boxed_slice(),
            cache: BlockCache::new(cache_bytes),
        })))
    }

    /// Takes the memory that blocks of a format need, so that reading them takes none.
    pub(super) fn prepare(&self, format: BlockFormat) -> Result<(), overlaybd::Error> {
        let inner = &mut *self.lock();
        inner.cache.prepare(format.block_size);
        if let Some(decoder) = inner.decoders.get_mut(decoder_of(format))
            && decoder.is_none()
        {
            *decoder = Some(BlockDecoder::new(format)?);
        }
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic leaves a block that is not in the cache, and nothing else.
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Inner {
    /// Puts the raw bytes `wanted` of a blob into `sink` from `start` on, out of its stored bytes from `stored_at` on.
    pub(super) fn decode(
        &mut self,
        blob: Compressed<'_>,
        wanted: FileRange,
        (stored, stored_at): (&[u8], u64),
        (sink, start): (&mut Sink<'_>, u32),
    ) -> Status {
        let format = blob.zfile.header().blocks;
        let Self {
            decoders,
            batch,
            cache,
        } = self;
        let Some(Some(decoder)) = decoders.get_mut(decoder_of(format)) else {
            return Status::Io;
        };
        let is_kept = wanted.len.0 <= KEPT_BLOCKS_MAX << format.block_size.shift();
        let mut out = Batch {
            sink,
            start,
            bytes: batch,
            len: 0,
        };
        for piece in blob.zfile.pieces(wanted) {
            let Some(stored) = stored_of(&piece, stored, stored_at) else {
                return Status::Io;
            };
            let is_whole = piece.len == piece.raw_len;
            let status = if is_whole && !is_kept {
                out.decode(piece.len, |raw| decoder.decode(stored, raw))
            } else {
                let key = BlockKey {
                    blob: blob.blob,
                    block: piece.block,
                };
                let kept = cache.insert((format.block_size, key), piece.raw_len, |raw| {
                    decoder.decode(stored, raw)
                });
                match kept {
                    None => Status::Io,
                    Some(Err(error)) => error.status(),
                    Some(Ok(raw)) => out.put(part_of(&piece, raw)),
                }
            };
            if !status.is_ok() {
                return status;
            }
        }
        out.flush()
    }

    /// As [`Inner::decode`], out of the cache. [`Status::Corrupt`] if a block is not there any more: the caller reads it.
    pub(super) fn copy_cached(
        &mut self,
        blob: Compressed<'_>,
        wanted: FileRange,
        (sink, start): (&mut Sink<'_>, u32),
    ) -> Status {
        let size = blob.zfile.header().blocks.block_size;
        let mut out = Batch {
            sink,
            start,
            bytes: &mut self.batch,
            len: 0,
        };
        for piece in blob.zfile.pieces(wanted) {
            let key = BlockKey {
                blob: blob.blob,
                block: piece.block,
            };
            let Some(raw) = self.cache.get(size, key) else {
                return Status::Corrupt;
            };
            let status = out.put(part_of(&piece, raw));
            if !status.is_ok() {
                return status;
            }
        }
        out.flush()
    }
}

/// Bytes on their way into a sink.
struct Batch<'a, 'b> {
    sink: &'a mut Sink<'b>,
    /// Where the next ones go that are not in the batch.
    start: u32,
    bytes: &'a mut [u8],
    len: usize,
}

impl Batch<'_, '_> {
    /// Adds the bytes that `decode` makes.
    fn decode(
        &mut self,
        len: u32,
        decode: impl FnOnce(&mut [u8]) -> Result<(), BlockError>,
    ) -> Status {
        if self.len + len as usize > self.bytes.len() {
            let flushed = self.flush();
            if !flushed.is_ok() {
                return flushed;
            }
        }
        let end = self.len + len as usize;
        let Some(room) = self.bytes.get_mut(self.len..end) else {
            return Status::Io;
        };
        match decode(room) {
            Ok(()) => {
                self.len = end;
                Status::Ok
            }
            Err(error) => error.status(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Status {
        let flushed = self.flush();
        if !flushed.is_ok() {
            return flushed;
        }
        let status = self.sink.put(self.start, bytes);
        self.start += u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        status
    }

    fn flush(&mut self) -> Status {
        if self.len == 0 {
            return Status::Ok;
        }
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        let status = self.sink.put(self.start, bytes);
        self.start += u32::try_from(self.len).unwrap_or(u32::MAX);
        self.len = 0;
        status
    }
}

fn stored_of<'a>(piece: &Piece, stored: &'a [u8], stored_at: u64) -> Option<&'a [u8]> {
    let begin = usize::try_from(piece.stored.offset.0.checked_sub(stored_at)?).ok()?;
    let len = usize::try_from(piece.stored.len.0).ok()?;
    stored.get(begin..begin.checked_add(len)?)
}

fn part_of<'a>(piece: &Piece, raw: &'a [u8]) -> &'a [u8] {
    let begin = piece.begin as usize;
    raw.get(begin..begin + piece.len as usize)
        .unwrap_or_default()
}

const fn decoder_of(format: BlockFormat) -> usize {
    let algorithm = match format.algorithm {
        Algorithm::Lz4 => 0,
        Algorithm::Zstd => 1,
    };
    let checksums = match format.checksums {
        BlockChecksums::Absent => 0,
        BlockChecksums::Crc32c => 2,
    };
    algorithm + checksums
}
