//! The simulation from outside: what a test or a world of clients does with the kernel behind the ring.

use std::cell::RefCell;
use std::rc::Rc;

use block::{Geometry, QueueId};
use dataplane::CopyMode;

use crate::disk::SimDisk;
use crate::driver::{Answer, DeviceIndex, StopStyle};
use crate::faults::Faults;
use crate::file::{Opened, SimFile, Watch};
use crate::kernel::Kernel;
use crate::port::SimQueue;
use crate::request::{AnsweredBy, ClientOp, ClientRequest};
use crate::ring::SimRing;

/// A simulated host: its kernel, devices and open disks. Clones are the same host.
#[derive(Clone, Debug)]
pub struct SimHost(pub(crate) Rc<RefCell<Kernel>>);

impl SimHost {
    /// A host whose every choice follows from `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(Kernel::new(seed, faults))))
    }

    /// The ring of this host. One shard may use it.
    #[must_use]
    pub fn ring(&self) -> SimRing {
        SimRing::new(Rc::clone(&self.0))
    }

    /// The mailbox as a file of the ring.
    #[must_use]
    pub fn mail_file(&self) -> SimFile {
        SimFile::mail()
    }

    /// Tells the ring that a message was sent. Call after each send.
    pub fn ring_mail(&self) {
        self.0.borrow_mut().mail_waits = true;
    }

    /// Gives the ring a table with so many slots. To be called before the ring is used; without it there is none.
    pub fn set_slots(&self, slots: u16) {
        self.0.borrow_mut().driver.set_slots(slots);
    }

    /// ADD_DEV: a device with one queue for each depth, and its queues for a shard.
    #[must_use]
    pub fn add_device(&self, depths: &[u16], copy_mode: CopyMode) -> (DeviceIndex, Vec<SimQueue>) {
        let device = self.0.borrow_mut().driver.add_device(depths, copy_mode);
        let file = SimFile::device(device);
        let queues = (0..).zip(depths).map(|(id, depth)| {
            SimQueue::new(
                (Rc::clone(&self.0), file.clone()),
                device,
                QueueId(id),
                (*depth, copy_mode),
            )
        });
        (device, queues.collect())
    }

    /// Opens a disk for a device.
    #[must_use]
    pub fn open(&self, disk: &Rc<RefCell<SimDisk>>, device: DeviceIndex) -> SimFile {
        self.open_watched(disk, device).0
    }

    /// As [`SimHost::open`], for a disk on which operations may hang (see [`Faults::hang`]).
    #[must_use]
    pub fn open_hanging(&self, disk: &Rc<RefCell<SimDisk>>, device: DeviceIndex) -> SimFile {
        let (file, watch) = self.open_watched(disk, device);
        watch.may_hang.set(true);
        file
    }

    pub(crate) fn open_watched(
        &self,
        disk: &Rc<RefCell<SimDisk>>,
        device: DeviceIndex,
    ) -> (SimFile, Rc<Watch>) {
        let watch = Rc::new(Watch::default());
        let opened = Opened {
            disk: Rc::clone(disk),
            device,
            watch: Rc::clone(&watch),
        };
        (SimFile::disk(opened), watch)
    }

    /// A client asks a device of `geometry` for something. Returns the request's number.
    pub fn issue(
        &self,
        (device, queue): (DeviceIndex, QueueId),
        op: ClientOp,
        geometry: &Geometry,
    ) -> u64 {
        self.issue_at((device, queue), op, geometry, |_| {})
    }

    /// As [`SimHost::issue`]; `note` sees the request before the server can.
    pub(crate) fn issue_at(
        &self,
        (device, queue): (DeviceIndex, QueueId),
        op: ClientOp,
        geometry: &Geometry,
        note: impl FnOnce(&mut ClientRequest),
    ) -> u64 {
        let kernel = &mut *self.0.borrow_mut();
        kernel.requests += 1;
        let mut request = Box::new(ClientRequest::new(kernel.requests, queue, op, geometry));
        note(&mut request);
        kernel.driver.issue(device, request);
        kernel.settle(device);
        kernel.requests
    }

    /// STOP_DEV. Clients' requests that the server has not seen fail; the others are waited for, then every tag is aborted.
    pub fn stop_device(&self, device: DeviceIndex) {
        self.stop(device, StopStyle::Patient);
    }

    /// As [`SimHost::stop_device`], with the order of aborts.
    pub(crate) fn stop(&self, device: DeviceIndex, style: StopStyle) {
        let kernel = &mut *self.0.borrow_mut();
        kernel.driver.stop(device, style);
        kernel.settle(device);
    }

    /// Requests of a device that were not answered yet.
    #[must_use]
    pub fn unanswered(&self, device: DeviceIndex) -> usize {
        self.0.borrow().driver.unanswered(device)
    }

    pub(crate) fn take_answers(&self) -> Vec<Answer> {
        std::mem::take(&mut self.0.borrow_mut().driver.answers)
    }

    /// The answered requests since the last call: device, number of the request, and how many turns the server had it;
    /// `None` for one that the server never saw.
    pub fn take_answered(&self) -> Vec<(DeviceIndex, u64, Option<u64>)> {
        let turns = self.0.borrow().turns;
        let answers = self.take_answers();
        let failed =
            |answer: &&Answer| !matches!(answer.by, AnsweredBy::Server(result) if result >= 0);
        self.0.borrow_mut().failures += answers.iter().filter(failed).count() as u64;
        let answers = answers.into_iter();
        let latency = |answer: &Answer| match answer.by {
            AnsweredBy::Server(_) => Some(turns - answer.request.owned_turn),
            AnsweredBy::Kernel => None,
        };
        answers
            .map(|answer| (answer.device, answer.request.id, latency(&answer)))
            .collect()
    }

    /// How many of the answers that [`SimHost::take_answered`] told about were failures.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.borrow().failures
    }

    /// The first rule that was broken, if one was.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.0.borrow().journal.violation().cloned()
    }
}
