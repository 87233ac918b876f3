//! What the operator and the kernel decide: limits, deadlines, the order of a teardown.

use std::time::Duration;

use crate::step::{CreateStep, Step, StopStep};

/// No deadline is longer: a day is "for ever" for every step, and sums with a clock never overflow.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// In which order a stopped device is given up. Both begin with `STOP_DEV`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeardownOrder {
    /// Close the char device, then delete: the fast order up to Linux 6.17.
    CloseThenDelete,
    /// Delete asynchronously while the char device is open, then close: from 6.18 to 7.3 the last reference costs an
    /// SRCU grace period, which `DEL_DEV` would pay under the driver's global mutex.
    DeleteThenClose,
}

/// How long each step may take. A step over its time is a failure of that step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Opening and locking the backing files.
    pub open: Duration,
    /// One write of the journal.
    pub journal: Duration,
    /// `ADD_DEV` and `SET_PARAMS`, or looking for a device after them.
    pub add: Duration,
    /// Attaching to the shards, or releasing them.
    pub attach: Duration,
    /// `START_DEV`, which reads the partition table through the daemon itself.
    pub start: Duration,
    /// Making or removing the link.
    pub publish: Duration,
    /// Finishing what is in flight; then it is abandoned.
    pub drain: Duration,
    /// Answering with EIO what is in flight.
    pub abandon: Duration,
    /// `STOP_DEV`.
    pub stop: Duration,
    /// `DEL_DEV_ASYNC`.
    pub delete: Duration,
    /// The kernel freeing the id: every opener of the char and the block device must be gone.
    pub await_gone: Duration,
    /// Closing the backing files.
    pub close: Duration,
    /// How much longer than its deadline the manager waits for a step's answer: the driver cancels the kernel's
    /// command at the deadline and needs a moment to say how that went. Not added to `drain`.
    pub answer_grace: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            open: seconds(10),
            journal: seconds(10),
            add: seconds(10),
            attach: seconds(5),
            start: seconds(15),
            publish: seconds(5),
            drain: seconds(10),
            abandon: seconds(5),
            stop: seconds(10),
            delete: seconds(10),
            await_gone: seconds(10),
            close: seconds(5),
            answer_grace: seconds(3),
        }
    }
}

impl Deadlines {
    /// What the step may take, or `None` if it waits without a limit of its own.
    #[must_use]
    pub fn of(&self, step: Step) -> Option<Duration> {
        let limit = match step {
            Step::Create(step) => match step {
                CreateStep::Open => self.open,
                CreateStep::RecordCreating | CreateStep::RecordAdded | CreateStep::RecordLive => {
                    self.journal
                }
                CreateStep::Add => self.add,
                CreateStep::Attach => self.attach,
                CreateStep::Start => self.start,
                CreateStep::Publish => self.publish,
            },
            Step::Stop(step) => match step {
                // The turn comes when those before it have ended, and each of their steps has a deadline.
                StopStep::Turn => return None,
                StopStep::RecordStopping | StopStep::RecordRemoved => self.journal,
                StopStep::Unpublish => self.publish,
                StopStep::Find => self.add,
                StopStep::Drain => self.drain,
                StopStep::Abandon => self.abandon,
                StopStep::Stop => self.stop,
                StopStep::Release => self.attach,
                StopStep::Delete => self.delete,
                StopStep::AwaitGone => self.await_gone,
                StopStep::Close => self.close,
            },
        };
        Some(limit.min(DEADLINE_MAX))
    }

    /// How long the manager waits for the step's answer.
    pub(crate) fn patience(&self, step: Step) -> Option<Duration> {
        let limit = self.of(step)?;
        match step {
            Step::Stop(StopStep::Drain) => Some(limit),
            Step::Stop(_) | Step::Create(_) => Some(limit + self.answer_grace.min(DEADLINE_MAX)),
        }
    }
}

/// The manager's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most devices, in whatever state. Bounds every table of the manager.
    pub devices_max: usize,
    /// The most devices that a shutdown, a `remove --all` or the clean-up at start stops at a time; 0 is no limit.
    pub stop_concurrency: usize,
    /// The order of a teardown on this kernel.
    pub teardown_order: TeardownOrder,
    /// How long each step may take.
    pub deadlines: Deadlines,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_deadlines_are_cut_to_a_day() {
        let deadlines = Deadlines {
            stop: Duration::MAX,
            answer_grace: Duration::MAX,
            ..Deadlines::default()
        };
        let step = Step::Stop(StopStep::Stop);
        assert_eq!(deadlines.of(step), Some(DEADLINE_MAX));
        assert_eq!(deadlines.patience(step), Some(DEADLINE_MAX * 2));
    }

    #[test]
    fn a_drain_gets_no_grace_and_a_turn_no_deadline() {
        let deadlines = Deadlines::default();
        assert_eq!(
            deadlines.patience(Step::Stop(StopStep::Drain)),
            Some(deadlines.drain)
        );
        assert_eq!(deadlines.patience(Step::Stop(StopStep::Turn)), None);
    }
}
