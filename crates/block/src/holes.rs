//! Which parts of a sparse file are known to be holes, so that reading them needs no I/O.
//!
//! One bit per chunk. A set bit means "may hold data"; a clear bit means "reads as zeros". Bits are set before a write is
//! submitted. A bit is cleared only after a deallocation during which no write of the device was in flight or began:
//! the kernel may reorder a write and a deallocation that are in flight together, so any other time could
//! hide data. The map is shared by the shards of one device, hence atomics; they are never contended for long.
//!
//! Limit: [`CHUNKS_MAX`] bits (8 KiB) per device, whatever its size; the chunk grows with the device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::units::{ByteLen, ByteOffset};

/// The most chunks of one map: 64 Ki bits are 8 KiB of memory, small beside the budget of 128 KiB a device.
pub const CHUNKS_MAX: u64 = 1 << 16;
/// The smallest chunk in bytes. Finer would cost memory and gain little: file systems allocate in runs.
pub const CHUNK_BYTES_MIN: u64 = 64 << 10;

/// The map. See the module's header for what a bit means.
#[derive(Debug)]
pub struct HoleMap {
    chunk_shift: u32,
    words: Box<[AtomicU64]>,
    /// Writes submitted so far; with `writes_ended` it tells whether one is in flight.
    writes_begun: AtomicU64,
    writes_ended: AtomicU64,
    /// Others write as well: nothing is a hole any more.
    is_distrusted: AtomicBool,
}

/// What [`HoleMap::begin_punch`] saw; given back to [`HoleMap::end_punch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PunchMark(u64);

impl PunchMark {
    /// Some write was in flight: nothing may be concluded.
    const BUSY: u64 = u64::MAX;

    /// As a target's cookie.
    #[must_use]
    pub const fn to_cookie(self) -> u64 {
        self.0
    }

    /// From a target's cookie.
    #[must_use]
    pub const fn from_cookie(cookie: u64) -> Self {
        Self(cookie)
    }
}

impl HoleMap {
    /// A map of `size` where everything may hold data.
    #[must_use]
    pub fn all_data(size: ByteLen) -> Self {
        let map = Self::all_holes(size);
        for word in &map.words {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        map
    }

    /// A map of `size` where everything is a hole.
    #[must_use]
    pub fn all_holes(size: ByteLen) -> Self {
        let wanted = size
            .0
            .div_ceil(CHUNKS_MAX)
            .max(CHUNK_BYTES_MIN)
            .next_power_of_two();
        let chunk_shift = wanted.trailing_zeros();
        let chunks = size.0.div_ceil(wanted);
        let words = (0..chunks.div_ceil(64))
            .map(|_| AtomicU64::new(0))
            .collect();
        Self {
            chunk_shift,
            words,
            writes_begun: AtomicU64::new(0),
            writes_ended: AtomicU64::new(0),
            is_distrusted: AtomicBool::new(false),
        }
    }

    /// Bytes of one chunk.
    #[must_use]
    pub const fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// Marks every chunk that the range touches as data. Call before the write is submitted.
    pub fn mark_data(&self, offset: ByteOffset, len: ByteLen) {
        if len.0 == 0 {
            return;
        }
        let first = offset.0 >> self.chunk_shift;
        let last = offset.0.saturating_add(len.0 - 1) >> self.chunk_shift;
        for (word, mask) in masks(first, last + 1) {
            if let Some(word) = self.word(word) {
                // Most writes hit chunks that hold data already: a load is cheaper than a locked operation.
                if word.load(Ordering::SeqCst) & mask != mask {
                    word.fetch_or(mask, Ordering::SeqCst);
                }
            }
        }
    }

    /// Whether the whole range is known to read as zeros.
    #[must_use]
    pub fn is_hole(&self, offset: ByteOffset, len: ByteLen) -> bool {
        if len.0 == 0 {
            return true;
        }
        let first = offset.0 >> self.chunk_shift;
        let last = offset.0.saturating_add(len.0 - 1) >> self.chunk_shift;
        masks(first, last + 1).all(|(word, mask)| {
            self.word(word)
                .is_some_and(|word| word.load(Ordering::Acquire) & mask == 0)
        })
    }

    /// A write begins: marks its range and counts it.
    pub fn begin_write(&self, offset: ByteOffset, len: ByteLen) {
        self.writes_begun.fetch_add(1, Ordering::SeqCst);
        self.mark_data(offset, len);
    }

    /// Others may write to the file from now on: nothing is called a hole any more, whatever is deallocated later.
    pub fn distrust(&self) {
        self.is_distrusted.store(true, Ordering::SeqCst);
        for word in &self.words {
            word.store(u64::MAX, Ordering::SeqCst);
        }
    }

    /// Whether a write was ever begun.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.writes_begun.load(Ordering::Acquire) > 0
    }

    /// A write that was begun has ended, however it ended.
    pub fn end_write(&self) {
        self.writes_ended.fetch_add(1, Ordering::AcqRel);
    }

    /// A deallocation begins.
    #[must_use]
    pub fn begin_punch(&self) -> PunchMark {
        let ended = self.writes_ended.load(Ordering::Acquire);
        let begun = self.writes_begun.load(Ordering::Acquire);
        if begun == ended && !self.is_distrusted.load(Ordering::SeqCst) {
            PunchMark(begun)
        } else {
            PunchMark(PunchMark::BUSY)
        }
    }

    /// A deallocation of the range has succeeded: the chunks that lie wholly in it become holes, if no write interfered.
    pub fn end_punch(&self, mark: PunchMark, offset: ByteOffset, len: ByteLen) {
        if mark.0 == PunchMark::BUSY {
            return;
        }
        let first = offset.0.div_ceil(self.chunk_bytes());
        let end = offset.0.saturating_add(len.0) >> self.chunk_shift;
        for (word, mask) in masks(first, end) {
            if let Some(word) = self.word(word) {
                let before = word.fetch_and(!mask, Ordering::SeqCst);
                // A write that began meanwhile on another shard set its bits either before the line above (undone
                // here) or after it (kept): restoring what was there is right in both cases. Both sides change one place
                // and look at the other, so that one of them sees the other's change: only SeqCst promises that.
                if self.writes_begun.load(Ordering::SeqCst) != mark.0
                    || self.is_distrusted.load(Ordering::SeqCst)
                {
                    word.fetch_or(before & mask, Ordering::SeqCst);
                    return;
                }
            }
        }
    }

    fn word(&self, index: u64) -> Option<&AtomicU64> {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.words.get(index))
    }
}

/// The words and bit masks that cover the chunks `first..end`.
fn masks(first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let words = if first < end {
        (first / 64)..((end - 1) / 64 + 1)
    } else {
        0..0
    };
    words.map(move |word| {
        let low = first.saturating_sub(word * 64).min(63);
        let high = (end - word * 64).min(64);
        let upto = if high == 64 {
            u64::MAX
        } else {
            (1 << high) - 1
        };
        (word, upto & (u64::MAX << low))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = CHUNK_BYTES_MIN;

    #[test]
    fn the_map_stays_small_for_any_size() {
        for size in [512, 8 << 30, 64 << 40, 1 << 60] {
            let map = HoleMap::all_holes(ByteLen(size));
            assert!(map.words.len() <= 1024);
            assert!(map.is_hole(ByteOffset(0), ByteLen(size)));
            map.mark_data(ByteOffset(size - 1), ByteLen(1));
            assert!(!map.is_hole(ByteOffset(0), ByteLen(size)));
        }
    }

    #[test]
    fn a_quiet_punch_of_whole_chunks_makes_holes_and_partial_ones_do_not() {
        let map = HoleMap::all_data(ByteLen(8 * CHUNK));
        let mark = map.begin_punch();
        map.end_punch(mark, ByteOffset(CHUNK / 2), ByteLen(2 * CHUNK));
        assert!(!map.is_hole(ByteOffset(0), ByteLen(CHUNK)));
        assert!(map.is_hole(ByteOffset(CHUNK), ByteLen(CHUNK)));
        assert!(!map.is_hole(ByteOffset(2 * CHUNK), ByteLen(CHUNK)));
    }

    #[test]
    fn a_write_beside_a_punch_keeps_its_data_visible() {
        let map = HoleMap::all_data(ByteLen(8 * CHUNK));
        // In flight before the punch.
        map.begin_write(ByteOffset(0), ByteLen(512));
        let mark = map.begin_punch();
        map.end_write();
        map.end_punch(mark, ByteOffset(0), ByteLen(8 * CHUNK));
        assert!(!map.is_hole(ByteOffset(0), ByteLen(512)));
        // Begun during the punch.
        let mark = map.begin_punch();
        map.begin_write(ByteOffset(0), ByteLen(512));
        map.end_punch(mark, ByteOffset(0), ByteLen(8 * CHUNK));
        map.end_write();
        assert!(!map.is_hole(ByteOffset(0), ByteLen(512)));
    }

    #[test]
    fn nothing_is_a_hole_once_others_may_write() {
        let map = HoleMap::all_holes(ByteLen(8 * CHUNK));
        // A deallocation that is under way, and one that begins later.
        let under_way = map.begin_punch();
        map.distrust();
        map.end_punch(under_way, ByteOffset(0), ByteLen(8 * CHUNK));
        let later = map.begin_punch();
        map.end_punch(later, ByteOffset(0), ByteLen(8 * CHUNK));
        for chunk in 0..8 {
            assert!(!map.is_hole(ByteOffset(chunk * CHUNK), ByteLen(512)));
        }
        assert!(!map.is_written());
    }

    proptest! {
        #[test]
        fn masks_cover_exactly_the_chunks(first in 0_u64..400, len in 0_u64..400) {
            let mut seen = Vec::new();
            for (word, mask) in masks(first, first + len) {
                seen.extend((0..64).filter(|bit| mask >> bit & 1 == 1).map(|bit| word * 64 + bit));
            }
            prop_assert_eq!(seen, (first..first + len).collect::<Vec<_>>());
        }

        #[test]
        fn written_bytes_are_never_called_a_hole(
            ops in prop::collection::vec((any::<bool>(), 0_u64..16 * CHUNK, 1_u64..3 * CHUNK), 1..40)
        ) {
            let size = 20 * CHUNK;
            let map = HoleMap::all_holes(ByteLen(size));
            // The model: per 512 bytes, whether it holds data.
            let mut model = vec![false; usize::try_from(size / 512).unwrap()];
            for (write, offset, len) in ops {
                let (offset, len) = (offset / 512 * 512, len.div_ceil(512) * 512);
                let range = usize::try_from(offset / 512).unwrap()..usize::try_from((offset + len) / 512).unwrap();
                if write {
                    map.begin_write(ByteOffset(offset), ByteLen(len));
                    model[range].fill(true);
                    map.end_write();
                } else {
                    let mark = map.begin_punch();
                    model[range].fill(false);
                    map.end_punch(mark, ByteOffset(offset), ByteLen(len));
                }
                for (sector, data) in model.iter().enumerate() {
                    let offset = ByteOffset(sector as u64 * 512);
                    prop_assert!(!(*data && map.is_hole(offset, ByteLen(512))));
                }
            }
        }
    }
}
