//! Space of a log's data file that nothing points to any more.

use std::collections::{HashMap, VecDeque};

use block::{SECTOR_BYTES, Sectors};

/// What is given back at a time, at least, and what it begins at a multiple of: a smaller piece costs the file system more than it is
/// worth. A part of one waits for the rest.
pub(super) const PUNCH_BYTES_MIN: u64 = 16 << 10;
/// Dead sectors of so many bytes of the file are bits of a word.
const REGION_BYTES: u64 = 128 * SECTOR_BYTES;
/// Of a word, the sectors that are given back together.
const UNIT_SECTORS: u32 = 32;
/// Pieces that wait for their record. More are forgotten: they are only not given back.
const WAITING_MAX: usize = 1 << 14;
/// Regions with dead sectors, likewise.
const REGIONS_MAX: usize = 1 << 16;

const _: () = assert!(UNIT_SECTORS as u64 * SECTOR_BYTES == PUNCH_BYTES_MIN);
const _: () = assert!(REGION_BYTES.is_multiple_of(PUNCH_BYTES_MIN));

/// Dead space, from the moment it dies.
///
/// Reads come in two generations: a read belongs to the one in which it begins. The next generation begins when no read of the one
/// before the present is left, so that two generations after a piece died no read can look there.
#[derive(Debug)]
pub(super) struct DeadSpace {
    generation: u64,
    /// Reads under way of the even and of the odd generation.
    reads: [u64; 2],
    waiting: VecDeque<Dead>,
    /// Sectors that can be given back with what is around them, by region: bit 0 is the first sector of the region.
    regions: HashMap<u64, u128>,
    /// What is given back next, first byte and length.
    ready: VecDeque<(u64, u64)>,
    is_given_up: bool,
}

#[derive(Clone, Copy, Debug)]
struct Dead {
    begin: u64,
    len: u64,
    /// The number of the record that says so.
    record: u64,
    generation: u64,
}

impl DeadSpace {
    pub(super) fn new() -> Self {
        Self {
            generation: 0,
            reads: [0; 2],
            waiting: VecDeque::new(),
            regions: HashMap::new(),
            ready: VecDeque::new(),
            is_given_up: false,
        }
    }

    /// A read begins.
    pub(super) const fn begin_read(&mut self) -> bool {
        let is_odd = self.generation % 2 == 1;
        let [even, odd] = &mut self.reads;
        *(if is_odd { odd } else { even }) += 1;
        is_odd
    }

    /// A read ends that began with this answer.
    pub(super) fn end_read(&mut self, is_odd: bool) {
        let [even, odd] = &mut self.reads;
        let count = if is_odd { odd } else { even };
        *count = count.saturating_sub(1);
        self.advance();
    }

    /// Sectors of the file died: record number `record` replaces them.
    pub(super) fn add(&mut self, offset: Sectors, len: Sectors, record: u64) {
        if self.is_given_up || self.waiting.len() >= WAITING_MAX {
            return;
        }
        self.waiting.push_back(Dead {
            begin: offset.offset_bytes().0,
            len: len.len_bytes().0,
            record,
            generation: self.generation,
        });
    }

    /// A piece to give back, offset and length in bytes, now that the records before `durable` are durable.
    pub(super) fn take(&mut self, durable: u64) -> Option<(u64, u64)> {
        self.advance();
        self.advance();
        while let Some(dead) = self.waiting.front().copied() {
            if dead.record >= durable || dead.generation + 2 > self.generation {
                break;
            }
            self.waiting.pop_front();
            self.free(dead);
        }
        let (begin, mut len) = self.ready.pop_front()?;
        // Neighbours mostly die together.
        while let Some((next, more)) = self.ready.front().copied()
            && next == begin + len
        {
            len += more;
            self.ready.pop_front();
        }
        Some((begin, len))
    }

    /// The file system does not take it back.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
        self.waiting.clear();
        self.regions.clear();
        self.ready.clear();
    }

    /// Begins the next generation, if no read of the one before is left.
    const fn advance(&mut self) {
        let [even, odd] = self.reads;
        let of_the_one_before = if self.generation % 2 == 1 { even } else { odd };
        if of_the_one_before == 0 {
            self.generation += 1;
        }
    }

    /// Adds a piece to what can be given back.
    fn free(&mut self, dead: Dead) {
        let (mut begin, end) = (dead.begin, dead.begin + dead.len);
        while begin < end {
            let region = begin / REGION_BYTES;
            let region_end = (region + 1) * REGION_BYTES;
            let piece_end = end.min(region_end);
            let first = (begin % REGION_BYTES) / SECTOR_BYTES;
            let count = (piece_end - begin) / SECTOR_BYTES;
            self.free_sectors(region, ones(count) << first);
            begin = piece_end;
        }
    }

    fn free_sectors(&mut self, region: u64, sectors: u128) {
        if self.regions.len() >= REGIONS_MAX && !self.regions.contains_key(&region) {
            return;
        }
        let dead = self.regions.entry(region).or_default();
        *dead |= sectors;
        for unit in (0..u128::BITS).step_by(UNIT_SECTORS as usize) {
            let all = ones(UNIT_SECTORS.into()) << unit;
            if *dead & all == all {
                *dead &= !all;
                let begin = region * REGION_BYTES + u64::from(unit) * SECTOR_BYTES;
                self.ready.push_back((begin, PUNCH_BYTES_MIN));
            }
        }
        if *dead == 0 {
            self.regions.remove(&region);
        }
    }
}

/// So many bits, at most 128.
const fn ones(count: u64) -> u128 {
    if count >= 128 {
        u128::MAX
    } else {
        (1 << count) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 2;

    #[test]
    fn neighbours_are_given_back_together_and_small_pieces_wait() {
        let mut dead = DeadSpace::new();
        for at in [32, 48, 40, 56] {
            dead.add(Sectors(at), Sectors(8), 0);
        }
        assert_eq!(dead.take(1), Some((16384, 16384)));
        assert_eq!(dead.take(1), None);
        // Not whole units: they wait for the rest. 1001 is 9 sectors behind the begin of one.
        dead.add(Sectors(1001), Sectors(16 * KIB), 1);
        assert_eq!(dead.take(2), None);
        dead.add(Sectors(992), Sectors(9), 2);
        assert_eq!(dead.take(3), Some((992 * 512, 16 << 10)));
        assert_eq!(dead.take(3), None);
        // Across regions, and of several units, in one go.
        dead.add(Sectors(120), Sectors(80 * KIB), 3);
        assert_eq!(dead.take(4), Some((128 * 512, 64 << 10)));
        assert_eq!(dead.take(4), None);
    }

    #[test]
    fn nothing_is_given_back_before_its_record_is_durable_or_while_a_read_may_look_there() {
        let mut dead = DeadSpace::new();
        let early = dead.begin_read();
        dead.add(Sectors(32), Sectors(64), 5);
        let late = dead.begin_read();
        assert_eq!(dead.take(6), None);
        dead.end_read(late);
        assert_eq!(dead.take(6), None);
        // Reads that began later do not matter.
        let other = dead.begin_read();
        dead.end_read(early);
        assert_eq!(dead.take(5), None);
        assert_eq!(dead.take(6), Some((16384, 32768)));
        dead.end_read(other);
    }
}
