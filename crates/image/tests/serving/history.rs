//! Seeded histories: requests of every kind in flight together, reads held against the model, ends in order and by power cuts, and
//! the image opened again.

use block::{Extent, Op, Request, Sectors, Status, Target};
use image::serving::Library;
use tempfile::TempDir;

use crate::executor::{Answer, Executor};
use crate::faults::Faults;
use crate::images::{self, Lower, UpperKind};
use crate::model::{Begun, Effect, Model, mark_of, sector};
use crate::store::Medium;

/// Sectors of the disk: as few as let requests meet each other, and more than two pages of records.
const SIZE: Sectors = Sectors(320);
/// Requests of a life.
const REQUESTS: u32 = 120;
/// Requests in flight.
const IN_FLIGHT_MAX: usize = 6;
/// Sectors of a request.
const SECTORS_MAX: u64 = 40;
/// Lives of an image.
const LIVES: u32 = 4;

/// What histories have come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) requests: u64,
    /// Of those, as was expected.
    pub(crate) failed: u64,
    pub(crate) flushes: u64,
    pub(crate) cuts: u64,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.flushes += other.flushes;
        self.cuts += other.cuts;
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            requests,
            failed,
            flushes,
            cuts,
        } = self;
        write!(
            f,
            "{requests} requests ({failed} made to fail), {flushes} flushes, {cuts} power cuts"
        )
    }
}

/// What a history is about.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) upper: UpperKind,
    pub(crate) lowers: Vec<Lower>,
    pub(crate) faults: Faults,
}

/// A request in flight.
struct Sent {
    id: u64,
    begun: Begun,
}

struct Life<'a> {
    executor: Executor,
    model: &'a mut Model,
    random: &'a mut fastrand::Rng,
    setting: &'a Setting,
    sent: Vec<Sent>,
    /// The mark of the next write.
    next: &'a mut u64,
    figures: Figures,
}

/// Plays a history.
pub(crate) fn play(seed: u64, setting: &Setting) -> Result<Figures, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let scratch = images::scratch();
    let lowers = images::make_lowers(scratch.path(), &setting.lowers, SIZE, &mut random);
    let config = images::make_image(scratch.path(), &lowers, Some(setting.upper), SIZE);
    let mut model = Model::new(marks(&images::content(&config)?).into_iter());
    let (mut next, mut figures) = (1, Figures::default());
    for _ in 0..LIVES {
        let mut executor = images::serve(&config, &Library::default(), 64 << 10);
        executor.faults = setting.faults;
        let mut life = Life {
            executor,
            model: &mut model,
            random: &mut random,
            setting,
            sent: Vec::new(),
            next: &mut next,
            figures,
        };
        life.live()?;
        figures = life.figures;
        let is_all_there = if life.random.bool() {
            figures.cuts += 1;
            life.cut(&scratch);
            false
        } else {
            life.close()?
        };
        let (found, checked) = if is_all_there {
            let found = images::content(&config)?;
            let checked = model.check_closed(&found);
            (found, checked)
        } else {
            let found = images::content_after_repair(&config, &mut random)?;
            let checked = model.check_crashed(&found);
            (found, checked)
        };
        checked.map_err(|why| format!("everything is there: {is_all_there}; {why}"))?;
        model = Model::new(marks(&found).into_iter());
    }
    Ok(figures)
}

fn marks(disk: &[u8]) -> Vec<u64> {
    disk.chunks(512)
        .map(|bytes| mark_of(bytes).unwrap())
        .collect()
}

impl Life<'_> {
    fn live(&mut self) -> Result<(), String> {
        let mut left = self.random.u32(1..=REQUESTS);
        while left > 0 {
            if self.executor.in_flight() < IN_FLIGHT_MAX && self.random.u32(0..3) == 0 {
                self.send();
                left -= 1;
            } else {
                self.executor.step(self.random);
            }
            self.settle()?;
        }
        Ok(())
    }

    fn send(&mut self) {
        let op = match self.random.u32(0..20) {
            0..8 => Op::Write,
            8..12 => Op::Read,
            12..15 => Op::Flush,
            15..17 => Op::WriteZeroes,
            _ => Op::Discard,
        };
        let start = self.random.u64(0..SIZE.0);
        let len = self.random.u64(1..=SECTORS_MAX).min(SIZE.0 - start);
        let extent = match op {
            Op::Flush => Extent::default(),
            _ => Extent {
                start: Sectors(start),
                len: Sectors(len),
            },
        };
        let request = Request {
            op,
            extent,
            fua: matches!(op, Op::Write | Op::WriteZeroes) && self.random.u32(0..6) == 0,
            no_unmap: op == Op::WriteZeroes && self.random.bool(),
        };
        let (begun, data) = match op {
            Op::Write => {
                let mark = *self.next;
                *self.next += 1;
                (
                    self.model.begin_write(extent, mark),
                    sector(mark).repeat(usize::try_from(len).unwrap()),
                )
            }
            Op::WriteZeroes | Op::Discard => (self.model.begin_write(extent, 0), Vec::new()),
            Op::Read => (
                self.model.begin(),
                vec![0xdd; usize::try_from(extent.len_bytes().0).unwrap()],
            ),
            Op::Flush => (self.model.begin(), Vec::new()),
        };
        let id = self.executor.submit(request, data);
        self.sent.push(Sent { id, begun });
    }

    /// Takes the answers that are there.
    fn settle(&mut self) -> Result<(), String> {
        while let Some(answer) = self.executor.take_answer() {
            let place = self.sent.iter().position(|sent| sent.id == answer.id);
            let Sent { begun, .. } = self.sent.swap_remove(place.ok_or("answered twice")?);
            self.take(&answer, begun)?;
        }
        if self.sent.is_empty() {
            self.model.forget_replaced();
        }
        Ok(())
    }

    fn take(&mut self, answer: &Answer, begun: Begun) -> Result<(), String> {
        self.figures.requests += 1;
        self.figures.failed += u64::from(!answer.status.is_ok());
        let request = &answer.request;
        let is_ok = answer.status.is_ok();
        let may_fail =
            self.setting.faults.writes + self.setting.faults.syncs + self.setting.faults.reads > 0;
        if !is_ok && !may_fail {
            return Err(format!("{request:?} failed: {:?}", answer.status));
        }
        if answer.status == Status::Corrupt {
            return Err(format!("{request:?}: nothing is corrupt"));
        }
        match request.op {
            Op::Read if is_ok => self
                .model
                .check_read(request.extent, begun, &answer.data)
                .map_err(|why| format!("{request:?}: {why}"))?,
            Op::Flush if is_ok => {
                self.figures.flushes += 1;
                self.model.end_flush(begun);
            }
            Op::Read | Op::Flush => {}
            Op::Discard | Op::Write | Op::WriteZeroes => {
                // Over data of a lower a sparse upper keeps what it has.
                let is_hint = self.setting.upper == UpperKind::Sparse && request.op == Op::Discard;
                let effect = if is_ok && !is_hint {
                    Effect::Certain
                } else {
                    Effect::Hint
                };
                self.model
                    .end_write(request.extent, begun, effect, request.fua);
            }
        }
        Ok(())
    }

    /// The power fails: what is left of the upper's files takes their place.
    fn cut(self, scratch: &TempDir) {
        // A log asks for nothing. A sparse upper lets the file system remember which blocks are there.
        let medium = match self.setting.upper {
            UpperKind::Sparse => Medium::Pages,
            UpperKind::Log | UpperKind::Hybrid => Medium::Sectors,
        };
        let uppers = self.executor.files.iter().filter(|file| {
            file.name()
                .to_str()
                .is_some_and(|name| ["data", "index"].contains(&name))
        });
        let left: Vec<_> = uppers
            .map(|file| {
                (
                    scratch.path().join(file.name()),
                    file.cut(medium, self.random),
                )
            })
            .collect();
        // Closes the files and gives the locks back.
        drop(self.executor);
        for (path, content) in left {
            content.write_to(&path);
        }
    }

    /// The device is removed in order. Whether everything is durable then.
    fn close(mut self) -> Result<bool, String> {
        while self.executor.step(self.random) {
            self.settle()?;
        }
        self.settle()?;
        if !self.sent.is_empty() {
            return Err("requests were never answered".to_owned());
        }
        match self.executor.target.close() {
            Ok(()) => Ok(true),
            // What cannot be made durable any more is as good as cut off.
            Err(_) if self.setting.faults.syncs > 0 => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}
