//! A unit that computes within the poll, on the injected clock.
//!
//! Under a manual clock a run is a function of its inputs alone: which job is answered when, and which
//! deadline passes. A job takes a fixed time, plus a time for each byte; requests are done one after another,
//! as by a unit with one pipeline. A unit in slices ([`InlineUnit::in_slices`]) does urgent requests between
//! two slices of another one; without, an urgent request goes before others that were not begun.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::Clock;

use super::memory::BufferMemory;
use super::{Engine, Outcome, Refusal, Unit, UnitSpec, Waker, answer};
use crate::urgency::{PerUrgency, URGENT_RUN_MAX, Urgency};
use crate::wire::{Answer, AttemptId, Request};

/// The simulated duration of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedSpeed {
    /// Nanoseconds for each job.
    pub job_ns: u64,
    /// Nanoseconds for each KiB of payload.
    pub kib_ns: u64,
}

/// See the module's head.
pub struct InlineUnit {
    spec: UnitSpec,
    engine: Box<dyn Engine>,
    clock: Arc<dyn Clock>,
    pace: SimulatedSpeed,
    /// `u64::MAX` if a request that was begun is finished first.
    slice_ns: u64,
    lines: PerUrgency<VecDeque<Queued>>,
    /// What the first of one of the lines is at.
    current: Option<Stretch>,
    /// Urgent requests in a row that were begun while a background request waited; a slice of that ends the
    /// row.
    urgent_run: u32,
    /// With the time at which each was done.
    done: VecDeque<(u64, Queued)>,
    memory: BufferMemory,
}

struct Queued {
    request: Request,
    buffers: Option<Vec<Bytes>>,
    left_ns: u64,
    is_begun: bool,
    /// Nobody wants its result.
    is_cancelled: bool,
    /// Nobody waits for its answer.
    is_forgotten: bool,
}

/// Work on one request until it is done, or until a boundary between two slices.
#[derive(Clone, Copy)]
struct Stretch {
    urgency: Urgency,
    began_ns: u64,
    ends_ns: u64,
}

impl InlineUnit {
    /// A unit that is idle.
    #[must_use]
    pub fn new(
        spec: UnitSpec,
        engine: Box<dyn Engine>,
        clock: Arc<dyn Clock>,
        pace: SimulatedSpeed,
    ) -> InlineUnit {
        InlineUnit {
            memory: BufferMemory::new(spec.buffer_bytes_max),
            spec,
            engine,
            clock,
            pace,
            slice_ns: u64::MAX,
            lines: PerUrgency::default(),
            current: None,
            urgent_run: 0,
            done: VecDeque::new(),
        }
    }

    /// The same, with slices of so many nanoseconds.
    #[must_use]
    pub fn in_slices(mut self, slice_ns: u64) -> InlineUnit {
        self.slice_ns = slice_ns.max(1);
        self
    }

    /// Requests that it holds.
    fn held(&self) -> PerUrgency<usize> {
        let lines = [&self.lines.urgent, &self.lines.background].into_iter().flatten();
        let done = self.done.iter().map(|(_, queued)| queued);
        let mut held = PerUrgency::default();
        for queued in lines.chain(done).filter(|queued| !queued.is_forgotten) {
            *held.get_mut(queued.request.urgency) += 1;
        }
        held
    }

    /// Goes on until now.
    fn advance(&mut self) {
        let now = self.clock.monotonic_nanos();
        while let Some(stretch) = self.current.filter(|stretch| stretch.ends_ns <= now) {
            let worked_ns = stretch.ends_ns - stretch.began_ns;
            let line = self.lines.get_mut(stretch.urgency);
            if let Some(first) = line.front_mut() {
                first.left_ns -= worked_ns;
                let is_done = first.left_ns == 0 || first.is_cancelled;
                if stretch.urgency == Urgency::Background && (is_done || worked_ns >= self.slice_ns) {
                    self.urgent_run = 0;
                }
                if is_done {
                    self.done
                        .extend(line.pop_front().map(|done| (stretch.ends_ns, done)));
                }
            }
            self.begin_next(stretch.ends_ns);
        }
        if self.current.is_none() {
            self.begin_next(now);
        }
    }

    fn begin_next(&mut self, now_ns: u64) {
        let (urgent_waits, background_waits) =
            (!self.lines.urgent.is_empty(), !self.lines.background.is_empty());
        let urgency = match urgent_waits && (!background_waits || self.urgent_run < URGENT_RUN_MAX) {
            true => Urgency::Urgent,
            false => Urgency::Background,
        };
        if urgency == Urgency::Urgent {
            self.urgent_run = if background_waits { self.urgent_run + 1 } else { 0 };
        }
        let first = self.lines.get_mut(urgency).front_mut();
        self.current = first.map(|first| {
            first.is_begun = true;
            let is_turn = urgency == Urgency::Background && self.urgent_run >= URGENT_RUN_MAX;
            let takes = if is_turn {
                first.left_ns.min(self.slice_ns)
            } else {
                first.left_ns
            };
            Stretch {
                urgency,
                began_ns: now_ns,
                ends_ns: now_ns + takes,
            }
        });
    }

    /// Ends the present stretch of a background request at the next boundary, if there are slices.
    fn interrupt(&mut self) {
        if self.slice_ns == u64::MAX {
            return;
        }
        let now = self.clock.monotonic_nanos();
        let slice_ns = self.slice_ns;
        let background = |stretch: &&mut Stretch| stretch.urgency == Urgency::Background;
        if let Some(stretch) = self.current.as_mut().filter(background) {
            let slices = (now - stretch.began_ns).div_ceil(slice_ns);
            let boundary_ns = stretch.began_ns.saturating_add(slices.saturating_mul(slice_ns));
            stretch.ends_ns = stretch.ends_ns.min(boundary_ns);
        }
    }

    fn queued_mut(&mut self, attempt: AttemptId) -> Option<&mut Queued> {
        let PerUrgency { urgent, background } = &mut self.lines;
        let mut queued = urgent.iter_mut().chain(background);
        queued.find(|queued| queued.request.attempt == attempt)
    }
}

impl Unit for InlineUnit {
    fn spec(&self) -> &UnitSpec {
        &self.spec
    }

    fn set_waker(&mut self, _: Waker) {}

    fn submit(&mut self, mut request: Request) -> Result<(), Refusal> {
        self.advance();
        let urgency = request.urgency;
        if self.held().free(urgency, self.spec.depth, self.spec.urgent_depth) == 0 {
            return Err(Refusal::Busy);
        }
        let buffers = self.memory.take_in(&mut request);
        let kib = (request.payload.len() as u64).div_ceil(1024);
        self.lines.get_mut(urgency).push_back(Queued {
            left_ns: self.pace.job_ns + self.pace.kib_ns * kib,
            request,
            buffers,
            is_begun: false,
            is_cancelled: false,
            is_forgotten: false,
        });
        if urgency == Urgency::Urgent && self.urgent_run < URGENT_RUN_MAX {
            self.interrupt();
        }
        self.advance();
        Ok(())
    }

    fn poll(&mut self, answers: &mut Vec<Answer>) {
        self.advance();
        for (
            _,
            Queued {
                request,
                buffers,
                is_cancelled,
                is_forgotten,
                ..
            },
        ) in self.done.drain(..)
        {
            if is_forgotten {
                continue;
            }
            let engine: &mut dyn Engine = if is_cancelled {
                &mut Stopped
            } else {
                self.engine.as_mut()
            };
            answers.push(answer(engine, &request, buffers.as_deref(), &mut |_| {
                ControlFlow::Continue(())
            }));
        }
    }

    fn forget(&mut self, attempt: AttemptId) {
        if !self.withdraw(attempt)
            && let Some(queued) = self.queued_mut(attempt)
        {
            queued.is_forgotten = true;
        }
    }

    fn cancel(&mut self, attempt: AttemptId) {
        self.advance();
        if self.slice_ns == u64::MAX {
            return;
        }
        let Some(queued) = self.queued_mut(attempt) else {
            return;
        };
        queued.is_cancelled = true;
        let urgency = queued.request.urgency;
        let is_first = self
            .lines
            .get(urgency)
            .front()
            .is_some_and(|first| first.is_cancelled);
        if is_first && self.current.is_some_and(|stretch| stretch.urgency == urgency) {
            self.interrupt();
        } else {
            // It waits for an urgent request to be done.
            let now = self.clock.monotonic_nanos();
            let line = self.lines.get_mut(urgency);
            let at = line.iter().position(|queued| queued.request.attempt == attempt);
            let stopped = at.and_then(|at| line.remove(at));
            self.done.extend(stopped.map(|stopped| (now, stopped)));
        }
    }

    fn withdraw(&mut self, attempt: AttemptId) -> bool {
        self.advance();
        let waits = self.queued_mut(attempt).is_some_and(|queued| !queued.is_begun);
        if waits {
            let of_another = |queued: &Queued| queued.request.attempt != attempt;
            self.lines.urgent.retain(of_another);
            self.lines.background.retain(of_another);
        }
        waits
    }

    fn next_event_ns(&self) -> Option<u64> {
        let done = self.done.front().map(|(done_ns, _)| *done_ns);
        done.or(self.current.map(|stretch| stretch.ends_ns))
    }
}

/// Stops at its first boundary.
struct Stopped;

impl Engine for Stopped {
    fn run(&mut self, _: crate::operation::JobKind, _: &Bytes) -> Outcome {
        Outcome::given_up()
    }

    fn run_over(&mut self, kind: crate::operation::JobKind, payload: &Bytes, _: &[Bytes]) -> Outcome {
        self.run(kind, payload)
    }
}
