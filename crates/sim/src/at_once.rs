//! Reads and writes that the ring does at once when it is asked, without a completion.
//!
//! They may be short like others. One that would fail or find the end of the file is refused, as the real ring does: then the
//! operation is pushed and its completion tells. Asking for a write while an allocation of the same open file runs is a
//! violation: the real call would wait for the file's lock, and with it the whole shard.

use std::cell::RefMut;

use crate::disk::SimDisk;
use crate::file::{Node, SimFile};
use crate::kernel::Kernel;
use crate::operation::roll;
use crate::pattern::UNIT;

impl Kernel {
    pub(crate) fn try_read(
        &mut self,
        file: &SimFile,
        offset: u64,
        bytes: &mut [u8],
    ) -> Option<u32> {
        let (disk, len) = self.try_access(file, bytes.len())?;
        let done = disk.read(usize::try_from(offset).ok()?, bytes.get_mut(..len)?);
        self.account([offset, done as u64, 0])
    }

    pub(crate) fn try_write(&mut self, file: &SimFile, offset: u64, bytes: &[u8]) -> Option<u32> {
        if let Node::Disk(opened) = &*file.0
            && opened.watch.allocating.get() > 0
        {
            self.journal
                .violate(|| format!("a write at once beside an allocation of {:?}", opened.watch));
        }
        let (mut disk, len) = self.try_access(file, bytes.len())?;
        let done = disk.write(usize::try_from(offset).ok()?, bytes.get(..len)?);
        self.account([offset, done as u64, 1])
    }

    /// The disk and how much of `len` is done, unless it would wait.
    fn try_access<'f>(
        &mut self,
        file: &'f SimFile,
        len: usize,
    ) -> Option<(RefMut<'f, SimDisk>, usize)> {
        let Node::Disk(opened) = &*file.0 else {
            self.journal
                .violate(|| format!("data was asked of {file:?}"));
            return None;
        };
        if !roll(&mut self.rng, self.faults.at_once) {
            return None;
        }
        let is_short = len > UNIT && roll(&mut self.rng, self.faults.short);
        let len = if is_short {
            self.rng.usize(1..len / UNIT) * UNIT
        } else {
            len
        };
        Some((opened.disk.borrow_mut(), len))
    }

    fn account(&mut self, event: [u64; 3]) -> Option<u32> {
        self.journal.record(event);
        let [_, done, _] = event;
        u32::try_from(done).ok().filter(|done| *done > 0)
    }
}
