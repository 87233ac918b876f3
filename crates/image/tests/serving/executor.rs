//! Executes plans as the data plane does, but one step at a time and in an order that a seed decides.

use std::collections::VecDeque;
use std::sync::Arc;

use block::{
    Durability, FileIndex, Handover, Plan, Request, RequestData, Status, Step, Target, Verdict,
};
use image::LayerFile;
use image::serving::ImageTarget;

use crate::faults::Faults;
use crate::store::Stored;

/// A request under way.
struct Running {
    id: u64,
    request: Request,
    data: Vec<u8>,
    cookie: u64,
    steps: Vec<Begun>,
    status: Status,
}

/// A step that has not ended.
#[derive(Clone, Debug)]
enum Begun {
    Planned(Step),
    /// What it makes durable.
    Syncing(FileIndex, u64),
    /// What was fetched.
    Fetched(Handover, Vec<u8>),
}

/// An answered request.
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) data: Vec<u8>,
    pub(crate) status: Status,
}

/// A target, its files, and its requests.
pub(crate) struct Executor {
    pub(crate) target: ImageTarget,
    pub(crate) files: Vec<Stored>,
    pub(crate) faults: Faults,
    running: Vec<Running>,
    waiting: VecDeque<Running>,
    answers: VecDeque<Answer>,
    plan: Plan,
    next: u64,
}

struct Data<'a>(&'a mut [u8]);

impl RequestData for Data<'_> {
    fn copy_from(&mut self, start: u32, bytes: &mut [u8]) -> Status {
        let start = start as usize;
        bytes.copy_from_slice(&self.0[start..start + bytes.len()]);
        Status::Ok
    }

    fn copy_to(&mut self, start: u32, bytes: &[u8]) -> Status {
        let start = start as usize;
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
        Status::Ok
    }
}

impl Executor {
    pub(crate) fn new(target: ImageTarget, files: Vec<Arc<LayerFile>>) -> Self {
        Self {
            target,
            files: files.into_iter().map(Stored::new).collect(),
            faults: Faults::default(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            plan: Plan::new(),
            next: 0,
        }
    }

    /// Requests that are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    /// Hands a request to the target; a read's data is as long as its extent.
    pub(crate) fn submit(&mut self, request: Request, data: Vec<u8>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.plan.reset(0);
        let verdict = self.target.handle_request(&request, &mut self.plan);
        let running = Running {
            id,
            request,
            data,
            cookie: 0,
            steps: Vec::new(),
            status: Status::Ok,
        };
        self.follow(running, verdict);
        id
    }

    pub(crate) fn take_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Lets one step of one request go on. `false` when there is none.
    pub(crate) fn step(&mut self, random: &mut fastrand::Rng) -> bool {
        if self.running.is_empty() {
            assert!(
                self.waiting.is_empty(),
                "requests wait and nobody is there to wake them"
            );
            return false;
        }
        let mut running = self.running.swap_remove(random.usize(..self.running.len()));
        let step = running
            .steps
            .swap_remove(random.usize(..running.steps.len()));
        match self.go_on(&mut running, step, random) {
            Ok(Some(later)) => running.steps.push(later),
            Ok(None) => {}
            Err(status) => running.status = running.status.and(status),
        }
        if !running.steps.is_empty() {
            self.running.push(running);
            return true;
        }
        let verdict = self.end_phase(&running);
        self.follow(running, verdict);
        true
    }

    fn end_phase(&mut self, running: &Running) -> Verdict {
        self.plan.reset(running.cookie);
        self.target
            .handle_phase_end(&running.request, running.status, &mut self.plan)
    }

    fn follow(&mut self, mut running: Running, mut verdict: Verdict) {
        loop {
            let wakes = self.plan.take_wakes();
            running.cookie = self.plan.cookie;
            running.status = Status::Ok;
            let is_over = match verdict {
                Verdict::Complete(status) => {
                    self.answers.push_back(Answer {
                        id: running.id,
                        request: running.request,
                        data: std::mem::take(&mut running.data),
                        status,
                    });
                    true
                }
                Verdict::Wait => {
                    self.waiting.push_back(Running {
                        data: std::mem::take(&mut running.data),
                        steps: Vec::new(),
                        ..running
                    });
                    true
                }
                Verdict::Run if !self.plan.steps().is_empty() => {
                    let steps = self
                        .plan
                        .steps()
                        .iter()
                        .copied()
                        .map(Begun::Planned)
                        .collect();
                    self.running.push(Running {
                        data: std::mem::take(&mut running.data),
                        steps,
                        ..running
                    });
                    true
                }
                Verdict::Run => false,
            };
            if wakes {
                self.wake();
            }
            if is_over {
                return;
            }
            verdict = self.end_phase(&running);
        }
    }

    fn wake(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(running) = self.waiting.pop_front() else {
                return;
            };
            let verdict = self.end_phase(&running);
            self.follow(running, verdict);
        }
    }

    /// Does a part of a step; what is left of it, or how it ended.
    fn go_on(
        &mut self,
        running: &mut Running,
        begun: Begun,
        random: &mut fastrand::Rng,
    ) -> Result<Option<Begun>, Status> {
        match begun {
            Begun::Planned(step) => self.begin(running, step, random),
            Begun::Syncing(file, mark) => {
                self.file(file).end_sync(mark);
                Ok(None)
            }
            Begun::Fetched(handover, bytes) => {
                let data = &mut Data(&mut running.data);
                let request = &running.request;
                ended(self.target.handle_fetched(request, &handover, &bytes, data))
            }
        }
    }

    fn begin(
        &mut self,
        running: &mut Running,
        step: Step,
        random: &mut fastrand::Rng,
    ) -> Result<Option<Begun>, Status> {
        if let Step::Write { data, .. } | Step::Read { data, .. } = &step {
            assert!(data.len > 0, "{step:?} of {:?}", running.request);
        }
        if let Err(status) = self.faults.strike(&step, random) {
            self.do_in_part(running, &step, random);
            return Err(status);
        }
        match step {
            Step::Zero { data } => part(&mut running.data, data).fill(0),
            Step::Read { file, offset, data } => {
                let bytes = part(&mut running.data, data);
                self.file(file)
                    .read(offset.0, bytes)
                    .map_err(|_| Status::Io)?;
            }
            Step::Write {
                file,
                offset,
                data,
                durability,
            } => {
                let bytes = part(&mut running.data, data).to_vec();
                self.file(file)
                    .write(offset.0, &bytes, durability == Durability::Durable);
            }
            Step::Fetch(handover) => {
                let mut bytes = vec![0; handover.len as usize];
                self.file(handover.file)
                    .read(handover.offset.0, &mut bytes)
                    .map_err(|_| Status::Io)?;
                self.faults.damage(&mut bytes);
                return Ok(Some(Begun::Fetched(handover, bytes)));
            }
            Step::Store {
                handover,
                durability,
            } => {
                let mut bytes = vec![0xee; handover.len as usize];
                let data = &mut Data(&mut running.data);
                let filled = self
                    .target
                    .fill_stored(&running.request, &handover, &mut bytes, data);
                ended(filled)?;
                self.file(handover.file).write(
                    handover.offset.0,
                    &bytes,
                    durability == Durability::Durable,
                );
            }
            Step::Sync { file } => {
                let mark = self.file(file).begin_sync();
                return Ok(Some(Begun::Syncing(file, mark)));
            }
            Step::Punch { file, offset, len } => self.file(file).punch(offset.0, len.0),
            Step::ZeroRange { .. } | Step::Allocate { .. } => panic!("an image plans no {step:?}"),
        }
        Ok(None)
    }

    /// A write that fails may have written a part.
    fn do_in_part(&mut self, running: &mut Running, step: &Step, random: &mut fastrand::Rng) {
        if let Step::Write {
            file, offset, data, ..
        } = *step
        {
            let bytes = part(&mut running.data, data).to_vec();
            self.file(file).write_in_part(offset.0, &bytes, random);
        }
    }

    fn file(&mut self, file: FileIndex) -> &mut Stored {
        &mut self.files[usize::from(file.0)]
    }
}

fn ended(status: Status) -> Result<Option<Begun>, Status> {
    if status.is_ok() {
        Ok(None)
    } else {
        Err(status)
    }
}

fn part(data: &mut [u8], range: block::DataRange) -> &mut [u8] {
    &mut data[range.start as usize..][..range.len as usize]
}
