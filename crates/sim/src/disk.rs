//! A sparse file in memory that keeps apart what reads return and what a power cut leaves.
//!
//! ```text
//!   write, punch --> live --snapshot, persist (sync)--> durable
//!                      \------ persist_range (durable write) ---^
//! ```
//!
//! Fault model: content becomes durable only by a sync that was *issued* after it was written, or by its own durable write.
//! A power cut keeps, sector by sector, either the live or the durable content: sectors are never torn by the cut.

use std::rc::Rc;

use crate::pattern::SECTOR;

/// One sector. `None` is a hole, which reads as zeros and takes no space.
#[derive(Clone, Debug, Default)]
struct Block {
    version: u64,
    data: Option<Rc<[u8; SECTOR]>>,
}

/// The live content at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot(Vec<Block>);

/// The file.
#[derive(Debug)]
pub struct SimDisk {
    live: Vec<Block>,
    durable: Vec<Block>,
    version: u64,
    /// Where reads end; less than all sectors after a truncation.
    len_bytes: usize,
    allocated_max: usize,
}

impl SimDisk {
    /// A file of `sectors`, all holes, of which at most `allocated_max` can hold data.
    #[must_use]
    pub fn new(sectors: usize, allocated_max: usize) -> Self {
        Self {
            live: vec![Block::default(); sectors],
            durable: vec![Block::default(); sectors],
            version: 0,
            len_bytes: sectors * SECTOR,
            allocated_max,
        }
    }

    /// Reads; returns less than asked for at the end of the file.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
        let count = self.len_bytes.saturating_sub(offset).min(bytes.len());
        let mut done = 0;
        while done < count {
            let (sector, within) = ((offset + done) / SECTOR, (offset + done) % SECTOR);
            let len = (SECTOR - within).min(count - done);
            let Some(target) = bytes.get_mut(done..done + len) else {
                break;
            };
            match self.live.get(sector).and_then(|block| block.data.as_ref()) {
                Some(data) => target.copy_from_slice(data.get(within..within + len).unwrap_or(&[])),
                None => target.fill(0),
            }
            done += len;
        }
        done
    }

    /// Writes; returns less than asked for when the space runs out.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> usize {
        self.version += 1;
        let mut left = self.allocated_left();
        let mut done = 0;
        while done < bytes.len() {
            let (sector, within) = ((offset + done) / SECTOR, (offset + done) % SECTOR);
            let len = (SECTOR - within).min(bytes.len() - done);
            let (Some(block), Some(source)) =
                (self.live.get_mut(sector), bytes.get(done..done + len))
            else {
                break;
            };
            if block.data.is_none() {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            let data = block.data.get_or_insert_with(|| Rc::new([0; SECTOR]));
            if let Some(target) = Rc::make_mut(data).get_mut(within..within + len) {
                target.copy_from_slice(source);
            }
            block.version = self.version;
            done += len;
        }
        self.len_bytes = self.len_bytes.max(offset + done);
        done
    }

    /// Makes whole sectors holes.
    pub(crate) fn punch(&mut self, offset: usize, len: usize) {
        self.version += 1;
        let version = self.version;
        for block in self.range_mut(offset, len) {
            *block = Block {
                version,
                data: None,
            };
        }
    }

    /// Gives every hole in the range space. Returns whether there was enough.
    pub(crate) fn allocate(&mut self, offset: usize, len: usize) -> bool {
        self.version += 1;
        let (version, mut left) = (self.version, self.allocated_left());
        for block in self.range_mut(offset, len) {
            if block.data.is_none() {
                if left == 0 {
                    return false;
                }
                left -= 1;
                *block = Block {
                    version,
                    data: Some(Rc::new([0; SECTOR])),
                };
            }
        }
        true
    }

    /// Cuts the file short (or makes it longer again): what lies behind reads as the end of the file.
    pub(crate) fn truncate(&mut self, len_bytes: usize) {
        let cut = len_bytes.min(self.len_bytes);
        self.punch(cut, self.len_bytes - cut);
        self.len_bytes = len_bytes.min(self.live.len() * SECTOR);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.live.clone())
    }

    /// Makes a snapshot durable, where nothing newer is durable already.
    pub(crate) fn persist(&mut self, snapshot: &Snapshot) {
        for (durable, block) in self.durable.iter_mut().zip(&snapshot.0) {
            if durable.version < block.version {
                durable.clone_from(block);
            }
        }
    }

    /// Makes the live content of a range durable.
    pub(crate) fn persist_range(&mut self, offset: usize, len: usize) {
        let range = offset / SECTOR..(offset + len).div_ceil(SECTOR);
        for (durable, block) in self
            .durable
            .iter_mut()
            .zip(&self.live)
            .take(range.end)
            .skip(range.start)
        {
            durable.clone_from(block);
        }
    }

    /// What is found after a power cut. `keeps_live` decides for each sector whether what was not durable survived.
    pub(crate) fn cut_power(&mut self, mut keeps_live: impl FnMut() -> bool) {
        for (live, durable) in self.live.iter_mut().zip(&mut self.durable) {
            if keeps_live() {
                durable.clone_from(live);
            } else {
                live.clone_from(durable);
            }
        }
        self.len_bytes = self.live.len() * SECTOR;
    }

    pub(crate) fn sectors(&self) -> usize {
        self.live.len()
    }

    /// The live content of a sector.
    pub(crate) fn sector(&self, sector: usize) -> [u8; SECTOR] {
        let data = self
            .live
            .get(sector)
            .and_then(|block| block.data.as_deref());
        data.copied().unwrap_or([0; SECTOR])
    }

    /// Whether each sector takes space, in order.
    pub(crate) fn allocation(&self) -> impl Iterator<Item = bool> {
        self.live.iter().map(|block| block.data.is_some())
    }

    fn allocated_left(&self) -> usize {
        if self.allocated_max >= self.live.len() {
            return usize::MAX;
        }
        let allocated = self.allocation().filter(|allocated| *allocated).count();
        self.allocated_max.saturating_sub(allocated)
    }

    fn range_mut(&mut self, offset: usize, len: usize) -> &mut [Block] {
        let end = ((offset + len) / SECTOR).min(self.live.len());
        self.live.get_mut(offset / SECTOR..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(disk: &SimDisk, offset: usize) -> u8 {
        let mut bytes = [9];
        assert_eq!(disk.read(offset, &mut bytes), 1);
        bytes[0]
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_was_issued_and_nothing_else() {
        let mut disk = SimDisk::new(8, 8);
        disk.write(0, &[1; SECTOR]);
        let snapshot = disk.snapshot();
        disk.write(0, &[2; SECTOR]);
        disk.write(512, &[3; SECTOR]);
        disk.persist(&snapshot);
        disk.cut_power(|| false);
        assert_eq!((byte(&disk, 0), byte(&disk, 512)), (1, 0));
    }

    #[test]
    fn an_older_sync_that_ends_late_does_not_undo_a_durable_write() {
        let mut disk = SimDisk::new(8, 8);
        disk.write(0, &[1; SECTOR]);
        let snapshot = disk.snapshot();
        disk.write(0, &[2; SECTOR]);
        disk.persist_range(0, SECTOR);
        disk.persist(&snapshot);
        disk.cut_power(|| false);
        assert_eq!(byte(&disk, 0), 2);
    }

    #[test]
    fn space_runs_out_in_the_middle_of_a_write_and_comes_back_by_a_punch() {
        let mut disk = SimDisk::new(8, 3);
        assert_eq!(disk.write(0, &[1; 2 * SECTOR]), 2 * SECTOR);
        assert_eq!(disk.write(1024, &[1; 2 * SECTOR]), SECTOR);
        assert!(!disk.allocate(0, 4 * SECTOR));
        disk.punch(0, 2 * SECTOR);
        assert!(disk.allocate(1024, 2 * SECTOR));
        assert_eq!(byte(&disk, 0), 0);
    }

    #[test]
    fn bytes_that_cross_sectors_land_where_they_belong() {
        let mut disk = SimDisk::new(4, 4);
        disk.write(500, &[7; 600]);
        let mut bytes = [0; 700];
        assert_eq!(disk.read(450, &mut bytes), 700);
        assert!(
            bytes[..50]
                .iter()
                .chain(&bytes[650..])
                .all(|byte| *byte == 0)
        );
        assert!(bytes[50..650].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn reads_end_where_a_truncation_cut() {
        let mut disk = SimDisk::new(4, 4);
        disk.write(0, &[7; 4 * SECTOR]);
        disk.truncate(SECTOR);
        let mut bytes = [0; 2 * SECTOR];
        assert_eq!(disk.read(0, &mut bytes), SECTOR);
        assert_eq!(disk.read(SECTOR, &mut bytes), 0);
        disk.write(3 * SECTOR, &[1; SECTOR]);
        assert_eq!(disk.read(SECTOR, &mut bytes), 2 * SECTOR);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
