//! Fault injection: [`FaultyUnit`] stands between the scheduler and a working unit.
//!
//! | fault | where | how it is detected |
//! |---|---|---|
//! | `InputFlipped` | a bit of the task changes on the way to the unit | the unit's checksum, or the echo |
//! | `InputTruncated` | the end of the task does not arrive | the same |
//! | `RequestLost` | the unit never gets the request | deadline |
//! | `Refused` | the unit refuses the request | at once |
//! | `Upset` | a bit of the result changes inside the unit, before it is sealed | validation of the result |
//! | `OutputFlipped` | a bit of the result changes on the way back | the answer's checksum |
//! | `OutputTruncated` | the end of the result does not arrive | length |
//! | `HeaderFlipped` | a bit of the attempt's number changes | no such attempt, then deadline |
//! | `AnswerLost` | the answer does not arrive | deadline |
//! | `Late` | the answer comes after the deadline | deadline; ignored when it comes |
//! | `Duplicate` | the answer comes twice | the second is ignored |
//! | `BufferFlipped` | a bit of a registered buffer changes at the unit, where it is kept | the unit's checksum, or the echo |
//! | `BuffersLost` | the unit loses all its registered buffers | the unit misses one |
//! | `DiesSilent` | the unit takes requests and answers nothing, for a while | deadlines |
//! | `DiesRefusing` | the unit refuses everything, for a while | at once |
//!
//! Which attempt gets which fault is drawn from a seed, or listed in a script. Injected faults are counted,
//! so that a test can check that all were detected.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use weft_base::{Clock, Prng, SystemClock};

use crate::model::{ModelEngine, ModelParams};
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::unit::{PoolUnit, Refusal, Unit, UnitSpec, Waker};
use crate::wire::{Answer, AttemptId, Request};

/// What can go wrong with one attempt. See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the table in the module's head says what each is")]
pub enum Fault {
    InputFlipped,
    InputTruncated,
    RequestLost,
    Refused,
    Upset,
    OutputFlipped,
    OutputTruncated,
    HeaderFlipped,
    AnswerLost,
    Late,
    Duplicate,
    DiesSilent,
    DiesRefusing,
    BufferFlipped,
    BuffersLost,
}

impl Fault {
    /// Every fault of an attempt.
    pub const ALL: [Fault; 13] = [
        Fault::InputFlipped,
        Fault::InputTruncated,
        Fault::RequestLost,
        Fault::Refused,
        Fault::Upset,
        Fault::OutputFlipped,
        Fault::OutputTruncated,
        Fault::HeaderFlipped,
        Fault::AnswerLost,
        Fault::Late,
        Fault::Duplicate,
        Fault::DiesSilent,
        Fault::DiesRefusing,
    ];

    /// The faults of registered buffers. They happen only to jobs that use some.
    pub const OF_BUFFERS: [Fault; 2] = [Fault::BufferFlipped, Fault::BuffersLost];
}

/// Which attempts get which faults.
#[derive(Clone, Debug)]
pub enum FaultPlan {
    /// Each attempt gets one of `faults` with this chance in a million.
    Random {
        /// Chance in a million.
        per_million: u32,
        /// What to draw from.
        faults: Vec<Fault>,
        /// The seed.
        seed: u64,
    },
    /// The attempts in order; after the last entry there are no faults.
    Script(VecDeque<Option<Fault>>),
}

/// The durations of faults, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultTimes {
    /// The delay of a late answer, and of the second of two.
    pub late_ns: u64,
    /// How long a dead unit is dead.
    pub dead_ns: u64,
}

/// Failing compaction units, for tests of users of units: `units` models of which each attempt meets one of
/// `faults` with this chance in a million. Deadlines are short, everything is compared, and units are never
/// taken out, so that faults keep meeting jobs.
///
/// # Errors
/// The system gives no thread.
pub fn failing_models(
    units: u64,
    params: ModelParams,
    per_million: u32,
    faults: &[Fault],
) -> io::Result<Scheduler> {
    let mut config = SchedulerConfig {
        deadline_ns: 20_000_000,
        compare_per_million: 1_000_000,
        ..SchedulerConfig::default()
    };
    config.health.window = 64;
    config.health.failures_max = 64;
    failing_models_with(config, units, params, per_million, faults)
}

/// As [`failing_models`], with custom settings.
///
/// # Errors
/// The system gives no thread.
pub fn failing_models_with(
    config: SchedulerConfig,
    units: u64,
    params: ModelParams,
    per_million: u32,
    faults: &[Fault],
) -> io::Result<Scheduler> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let unit = |seed| -> io::Result<Box<dyn Unit>> {
        let spec = params.spec(format!("model {seed}"), 2);
        let unit = PoolUnit::new(spec, vec![Box::new(ModelEngine { params })], 1.0, &clock)?;
        let faults = faults.to_vec();
        let plan = FaultPlan::Random {
            per_million,
            faults,
            seed,
        };
        let times = FaultTimes {
            late_ns: 30_000_000,
            dead_ns: 1_000_000,
        };
        Ok(Box::new(FaultyUnit::new(unit, clock.clone(), plan, times)))
    };
    let units = (1..=units).map(unit).collect::<io::Result<_>>()?;
    Scheduler::new(config, clock.clone(), units)
}

/// How often each fault was injected; shared with its reader.
#[derive(Clone, Debug, Default)]
pub struct FaultCounts(Arc<Mutex<BTreeMap<Fault, u64>>>);

impl FaultCounts {
    /// How often `fault` was injected.
    #[must_use]
    pub fn get(&self, fault: Fault) -> u64 {
        self.0.lock().get(&fault).copied().unwrap_or(0)
    }

    /// The number of all injected faults.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.lock().values().sum()
    }

    fn add(&self, fault: Fault) {
        *self.0.lock().entry(fault).or_default() += 1;
    }
}

/// A unit with faults at its edges.
pub struct FaultyUnit<U> {
    unit: U,
    clock: Arc<dyn Clock>,
    plan: FaultPlan,
    times: FaultTimes,
    chance: Prng,
    counts: FaultCounts,
    /// Faults for answers that are still to come.
    planned: BTreeMap<AttemptId, Fault>,
    /// Delayed answers, with their time.
    held: Vec<(u64, Answer)>,
    dead_until_ns: u64,
    refuses: bool,
    swap: Vec<Answer>,
}

impl<U: Unit> FaultyUnit<U> {
    /// Wraps a unit.
    #[must_use]
    pub fn new(unit: U, clock: Arc<dyn Clock>, plan: FaultPlan, times: FaultTimes) -> FaultyUnit<U> {
        let seed = match &plan {
            FaultPlan::Random { seed, .. } => *seed,
            FaultPlan::Script(_) => 0,
        };
        FaultyUnit {
            unit,
            clock,
            plan,
            times,
            chance: Prng::new(seed),
            counts: FaultCounts::default(),
            planned: BTreeMap::new(),
            held: Vec::new(),
            dead_until_ns: 0,
            refuses: false,
            swap: Vec::new(),
        }
    }

    /// The injected faults so far; continues to count.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.counts.clone()
    }

    fn draw(&mut self) -> Option<Fault> {
        match &mut self.plan {
            FaultPlan::Script(script) => script.pop_front().flatten(),
            FaultPlan::Random {
                per_million, faults, ..
            } => {
                let hit = self.chance.chance(u64::from(*per_million), 1_000_000);
                let which = self.chance.below(faults.len() as u64);
                let which = usize::try_from(which).unwrap_or(0);
                hit.then(|| faults.get(which).copied()).flatten()
            }
        }
    }

    fn dead(&self) -> bool {
        self.clock.monotonic_nanos() < self.dead_until_ns
    }

    fn die(&mut self, refuses: bool) {
        self.dead_until_ns = self.clock.monotonic_nanos().saturating_add(self.times.dead_ns);
        self.refuses = refuses;
        self.held.clear();
    }

    fn flip(&mut self, bytes: &mut [u8]) -> bool {
        let at = self.chance.below(bytes.len() as u64 * 8);
        let byte = usize::try_from(at / 8).ok().and_then(|byte| bytes.get_mut(byte));
        byte.is_some_and(|byte| {
            *byte ^= 1 << (at % 8);
            true
        })
    }

    /// A bit of a buffer changes on the way to where the unit keeps it.
    fn flip_buffer(&mut self, request: &mut Request) {
        let mut sent = request
            .buffers
            .iter_mut()
            .filter_map(|buffer| buffer.bytes.as_mut());
        let Some(sent) = sent.find(|sent| !sent.is_empty()) else {
            return;
        };
        let mut bytes = sent.to_vec();
        self.flip(&mut bytes);
        *sent = Bytes::from(bytes);
        self.counts.add(Fault::BufferFlipped);
    }

    fn flip_output(&mut self, answer: &mut Answer) -> bool {
        let mut bytes = answer.output.to_vec();
        let happened = self.flip(&mut bytes);
        answer.output = Bytes::from(bytes);
        happened
    }

    /// Applies a planned fault to an answer.
    fn spoil(&mut self, fault: Fault, mut answer: Answer, answers: &mut Vec<Answer>) {
        let later = self.clock.monotonic_nanos().saturating_add(self.times.late_ns);
        let mut happened = true;
        match fault {
            Fault::AnswerLost => {
                self.counts.add(fault);
                return;
            }
            Fault::Late => {
                self.counts.add(fault);
                self.held.push((later, answer));
                return;
            }
            Fault::Duplicate => self.held.push((later, answer.clone())),
            Fault::OutputFlipped => happened = self.flip_output(&mut answer),
            Fault::OutputTruncated => {
                let keep = self.chance.below(answer.output.len() as u64);
                happened = !answer.output.is_empty();
                answer.output.truncate(usize::try_from(keep).unwrap_or(0));
            }
            Fault::HeaderFlipped => answer.attempt.0 ^= 1 << (40 + self.chance.below(20)),
            Fault::Upset => {
                happened = self.flip_output(&mut answer);
                answer.crc = answer.computed_crc();
            }
            _ => happened = false,
        }
        if happened {
            self.counts.add(fault);
        }
        answers.push(answer);
    }
}

impl<U: Unit> Unit for FaultyUnit<U> {
    fn spec(&self) -> &UnitSpec {
        self.unit.spec()
    }

    fn set_waker(&mut self, waker: Waker) {
        self.unit.set_waker(waker);
    }

    fn submit(&mut self, mut request: Request) -> Result<(), Refusal> {
        let fault = self.draw();
        if let Some(Fault::DiesSilent | Fault::DiesRefusing) = fault {
            self.die(fault == Some(Fault::DiesRefusing));
        }
        if self.dead() {
            if let Some(dying @ (Fault::DiesSilent | Fault::DiesRefusing)) = fault {
                self.counts.add(dying);
            }
            return if self.refuses { Err(Refusal::Dead) } else { Ok(()) };
        }
        match fault {
            Some(Fault::RequestLost) => {
                self.counts.add(Fault::RequestLost);
                return Ok(());
            }
            Some(Fault::Refused) => {
                self.counts.add(Fault::Refused);
                return Err(Refusal::Busy);
            }
            Some(fault @ (Fault::InputFlipped | Fault::InputTruncated)) if !request.payload.is_empty() => {
                let mut bytes = request.payload.to_vec();
                if fault == Fault::InputFlipped {
                    self.flip(&mut bytes);
                } else {
                    let keep = self.chance.below(bytes.len() as u64);
                    bytes.truncate(usize::try_from(keep).unwrap_or(0));
                }
                request.payload = Bytes::from(bytes);
                self.counts.add(fault);
            }
            Some(Fault::BufferFlipped) => {
                self.flip_buffer(&mut request);
            }
            Some(Fault::BuffersLost) => {
                let has_kept = request.buffers.iter().any(|buffer| buffer.bytes.is_none());
                let all = request.buffers.iter().map(|buffer| buffer.id);
                request.dropped.extend(all);
                if has_kept {
                    self.counts.add(Fault::BuffersLost);
                }
            }
            Some(fault) => {
                self.planned.insert(request.attempt, fault);
            }
            None => {}
        }
        self.unit.submit(request)
    }

    fn poll(&mut self, answers: &mut Vec<Answer>) {
        let mut polled = std::mem::take(&mut self.swap);
        self.unit.poll(&mut polled);
        let dead = self.dead();
        for answer in polled.drain(..).filter(|_| !dead) {
            match self.planned.remove(&answer.attempt) {
                None => answers.push(answer),
                Some(fault) => self.spoil(fault, answer, answers),
            }
        }
        self.swap = polled;
        let now = self.clock.monotonic_nanos();
        let (due, held): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(due, _)| *due <= now);
        self.held = held;
        answers.extend(due.into_iter().map(|(_, answer)| answer));
    }

    fn forget(&mut self, attempt: AttemptId) {
        self.planned.remove(&attempt);
        self.unit.forget(attempt);
    }

    fn cancel(&mut self, attempt: AttemptId) {
        self.unit.cancel(attempt);
    }

    fn withdraw(&mut self, attempt: AttemptId) -> bool {
        let withdrawn = self.unit.withdraw(attempt);
        if withdrawn {
            self.planned.remove(&attempt);
        }
        withdrawn
    }

    fn next_event_ns(&self) -> Option<u64> {
        let held = self.held.iter().map(|(due, _)| *due).min();
        self.unit.next_event_ns().into_iter().chain(held).min()
    }
}
