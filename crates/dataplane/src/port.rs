//! The kernel's side of one queue, as the shard sees it: the real driver or a simulated one.

use block::{QueueId, Request, Status, Tag};
use ublk::{Features, Probe, Quirk};

/// How the data of a device's requests travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyMode {
    /// Through a buffer of the shard, by calls on the char device.
    #[default]
    UserCopy,
    /// Reads that do not have to wait go from the file into the request, by the ring; all else goes by user copy.
    ZeroCopy,
}

impl CopyMode {
    /// The mode of a device with these features.
    #[must_use]
    pub const fn of(features: Features) -> Self {
        if features.contains(Features::AUTO_BUF_REG) {
            Self::ZeroCopy
        } else {
            Self::UserCopy
        }
    }

    /// The best mode that a kernel offers.
    #[must_use]
    pub fn best(kernel: &Probe) -> Self {
        if kernel.quirks.has(Quirk::RegisteredPartsShort) {
            return Self::UserCopy;
        }
        Self::of(kernel.features)
    }

    /// The mode by name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserCopy => "user-copy",
            Self::ZeroCopy => "zero-copy",
        }
    }
}

/// One queue of one device.
pub trait QueuePort {
    /// What the ring understands as the queue's file.
    type File;

    /// The queue's number on its device.
    fn id(&self) -> QueueId;

    /// Number of tags.
    fn depth(&self) -> u16;

    /// The file that fetch and commit commands go to.
    fn file(&self) -> &Self::File;

    /// What the driver was asked for when the device was added.
    fn copy_mode(&self) -> CopyMode;

    /// Whether the data of the request in a tag that the server owns is registered where the tag's last command asked for it.
    /// Only with [`CopyMode::ZeroCopy`].
    fn is_registered(&self, tag: Tag) -> bool;

    /// The request in a tag that the server owns.
    ///
    /// # Errors
    /// The status to answer with when the kernel asks for an operation that no target knows.
    fn request(&self, tag: Tag) -> Result<Request, Status>;

    /// Copies data of a write out of the request, from byte `offset` on. All of `bytes` or a failure.
    fn copy_from_request(&self, tag: Tag, offset: u32, bytes: &mut [u8]) -> Status;

    /// Copies data of a read into the request, from byte `offset` on. All of `bytes` or a failure.
    fn copy_to_request(&self, tag: Tag, offset: u32, bytes: &[u8]) -> Status;
}
