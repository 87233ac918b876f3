//! Memory for buffers: one anonymous mapping, cut once into disjoint pieces.
//!
//! A piece is a unique handle: whoever has it has its bytes, and nobody else. It keeps the mapping alive, so leaking one (a ring
//! that dies with operations in flight does) keeps the memory that the kernel may still write to.

use std::io;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use rustix::mm::{MapFlags, ProtFlags};

use crate::error::Error;

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

/// A part of a mapping that belongs to whoever holds this. Not `Clone`, and not `Send`: it belongs to one thread.
#[derive(Debug)]
pub(crate) struct Piece {
    address: NonNull<u8>,
    len_bytes: u32,
    /// Keeps the memory mapped.
    _mapping: Rc<Mapping>,
}

/// Maps memory, untouched, and cuts it into pieces of these sizes, in this order.
pub(crate) fn cut(sizes_bytes: impl Iterator<Item = u32> + Clone) -> Result<Vec<Piece>, Error> {
    let len: u64 = sizes_bytes.clone().map(u64::from).sum();
    let mapping = Rc::new(Mapping::new(usize::try_from(len).unwrap_or(usize::MAX))?);
    let mut offset = 0;
    let mut pieces = Vec::with_capacity(sizes_bytes.size_hint().0);
    for len_bytes in sizes_bytes {
        let next = offset + usize::try_from(len_bytes).unwrap_or(usize::MAX);
        assert!(
            next <= mapping.len,
            "the mapping is as long as all pieces together"
        );
        // SAFETY: `offset <= next <= len`, so the address lies in the mapping or, for an empty piece, at its end.
        let address = unsafe { mapping.base.add(offset) };
        pieces.push(Piece {
            address,
            len_bytes,
            _mapping: Rc::clone(&mapping),
        });
        offset = next;
    }
    Ok(pieces)
}

impl Mapping {
    fn new(len: usize) -> Result<Self, Error> {
        let len = len.max(1);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, protection, flags) }
            .map_err(|errno| Error::memory(errno.into()))?;
        let base = NonNull::new(base.cast())
            .ok_or_else(|| Error::memory(io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self { base, len })
    }
}

impl Piece {
    /// Bytes it holds.
    #[inline]
    pub(crate) const fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// Its first `len_bytes`, or all of it.
    #[inline]
    pub(crate) fn bytes(&self, len_bytes: u32) -> &[u8] {
        let len = usize::try_from(len_bytes.min(self.len_bytes)).unwrap_or(0);
        // SAFETY: the piece's bytes are initialised (anonymous memory is zeroed), mapped for as long as `self` lives, and
        // disjoint from every other piece; the borrow of the unique handle excludes writers, and operations in
        // flight, because an operation owns the handle.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), len) }
    }

    /// Its first `len_bytes`, or all of it, to be changed.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, len_bytes: u32) -> &mut [u8] {
        let len = usize::try_from(len_bytes.min(self.len_bytes)).unwrap_or(0);
        // SAFETY: as in `bytes`; the handle is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), len) }
    }

    /// Where it lies, for an operation of the kernel that owns the handle.
    #[inline]
    pub(crate) const fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no piece of it is left, because each keeps it alive.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
