//! The scheduler as a state machine: no threads, no waiting; time is an argument.
//!
//! The states of a job:
//!
//! ```text
//!   waiting --> attempt on a unit (two, when it is compared) --> result taken --> requester is told
//!      |            | refused, late, damaged, malformed, broken, different
//!      |            v
//!      +-------> CPU: attempt on the CPU, whose result is final
//!   (directly: beyond every unit's limits, no unit in; hedged: beside a slow unit, whichever is first)
//!   (cancelled, from every state: the requester is told, attempts end by themselves)
//! ```
//!
//! Invariants:
//! 1. The requester of an accepted job is told exactly once, whatever units answer: the obligation is a
//!    [`Done`], which tells when it is dropped, too.
//! 2. A single unit's result is taken only if it passed every check of [`crate::wire`] and validation and,
//!    for a compared job, a probe or a unit that is not in, equals another executor's; otherwise the CPU's
//!    result is final.
//! 3. Jobs in progress are bounded: units get nothing while the CPU's queue is full, so it holds at most
//!    [`SchedulerConfig::cpu_queue_jobs_max`] jobs and those that the units had. Waiting jobs are bounded by
//!    the queue that `submit` waits for.
//!
//! 4. A place at a unit is taken when an attempt begins, and is free when that ends, which happens once: its
//!    unit answered, it was withdrawn before it was begun, or its deadline passed. Cancelling its job does
//!    not end it.
//!
//! `dispatch.rs` gives jobs to units, `validation.rs` checks their answers, `settle.rs` acts on them,
//! `cancel.rs` takes jobs out.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use weft_base::Prng;

use crate::counters::{Counters, UnitCounters};
use crate::health::Health;
use crate::job::Job;
use crate::operation::{JobKind, Output};
use crate::reason::{Reason, ReasonCounts};
use crate::report::{Finished, JobError, JobReport};
use crate::scheduler::SchedulerConfig;
use crate::scheduler::residents::Residents;
use crate::scheduler::service_time::ServiceTimes;
use crate::scheduler::validation::{AttemptContext, PendingAnswer, ValidatedAnswer};
use crate::ticket::{Cell, FinishedQueue};
use crate::timeline::Timeline;
use crate::unit::{Unit, Waker};
use crate::urgency::{PerUrgency, Urgency};
use crate::wire::{Answer, AttemptId};
use std::sync::Arc;

/// Validates a unit's answer to a job and returns it with the type of a validated result; `None` makes the
/// answer malformed. Must be cheap compared with the job.
pub type Validator = fn(&Job, Bytes) -> Option<Output>;

/// Where a result goes.
pub(crate) enum Sink {
    Ticket(Arc<Cell>),
    Queue(FinishedQueue, u64),
    Call(Box<dyn FnOnce(Finished) + Send>),
}

/// The obligation to tell a requester. Dropped without a result, it reports that the scheduler was stopped.
pub(crate) struct Done {
    sink: Option<Sink>,
    kind: JobKind,
    bytes_in: u64,
}

impl Done {
    pub(crate) fn new(sink: Sink, job: &Job) -> Done {
        Done {
            sink: Some(sink),
            kind: job.kind,
            bytes_in: job.task_bytes(),
        }
    }

    pub(crate) fn deliver(mut self, finished: Finished) {
        Self::send(self.sink.take(), finished);
    }

    fn send(sink: Option<Sink>, finished: Finished) {
        match sink {
            Some(Sink::Ticket(cell)) => cell.fill(finished),
            Some(Sink::Queue(queue, tag)) => queue.push(tag, finished),
            Some(Sink::Call(done)) => done(finished),
            None => {}
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        let report = JobReport {
            kind: self.kind,
            unit: String::new(),
            redone_on_cpu: None,
            compared: false,
            bytes_in: self.bytes_in,
            bytes_out: 0,
            queued_ns: 0,
            run_ns: 0,
            cycles: 0,
        };
        let result = Err(JobError::Stopped);
        Self::send(self.sink.take(), Finished { result, report });
    }
}

/// A job from the queue.
pub(crate) struct NewJob {
    pub(crate) job: Job,
    /// Its checksum, if the job was sealed for units.
    pub(crate) crc: Option<u32>,
    pub(crate) submitted_ns: u64,
    pub(crate) done: Done,
}

/// A unit's result that has passed the checks.
pub(super) struct UnitResult {
    pub(super) unit: usize,
    /// `None`: the unit says that the task is invalid.
    pub(super) output: Option<Output>,
    pub(super) cycles: u64,
    /// For how long it had been unusually slow.
    pub(super) overdue_by_ns: u64,
}

pub(super) struct JobState {
    /// Shared with the thread that validates an answer.
    pub(super) job: Arc<Job>,
    pub(super) crc: Option<u32>,
    pub(super) submitted_ns: u64,
    pub(super) started_ns: Option<u64>,
    pub(super) done: Done,
    /// Two executors must give the same bytes. Drawn when the job is first considered.
    pub(super) compare: bool,
    /// The first reason why the CPU's result will be final.
    pub(super) reason: Option<Reason>,
    /// Running attempts on units.
    pub(super) outstanding: u32,
    /// It is queued for or running on the CPU.
    pub(super) at_cpu: bool,
    /// The CPU runs it although its unit may still answer: whichever is first is used.
    pub(super) hedged: bool,
    pub(super) cpu_tries: u32,
    pub(super) cpu_cycles: u64,
    /// What the CPU's result took.
    pub(super) cpu_took_ns: u64,
    pub(super) kept: Vec<UnitResult>,
    pub(super) cpu_result: Option<Result<Output, JobError>>,
}

pub(super) struct Attempt {
    pub(super) job: u64,
    pub(super) unit: usize,
    /// Its row in the timeline.
    pub(super) lane: u32,
    pub(super) kind: JobKind,
    pub(super) crc: u32,
    pub(super) bytes_in: u64,
    pub(super) started_ns: u64,
    pub(super) deadline_ns: u64,
    /// When it becomes unusually slow; `u64::MAX` for never.
    pub(super) overdue_ns: u64,
    /// The CPU is to start its job as well from then on.
    pub(super) may_hedge: bool,
    /// Its size, see `service_time.rs`.
    pub(super) kib: u64,
    pub(super) urgency: Urgency,
    /// Nanoseconds for which its unit was at urgent requests instead.
    pub(super) passed_ns: u64,
    /// When its answer was gathered, which is being validated.
    pub(super) answered_ns: Option<u64>,
    /// Its job was cancelled.
    pub(super) is_cancelled: bool,
    /// Set when the requester is told without it.
    pub(super) superseded: Option<Superseded>,
}

/// How to judge a unit's attempt after the requester was told without it. It keeps the task until the unit
/// has answered or is given up, so there are at most as many as units hold.
pub(super) struct Superseded {
    pub(super) job: Arc<Job>,
    /// Whether the CPU found the task valid; `None` if it failed itself.
    pub(super) makes_sense: Option<bool>,
    /// The CPU had been started because the unit was unusually slow, and was first.
    pub(super) hedge_lost: bool,
}

/// How an attempt ended whose result is not needed any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Answered,
    GivenUp,
}

pub(super) struct UnitSlot {
    pub(super) unit: Box<dyn Unit>,
    pub(super) health: Health,
    /// A bit for each row of the timeline with a running attempt; beyond 64 they share the last.
    pub(super) lanes: u64,
    /// The job with which it is being probed.
    pub(super) probe: Option<u64>,
    /// Attempts that the unit has, without those whose answers are being validated.
    pub(super) held: PerUrgency<usize>,
    /// Those.
    validating: PerUrgency<usize>,
    /// Urgent requests in a row that it got while a background job waited.
    pub(super) urgent_run: u32,
    /// Until when its background attempts are known to have waited for urgent ones.
    passed_until_ns: u64,
    pub(super) counters: UnitCounters,
    pub(super) paces: ServiceTimes,
    pub(super) residents: Residents,
}

impl UnitSlot {
    /// How many requests of an urgency it may get now.
    pub(super) fn free(&self, urgency: Urgency) -> usize {
        let spec = self.unit.spec();
        match *self.validating.get(urgency) < spec.depth + spec.urgent_depth {
            true => self.held.free(urgency, spec.depth, spec.urgent_depth),
            // Answers come faster than they are validated.
            false => 0,
        }
    }
}

/// Ended attempts that are remembered, to tell late answers from duplicates and from invalid ones.
const ENDED_KEPT: usize = 4096;
/// Attempts on the CPU with damaged answers before the job is given up.
pub(super) const CPU_TRIES_MAX: u32 = 3;

pub(crate) struct Core {
    pub(super) config: SchedulerConfig,
    validator: Validator,
    pub(super) chance: Prng,
    /// The CPU is the last one.
    pub(super) units: Vec<UnitSlot>,
    pub(super) waiting: PerUrgency<VecDeque<u64>>,
    pub(super) for_cpu: PerUrgency<VecDeque<u64>>,
    pub(super) jobs: BTreeMap<u64, JobState>,
    pub(super) attempts: BTreeMap<AttemptId, Attempt>,
    ended: BTreeMap<AttemptId, (usize, Ended)>,
    next_job: u64,
    pub(super) next_attempt: u64,
    pub(super) redone: ReasonCounts,
    pub(super) helped: u64,
    pub(super) hedged: u64,
    pub(super) hedges_lost_by_cpu: u64,
    pub(super) compared: u64,
    pub(super) errors: u64,
    pub(super) cancelled: u64,
    pub(super) delivered: u64,
    /// Jobs, and their bytes, that left the queue since the last step.
    pub(super) dequeued: PerUrgency<(usize, u64)>,
    pub(super) timeline: Timeline,
    pub(super) finished: Vec<(Done, Finished)>,
    polled: Vec<Answer>,
}

/// The result of a step.
pub(crate) struct Step {
    /// To be told outside of any lock.
    pub(crate) finished: Vec<(Done, Finished)>,
    /// Jobs and bytes that left the line.
    pub(crate) dequeued: PerUrgency<(usize, u64)>,
    /// When the next step is due even if nothing wakes the scheduler.
    pub(crate) next_ns: Option<u64>,
}

impl Core {
    pub(crate) fn new(
        config: SchedulerConfig,
        validator: Validator,
        cpu: Box<dyn Unit>,
        units: Vec<Box<dyn Unit>>,
        waker: &Waker,
    ) -> Core {
        let slots = units.into_iter().chain([cpu]).map(|mut unit| {
            unit.set_waker(waker.clone());
            let counters = UnitCounters::new(unit.spec().name.clone());
            UnitSlot {
                unit,
                health: Health::new(config.health),
                lanes: 0,
                probe: None,
                held: PerUrgency::default(),
                validating: PerUrgency::default(),
                urgent_run: 0,
                passed_until_ns: 0,
                counters,
                paces: ServiceTimes::default(),
                residents: Residents::default(),
            }
        });
        Core {
            config,
            validator,
            chance: Prng::new(config.seed),
            units: slots.collect(),
            waiting: PerUrgency::default(),
            for_cpu: PerUrgency::default(),
            jobs: BTreeMap::new(),
            attempts: BTreeMap::new(),
            ended: BTreeMap::new(),
            next_job: 0,
            next_attempt: 0,
            redone: ReasonCounts::default(),
            helped: 0,
            hedged: 0,
            hedges_lost_by_cpu: 0,
            compared: 0,
            errors: 0,
            cancelled: 0,
            delivered: 0,
            dequeued: PerUrgency::default(),
            timeline: Timeline::new(config.timeline_entries_max),
            finished: Vec::new(),
            polled: Vec::new(),
        }
    }

    /// What looks through answers.
    pub(crate) fn validator(&self) -> Validator {
        self.validator
    }

    /// The CPU's index.
    pub(super) fn cpu(&self) -> usize {
        self.units.len().saturating_sub(1)
    }

    /// Takes new jobs and units' answers: these are to be validated outside of any latch and passed to
    /// [`Core::step`]. Never waits.
    pub(crate) fn gather(
        &mut self,
        arrivals: impl IntoIterator<Item = NewJob>,
        now_ns: u64,
    ) -> Vec<PendingAnswer> {
        for arrival in arrivals {
            self.arrive(arrival);
        }
        self.poll_units(now_ns)
    }

    /// Takes validated answers, gives up attempts that were late at `gathered_ns`, just before the answers
    /// were gathered, and gives units work at `now_ns`. Never waits.
    ///
    /// A unit may have answered while other answers were validated. The next gathering notices, and no
    /// attempt is given up before that.
    pub(crate) fn step(
        &mut self,
        gathered_ns: u64,
        now_ns: u64,
        answers: impl IntoIterator<Item = ValidatedAnswer>,
    ) -> Step {
        for answer in answers {
            self.take_answer(answer, gathered_ns);
        }
        self.abandon_overdue(gathered_ns);
        self.dispatch(now_ns);
        self.hedge(gathered_ns, now_ns);
        Step {
            finished: std::mem::take(&mut self.finished),
            dequeued: std::mem::take(&mut self.dequeued),
            next_ns: self.next_ns(now_ns),
        }
    }

    fn arrive(&mut self, arrival: NewJob) {
        let id = self.next_job;
        self.next_job += 1;
        let compare = self
            .chance
            .chance(u64::from(self.config.compare_per_million), 1_000_000);
        let state = JobState {
            job: Arc::new(arrival.job),
            crc: arrival.crc,
            submitted_ns: arrival.submitted_ns,
            started_ns: None,
            done: arrival.done,
            compare,
            reason: None,
            outstanding: 0,
            at_cpu: false,
            hedged: false,
            cpu_tries: 0,
            cpu_cycles: 0,
            cpu_took_ns: 0,
            kept: Vec::new(),
            cpu_result: None,
        };
        self.waiting.get_mut(state.job.urgency).push_back(id);
        self.jobs.insert(id, state);
    }

    fn poll_units(&mut self, now_ns: u64) -> Vec<PendingAnswer> {
        let mut found = Vec::new();
        let mut answers = std::mem::take(&mut self.polled);
        for (unit, slot) in self.units.iter_mut().enumerate() {
            slot.unit.poll(&mut answers);
            for answer in answers.drain(..) {
                let attempt = self.attempts.get_mut(&answer.attempt);
                let attempt = attempt.filter(|attempt| attempt.unit == unit);
                let asked = attempt.map(|attempt| {
                    if attempt.answered_ns.is_none() {
                        attempt.answered_ns = Some(now_ns);
                        *slot.held.get_mut(attempt.urgency) -= 1;
                        *slot.validating.get_mut(attempt.urgency) += 1;
                        slot.lanes &= !(1 << attempt.lane);
                    }
                    let job = self.jobs.get(&attempt.job).map(|state| &state.job);
                    let superseded = attempt.superseded.as_ref().map(|superseded| &superseded.job);
                    AttemptContext {
                        kind: attempt.kind,
                        crc: attempt.crc,
                        in_process: slot.unit.spec().in_process,
                        is_cancelled: attempt.is_cancelled,
                        job: job.or(superseded).cloned(),
                    }
                });
                found.push(PendingAnswer {
                    unit,
                    answered_ns: now_ns,
                    answer,
                    asked,
                });
            }
        }
        self.polled = answers;
        found
    }

    /// Ends an attempt: its unit has a free place again, and its number is remembered for a while.
    pub(super) fn end_attempt(&mut self, id: AttemptId, how: Ended, now_ns: u64) -> Option<Attempt> {
        let attempt = self.attempts.remove(&id)?;
        if let Some(slot) = self.units.get_mut(attempt.unit) {
            slot.counters.in_flight = slot.counters.in_flight.saturating_sub(1);
            if attempt.answered_ns.is_none() {
                *slot.held.get_mut(attempt.urgency) -= 1;
                slot.lanes &= !(1 << attempt.lane);
            } else {
                *slot.validating.get_mut(attempt.urgency) -= 1;
            }
            slot.counters.busy_ns += now_ns.saturating_sub(attempt.started_ns);
        }
        if attempt.urgency == Urgency::Urgent {
            self.excuse(&attempt, now_ns);
        }
        self.ended.insert(id, (attempt.unit, how));
        if self.ended.len() > ENDED_KEPT {
            self.ended.pop_first();
        }
        Some(attempt)
    }

    /// An urgent attempt passed the background attempts of its unit: these have as much more time.
    fn excuse(&mut self, urgent: &Attempt, now_ns: u64) {
        let Some(slot) = self.units.get_mut(urgent.unit) else {
            return;
        };
        // Urgent attempts that were there together count once.
        let since_ns = urgent.started_ns.max(slot.passed_until_ns);
        slot.passed_until_ns = slot.passed_until_ns.max(now_ns);
        let of_unit = |attempt: &&mut Attempt| attempt.unit == urgent.unit && attempt.answered_ns.is_none();
        for attempt in self.attempts.values_mut().filter(of_unit) {
            if attempt.urgency == Urgency::Background {
                let passed_ns = now_ns.saturating_sub(since_ns.max(attempt.started_ns));
                attempt.passed_ns += passed_ns;
                attempt.deadline_ns = attempt.deadline_ns.saturating_add(passed_ns);
                attempt.overdue_ns = attempt.overdue_ns.saturating_add(passed_ns);
            }
        }
    }

    /// Counts an answer of `unit` for an attempt that it does not hold.
    pub(super) fn count_stray(&mut self, unit: usize, id: AttemptId) {
        let how = self.ended.get(&id).filter(|(owner, _)| *owner == unit);
        let how = how.map(|(_, how)| *how);
        if let Some(slot) = self.units.get_mut(unit) {
            let strays = &mut slot.counters.strays;
            match how {
                Some(Ended::GivenUp) => strays.late += 1,
                Some(Ended::Answered) => strays.duplicate += 1,
                None => strays.unknown += 1,
            }
        }
    }

    /// The next deadline, or the next time to poll a unit on simulated time. Always in the future, so that a
    /// unit that keeps answering strays does not make the scheduler spin.
    fn next_ns(&self, now_ns: u64) -> Option<u64> {
        // A busy CPU calls the waker when it is free.
        let jobs_wait = self.waiting.total() > 0;
        let matters = |attempt: &Attempt| attempt.may_hedge || jobs_wait && attempt.overdue_ns > now_ns;
        let due = |attempt: &Attempt| match self.cpu_idle(attempt.urgency) && matters(attempt) {
            true => attempt.deadline_ns.min(attempt.overdue_ns),
            false => attempt.deadline_ns,
        };
        // Validation wakes the scheduler.
        let without_answer = |attempt: &&Attempt| attempt.answered_ns.is_none();
        let deadlines = self.attempts.values().filter(without_answer).map(due);
        let events = self.units.iter().filter_map(|slot| slot.unit.next_event_ns());
        let refused = (self.for_cpu.total() > 0
            && self.units.last().is_some_and(|cpu| cpu.counters.in_flight == 0))
        .then_some(now_ns + 1_000_000);
        deadlines
            .chain(events)
            .chain(refused)
            .min()
            .filter(|next| *next < u64::MAX)
            .map(|next| next.max(now_ns + 1))
    }

    /// Gives up every job; dropping them tells their requesters.
    pub(crate) fn abandon(&mut self) -> impl Sized + use<> {
        self.waiting = PerUrgency::default();
        self.for_cpu = PerUrgency::default();
        (std::mem::take(&mut self.jobs), std::mem::take(&mut self.finished))
    }

    /// The numbers; the queue's own are filled in by its owner.
    pub(crate) fn counters(&self) -> Counters {
        let units = self.units.iter().map(|slot| {
            let mut counters = slot.counters.clone();
            counters.standing = slot.health.last_standing();
            counters
        });
        Counters {
            submitted: self.next_job,
            finished: self.delivered,
            errors: self.errors,
            cancelled: self.cancelled,
            queue_full: 0,
            waiting: self.waiting.total() as u64,
            redone_on_cpu: self.redone,
            helped_by_cpu: self.helped,
            hedged: self.hedged,
            hedges_lost_by_cpu: self.hedges_lost_by_cpu,
            compared: self.compared,
            units: units.collect(),
        }
    }

    /// The timeline as a Chrome trace.
    pub(crate) fn chrome_trace(&self) -> String {
        let names: Vec<&str> = self
            .units
            .iter()
            .map(|slot| slot.counters.name.as_str())
            .collect();
        self.timeline.to_chrome_trace(&names)
    }
}
