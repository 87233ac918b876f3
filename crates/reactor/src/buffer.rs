//! A bounded pool of I/O buffers in one anonymous mapping.
//!
//! Memory is touched only by use and the most recently used buffer is handed out first, so an idle pool costs address
//! space, not memory. Three sizes; a caller that finds its size used up takes a smaller one and works in
//! pieces, or waits. A [`Buffer`] goes back by being dropped; the pool belongs to one thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::error::Error;
use crate::sys::arena::{self, Piece};

/// Buffer sizes in bytes: a page, the usual read-ahead, the largest request.
pub const SIZES_BYTES: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];

/// How many buffers of each size of [`SIZES_BYTES`] a pool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits(pub [u16; 3]);

impl Default for PoolLimits {
    /// 4 + 16 + 16 MiB: enough for 1,024 small requests in flight and for the bandwidth of memory with large ones.
    fn default() -> Self {
        Self([1024, 256, 16])
    }
}

impl PoolLimits {
    /// Bytes of address space, which is also the most memory the pool can ever use.
    #[must_use]
    pub fn len_bytes(self) -> u64 {
        self.0
            .iter()
            .zip(SIZES_BYTES)
            .map(|(count, size)| u64::from(*count) * u64::from(size))
            .sum()
    }
}

#[derive(Debug)]
struct Pool {
    /// By size, most recently used last.
    free: [RefCell<Vec<Piece>>; 3],
    in_use: Cell<u32>,
    in_use_max: u32,
}

/// The pool of one ring.
#[derive(Clone, Debug)]
pub struct BufferPool(Rc<Pool>);

/// A buffer. Its content is whatever was there before: the taker overwrites it first.
#[derive(Debug)]
pub struct Buffer {
    pool: Rc<Pool>,
    /// `None` only while it is being dropped.
    piece: Option<Piece>,
    class: u8,
}

impl BufferPool {
    /// Maps a pool.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub fn new(limits: PoolLimits) -> Result<Self, Error> {
        let counts = limits.0.map(usize::from);
        let sizes = SIZES_BYTES.into_iter().zip(counts);
        let all = sizes.flat_map(|(size, count)| std::iter::repeat_n(size, count));
        let mut pieces = arena::cut(all)?.into_iter();
        let in_use_max = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let free = counts.map(|count| {
            let mut pieces: Vec<Piece> = pieces.by_ref().take(count).collect();
            // The first ones are taken first, so that few buffers in use touch few pages.
            pieces.reverse();
            RefCell::new(pieces)
        });
        Ok(Self(Rc::new(Pool {
            free,
            in_use: Cell::new(0),
            in_use_max,
        })))
    }

    /// A buffer for `len_bytes`: the smallest size that holds it, or the largest smaller one that is free; `None` when
    /// nothing suitable is free. Larger sizes are left to those who need them.
    #[must_use]
    pub fn try_take(&self, len_bytes: u32) -> Option<Buffer> {
        let fitting = SIZES_BYTES
            .iter()
            .position(|size| *size >= len_bytes)
            .unwrap_or(SIZES_BYTES.len() - 1);
        (0..=fitting).rev().find_map(|class| self.take_of(class))
    }

    /// A buffer that holds `len_bytes` whole, of the smallest such size that is free; `None` when none is.
    #[must_use]
    pub fn try_take_whole(&self, len_bytes: u32) -> Option<Buffer> {
        let fitting = SIZES_BYTES.iter().position(|size| *size >= len_bytes)?;
        (fitting..SIZES_BYTES.len()).find_map(|class| self.take_of(class))
    }

    /// Whether a buffer is of this pool.
    #[must_use]
    pub fn is_of(&self, buffer: &Buffer) -> bool {
        Rc::ptr_eq(&self.0, &buffer.pool)
    }

    fn take_of(&self, class: usize) -> Option<Buffer> {
        let piece = self.0.free.get(class)?.borrow_mut().pop()?;
        self.0.in_use.set(self.0.in_use.get() + 1);
        Some(Buffer {
            pool: Rc::clone(&self.0),
            piece: Some(piece),
            class: u8::try_from(class).unwrap_or(u8::MAX),
        })
    }

    /// Buffers taken and not yet given back.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.0.in_use.get()
    }

    /// Buffers of any size that can be taken.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.0.in_use_max.saturating_sub(self.0.in_use.get())
    }

    /// The most buffers that can be taken.
    #[must_use]
    pub fn in_use_max(&self) -> u32 {
        self.0.in_use_max
    }
}

impl Buffer {
    /// How many bytes it holds.
    #[must_use]
    pub fn capacity_bytes(&self) -> u32 {
        self.piece.as_ref().map_or(0, Piece::len_bytes)
    }

    /// The first `len_bytes` of the content; all of it when `len_bytes` exceeds the capacity.
    #[must_use]
    #[inline]
    pub fn bytes(&self, len_bytes: u32) -> &[u8] {
        self.piece
            .as_ref()
            .map_or(&[], |piece| piece.bytes(len_bytes))
    }

    /// The first `len_bytes` of the content, to be changed; all of it when `len_bytes` exceeds the capacity.
    #[must_use]
    #[inline]
    pub fn bytes_mut(&mut self, len_bytes: u32) -> &mut [u8] {
        self.piece
            .as_mut()
            .map_or(&mut [], |piece| piece.bytes_mut(len_bytes))
    }

    /// Where it lies, for an operation of the kernel that owns it.
    pub(crate) fn address(&self) -> *mut u8 {
        self.piece
            .as_ref()
            .map_or(std::ptr::null_mut(), Piece::address)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(free), Some(piece)) = (
            self.pool.free.get(usize::from(self.class)),
            self.piece.take(),
        ) {
            // Never allocates: the list had room for every buffer from the start.
            free.borrow_mut().push(piece);
        }
        self.pool
            .in_use
            .set(self.pool.in_use.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_disjoint_bounded_and_come_back() {
        let pool = BufferPool::new(PoolLimits([2, 1, 1])).unwrap();
        let mut small = pool.try_take(512).unwrap();
        let mut large = pool.try_take(1 << 20).unwrap();
        let mut middle = pool.try_take(5000).unwrap();
        small.bytes_mut(4096).fill(1);
        large.bytes_mut(1 << 20).fill(2);
        middle.bytes_mut(64 << 10).fill(3);
        assert!(small.bytes(4096).iter().all(|byte| *byte == 1));
        assert!(large.bytes(u32::MAX).iter().all(|byte| *byte == 2));
        assert!(middle.bytes(64 << 10).iter().all(|byte| *byte == 3));
        // The large sizes are gone: a large request gets the last small buffer, then nothing.
        let piece = pool.try_take(1 << 20).unwrap();
        assert_eq!(piece.capacity_bytes(), 4096);
        assert!(pool.try_take(1).is_none());
        assert_eq!(pool.in_use(), pool.in_use_max());
        drop((small, large, middle, piece));
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.try_take(1 << 20).unwrap().capacity_bytes(), 1 << 20);
    }

    #[test]
    fn a_buffer_that_must_hold_all_of_it_is_never_smaller() {
        let pool = BufferPool::new(PoolLimits([1, 1, 0])).unwrap();
        let other = BufferPool::new(PoolLimits([1, 0, 0])).unwrap();
        let middle = pool.try_take_whole(5000).unwrap();
        assert_eq!(middle.capacity_bytes(), 64 << 10);
        assert!(pool.is_of(&middle) && !other.is_of(&middle));
        assert!(pool.try_take_whole(5000).is_none());
        assert!(pool.try_take_whole(100_000).is_none());
        assert!(pool.try_take_whole(2 << 20).is_none());
        assert!(pool.try_take_whole(4096).is_some());
    }

    #[test]
    fn a_small_request_never_takes_a_large_buffer() {
        let pool = BufferPool::new(PoolLimits([1, 0, 1])).unwrap();
        let _small = pool.try_take(4096).unwrap();
        assert!(pool.try_take(4096).is_none());
    }
}
