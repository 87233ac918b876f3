//! The descriptors of one queue, mapped read-only from the char device.
//!
//! The driver writes a tag's descriptor before it completes the tag's FETCH, so a descriptor is stable from that
//! completion (whose arrival orders the memory) until the tag's COMMIT.
#![expect(unsafe_code, reason = "the driver shares memory")]

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use block::Tag;
use rustix::mm::{MapFlags, ProtFlags};

use crate::abi::io::ublksrv_io_desc;
use crate::request::IoDescriptor;

/// The mapped descriptors of one queue. Unmapped on drop; while it lives, the device's id stays taken.
pub struct DescriptorMap {
    base: NonNull<u8>,
    len_bytes: usize,
    depth: u16,
    desc_bytes: u16,
}

// SAFETY: The mapping is plain memory that any thread of the process may read; nothing in it is tied to a thread.
unsafe impl Send for DescriptorMap {}

impl DescriptorMap {
    /// Maps `depth` descriptors of `desc_bytes` each from `offset`. The caller has checked that `desc_bytes` is a
    /// multiple of 8 and holds a descriptor, and that `len_bytes` holds all of them.
    pub(crate) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        len_bytes: usize,
        (depth, desc_bytes): (u16, u16),
    ) -> io::Result<Self> {
        debug_assert!(desc_bytes.is_multiple_of(8));
        debug_assert!(usize::from(desc_bytes) >= size_of::<ublksrv_io_desc>());
        debug_assert!(usize::from(depth) * usize::from(desc_bytes) <= len_bytes);
        // SAFETY: A new mapping at an address that the kernel chooses changes no memory that exists.
        let address = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                offset,
            )
        }?;
        let base = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        Ok(Self {
            base,
            len_bytes,
            depth,
            desc_bytes,
        })
    }

    /// A copy of the tag's descriptor, or `None` if the queue has no such tag.
    ///
    /// It is meaningful from the completion of the tag's FETCH until its COMMIT; at other times it is whatever the
    /// driver left there.
    #[must_use]
    #[inline]
    pub fn descriptor(&self, tag: Tag) -> Option<IoDescriptor> {
        if tag.0 >= self.depth {
            return None;
        }
        let offset_bytes = usize::from(tag.0) * usize::from(self.desc_bytes);
        // SAFETY: `tag < depth` and `depth * desc_bytes <= len_bytes`, so the place lies in the mapping.
        let place = unsafe { self.base.add(offset_bytes) }.cast::<ublksrv_io_desc>();
        // SAFETY: The mapping is readable while `self` lives; the base is page-aligned and `desc_bytes` a multiple of
        // 8, so the place is aligned; every bit pattern is a descriptor. Volatile, because the driver writes there.
        Some(IoDescriptor(unsafe { place.read_volatile() }))
    }

    /// Number of descriptors.
    #[must_use]
    pub const fn depth(&self) -> u16 {
        self.depth
    }
}

impl Drop for DescriptorMap {
    fn drop(&mut self) {
        // SAFETY: `new` made exactly this mapping and nothing borrows from it.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
        if let Err(error) = result {
            // Cannot happen for a mapping of ours; if it does, the device's id stays taken until the process ends.
            tracing::error!(err = %error, "cannot unmap the descriptors of a queue");
        }
    }
}

impl fmt::Debug for DescriptorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DescriptorMap")
            .field("depth", &self.depth)
            .field("desc_bytes", &self.desc_bytes)
            .finish_non_exhaustive()
    }
}
