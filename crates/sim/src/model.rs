//! What a read may return and what a power cut may leave, per sector of one disk.
//!
//! Every write (zeroing counts as one) is an interval from its issue to its end. Two writes that overlap in time may take
//! effect in either order, so a sector has a set of values it may hold:
//!
//! - a value is **superseded** when a write that began after it had ended has succeeded;
//! - a value is **overtaken** when a read that began after it had ended has returned another one;
//! - a read may return every value that was neither superseded nor overtaken before the read began;
//! - a value is **gone** when it cannot be on the medium after a power cut: it was superseded before a successful FLUSH
//!   began, or by a successful FUA write.
//!
//! A write that failed may have taken effect or not, in parts too. A write that was answered while its operation still
//! runs ("lingers") stays open until the operation ends.

use crate::pattern::{SECTOR, Writer, writers};

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It succeeded.
    Stored,
    /// It succeeded and is durable.
    Durable,
    /// It failed, or nobody knows.
    Unknown,
}

/// A write of data or of zeros to a range of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The number of the write, from 1.
    pub(crate) write: u64,
    /// Whether it stores zeros.
    pub(crate) is_zeroing: bool,
    /// First sector.
    pub(crate) start: usize,
    /// Number of sectors.
    pub(crate) len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Value {
    write: u64,
    is_zero: bool,
    begin: u64,
    end: Option<u64>,
    superseded: Option<u64>,
    overtaken: Option<u64>,
    is_gone: bool,
}

impl Value {
    const fn settled(writer: Writer, now: u64) -> Self {
        let (write, is_zero) = match writer {
            Writer::Write(write) => (write, false),
            Writer::Nobody | Writer::Foreign(_) => (0, true),
        };
        Self {
            write,
            is_zero,
            begin: now,
            end: Some(now),
            superseded: None,
            overtaken: None,
            is_gone: false,
        }
    }

    const fn has_written(&self, writer: Writer) -> bool {
        match writer {
            Writer::Nobody => self.is_zero,
            Writer::Write(write) => !self.is_zero && self.write == write,
            Writer::Foreign(_) => false,
        }
    }

    fn is_readable_at(&self, time: u64) -> bool {
        !self.is_superseded_by(time) && self.overtaken.is_none_or(|overtaken| overtaken > time)
    }

    fn is_superseded_by(&self, time: u64) -> bool {
        self.superseded.is_some_and(|superseded| superseded <= time)
    }
}

/// The model of one disk.
#[derive(Debug)]
pub(crate) struct Model {
    sectors: Vec<Vec<Value>>,
    clock: u64,
    reads: usize,
}

impl Model {
    /// A disk of zeros.
    pub(crate) fn new(sectors: usize) -> Self {
        let zero = Value::settled(Writer::Nobody, 0);
        Self {
            sectors: vec![vec![zero]; sectors],
            clock: 0,
            reads: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A read or a flush begins; returns the time for [`Model::end_read`] or [`Model::end_flush`].
    pub(crate) fn begin_read(&mut self) -> u64 {
        self.reads += 1;
        self.tick()
    }

    /// A read ends without an answer that could be checked.
    pub(crate) fn forget_read(&mut self) {
        self.reads -= 1;
    }

    /// A read that began at `begin` has returned `data` from sector `start` on.
    ///
    /// # Errors
    /// A sector that no allowed order of writes explains.
    pub(crate) fn end_read(&mut self, begin: u64, start: usize, data: &[u8]) -> Result<(), String> {
        self.reads -= 1;
        let now = self.tick();
        for (sector, bytes) in (start..).zip(data.chunks(SECTOR)) {
            let found = writers(sector as u64, bytes);
            self.explain(sector, &found, |value| value.is_readable_at(begin))?;
            let ([writer], Some(values)) = (&found[..], self.sectors.get_mut(sector)) else {
                // A sector between two values tells no order.
                continue;
            };
            let is_overtaken = |value: &&mut Value| {
                !value.has_written(*writer) && value.end.is_some_and(|end| end < begin)
            };
            for value in values.iter_mut().filter(is_overtaken) {
                value.overtaken.get_or_insert(now);
            }
        }
        Ok(())
    }

    /// A flush that began at `begin` has succeeded.
    pub(crate) fn end_flush(&mut self, begin: u64) {
        self.reads -= 1;
        for values in &mut self.sectors {
            for value in values
                .iter_mut()
                .filter(|value| value.is_superseded_by(begin))
            {
                value.is_gone = true;
            }
        }
        self.purge(0, self.sectors.len());
    }

    /// A write is issued.
    pub(crate) fn begin_write(&mut self, mark: Mark) {
        let begin = self.tick();
        let value = Value {
            write: mark.write,
            is_zero: mark.is_zeroing,
            begin,
            end: None,
            superseded: None,
            overtaken: None,
            is_gone: false,
        };
        for values in self.range_mut(mark.start, mark.len) {
            values.push(value);
        }
    }

    /// A write has ended.
    pub(crate) fn end_write(&mut self, mark: Mark, ending: Ending) {
        let now = self.tick();
        for values in self.range_mut(mark.start, mark.len) {
            let Some(own) = values.iter_mut().find(|value| value.write == mark.write) else {
                continue;
            };
            own.end = Some(now);
            let begin = own.begin;
            if ending == Ending::Unknown {
                continue;
            }
            let older = values
                .iter_mut()
                .filter(|value| value.end.is_some_and(|end| end < begin));
            for value in older {
                value.superseded.get_or_insert(now);
                value.is_gone |= ending == Ending::Durable;
            }
        }
        self.purge(mark.start, mark.len);
    }

    /// The power was cut and `content` found in a sector; it is what the sector holds from now on.
    ///
    /// # Errors
    /// Content that should have been replaced by what was durable.
    pub(crate) fn recover(&mut self, sector: usize, content: &[u8]) -> Result<(), String> {
        let found = writers(sector as u64, content);
        self.explain(sector, &found, |value| !value.is_gone)?;
        let now = self.tick();
        self.reads = 0;
        if let Some(values) = self.sectors.get_mut(sector) {
            values.clear();
            values.extend(found.into_iter().map(|writer| Value::settled(writer, now)));
        }
        Ok(())
    }

    fn explain(
        &self,
        sector: usize,
        found: &[Writer],
        allowed: impl Fn(&Value) -> bool,
    ) -> Result<(), String> {
        let values = self
            .sectors
            .get(sector)
            .map(Vec::as_slice)
            .unwrap_or_default();
        for writer in found {
            if !values
                .iter()
                .any(|value| value.has_written(*writer) && allowed(value))
            {
                return Err(format!(
                    "sector {sector} holds {writer:?}; it may hold one of {values:?}"
                ));
            }
        }
        Ok(())
    }

    /// Drops values that neither a read in flight nor a power cut can bring back.
    fn purge(&mut self, start: usize, len: usize) {
        if self.reads > 0 {
            return;
        }
        for values in self.range_mut(start, len) {
            values.retain(|value| !(value.is_gone && value.superseded.is_some()));
        }
    }

    fn range_mut(&mut self, start: usize, len: usize) -> &mut [Vec<Value>] {
        let end = (start + len).min(self.sectors.len());
        self.sectors.get_mut(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::fill;

    fn mark(write: u64) -> Mark {
        Mark {
            write,
            is_zeroing: false,
            start: 0,
            len: 1,
        }
    }

    fn content(write: u64) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR];
        if write > 0 {
            fill(write, 0, &mut bytes);
        }
        bytes
    }

    fn may_read(model: &mut Model, write: u64) -> bool {
        let begin = model.begin_read();
        model.end_read(begin, 0, &content(write)).is_ok()
    }

    /// As `may_read`, without the read's effect on later ones.
    fn could_read(model: &Model, write: u64) -> bool {
        let found = writers(0, &content(write));
        model
            .explain(0, &found, |value| value.is_readable_at(model.clock))
            .is_ok()
    }

    #[test]
    fn concurrent_writes_may_end_in_either_order_and_a_later_one_replaces_both() {
        let mut model = Model::new(1);
        model.begin_write(mark(1));
        model.begin_write(mark(2));
        model.end_write(mark(1), Ending::Stored);
        assert!(could_read(&model, 1) && could_read(&model, 2) && !could_read(&model, 0));
        model.end_write(mark(2), Ending::Stored);
        assert!(could_read(&model, 1) && could_read(&model, 2));
        model.begin_write(mark(3));
        model.end_write(mark(3), Ending::Stored);
        assert!(!could_read(&model, 1) && !could_read(&model, 2) && could_read(&model, 3));
    }

    #[test]
    fn a_read_may_return_what_was_replaced_while_it_ran() {
        let mut model = Model::new(1);
        let begin = model.begin_read();
        model.begin_write(mark(1));
        model.end_write(mark(1), Ending::Stored);
        assert!(model.end_read(begin, 0, &content(0)).is_ok());
        assert!(!may_read(&mut model, 0));
    }

    #[test]
    fn what_was_read_is_not_unread() {
        let mut model = Model::new(1);
        model.begin_write(mark(1));
        model.begin_write(mark(2));
        model.end_write(mark(1), Ending::Stored);
        model.end_write(mark(2), Ending::Stored);
        assert!(may_read(&mut model, 2) && !may_read(&mut model, 1) && may_read(&mut model, 2));
    }

    #[test]
    fn a_failed_write_is_possible_until_it_is_replaced() {
        let mut model = Model::new(1);
        model.begin_write(mark(1));
        model.end_write(mark(1), Ending::Unknown);
        assert!(could_read(&model, 0) && could_read(&model, 1));
        model.begin_write(mark(2));
        model.end_write(mark(2), Ending::Stored);
        assert!(!could_read(&model, 0) && !could_read(&model, 1));
    }

    #[test]
    fn a_flush_makes_what_ended_before_it_durable() {
        for flushed in [false, true] {
            let mut model = Model::new(1);
            model.begin_write(mark(1));
            model.end_write(mark(1), Ending::Stored);
            let begin = model.begin_read();
            if flushed {
                model.end_flush(begin);
            }
            assert_eq!(model.recover(0, &content(0)).is_err(), flushed);
        }
    }

    #[test]
    fn a_flush_says_nothing_about_a_write_that_ended_after_it_began() {
        let mut model = Model::new(1);
        model.begin_write(mark(1));
        let begin = model.begin_read();
        model.end_write(mark(1), Ending::Stored);
        model.end_flush(begin);
        assert!(model.recover(0, &content(0)).is_ok());
    }

    #[test]
    fn a_durable_write_is_there_after_a_power_cut() {
        let mut model = Model::new(1);
        model.begin_write(mark(1));
        model.end_write(mark(1), Ending::Durable);
        assert!(model.recover(0, &content(0)).is_err());
        assert!(model.recover(0, &content(1)).is_ok());
    }
}
