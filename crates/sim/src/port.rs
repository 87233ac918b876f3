//! The server's view of one queue of a simulated device.

use std::cell::RefCell;
use std::rc::Rc;

use block::{QueueId, Request, Status, Tag};
use dataplane::{CopyMode, QueuePort};

use crate::driver::{DeviceIndex, TagRef};
use crate::file::SimFile;
use crate::kernel::Kernel;

/// A queue, to be attached to a shard.
#[derive(Debug)]
pub struct SimQueue {
    kernel: Rc<RefCell<Kernel>>,
    file: SimFile,
    device: DeviceIndex,
    id: QueueId,
    depth: u16,
    copy_mode: CopyMode,
}

impl SimQueue {
    pub(crate) fn new(
        (kernel, file): (Rc<RefCell<Kernel>>, SimFile),
        device: DeviceIndex,
        id: QueueId,
        (depth, copy_mode): (u16, CopyMode),
    ) -> Self {
        Self {
            kernel,
            file,
            device,
            id,
            depth,
            copy_mode,
        }
    }

    /// Whether the kernel has given up every tag of the queue's device, as it must have before the queue is let go.
    pub(crate) fn is_aborted(&self) -> bool {
        self.kernel.borrow().driver.is_aborted(self.device)
    }

    fn with<T>(&self, tag: Tag, work: impl FnOnce(&mut Kernel, TagRef) -> T) -> T {
        let at = TagRef {
            device: self.device,
            queue: self.id,
            tag,
        };
        work(&mut self.kernel.borrow_mut(), at)
    }
}

impl QueuePort for SimQueue {
    type File = SimFile;

    fn id(&self) -> QueueId {
        self.id
    }

    fn depth(&self) -> u16 {
        self.depth
    }

    fn file(&self) -> &SimFile {
        &self.file
    }

    fn copy_mode(&self) -> CopyMode {
        self.copy_mode
    }

    fn is_registered(&self, tag: Tag) -> bool {
        self.with(tag, |kernel, at| kernel.driver.is_registered(at))
    }

    fn request(&self, tag: Tag) -> Result<Request, Status> {
        self.with(tag, |kernel, at| {
            kernel.driver.request(at, &mut kernel.journal)
        })
    }

    fn copy_from_request(&self, tag: Tag, offset: u32, bytes: &mut [u8]) -> Status {
        self.with(tag, |kernel, at| {
            let data = kernel
                .driver
                .data(at, offset, bytes.len(), &mut kernel.journal);
            copy(data, bytes)
        })
    }

    fn copy_to_request(&self, tag: Tag, offset: u32, bytes: &[u8]) -> Status {
        self.with(tag, |kernel, at| {
            let data = kernel
                .driver
                .data(at, offset, bytes.len(), &mut kernel.journal);
            copy(bytes, data)
        })
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> Status {
    if from.len() != to.len() {
        return Status::Io;
    }
    to.copy_from_slice(from);
    Status::Ok
}
