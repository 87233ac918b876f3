//! Space of a log's data file that nothing points to any more.

use std::collections::{BTreeMap, VecDeque};

use block::Sectors;

/// The smallest piece that is given back: a smaller one costs the file system more than it is worth. Small ones wait for
/// neighbours.
pub(super) const PUNCH_BYTES_MIN: u64 = 16 << 10;
/// What file systems allocate in.
const UNIT_BYTES: u64 = 4096;
/// Pieces that wait for their record, or for neighbours. More are forgotten: they are only not given back.
const WAITING_MAX: usize = 1 << 14;
const FREE_MAX: usize = 1 << 16;

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
    /// What can be given back, by its first byte, with its length.
    free: BTreeMap<u64, u64>,
    /// First bytes of pieces in `free` that are long enough.
    ready: VecDeque<u64>,
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
    pub(super) const fn new() -> Self {
        Self {
            generation: 0,
            reads: [0; 2],
            waiting: VecDeque::new(),
            free: BTreeMap::new(),
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
        loop {
            let begin = self.ready.pop_front()?;
            // It may have become part of another piece since.
            let Some(len) = self.free.get(&begin).copied() else {
                continue;
            };
            if let Some(inner) = aligned(begin, len) {
                self.free.remove(&begin);
                return Some(inner);
            }
        }
    }

    /// The file system does not take it back.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
        self.waiting.clear();
        self.free.clear();
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

    /// Joins a piece with its neighbours.
    fn free(&mut self, dead: Dead) {
        let (mut begin, mut end) = (dead.begin, dead.begin + dead.len);
        if let Some((before, len)) = self.free.range(..begin).next_back()
            && before + len == begin
        {
            begin = *before;
            self.free.remove(&begin);
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        if self.free.len() >= FREE_MAX {
            return;
        }
        self.free.insert(begin, end - begin);
        if aligned(begin, end - begin).is_some() {
            self.ready.push_back(begin);
        }
    }
}

/// The part of a piece in whole units, if it is worth giving back.
fn aligned(begin: u64, len: u64) -> Option<(u64, u64)> {
    let first = begin.next_multiple_of(UNIT_BYTES);
    let end = (begin + len) / UNIT_BYTES * UNIT_BYTES;
    let inner = end.checked_sub(first)?;
    (inner >= PUNCH_BYTES_MIN).then_some((first, inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 2;

    #[test]
    fn neighbours_are_given_back_together_and_small_pieces_wait() {
        let mut dead = DeadSpace::new();
        for at in [8, 24, 16, 32] {
            dead.add(Sectors(at), Sectors(8), 0);
        }
        assert_eq!(dead.take(1), Some((4096, 16384)));
        assert_eq!(dead.take(1), None);
        // Not whole units: the inner part counts.
        dead.add(Sectors(1001), Sectors(16 * KIB), 1);
        assert_eq!(dead.take(2), None);
        dead.add(Sectors(1001 + 16 * KIB), Sectors(8 * KIB), 2);
        assert_eq!(dead.take(3), Some((512 * 1008, 20 << 10)));
    }

    #[test]
    fn nothing_is_given_back_before_its_record_is_durable_or_while_a_read_may_look_there() {
        let mut dead = DeadSpace::new();
        let early = dead.begin_read();
        dead.add(Sectors(8), Sectors(64), 5);
        let late = dead.begin_read();
        assert_eq!(dead.take(6), None);
        dead.end_read(late);
        assert_eq!(dead.take(6), None);
        // Reads that began later do not matter.
        let other = dead.begin_read();
        dead.end_read(early);
        assert_eq!(dead.take(5), None);
        assert_eq!(dead.take(6), Some((4096, 32768)));
        dead.end_read(other);
    }
}
