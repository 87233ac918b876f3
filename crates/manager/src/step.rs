//! The steps of a device's life, by name: what reports, deadlines and logs speak of.

use std::fmt;

/// A step on the way to a live device, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CreateStep {
    /// Open and lock the backing files, learn the geometry.
    Open,
    /// Journal that a device with this serial may appear.
    RecordCreating,
    /// `ADD_DEV` and `SET_PARAMS`; gives the kernel's id.
    Add,
    /// Journal the id.
    RecordAdded,
    /// Open the char device, map the queues, have the shards fetch every tag.
    Attach,
    /// `START_DEV`; the disk appears.
    Start,
    /// Make the link under `/dev/blockyard`.
    Publish,
    /// Journal that the device is complete, before anyone is told.
    RecordLive,
}

/// A step on the way out, in the usual order; each device takes those that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopStep {
    /// Journal that the device is to go.
    RecordStopping,
    /// Wait for a turn: a limited number of devices stop at a time.
    Turn,
    /// Remove the link under `/dev/blockyard`.
    Unpublish,
    /// Look for a kernel device with the stamp, after an `ADD_DEV` whose end is unknown.
    Find,
    /// Finish what is in flight.
    Drain,
    /// Answer with EIO what is still in flight.
    Abandon,
    /// `STOP_DEV`; the disk disappears.
    Stop,
    /// The shards give up queue maps and char device.
    Release,
    /// `DEL_DEV_ASYNC`, or `DEL_DEV` where the kernel lacks it.
    Delete,
    /// Wait until the kernel has freed the id.
    AwaitGone,
    /// Close and unlock the backing files.
    Close,
    /// Remove the journal record.
    RecordRemoved,
}

/// Any step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// On the way in.
    Create(CreateStep),
    /// On the way out.
    Stop(StopStep),
}

impl Step {
    /// The stable name in reports, API and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create(step) => match step {
                CreateStep::Open => "open",
                CreateStep::RecordCreating => "record_creating",
                CreateStep::Add => "add",
                CreateStep::RecordAdded => "record_added",
                CreateStep::Attach => "attach",
                CreateStep::Start => "start",
                CreateStep::Publish => "publish",
                CreateStep::RecordLive => "record_live",
            },
            Self::Stop(step) => match step {
                StopStep::RecordStopping => "record_stopping",
                StopStep::Turn => "turn",
                StopStep::Unpublish => "unpublish",
                StopStep::Find => "find",
                StopStep::Drain => "drain",
                StopStep::Abandon => "abandon",
                StopStep::Stop => "stop",
                StopStep::Release => "release",
                StopStep::Delete => "delete",
                StopStep::AwaitGone => "await_gone",
                StopStep::Close => "close",
                StopStep::RecordRemoved => "record_removed",
            },
        }
    }
}

impl From<CreateStep> for Step {
    fn from(step: CreateStep) -> Self {
        Self::Create(step)
    }
}

impl From<StopStep> for Step {
    fn from(step: StopStep) -> Self {
        Self::Stop(step)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
