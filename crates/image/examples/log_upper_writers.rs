//! Do writers of a log upper wait for one another?
//!
//! Requests of 4 KiB at random places go to the target of an image, as the data plane would hand them over, by one thread; the steps
//! that it plans are done by a pool of threads, each after a wait that stands for the latency of a disk. One writer with one request
//! in flight is compared with 16 such writers, without and with FUA (which is a flush after each write). Rounds of all alternate;
//! medians are printed.
//!
//! `cargo run --release -p image --example log_upper_writers -- [LATENCY_US]`
#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program that measures and prints; what it works on it has made itself"
)]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use block::{
    Access, Extent, FileIndex, Op, Plan, Request, RequestData, Sectors, Status, Step, Target,
    Verdict,
};
use image::offline::{self, NewUpper, UpperFiles};
use image::serving::{ImageTarget, Library, ServeOptions, ServedImage, Workspace};
use image::{ImageConfig, LayerFile, ParentCheck};
use overlaybd::lsmt::LogMode;

const SIZE: Sectors = Sectors(2 << 20);
const BLOCK_BYTES: usize = 4096;
const REQUESTS: u32 = 4000;
const WRITERS: usize = 16;
/// More than there can be steps.
const THREADS: usize = 64;
/// Odd, so that the median is one of them.
const ROUNDS: usize = 5;

/// What a thread does with a file.
enum Work {
    Write(FileIndex, u64, Vec<u8>),
    Sync(FileIndex),
    Other,
}

/// A request under way: what is left of its phase, and the target's note.
#[derive(Clone, Copy)]
struct Running {
    request: Request,
    outstanding: usize,
    cookie: u64,
}

struct Bench {
    target: ImageTarget,
    plan: Plan,
    running: Vec<Option<Running>>,
    work: Sender<(usize, Work)>,
    done: Receiver<usize>,
    answered: u32,
}

/// The data of every request.
struct Data([u8; BLOCK_BYTES]);

impl RequestData for Data {
    fn copy_from(&mut self, start: u32, bytes: &mut [u8]) -> Status {
        bytes.copy_from_slice(&self.0[start as usize..][..bytes.len()]);
        Status::Ok
    }

    fn copy_to(&mut self, _: u32, _: &[u8]) -> Status {
        Status::Io
    }
}

fn main() {
    let latency_us = std::env::args()
        .nth(1)
        .map_or(100, |text| text.parse().unwrap());
    let latency = Duration::from_micros(latency_us);
    let kinds = [(1, false), (WRITERS, false), (1, true), (WRITERS, true)];
    let mut rates = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for ((writers, fua), rates) in kinds.into_iter().zip(&mut rates) {
            rates.push(measure(writers, fua, latency));
        }
    }
    println!(
        "{latency_us} us a step, {REQUESTS} requests of 4 KiB, {ROUNDS} rounds; requests/s, medians (range)"
    );
    let medians = kinds
        .into_iter()
        .zip(&mut rates)
        .map(|((writers, fua), rates)| {
            rates.sort_by(f64::total_cmp);
            let median = rates[ROUNDS / 2];
            let (least, most) = (rates[0], rates[ROUNDS - 1]);
            let what = if fua { "write with FUA" } else { "write" };
            println!("{what:15} {writers:3} writers {median:9.0} ({least:.0} to {most:.0})");
            median
        });
    if let [one, many, one_fua, many_fua] = medians.collect::<Vec<_>>()[..] {
        println!(
            "{WRITERS} writers against one: {:.1}, with FUA {:.1}",
            many / one,
            many_fua / one_fua
        );
    }
}

/// Requests per second.
fn measure(writers: usize, fua: bool, latency: Duration) -> f64 {
    let scratch = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let (target, files) = open(scratch.path());
    let (work, queue) = channel();
    let (tell, done) = channel();
    let queue = Arc::new(Mutex::new(queue));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (queue, tell, files) = (Arc::clone(&queue), tell.clone(), files.clone());
            std::thread::spawn(move || work_off(&queue, &tell, &files, latency))
        })
        .collect();
    let mut bench = Bench {
        target,
        plan: Plan::new(),
        running: vec![None; writers],
        work,
        done,
        answered: 0,
    };
    let begun = Instant::now();
    bench.run(fua);
    let rate = f64::from(REQUESTS) / begun.elapsed().as_secs_f64();
    drop(bench);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    rate
}

fn open(folder: &Path) -> (ImageTarget, Vec<Arc<LayerFile>>) {
    let files = UpperFiles::Log {
        data: folder.join("data"),
        index: folder.join("index"),
        mode: LogMode::Append,
    };
    let new = NewUpper {
        files,
        size: SIZE,
        uuid: None,
        parent_uuid: None,
    };
    offline::create(&new).unwrap();
    let text = br#"{"upper": {"data": "data", "index": "index"}}"#;
    let config = ImageConfig::parse(&folder.join("image.json"), text).unwrap();
    let options = ServeOptions {
        access: Access::ReadWrite,
        parents: ParentCheck::Refuse,
    };
    let image = ServedImage::open(&config, options, &Library::default()).unwrap();
    image.instance(&Workspace::new(0)).unwrap()
}

fn work_off(
    queue: &Mutex<Receiver<(usize, Work)>>,
    tell: &Sender<usize>,
    files: &[Arc<LayerFile>],
    latency: Duration,
) {
    loop {
        let next = queue.lock().unwrap().recv();
        let Ok((writer, work)) = next else {
            return;
        };
        std::thread::sleep(latency);
        let file = |file: FileIndex| files[usize::from(file.0)].file();
        match work {
            Work::Write(index, offset, bytes) => file(index).write_all_at(&bytes, offset).unwrap(),
            Work::Sync(index) => file(index).sync_data().unwrap(),
            Work::Other => {}
        }
        if tell.send(writer).is_err() {
            return;
        }
    }
}

impl Bench {
    fn run(&mut self, fua: bool) {
        let mut random = fastrand::Rng::with_seed(1);
        let mut sent = 0;
        for writer in 0..self.running.len() {
            self.send(writer, fua, &mut random);
            sent += 1;
        }
        while self.answered < REQUESTS {
            let writer = self.done.recv().unwrap();
            let running = self.running[writer].as_mut().unwrap();
            running.outstanding -= 1;
            if running.outstanding > 0 {
                continue;
            }
            let (request, cookie) = (running.request, running.cookie);
            self.plan.reset(cookie);
            let verdict = self
                .target
                .handle_phase_end(&request, Status::Ok, &mut self.plan);
            self.follow(writer, request, verdict);
            if self.running[writer].is_none() && sent < REQUESTS {
                self.send(writer, fua, &mut random);
                sent += 1;
            }
        }
    }

    fn send(&mut self, writer: usize, fua: bool, random: &mut fastrand::Rng) {
        let start = Sectors(random.u64(0..SIZE.0 / 8) * 8);
        let extent = Extent {
            start,
            len: Sectors(8),
        };
        let request = Request {
            op: Op::Write,
            extent,
            fua,
            no_unmap: false,
        };
        self.plan.reset(0);
        let verdict = self.target.handle_request(&request, &mut self.plan);
        self.follow(writer, request, verdict);
    }

    fn follow(&mut self, writer: usize, request: Request, mut verdict: Verdict) {
        loop {
            match verdict {
                Verdict::Complete(status) => {
                    assert_eq!(status, Status::Ok);
                    self.running[writer] = None;
                    self.answered += 1;
                    return;
                }
                Verdict::Wait => unreachable!("writes of a log wait for nobody"),
                Verdict::Run => {}
            }
            let steps = self.plan.steps().to_vec();
            if !steps.is_empty() {
                let (outstanding, cookie) = (steps.len(), self.plan.cookie);
                self.running[writer] = Some(Running {
                    request,
                    outstanding,
                    cookie,
                });
                for step in steps {
                    let work = self.work_of(&request, step);
                    self.work.send((writer, work)).unwrap();
                }
                return;
            }
            let cookie = self.plan.cookie;
            self.plan.reset(cookie);
            verdict = self
                .target
                .handle_phase_end(&request, Status::Ok, &mut self.plan);
        }
    }

    fn work_of(&mut self, request: &Request, step: Step) -> Work {
        let mut data = Data([0x5a; BLOCK_BYTES]);
        match step {
            Step::Write {
                file,
                offset,
                data: range,
                ..
            } => Work::Write(
                file,
                offset.0,
                data.0[range.start as usize..][..range.len as usize].to_vec(),
            ),
            Step::Store { handover, .. } => {
                let mut bytes = vec![0; handover.len as usize];
                let filled = self
                    .target
                    .fill_stored(request, &handover, &mut bytes, &mut data);
                assert_eq!(filled, Status::Ok);
                Work::Write(handover.file, handover.offset.0, bytes)
            }
            Step::Sync { file } => Work::Sync(file),
            _ => Work::Other,
        }
    }
}
