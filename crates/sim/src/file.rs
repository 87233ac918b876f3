//! What the simulated ring understands as a file.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::disk::SimDisk;
use crate::driver::DeviceIndex;

/// A file: a disk, a queue of a ublk device, or the mailbox. Dropping it closes it; operations that the ring has taken keep
/// it open, as the kernel does.
#[derive(Clone, Debug)]
pub struct SimFile(pub(crate) Rc<Node>);

#[derive(Debug)]
pub(crate) enum Node {
    /// The mailbox's wake-up.
    Mail,
    /// The char device of this device.
    Device(DeviceIndex),
    /// A disk, opened for one device.
    Disk(Opened),
}

/// A disk as one device has it open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) disk: Rc<RefCell<SimDisk>>,
    pub(crate) device: DeviceIndex,
    pub(crate) watch: Rc<Watch>,
}

/// What the simulation knows about an open disk without holding it open.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Operations pushed and not completed.
    pub(crate) in_flight: Cell<usize>,
    /// How many of them allocate or deallocate, and hold the file's lock meanwhile.
    pub(crate) allocating: Cell<usize>,
    /// How many of them hang.
    pub(crate) hung: Cell<usize>,
    /// Whether operations may be made to hang.
    pub(crate) may_hang: Cell<bool>,
    /// Whether the device's target has bytes handed over: a read that is cut short is then tried again from its start.
    pub(crate) hands_over: Cell<bool>,
}

impl Watch {
    /// An operation was pushed; it counts `allocations`, 0 or 1, among those that hold the file's lock.
    pub(crate) fn on_begin(&self, allocations: usize) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.allocating.set(self.allocating.get() + allocations);
    }

    /// An operation has completed.
    pub(crate) fn on_end(&self, allocations: usize) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.allocating.set(self.allocating.get() - allocations);
    }
}

impl SimFile {
    pub(crate) fn mail() -> Self {
        Self(Rc::new(Node::Mail))
    }

    pub(crate) fn device(device: DeviceIndex) -> Self {
        Self(Rc::new(Node::Device(device)))
    }

    pub(crate) fn disk(opened: Opened) -> Self {
        Self(Rc::new(Node::Disk(opened)))
    }
}
