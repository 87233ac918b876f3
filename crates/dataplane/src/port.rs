//! The kernel's side of one queue, as the shard sees it: the real driver or a simulated one.

use block::{QueueId, Request, Status, Tag};

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
