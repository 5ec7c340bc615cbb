//! A unit whose jobs are computed by threads of this process: the `cpu` unit, and simulated devices.
//!
//! The number of threads and their share of the processor are stated and enforced: after a job of `t` the
//! thread pauses for `t * (1/share - 1)`, so that a pool with share 0.25 uses at most a quarter of each of
//! its threads' processors, averaged over its jobs. Threads sleep when there is nothing to do. Requests
//! beyond the depth are refused. Dropping the unit ends the threads after the slices that they are at;
//! queued and unfinished requests are dropped.
//!
//! A thread takes urgent requests first. If the unit has places for urgent requests alone, a thread does them
//! between two slices of a background request, too, within the bounds of [`crate::urgency`]. What a slice is
//! depends on the engine; a check between two of them costs one load.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use weft_base::Clock;

use super::memory::BufferMemory;
use super::{Engine, Refusal, Unit, UnitSpec, Waker, answer};
use crate::urgency::{PerUrgency, TURN_NS, URGENT_RUN_MAX, Urgency};
use crate::wire::{Answer, AttemptId, Request};

/// See the module's head.
pub struct PoolUnit {
    spec: UnitSpec,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// A request was queued, or the pool ends.
    more: Condvar,
    /// The pool ends: interrupts pauses.
    ended: Condvar,
    /// Whether threads do urgent requests between slices.
    interrupts: bool,
    /// Whether a thread between two slices has to look at the state: for an urgent request, for one that is
    /// to be given up, or for the pool's end.
    must_look: AtomicBool,
}

/// A request with its buffers, `None` where one is missing.
type Queued = (Request, Option<Vec<Bytes>>);

struct State {
    line: PerUrgency<VecDeque<Queued>>,
    memory: BufferMemory,
    done: Vec<(Urgency, Answer)>,
    /// Queued, running, or done and not polled.
    held: PerUrgency<usize>,
    /// Attempts that threads are at, and whether each is to be given up.
    running: BTreeMap<AttemptId, bool>,
    waker: Option<Waker>,
    ends: bool,
}

/// The longest pause after one job: a thread must stay responsive after a long job.
const REST_NS_MAX: u64 = 1_000_000_000;

impl PoolUnit {
    /// Starts a thread for each engine. `share` is the part of a processor that each may take, above 0 and
    /// at most 1; other numbers are taken as the nearest of these (at least 0.01).
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn new(
        spec: UnitSpec,
        engines: Vec<Box<dyn Engine>>,
        share: f64,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<PoolUnit> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                line: PerUrgency::default(),
                memory: BufferMemory::new(spec.buffer_bytes_max),
                done: Vec::new(),
                held: PerUrgency::default(),
                running: BTreeMap::new(),
                waker: None,
                ends: false,
            }),
            more: Condvar::new(),
            ended: Condvar::new(),
            interrupts: spec.urgent_depth > 0,
            must_look: AtomicBool::new(false),
        });
        let mut pool = PoolUnit {
            spec,
            shared,
            threads: Vec::new(),
        };
        let share = if share.is_nan() {
            1.0
        } else {
            share.clamp(0.01, 1.0)
        };
        for (number, engine) in engines.into_iter().enumerate() {
            let (shared, clock) = (pool.shared.clone(), clock.clone());
            let name = format!("{} {number}", pool.spec.name);
            let work = move || work(&shared, engine, share, clock.as_ref());
            pool.threads
                .push(std::thread::Builder::new().name(name).spawn(work)?);
        }
        Ok(pool)
    }
}

fn work(shared: &Shared, mut engine: Box<dyn Engine>, share: f64, clock: &dyn Clock) {
    let mut worker = Worker {
        shared,
        clock,
        urgent_run: 0,
        urgent_ended_ns: 0,
    };
    while let Some(next) = worker.next() {
        let start = clock.monotonic_nanos();
        worker.run(engine.as_mut(), &next);
        let took = clock.monotonic_nanos().saturating_sub(start);
        rest(shared, took, share);
    }
}

/// One thread of the pool.
struct Worker<'a> {
    shared: &'a Shared,
    clock: &'a dyn Clock,
    /// Urgent requests in a row that it did while a background request waited; a turn of that ends the row.
    urgent_run: u32,
    /// When the last of them ended.
    urgent_ended_ns: u64,
}

impl Worker<'_> {
    /// Waits for a request; `None` at the end of the pool.
    fn next(&mut self) -> Option<Queued> {
        let mut state = self.shared.state.lock();
        loop {
            if state.ends {
                return None;
            }
            let (urgent_waits, background_waits) =
                (!state.line.urgent.is_empty(), !state.line.background.is_empty());
            if urgent_waits && (!background_waits || self.urgent_run < URGENT_RUN_MAX) {
                self.urgent_run = if background_waits { self.urgent_run + 1 } else { 0 };
                return self.begin(&mut state, Urgency::Urgent);
            }
            if background_waits {
                if !urgent_waits {
                    self.urgent_run = 0;
                }
                return self.begin(&mut state, Urgency::Background);
            }
            self.shared.more.wait(&mut state);
        }
    }

    fn begin(&self, state: &mut State, urgency: Urgency) -> Option<Queued> {
        let queued = state.line.get_mut(urgency).pop_front()?;
        state.running.insert(queued.0.attempt, false);
        self.shared.update(state);
        Some(queued)
    }

    fn run(&mut self, engine: &mut dyn Engine, (request, buffers): &Queued) {
        let attempt = request.attempt;
        let between = &mut |engine: &mut dyn Engine| self.between(engine, request);
        let sealed = answer(engine, request, buffers.as_deref(), between);
        match request.urgency {
            Urgency::Urgent => self.urgent_ended_ns = self.clock.monotonic_nanos(),
            Urgency::Background => self.urgent_run = 0,
        }
        let mut state = self.shared.state.lock();
        state.running.remove(&attempt);
        self.shared.update(&state);
        state.done.push((request.urgency, sealed));
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker();
        }
    }

    /// Between two slices of a request: does urgent ones, unless it is the turn of this one.
    fn between(&mut self, engine: &mut dyn Engine, request: &Request) -> ControlFlow<()> {
        while self.shared.must_look.load(Ordering::Relaxed) {
            let mut state = self.shared.state.lock();
            if state.ends || state.running.get(&request.attempt) == Some(&true) {
                return ControlFlow::Break(());
            }
            if request.urgency == Urgency::Urgent || !self.shared.interrupts || self.is_turn() {
                break;
            }
            let Some(urgent) = self.begin(&mut state, Urgency::Urgent) else {
                break;
            };
            drop(state);
            self.urgent_run += 1;
            self.run(engine, &urgent);
        }
        ControlFlow::Continue(())
    }

    /// Whether urgent requests have to wait for the background request at hand.
    fn is_turn(&mut self) -> bool {
        let turn_ends_ns = self.urgent_ended_ns.saturating_add(TURN_NS);
        if self.urgent_run > 0 && self.clock.monotonic_nanos() >= turn_ends_ns {
            self.urgent_run = 0;
        }
        self.urgent_run >= URGENT_RUN_MAX
    }
}

impl Shared {
    /// To be called under the latch when something of it changed.
    fn update(&self, state: &State) {
        let waits = self.interrupts && !state.line.urgent.is_empty();
        let must_look = state.ends || waits || state.running.values().any(|given_up| *given_up);
        self.must_look.store(must_look, Ordering::Relaxed);
    }
}

/// Pauses to keep the share; the end of the pool ends the pause.
fn rest(shared: &Shared, took_ns: u64, share: f64) {
    let rest = Duration::from_nanos(rest_ns(took_ns, share));
    if !rest.is_zero() {
        let mut state = shared.state.lock();
        shared.ended.wait_while_for(&mut state, |state| !state.ends, rest);
    }
}

fn rest_ns(took_ns: u64, share: f64) -> u64 {
    ((took_ns as f64 * (1.0 / share - 1.0)) as u64).min(REST_NS_MAX)
}

impl Unit for PoolUnit {
    fn spec(&self) -> &UnitSpec {
        &self.spec
    }

    fn set_waker(&mut self, waker: Waker) {
        self.shared.state.lock().waker = Some(waker);
    }

    fn submit(&mut self, mut request: Request) -> Result<(), Refusal> {
        let mut state = self.shared.state.lock();
        let urgency = request.urgency;
        if state.held.free(urgency, self.spec.depth, self.spec.urgent_depth) == 0 {
            return Err(Refusal::Busy);
        }
        *state.held.get_mut(urgency) += 1;
        let buffers = state.memory.take_in(&mut request);
        state.line.get_mut(urgency).push_back((request, buffers));
        self.shared.update(&state);
        drop(state);
        self.shared.more.notify_one();
        Ok(())
    }

    fn poll(&mut self, answers: &mut Vec<Answer>) {
        let mut state = self.shared.state.lock();
        for (urgency, answer) in std::mem::take(&mut state.done) {
            *state.held.get_mut(urgency) -= 1;
            answers.push(answer);
        }
    }

    fn forget(&mut self, attempt: AttemptId) {
        if !self.withdraw(attempt) {
            self.cancel(attempt);
        }
    }

    fn cancel(&mut self, attempt: AttemptId) {
        let mut state = self.shared.state.lock();
        if let Some(given_up) = state.running.get_mut(&attempt) {
            *given_up = true;
            self.shared.update(&state);
        }
    }

    fn withdraw(&mut self, attempt: AttemptId) -> bool {
        let mut state = self.shared.state.lock();
        for urgency in [Urgency::Urgent, Urgency::Background] {
            let line = state.line.get_mut(urgency);
            let at = line.iter().position(|(request, _)| request.attempt == attempt);
            if let Some(withdrawn) = at.and_then(|at| line.remove(at)) {
                *state.held.get_mut(urgency) -= 1;
                self.shared.update(&state);
                drop(state);
                drop(withdrawn);
                return true;
            }
        }
        false
    }
}

impl Drop for PoolUnit {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.ends = true;
        self.shared.update(&state);
        drop(state);
        self.shared.more.notify_all();
        self.shared.ended.notify_all();
        for thread in self.threads.drain(..) {
            // An engine's panic was caught where it happened; the join has nothing to report.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;
    use crate::job::Shape;
    use crate::kinds::Merge;
    use crate::operation::JobKind;

    const MERGE: JobKind = JobKind::of::<Merge>();
    use crate::unit::Outcome;
    use crate::wire::{ReturnCode, request_crc};
    use bytes::Bytes;
    use weft_base::SystemClock;

    /// Answers with the payload reversed; panics for an empty one.
    struct Reverse;

    impl Engine for Reverse {
        fn run(&mut self, _: JobKind, payload: &Bytes) -> Outcome {
            assert!(!payload.is_empty(), "nothing to do");
            Outcome {
                code: ReturnCode::Done,
                output: payload.iter().rev().copied().collect::<Vec<u8>>().into(),
                cycles: 3,
            }
        }
    }

    fn request(attempt: u64, payload: &'static [u8]) -> Request {
        Request {
            attempt: AttemptId(attempt),
            kind: MERGE,
            urgency: Urgency::Background,
            shape: Shape::default(),
            buffers: Vec::new(),
            drops_all: false,
            dropped: Vec::new(),
            payload: payload.into(),
            crc: request_crc(MERGE, payload, std::iter::empty()),
            task: None,
        }
    }

    fn pool(threads: usize, depth: usize) -> PoolUnit {
        let engines = (0..threads)
            .map(|_| Box::new(Reverse) as Box<dyn Engine>)
            .collect();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        PoolUnit::new(UnitSpec::unlimited("pool", depth), engines, 1.0, &clock).unwrap()
    }

    fn all(pool: &mut PoolUnit, count: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        while answers.len() < count {
            pool.poll(&mut answers);
            std::thread::yield_now();
        }
        answers.sort_by_key(|answer| answer.attempt);
        answers
    }

    #[test]
    fn answers_come_sealed_and_call_the_waker() {
        let mut pool = pool(2, 8);
        let woken = Arc::new(AtomicUsize::new(0));
        let count = woken.clone();
        pool.set_waker(Arc::new(move || {
            count.fetch_add(1, SeqCst);
        }));
        pool.submit(request(1, b"abc")).unwrap();
        let mut damaged = request(2, b"abc");
        damaged.crc ^= 4;
        pool.submit(damaged).unwrap();
        pool.submit(request(3, b"")).unwrap();
        let answers = all(&mut pool, 3);
        let codes: Vec<_> = answers.iter().map(|answer| answer.code).collect();
        assert_eq!(
            codes,
            [ReturnCode::Done, ReturnCode::InputDamaged, ReturnCode::Broken]
        );
        assert_eq!((answers[0].output.as_ref(), answers[0].cycles), (&b"cba"[..], 3));
        assert_eq!(answers[2].output.as_ref(), b"nothing to do");
        for answer in &answers {
            let payload: &[u8] = if answer.attempt.0 == 3 { b"" } else { b"abc" };
            let sent = request_crc(MERGE, payload, std::iter::empty());
            assert_eq!(answer.check(MERGE, sent), Ok(()));
        }
        while woken.load(SeqCst) < 3 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_exceeds_the_depth_is_refused_until_answers_are_taken() {
        let mut pool = pool(1, 2);
        pool.submit(request(1, b"a")).unwrap();
        pool.submit(request(2, b"b")).unwrap();
        assert_eq!(pool.submit(request(3, b"c")), Err(Refusal::Busy));
        all(&mut pool, 2);
        pool.submit(request(4, b"d")).unwrap();
        all(&mut pool, 1);
    }

    #[test]
    fn a_pool_without_threads_holds_and_forgets() {
        let mut pool = pool(0, 1);
        pool.submit(request(1, b"a")).unwrap();
        assert_eq!(pool.submit(request(2, b"a")), Err(Refusal::Busy));
        pool.forget(AttemptId(1));
        pool.submit(request(2, b"a")).unwrap();
        assert!(pool.withdraw(AttemptId(2)));
        assert!(!pool.withdraw(AttemptId(2)));
        pool.submit(request(3, b"a")).unwrap();
    }

    #[test]
    fn a_share_of_a_quarter_rests_three_times_as_long_as_it_worked() {
        assert_eq!(rest_ns(1000, 0.25), 3000);
        assert_eq!(rest_ns(1000, 1.0), 0);
        assert_eq!(rest_ns(u64::MAX, 0.01), REST_NS_MAX);
    }
}
