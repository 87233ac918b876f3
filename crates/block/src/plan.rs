//! A plan: the steps that one phase of a request takes, all of them in parallel.
//!
//! A target only plans; the data plane executes. That keeps targets free of handles and I/O, lets the simulator run
//! them unchanged, and lets the data plane choose how data travels (user copy, zero copy) without asking them.

use crate::ids::FileIndex;
use crate::units::{ByteLen, ByteOffset};

/// The most steps in one phase. A request that needs more continues in its next phase.
pub const STEPS_MAX: usize = 16;

/// A range of the request's own data, in bytes. Requests carry at most 32 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataRange {
    /// First byte, counted from the start of the request's data.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the backing store has taken it; a later [`Step::Sync`] makes it durable.
    Volatile,
    /// When it is durable, data and the metadata needed to read it back.
    Durable,
}

/// A step whose bytes the target itself takes or makes, as it is told when it has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Which file.
    pub file: FileIndex,
    /// Position in the file.
    pub offset: ByteOffset,
    /// Number of bytes of the file, at most [`HANDOVER_BYTES_MAX`].
    pub len: u32,
    /// The part of the request's data that it is about.
    pub data: DataRange,
    /// Free for the target.
    pub note: u64,
}

/// The most bytes that are handed over at once: they are in one buffer.
pub const HANDOVER_BYTES_MAX: u32 = 1 << 20;

/// One operation on the backing store or on the request's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Zero a range of a read's data. No I/O.
    Zero {
        /// The range.
        data: DataRange,
    },
    /// Read from a file into a range of a read's data. The file's end inside the range is an error.
    Read {
        /// Where from.
        file: FileIndex,
        /// Position in the file.
        offset: ByteOffset,
        /// Where to; its length is the length of the step.
        data: DataRange,
    },
    /// Write a range of a write's data to a file.
    Write {
        /// Where to.
        file: FileIndex,
        /// Position in the file.
        offset: ByteOffset,
        /// Where from; its length is the length of the step.
        data: DataRange,
        /// When it counts as done.
        durability: Durability,
    },
    /// Read a range whole and give it to [`crate::Target::handle_fetched`], which makes the request's data of it: for what is
    /// not stored as it is asked for. A range of no bytes is given at once.
    Fetch(Handover),
    /// Write a range whole that [`crate::Target::fill_stored`] makes just before.
    Store {
        /// What and where.
        handover: Handover,
        /// When it counts as done.
        durability: Durability,
    },
    /// Make every write that completed before durable: data, and the metadata needed to read it back.
    Sync {
        /// Which file.
        file: FileIndex,
    },
    /// Deallocate a range, which reads as zeros afterwards. The file's size stays.
    Punch {
        /// Which file.
        file: FileIndex,
        /// First byte.
        offset: ByteOffset,
        /// Number of bytes.
        len: ByteLen,
    },
    /// Zero a range and keep it allocated. The file's size stays.
    ZeroRange {
        /// Which file.
        file: FileIndex,
        /// First byte.
        offset: ByteOffset,
        /// Number of bytes.
        len: ByteLen,
    },
    /// Allocate a range without changing its content. The file's size stays.
    Allocate {
        /// Which file.
        file: FileIndex,
        /// First byte.
        offset: ByteOffset,
        /// Number of bytes.
        len: ByteLen,
    },
}

/// The steps of one phase, in a fixed array: planning never allocates.
#[derive(Debug)]
pub struct Plan {
    steps: [Step; STEPS_MAX],
    len: usize,
    /// Free for the target: what it writes here in one phase it finds again in the next one of the same request.
    pub cookie: u64,
    wakes: bool,
}

/// A plan has no room for another step; the target must continue in its next phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a phase takes at most {STEPS_MAX} steps")]
pub struct PlanFull;

impl Plan {
    /// An empty plan with cookie 0.
    #[must_use]
    pub const fn new() -> Self {
        let nothing = Step::Zero {
            data: DataRange { start: 0, len: 0 },
        };
        Self {
            steps: [nothing; STEPS_MAX],
            len: 0,
            cookie: 0,
            wakes: false,
        }
    }

    /// Lets every request of this target's device go on that ended a phase with [`crate::Verdict::Wait`], in their order, soon.
    pub const fn wake_waiting(&mut self) {
        self.wakes = true;
    }

    /// Whether [`Plan::wake_waiting`] was called since this was asked last.
    pub const fn take_wakes(&mut self) -> bool {
        std::mem::replace(&mut self.wakes, false)
    }

    /// Adds a step.
    ///
    /// # Errors
    /// [`PlanFull`] when the plan has [`STEPS_MAX`] steps already.
    pub fn push(&mut self, step: Step) -> Result<(), PlanFull> {
        let slot = self.steps.get_mut(self.len).ok_or(PlanFull)?;
        *slot = step;
        self.len += 1;
        Ok(())
    }

    /// The steps so far.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        self.steps.get(..self.len).unwrap_or_default()
    }

    /// Forgets the steps and sets the cookie, ready for the next phase or request.
    pub const fn reset(&mut self, cookie: u64) {
        self.len = 0;
        self.cookie = cookie;
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_plan_refuses_the_next_step_and_keeps_the_others() {
        let mut plan = Plan::new();
        let step = Step::Sync { file: FileIndex(0) };
        for _ in 0..STEPS_MAX {
            plan.push(step).unwrap();
        }
        assert_eq!(plan.push(step), Err(PlanFull));
        assert_eq!(plan.steps().len(), STEPS_MAX);
        plan.reset(7);
        assert!(plan.steps().is_empty());
        assert_eq!(plan.cookie, 7);
    }
}
