//! One disk with its model, and the device that serves it at the moment.

use std::cell::RefCell;
use std::rc::Rc;

use block::{Access, Geometry, Op, Sectors, Status, Zeroing};
use dataplane::DeviceKey;
use fastrand::Rng;

use crate::disk::SimDisk;
use crate::driver::{Answer, DeviceIndex};
use crate::file::Watch;
use crate::life::Life;
use crate::model::{Ending, Mark, Model};
use crate::pattern;
use crate::request::{AnsweredBy, ClientRequest};

/// Retries of one operation after which the data plane gives up.
const RETRIES_MAX: u32 = 16;

/// What serves the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A null target; the disk is never touched.
    Null,
    /// A raw target whose file can or cannot be zeroed in place.
    Raw { zero_range: bool },
}

/// A device while it is attached.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) key: DeviceKey,
    pub(crate) device: DeviceIndex,
    pub(crate) queues: u16,
    pub(crate) watch: Rc<Watch>,
    pub(crate) life: Life,
}

/// A disk and its device.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) kind: Kind,
    pub(crate) geometry: Geometry,
    pub(crate) disk: Rc<RefCell<SimDisk>>,
    pub(crate) model: Model,
    pub(crate) attached: Option<Attached>,
    /// Steps until the next attach.
    pub(crate) rest: u32,
    /// Writes that were answered while their operation still ran.
    lingering: Vec<(Rc<Watch>, Mark)>,
}

/// How a request ended, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Succeeded,
    Failed,
    Unseen,
}

impl Slot {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let sectors = *rng.choice(&[1_usize, 48, 200, 640]).unwrap_or(&64);
        let kind = match rng.u8(0..8) {
            0 => Kind::Null,
            chance => Kind::Raw {
                zero_range: chance % 2 == 0,
            },
        };
        let zeroing = if rng.u8(0..6) == 0 && kind != Kind::Null {
            Zeroing::Unsupported
        } else {
            Zeroing::Deallocate {
                granularity_bytes: 4096,
            }
        };
        let geometry = Geometry {
            size: Sectors(sectors as u64),
            access: if rng.u8(0..8) == 0 {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
            logical_block_shift: 9,
            physical_block_shift: 12,
            volatile_cache: true,
            zeroing,
        };
        let allocated_max = if rng.u8(0..5) == 0 {
            sectors / 2
        } else {
            sectors
        };
        Self {
            kind,
            geometry,
            disk: Rc::new(RefCell::new(SimDisk::new(sectors, allocated_max))),
            model: Model::new(sectors),
            attached: None,
            rest: rng.u32(0..40),
            lingering: Vec::new(),
        }
    }

    /// Puts old data into the first part of the disk.
    pub(crate) fn prefill(&mut self, write: u64) {
        if self.kind == Kind::Null {
            return;
        }
        let disk = &mut *self.disk.borrow_mut();
        let mut data = vec![0; disk.sectors() / 3 * pattern::SECTOR];
        pattern::fill(write, 0, &mut data);
        let stored = disk.write(0, &data) / pattern::SECTOR;
        disk.persist_range(0, data.len());
        let mark = Mark {
            write,
            is_zeroing: false,
            start: 0,
            len: stored,
        };
        self.model.begin_write(mark);
        self.model.end_write(mark, Ending::Durable);
    }

    /// The file is cut short behind the server's back.
    pub(crate) fn truncate(&mut self, write: u64, sectors: usize) {
        let disk = &mut *self.disk.borrow_mut();
        let mark = Mark {
            write,
            is_zeroing: true,
            start: sectors,
            len: disk.sectors() - sectors,
        };
        disk.truncate(sectors * pattern::SECTOR);
        self.model.begin_write(mark);
        self.model.end_write(mark, Ending::Stored);
    }

    /// A request is about to be issued; returns the model's time.
    pub(crate) fn on_issue(&mut self, request: &ClientRequest) -> u64 {
        if self.kind == Kind::Null {
            return 0;
        }
        match request.served() {
            Some((Op::Read | Op::Flush, _)) => self.model.begin_read(),
            Some((Op::Write | Op::Discard | Op::WriteZeroes, _)) => {
                if let Some(mark) = mark(request) {
                    self.model.begin_write(mark);
                }
                0
            }
            None => 0,
        }
    }

    /// A request of the attached device was answered.
    ///
    /// # Errors
    /// An answer that the request could not have.
    pub(crate) fn on_answer(&mut self, answer: &Answer) -> Result<Verdict, String> {
        let request = &*answer.request;
        let Some(attached) = &self.attached else {
            return Err(format!(
                "an answer of a device that was released: {answer:?}"
            ));
        };
        let result = match answer.by {
            AnsweredBy::Kernel => {
                self.end_request(request, Ending::Unknown);
                return Ok(Verdict::Unseen);
            }
            AnsweredBy::Server(result) => result,
        };
        if result >= 0 {
            check_success(request, result)?;
            self.end_succeeded(request)?;
            return Ok(Verdict::Succeeded);
        }
        let life = &attached.life;
        if !may_fail_with(request, life, -result) {
            return Err(format!(
                "result {result} of {request:?} has no reason; {life:?}"
            ));
        }
        if life.is_abandon_sent && -result == Status::TimedOut.errno() {
            // Its operations may still run; the write is open until they have ended.
            let watch = Rc::clone(&attached.watch);
            self.end_abandoned(request, watch);
        } else {
            self.end_request(request, Ending::Unknown);
        }
        Ok(Verdict::Failed)
    }

    fn end_succeeded(&mut self, request: &ClientRequest) -> Result<(), String> {
        let Some((op, sectors)) = request.served() else {
            return Ok(());
        };
        if self.kind == Kind::Null {
            let is_zero = op != Op::Read || request.data == vec![0; request.data.len()];
            return if is_zero {
                Ok(())
            } else {
                Err(format!("a null device returned data: {request:?}"))
            };
        }
        match op {
            Op::Read => self
                .model
                .end_read(request.model_time, sectors.start, &request.data),
            Op::Flush => {
                self.model.end_flush(request.model_time);
                Ok(())
            }
            Op::Write | Op::Discard | Op::WriteZeroes => {
                let ending = if request.op.fua {
                    Ending::Durable
                } else {
                    Ending::Stored
                };
                self.end_request(request, ending);
                Ok(())
            }
        }
    }

    /// Closes a request in the model without looking at its data.
    fn end_request(&mut self, request: &ClientRequest, ending: Ending) {
        if self.kind == Kind::Null {
            return;
        }
        match request.served() {
            Some((Op::Read | Op::Flush, _)) => self.model.forget_read(),
            Some((Op::Write | Op::Discard | Op::WriteZeroes, _)) => {
                if let Some(mark) = mark(request) {
                    self.model.end_write(mark, ending);
                }
            }
            None => {}
        }
    }

    fn end_abandoned(&mut self, request: &ClientRequest, watch: Rc<Watch>) {
        match mark(request).filter(|_| self.kind != Kind::Null) {
            Some(mark) => self.lingering.push((watch, mark)),
            None => self.end_request(request, Ending::Unknown),
        }
    }

    /// Ends the writes whose operations have ended by now.
    pub(crate) fn settle_lingering(&mut self) {
        let (model, lingering) = (&mut self.model, &mut self.lingering);
        lingering.retain(|(watch, mark)| {
            let is_running = watch.in_flight.get() > 0;
            if !is_running {
                model.end_write(*mark, Ending::Unknown);
            }
            is_running
        });
    }

    /// Whether operations of an earlier device still run.
    pub(crate) const fn is_lingering(&self) -> bool {
        !self.lingering.is_empty()
    }

    /// Compares the whole disk with the model.
    pub(crate) fn check_content(&mut self) -> Result<(), String> {
        let content = self.content();
        let begin = self.model.begin_read();
        self.model.end_read(begin, 0, &content)
    }

    /// The power is cut; `keeps_live` decides per sector whether what was not durable survives.
    pub(crate) fn cut_power(&mut self, keeps_live: impl FnMut() -> bool) -> Result<(), String> {
        self.attached = None;
        self.lingering.clear();
        self.disk.borrow_mut().cut_power(keeps_live);
        let content = self.content();
        for (sector, bytes) in content.chunks(pattern::SECTOR).enumerate() {
            self.model
                .recover(sector, bytes)
                .map_err(|what| format!("after a power cut: {what}"))?;
        }
        Ok(())
    }

    fn content(&self) -> Vec<u8> {
        let disk = self.disk.borrow();
        let mut content = Vec::with_capacity(disk.sectors() * pattern::SECTOR);
        for sector in 0..disk.sectors() {
            content.extend_from_slice(&disk.sector(sector));
        }
        content
    }
}

fn mark(request: &ClientRequest) -> Option<Mark> {
    let (op, sectors) = request.served()?;
    let is_zeroing = match op {
        Op::Write => false,
        Op::Discard | Op::WriteZeroes => true,
        Op::Read | Op::Flush => return None,
    };
    Some(Mark {
        write: request.id,
        is_zeroing,
        start: sectors.start,
        len: sectors.len(),
    })
}

/// Whether a request may have succeeded with this result.
fn check_success(request: &ClientRequest, result: i32) -> Result<(), String> {
    let reason = request.refusal.or(request.failed).or(request.doom);
    if let Some(status) = reason {
        return Err(format!(
            "success of a request that had to fail with {status:?}: {request:?}"
        ));
    }
    if result != request.success() {
        return Err(format!("success with the result {result}: {request:?}"));
    }
    Ok(())
}

/// Whether there is a reason for a failure with this errno.
fn may_fail_with(request: &ClientRequest, life: &Life, errno: i32) -> bool {
    // EAGAIN for ever is a want of memory.
    let given_up = [Status::Io, Status::NoMemory]
        .into_iter()
        .filter(|_| request.retries > RETRIES_MAX);
    let going = Some(Status::Gone).filter(|_| life.is_drain_sent || life.is_abandon_sent);
    let abandoned = Some(Status::TimedOut).filter(|_| life.is_abandon_sent);
    let poisoned = Some(Status::Io).filter(|_| life.is_poisoned);
    let own = [request.refusal, request.failed, going, abandoned, poisoned];
    let mut reasons = own
        .into_iter()
        .flatten()
        .chain(given_up)
        .chain(request.perhaps_failed.iter().copied());
    reasons.any(|status| status.errno() == errno)
}
