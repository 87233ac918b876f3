//! What a disk may hold, sector by sector: what was written when, and what a flush has promised.

use block::{Extent, Sectors};

/// What a sector holds: a number that its writer gave it, repeated; 0 is zeros.
pub(crate) type Mark = u64;

/// Numbers of what the lowers hold; those of writes are smaller.
const FROM_BELOW: Mark = 1 << 40;

/// The mark of a sector of a lower.
pub(crate) const fn below(lower: usize, sector: u64) -> Mark {
    FROM_BELOW + ((lower as u64) << 32) + sector
}

/// The bytes of a sector with that mark.
pub(crate) fn sector(mark: Mark) -> [u8; 512] {
    let mut bytes = [0; 512];
    for place in bytes.chunks_exact_mut(8) {
        place.copy_from_slice(&mark.to_le_bytes());
    }
    bytes
}

/// The mark of a sector; `None` for one that nobody wrote as a whole.
pub(crate) fn mark_of(bytes: &[u8]) -> Option<Mark> {
    let (words, _) = bytes.as_chunks::<8>();
    let first = words.first()?;
    let is_whole = words.iter().all(|word| word == first);
    is_whole.then(|| u64::from_le_bytes(*first))
}

/// A write to a sector.
#[derive(Clone, Copy, Debug)]
struct Written {
    mark: Mark,
    begin: u64,
    /// `None` while it is under way.
    end: Option<u64>,
    /// It has happened for sure: not when it failed, nor when it is only a hint.
    is_certain: bool,
    is_durable: bool,
}

/// The disk.
pub(crate) struct Model {
    sectors: Vec<Vec<Written>>,
    clock: u64,
}

/// What a request does, for [`Model::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Certain,
    /// It may do nothing.
    Hint,
}

/// A request that began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at: u64,
}

impl Model {
    /// A disk of which everything is durable.
    pub(crate) fn new(marks: impl Iterator<Item = Mark>) -> Self {
        let written = |mark| Written {
            mark,
            begin: 0,
            end: Some(0),
            is_certain: true,
            is_durable: true,
        };
        Self {
            sectors: marks.map(|mark| vec![written(mark)]).collect(),
            clock: 0,
        }
    }

    pub(crate) const fn size(&self) -> Sectors {
        Sectors(self.sectors.len() as u64)
    }

    /// A read or flush begins.
    pub(crate) const fn begin(&mut self) -> Begun {
        self.clock += 1;
        Begun { at: self.clock }
    }

    /// A write of `mark`, or of zeros, begins.
    pub(crate) fn begin_write(&mut self, extent: Extent, mark: Mark) -> Begun {
        let begun = self.begin();
        for written in self.range(extent) {
            written.push(Written {
                mark,
                begin: begun.at,
                end: None,
                is_certain: false,
                is_durable: false,
            });
        }
        begun
    }

    /// A write has ended; what it wrote is durable if it was told to make it so.
    pub(crate) fn end_write(
        &mut self,
        extent: Extent,
        begun: Begun,
        effect: Effect,
        is_durable: bool,
    ) {
        self.clock += 1;
        let now = self.clock;
        for written in self.range(extent).iter_mut().flatten() {
            if written.begin == begun.at {
                written.end = Some(now);
                written.is_certain = effect == Effect::Certain;
                written.is_durable = is_durable && written.is_certain;
            }
        }
    }

    /// A flush that began then has ended well.
    pub(crate) fn end_flush(&mut self, begun: Begun) {
        self.clock += 1;
        for written in self.sectors.iter_mut().flatten() {
            if written.is_certain && written.end.is_some_and(|end| end < begun.at) {
                written.is_durable = true;
            }
        }
    }

    /// Drops what can never be seen again, whatever happens. Not while a read is under way, which may still see it.
    pub(crate) fn forget_replaced(&mut self) {
        self.sectors.iter_mut().for_each(forget_replaced);
    }

    /// Holds what a read that began then has returned against what it may return.
    pub(crate) fn check_read(
        &self,
        extent: Extent,
        begun: Begun,
        bytes: &[u8],
    ) -> Result<(), String> {
        self.check(extent, bytes, |sector, mark| {
            let seen = sector.iter().filter(|written| written.mark == mark);
            let is_replaced = |written: &Written| {
                sector.iter().any(|other| {
                    other.is_certain
                        && written.end.is_some_and(|end| other.begin > end)
                        && other.end.is_some_and(|end| end < begun.at)
                })
            };
            { seen }.any(|written| !is_replaced(written))
        })
    }

    /// Holds what is there after a crash against what may be there: what was promised, or something newer.
    pub(crate) fn check_crashed(&self, bytes: &[u8]) -> Result<(), String> {
        self.check(self.whole(), bytes, |sector, mark| {
            let seen = sector.iter().filter(|written| written.mark == mark);
            let is_replaced = |written: &Written| {
                sector.iter().any(|other| {
                    other.is_durable && written.end.is_some_and(|end| other.begin > end)
                })
            };
            { seen }.any(|written| !is_replaced(written))
        })
    }

    /// Holds what is there after an end in order against what must be there: everything that ended.
    pub(crate) fn check_closed(&mut self, bytes: &[u8]) -> Result<(), String> {
        let begun = self.begin();
        self.check_read(self.whole(), begun, bytes)
    }

    /// Of all the disk.
    pub(crate) const fn whole(&self) -> Extent {
        Extent {
            start: Sectors(0),
            len: self.size(),
        }
    }

    fn range(&mut self, extent: Extent) -> &mut [Vec<Written>] {
        let start = usize::try_from(extent.start.0).unwrap();
        let len = usize::try_from(extent.len.0).unwrap();
        &mut self.sectors[start..start + len]
    }

    fn check(
        &self,
        extent: Extent,
        bytes: &[u8],
        is_allowed: impl Fn(&[Written], Mark) -> bool,
    ) -> Result<(), String> {
        for (number, found) in (extent.start.0..).zip(bytes.chunks(512)) {
            let sector = &self.sectors[usize::try_from(number).unwrap()];
            let Some(mark) = mark_of(found) else {
                return Err(format!("sector {number} is torn"));
            };
            if !is_allowed(sector, mark) {
                return Err(format!(
                    "sector {number} holds {mark}; written were {sector:?}"
                ));
            }
        }
        Ok(())
    }
}

fn forget_replaced(sector: &mut Vec<Written>) {
    let durable: Vec<Written> = sector
        .iter()
        .filter(|other| other.is_durable)
        .copied()
        .collect();
    sector.retain(|written| {
        !durable
            .iter()
            .any(|other| written.end.is_some_and(|end| other.begin > end))
    });
}

#[test]
fn what_a_flush_promised_must_be_there_and_what_it_did_not_may_be() {
    let whole = Extent {
        start: Sectors(0),
        len: Sectors(1),
    };
    let mut model = Model::new([7].into_iter());
    let first = model.begin_write(whole, 1);
    assert!(
        [7, 1]
            .map(|mark| model.check_crashed(&sector(mark)))
            .iter()
            .all(Result::is_ok)
    );
    model.end_write(whole, first, Effect::Certain, false);
    let flush = model.begin();
    let second = model.begin_write(whole, 2);
    model.end_flush(flush);
    model.end_write(whole, second, Effect::Certain, false);
    // The flush did not cover the second write.
    assert!(model.check_crashed(&sector(7)).is_err());
    assert!(model.check_crashed(&sector(1)).is_ok());
    assert!(model.check_crashed(&sector(2)).is_ok());
    assert!(
        model
            .check_crashed(&[0xff; 512].map(|byte| byte & 0x0f))
            .is_err()
    );
    let read = model.begin();
    assert!(model.check_read(whole, read, &sector(1)).is_err());
    assert!(model.check_read(whole, read, &sector(2)).is_ok());
    let mut torn = sector(2);
    torn[511] ^= 1;
    assert!(model.check_crashed(&torn).is_err());
}
