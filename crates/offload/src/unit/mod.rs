//! The interface of a unit: it states what it accepts, takes requests without waiting, and is polled for
//! answers.
//!
//! The interface is that of a queue pair on a device: [`Unit::submit`] enqueues a descriptor, [`Unit::poll`]
//! takes finished ones, and the [`Waker`] is the interrupt that says when to poll. Nobody waits for one job.
//! A unit with a thread of its own, or a device behind it, calls the waker; a unit on simulated time says
//! when it wants to be polled next.
//!
//! - [`pool`]: threads of this process that compute: the `cpu` unit, and simulated devices.
//! - [`inline`]: computes within the poll, at a simulated time: for runs that must be repeatable.

pub mod inline;
mod link;
mod memory;
pub mod pool;

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use crate::job::{Excess, Job, Limits, Shape};
use crate::operation::{JobKind, Output, Task};
use crate::wire::{Answer, AttemptId, Request, ReturnCode, request_crc};
use weft_ops::crc32c;

pub use inline::InlineUnit;
pub use link::Link;
pub use pool::PoolUnit;

/// Called when a unit has an answer. Cheap, callable from any thread, never waits.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A unit's name and what it accepts.
#[derive(Clone, Debug)]
pub struct UnitSpec {
    /// Its name in reports, counters and the timeline; unique within a scheduler.
    pub name: String,
    /// What it accepts.
    pub accepts: Accepts,
    /// Requests that it may hold at a time, running ones included: two or more keep it busy between polls. A
    /// unit with depth 0 accepts nothing.
    pub depth: usize,
    /// Further requests that it may hold if they are urgent: it does them between two slices of others. 0 for
    /// a unit that finishes what it has begun.
    pub urgent_depth: usize,
    /// Bytes of registered buffers that it keeps; 0 if it gets them with each request.
    pub buffer_bytes_max: u64,
    /// What requests and answers travel over; `None` for a unit in this process.
    pub link: Option<Link>,
    /// It works in this process's memory: it takes tasks and gives results without encoding. Nothing is sent,
    /// so there is nothing to encode or checksum.
    pub in_process: bool,
}

/// The kinds that a unit accepts.
#[derive(Clone, Debug)]
pub enum Accepts {
    /// Every kind, without limits.
    Everything,
    /// These kinds, each with its limits.
    Kinds(Vec<(JobKind, Limits)>),
}

impl Accepts {
    /// The limits for a kind, if it is accepted.
    #[must_use]
    pub fn limits(&self, kind: JobKind) -> Option<&Limits> {
        match self {
            Accepts::Everything => Some(&UNLIMITED),
            Accepts::Kinds(kinds) => kinds.iter().find(|(of, _)| *of == kind).map(|(_, limits)| limits),
        }
    }
}

static UNLIMITED: Limits = Limits::NONE;

/// Whether a unit accepts a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It takes it.
    Accepted,
    /// It does not do this kind.
    OtherKind,
    /// The job is too large.
    Beyond(Excess),
}

impl UnitSpec {
    /// A unit that accepts every kind without limit.
    #[must_use]
    pub fn unlimited(name: impl Into<String>, depth: usize) -> UnitSpec {
        UnitSpec {
            name: name.into(),
            accepts: Accepts::Everything,
            depth,
            urgent_depth: 0,
            buffer_bytes_max: 0,
            link: None,
            in_process: false,
        }
    }

    /// The same, working in this process's memory: the `cpu` unit. It has a thread less than places, so that
    /// a thread that finishes a job has the next one ready, and does an urgent job on each.
    #[must_use]
    pub fn cpu(depth: usize) -> UnitSpec {
        UnitSpec {
            urgent_depth: depth.saturating_sub(1).max(1),
            in_process: true,
            ..UnitSpec::unlimited("cpu", depth)
        }
    }

    /// Whether the unit would take the job.
    #[must_use]
    pub fn fit(&self, job: &Job) -> Fit {
        match self.accepts.limits(job.kind) {
            _ if self.depth == 0 => Fit::OtherKind,
            None => Fit::OtherKind,
            Some(limits) => limits.exceeded(job).map_or(Fit::Accepted, Fit::Beyond),
        }
    }
}

/// Why a unit did not take a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It has no space, although it should have according to its depth.
    Busy,
    /// It does not work at present.
    Dead,
}

/// Something that does jobs. Calls never wait; they come from one thread at a time.
pub trait Unit: Send {
    /// Its name and what it accepts; constant.
    fn spec(&self) -> &UnitSpec;

    /// From now on, call `waker` when a poll would find an answer.
    fn set_waker(&mut self, waker: Waker);

    /// Starts a request, or puts it in line. The registered buffers that it brings or drops are taken in at
    /// once, in the order of requests, also if it is withdrawn later.
    ///
    /// # Errors
    /// If it does not take the request; there will be no answer then.
    fn submit(&mut self, request: Request) -> Result<(), Refusal>;

    /// Appends the answers that have arrived since the last poll. They are unchecked: a unit may answer
    /// anything, in any order, even what nobody asked.
    fn poll(&mut self, answers: &mut Vec<Answer>);

    /// The attempt is not needed any more. The unit may drop it or go on; an answer is ignored.
    fn forget(&mut self, attempt: AttemptId);

    /// The result of a request that was started is not needed any more. A unit that can stop between two
    /// slices does, and answers [`ReturnCode::GivenUp`]; another goes on and answers as usual.
    fn cancel(&mut self, _: AttemptId) {}

    /// Withdraws a request that has not been started. True: it had not, there will be no answer, and its
    /// place is free. False: no effect.
    fn withdraw(&mut self, _: AttemptId) -> bool {
        false
    }

    /// When, on the scheduler's clock, to poll although no waker will be called; for units on simulated time.
    fn next_event_ns(&self) -> Option<u64> {
        None
    }
}

/// The outcome of a computation.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// How it went.
    pub code: ReturnCode,
    /// The result, or a message.
    pub output: Output,
    /// Cycles, real or simulated, that a unit took; 0 if it does not count them.
    pub cycles: u64,
}

impl Outcome {
    fn without_output(code: ReturnCode) -> Outcome {
        Outcome {
            code,
            output: Output::Bytes(Bytes::new()),
            cycles: 0,
        }
    }

    /// The outcome of a computation that was told to stop.
    pub(crate) fn given_up() -> Outcome {
        Outcome::without_output(ReturnCode::GivenUp)
    }
}

/// What an engine is to do.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// A task of this process.
    Task(&'a Task),
    /// An encoded task, and the contents of its buffers.
    Payload(&'a Bytes, &'a [Bytes]),
}

/// What an engine calls between two slices.
pub type Between<'a> = &'a mut dyn FnMut(&mut dyn Engine) -> ControlFlow<()>;

/// What computes inside a unit: bytes in, bytes out. A [`PoolUnit`] has one for each thread.
pub trait Engine: Send {
    /// Does one operation. The checksum of the payload has been checked.
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome;

    /// The same for a task with registered buffers, whose checksums have been checked, too.
    fn run_over(&mut self, kind: JobKind, payload: &Bytes, buffers: &[Bytes]) -> Outcome {
        match buffers {
            [] => self.run(kind, payload),
            _ => Outcome {
                code: ReturnCode::Invalid,
                output: b"a task with buffers".to_vec().into(),
                cycles: 0,
            },
        }
    }

    /// Does a task in slices. It calls `between` after each, with an engine for what the unit does in
    /// between, and stops if that breaks: then there is no outcome. An engine without it has one slice.
    fn run_in_slices(&mut self, kind: JobKind, work: Work<'_>, _: Between<'_>) -> Option<Outcome> {
        Some(match work {
            Work::Task(task) => self.run_task(kind, task),
            Work::Payload(payload, buffers) => self.run_over(kind, payload, buffers),
        })
    }

    /// The same for a unit that works in this process's memory.
    fn run_task(&mut self, kind: JobKind, task: &Task) -> Outcome {
        let job = Job::new(kind, task.clone(), Shape::default());
        self.run(kind, job.payload())
    }
}

/// Receives, computes, seals: what every unit based on an [`Engine`] does with a request. A panic of the
/// engine becomes [`ReturnCode::Broken`].
///
/// `buffers` are those of the request, as they lie in the unit's memory; `None` if one is missing.
pub(crate) fn answer(
    engine: &mut dyn Engine,
    request: &Request,
    buffers: Option<&[Bytes]>,
    between: Between<'_>,
) -> Answer {
    let mut run = |work| {
        // The checksum of a large task is a slice of its own.
        let outcome = guarded(|| match between(engine) {
            ControlFlow::Continue(()) => engine.run_in_slices(request.kind, work, &mut *between),
            ControlFlow::Break(()) => None,
        });
        outcome.unwrap_or_else(Outcome::given_up)
    };
    if let Some(task) = &request.task {
        let outcome = run(Work::Task(task));
        return Answer::direct(request, outcome.code, outcome.output, outcome.cycles);
    }
    let seen = match buffers {
        Some(buffers) => {
            let crcs = buffers.iter().map(|bytes| crc32c(bytes));
            request_crc(request.kind, &request.payload, crcs)
        }
        // There is nothing to compute it over; the code says so.
        None => request.crc,
    };
    let outcome = match buffers {
        None => Outcome::without_output(ReturnCode::BufferLost),
        Some(_) if seen != request.crc => Outcome::without_output(ReturnCode::InputDamaged),
        Some(buffers) => run(Work::Payload(&request.payload, buffers)),
    };
    let output = outcome.output.to_bytes();
    let mut sealed = Answer::seal(request.attempt, request.kind, seen, outcome.code, output);
    sealed.cycles = outcome.cycles;
    sealed
}

/// `None` if it was given up.
fn guarded(run: impl FnOnce() -> Option<Outcome>) -> Option<Outcome> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Some(Outcome {
            code: ReturnCode::Broken,
            output: panic_text(panic.as_ref()).into_bytes().into(),
            cycles: 0,
        })
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panicked".to_owned())
}
