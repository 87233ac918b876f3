//! The real driver's side of one queue: descriptors from the mapping, data by user copy.

use std::os::fd::AsFd;
use std::sync::Arc;

use block::{QueueId, Request, Status, Tag};
use reactor::RingFile;
use ublk::{CharDevice, DescriptorMap};

use crate::port::{CopyMode, QueuePort};

/// One queue of a real ublk device. All queues of a device share its open char device.
#[derive(Debug)]
pub struct UblkQueue {
    device: Arc<CharDevice>,
    /// The same char device, as the ring knows it.
    file: RingFile,
    descriptors: DescriptorMap,
    id: QueueId,
    depth: u16,
    copy_mode: CopyMode,
}

/// What a queue has in common with the other queues of its device.
#[derive(Clone, Copy, Debug)]
pub struct QueueShape {
    /// Number of tags.
    pub depth: u16,
    /// Bytes of a descriptor.
    pub desc_bytes: u16,
    /// How data travels.
    pub copy_mode: CopyMode,
}

impl UblkQueue {
    /// Maps the descriptors of queue `id`; `shape` is the device's.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map(
        device: Arc<CharDevice>,
        id: QueueId,
        shape: QueueShape,
    ) -> Result<Self, ublk::Error> {
        let QueueShape {
            depth,
            desc_bytes,
            copy_mode,
        } = shape;
        let descriptors = device.map_queue(id, depth, desc_bytes)?;
        let holder: Arc<dyn AsFd + Send + Sync> = Arc::<CharDevice>::clone(&device);
        Ok(Self {
            device,
            file: RingFile::held_by(holder),
            descriptors,
            id,
            depth,
            copy_mode,
        })
    }
}

impl QueuePort for UblkQueue {
    type File = RingFile;

    fn id(&self) -> QueueId {
        self.id
    }

    fn depth(&self) -> u16 {
        self.depth
    }

    fn file(&self) -> &RingFile {
        &self.file
    }

    fn copy_mode(&self) -> CopyMode {
        self.copy_mode
    }

    fn is_registered(&self, tag: Tag) -> bool {
        let descriptor = self.descriptors.descriptor(tag);
        descriptor.is_some_and(|descriptor| !descriptor.flags().is_need_reg_buf())
    }

    fn request(&self, tag: Tag) -> Result<Request, Status> {
        self.descriptors.descriptor(tag).ok_or(Status::Io)?.parse()
    }

    fn copy_from_request(&self, tag: Tag, offset: u32, bytes: &mut [u8]) -> Status {
        let len = bytes.len();
        whole(
            len,
            self.device.copy_from_request(self.id, tag, offset, bytes),
        )
    }

    fn copy_to_request(&self, tag: Tag, offset: u32, bytes: &[u8]) -> Status {
        whole(
            bytes.len(),
            self.device.copy_to_request(self.id, tag, offset, bytes),
        )
    }
}

/// The driver copies all of it unless the request is shorter than its descriptor says.
fn whole(len: usize, copied: Result<usize, Status>) -> Status {
    match copied {
        Ok(copied) if copied == len => Status::Ok,
        Ok(_) => Status::Io,
        Err(status) => status,
    }
}
