//! A target that takes and makes some of its bytes itself, and whose requests wait for one another.

use block::{
    DataRange, Geometry, HANDOVER_BYTES_MAX, Handover, Plan, Request, RequestData, STEPS_MAX,
    Status, Step, Target, Verdict,
};

/// The shortest piece that a step is cut into.
const PIECE_BYTES_MIN: u32 = 512;
/// Cookie of a request that has not begun because another one is under way. The other targets use none like it.
const WAITS: u64 = u64::MAX - 77;
/// Zeros that are put into a request at a time.
const ZEROS: [u8; 512] = [0; 512];

/// Whether requests that modify wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// They run side by side.
    Together,
    /// Each has the disk to itself.
    OneAtATime,
}

/// Serves what another target does, with its reads and writes cut into pieces of which every other one is handed over, and its
/// zeros as handovers of no bytes.
pub struct HandingTarget {
    inner: Box<dyn Target>,
    /// Bytes of a piece.
    piece: u32,
    /// Whether a request that modifies has the disk to itself.
    is_exclusive: bool,
    is_busy: bool,
    waiting: u32,
}

impl HandingTarget {
    /// Hands over pieces of `piece_bytes`, whole sectors.
    #[must_use]
    pub fn new(inner: Box<dyn Target>, piece_bytes: u32, writers: Writers) -> Self {
        Self {
            inner,
            piece: piece_bytes.clamp(PIECE_BYTES_MIN, HANDOVER_BYTES_MAX),
            is_exclusive: writers == Writers::OneAtATime,
            is_busy: false,
            waiting: 0,
        }
    }

    /// Begins a request, or lets it wait: a new one behind those that wait already.
    fn begin(&mut self, request: &Request, is_new: bool, plan: &mut Plan) -> Verdict {
        let is_exclusive = self.is_exclusive && request.is_modifying();
        if is_exclusive && (self.is_busy || is_new && self.waiting > 0) {
            self.waiting += 1;
            plan.reset(WAITS);
            return Verdict::Wait;
        }
        self.is_busy |= is_exclusive;
        let verdict = self.inner.handle_request(request, plan);
        self.follow(request, verdict, plan)
    }

    /// Changes what the other target planned, and lets others in when a request has ended.
    fn follow(&mut self, request: &Request, verdict: Verdict, plan: &mut Plan) -> Verdict {
        match verdict {
            Verdict::Run => self.hand_over(plan),
            Verdict::Complete(_) if self.is_exclusive && request.is_modifying() => {
                self.is_busy = false;
                if self.waiting > 0 {
                    plan.wake_waiting();
                }
            }
            Verdict::Complete(_) | Verdict::Wait => {}
        }
        verdict
    }

    fn hand_over(&self, plan: &mut Plan) {
        let mut planned = [const { None }; STEPS_MAX];
        for (place, step) in planned.iter_mut().zip(plan.steps()) {
            *place = Some(*step);
        }
        plan.reset(plan.cookie);
        let count = planned.iter().flatten().count();
        let mut room = STEPS_MAX - count;
        for step in planned.into_iter().flatten() {
            self.cut(step, &mut room, plan);
        }
    }

    /// Adds the pieces of a step: one, and as many more as there is room for.
    fn cut(&self, step: Step, room: &mut usize, plan: &mut Plan) {
        let mut rest = step;
        let mut handed = true;
        loop {
            let (first, later) = if *room == 0 {
                (rest, None)
            } else {
                split(&rest, self.piece)
            };
            let first = if handed {
                self.as_handover(first)
            } else {
                first
            };
            // There is room: it was counted.
            let pushed = plan.push(first);
            debug_assert!(pushed.is_ok(), "room was counted");
            let Some(later) = later else {
                return;
            };
            *room -= 1;
            rest = later;
            handed = !handed;
        }
    }

    fn as_handover(&self, step: Step) -> Step {
        let note = u64::from(self.piece);
        match step {
            Step::Read { file, offset, data } if data.len <= self.piece => Step::Fetch(Handover {
                file,
                offset,
                len: data.len,
                data,
                note,
            }),
            Step::Write {
                file,
                offset,
                data,
                durability,
            } if data.len <= self.piece => Step::Store {
                handover: Handover {
                    file,
                    offset,
                    len: data.len,
                    data,
                    note,
                },
                durability,
            },
            Step::Zero { data } => Step::Fetch(Handover {
                file: block::FileIndex(0),
                offset: block::ByteOffset(0),
                len: 0,
                data,
                note,
            }),
            step => step,
        }
    }
}

/// The first `piece` bytes of a step that moves data, and the rest if there is one.
fn split(step: &Step, piece: u32) -> (Step, Option<Step>) {
    let (Step::Read { data, .. } | Step::Write { data, .. }) = *step else {
        return (*step, None);
    };
    if data.len <= piece {
        return (*step, None);
    }
    let part = |start: u32, len: u32| {
        let data = DataRange {
            start: data.start + start,
            len,
        };
        match *step {
            Step::Read { file, offset, .. } => Step::Read {
                file,
                offset: offset.advanced(start.into()),
                data,
            },
            Step::Write {
                file,
                offset,
                durability,
                ..
            } => Step::Write {
                file,
                offset: offset.advanced(start.into()),
                data,
                durability,
            },
            other => other,
        }
    };
    (part(0, piece), Some(part(piece, data.len - piece)))
}

impl Target for HandingTarget {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn handle_request(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        self.begin(request, true, plan)
    }

    fn handle_phase_end(&mut self, request: &Request, status: Status, plan: &mut Plan) -> Verdict {
        if plan.cookie == WAITS {
            self.waiting -= 1;
            plan.reset(0);
            return self.begin(request, false, plan);
        }
        let verdict = self.inner.handle_phase_end(request, status, plan);
        self.follow(request, verdict, plan)
    }

    fn handle_fetched(
        &mut self,
        _request: &Request,
        fetched: &Handover,
        bytes: &[u8],
        data: &mut dyn RequestData,
    ) -> Status {
        if bytes.len() != fetched.len as usize {
            // Not whole: what was asked for did not come.
            return Status::Corrupt;
        }
        if fetched.len > 0 {
            return data.copy_to(fetched.data.start, bytes);
        }
        let mut done = 0;
        while done < fetched.data.len {
            let len = (fetched.data.len - done).min(PIECE_BYTES_MIN);
            let zeros = ZEROS.get(..len as usize).unwrap_or(&ZEROS);
            let status = data.copy_to(fetched.data.start + done, zeros);
            if !status.is_ok() {
                return status;
            }
            done += len;
        }
        Status::Ok
    }

    fn fill_stored(
        &mut self,
        _request: &Request,
        stored: &Handover,
        bytes: &mut [u8],
        data: &mut dyn RequestData,
    ) -> Status {
        if bytes.len() != stored.len as usize {
            return Status::Corrupt;
        }
        data.copy_from(stored.data.start, bytes)
    }

    fn handover_bytes_max(&self) -> u32 {
        self.piece
    }
}
