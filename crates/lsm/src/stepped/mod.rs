//! Threads in steps: a test runs its threads one at a time, and a seed says which goes on at each step.
//!
//! A step ends wherever a thread takes or releases a latch of [`crate::sync`], or waits. There the thread
//! hands the turn to the one that is to go on: of those that can, the one with the highest priority.
//! Priorities are drawn at random; at random steps the thread that runs gets the lowest of all. So a thread
//! can stand still at any place while others go far, which a fair schedule nearly never shows. A wait with a
//! timeout may end at any time, and ends when nothing else can go on. If nothing can go on at all, the run
//! fails as a deadlock.
//!
//! Threads that are not part of a run (all other tests) meet the latches of `parking_lot` as they are.
//!
//! Source: Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs", 2010.

mod latches;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use weft_base::Prng;
use weft_ops::mix64;

pub(crate) use latches::{Condvar, Mutex, MutexGuard, RwLock};

/// Steps after which a run counts as endless.
const STEPS_MAX: u64 = 3_000_000;

/// What a thread does: it runs when it is its turn.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

thread_local! {
    static ME: RefCell<Option<(Arc<Steps>, usize)>> = const { RefCell::new(None) };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stands {
    Ready,
    /// Before a latch that another thread has.
    Before(usize),
    /// At a condition, for a while or until it is notified.
    Waits {
        at: usize,
        timed: bool,
    },
    Done,
}

struct Thread {
    stands: Stands,
    priority: i64,
    timed_out: bool,
}

struct State {
    threads: Vec<Thread>,
    turn: usize,
    prng: Prng,
    /// One of so many steps ends with the lowest priority for who made it.
    demotes_one_in: u64,
    lowest: i64,
    steps: u64,
    /// Differs if the turns differ.
    trace: u64,
    failed: Option<String>,
}

/// One run.
pub(crate) struct Steps {
    state: parking_lot::Mutex<State>,
    turns: Vec<parking_lot::Condvar>,
    ended: parking_lot::Condvar,
}

/// Runs threads to their end. Returns a number that is the same for the same turns.
///
/// # Errors
/// What a thread said when it panicked; a deadlock; no end.
pub(crate) fn run(seed: u64, bodies: Vec<Body>) -> Result<u64, String> {
    let mut prng = Prng::new(seed);
    let threads = bodies.iter().map(|_| Thread {
        stands: Stands::Ready,
        priority: prng.below(1 << 40) as i64,
        timed_out: false,
    });
    let mut state = State {
        threads: threads.collect(),
        turn: 0,
        demotes_one_in: 0,
        lowest: 0,
        steps: 0,
        trace: 0,
        failed: None,
        prng: Prng::new(0),
    };
    state.demotes_one_in = [3, 12, 50, 200][prng.below(4) as usize];
    state.prng = prng;
    state.turn = state.choose().unwrap_or(0);
    let steps = Arc::new(Steps {
        state: parking_lot::Mutex::new(state),
        turns: bodies.iter().map(|_| parking_lot::Condvar::new()).collect(),
        ended: parking_lot::Condvar::new(),
    });
    let threads: Vec<_> = bodies
        .into_iter()
        .enumerate()
        .map(|(me, body)| {
            let steps = Arc::clone(&steps);
            std::thread::spawn(move || steps.live(me, body))
        })
        .collect();
    let mut state = steps.state.lock();
    let is_done = |state: &State| state.threads.iter().all(|thread| thread.stands == Stands::Done);
    while !is_done(&state) && state.failed.is_none() {
        steps.ended.wait(&mut state);
    }
    if let Some(failed) = state.failed.take() {
        // The other threads stand where they are until the process ends.
        return Err(failed);
    }
    let trace = state.trace;
    drop(state);
    for thread in threads {
        thread.join().map_err(|_| "a thread ended badly".to_owned())?;
    }
    Ok(trace)
}

impl State {
    /// Who goes on; `None` if nobody can.
    fn choose(&mut self) -> Option<usize> {
        let timed: Vec<usize> = (0..self.threads.len())
            .filter(|&at| matches!(self.threads[at].stands, Stands::Waits { timed: true, .. }))
            .collect();
        let is_ready = |thread: &Thread| thread.stands == Stands::Ready;
        let none_is_ready = !self.threads.iter().any(is_ready);
        if !timed.is_empty() && (none_is_ready || self.prng.chance(1, 40)) {
            let at = timed[self.prng.below(timed.len() as u64) as usize];
            self.threads[at].stands = Stands::Ready;
            self.threads[at].timed_out = true;
        }
        let ready = (0..self.threads.len()).filter(|&at| is_ready(&self.threads[at]));
        ready.max_by_key(|&at| self.threads[at].priority)
    }
}

impl Steps {
    fn live(self: Arc<Self>, me: usize, body: Body) {
        ME.set(Some((Arc::clone(&self), me)));
        let mut state = self.state.lock();
        while state.turn != me {
            self.turns[me].wait(&mut state);
        }
        drop(state);
        let lived = catch_unwind(AssertUnwindSafe(body));
        ME.set(None);
        let mut state = self.state.lock();
        if let Err(panic) = lived {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            state.failed = Some(text.unwrap_or_else(|| "a panic".to_owned()));
            self.ended.notify_all();
            return;
        }
        state.threads[me].stands = Stands::Done;
        match state.choose() {
            Some(next) => {
                state.turn = next;
                self.turns[next].notify_one();
            }
            None => self.nobody_can(&mut state),
        }
    }

    fn nobody_can(&self, state: &mut State) {
        let left = state.threads.iter().map(|thread| thread.stands);
        let left: Vec<Stands> = left.collect();
        if left.iter().any(|stands| *stands != Stands::Done) {
            state.failed = Some(format!("deadlock: {left:?}"));
        }
        self.ended.notify_all();
    }

    /// Ends a step of `me`, who stands like this now, and returns when it is its turn again. Says whether a
    /// wait has timed out.
    fn end_step(&self, me: usize, stands: Stands) -> bool {
        let mut state = self.state.lock();
        state.steps += 1;
        state.threads[me].stands = stands;
        let one_in = state.demotes_one_in;
        if state.prng.chance(1, one_in) {
            state.lowest -= 1;
            state.threads[me].priority = state.lowest;
        }
        if state.steps > STEPS_MAX {
            state.failed = Some("no end".to_owned());
            self.ended.notify_all();
        }
        match state.choose() {
            Some(next) => {
                state.trace = mix64(state.trace ^ next as u64);
                state.turn = next;
                if next != me {
                    self.turns[next].notify_one();
                }
            }
            None => {
                self.nobody_can(&mut state);
                state.turn = usize::MAX;
            }
        }
        while state.turn != me || state.failed.is_some() {
            self.turns[me].wait(&mut state);
        }
        std::mem::take(&mut state.threads[me].timed_out)
    }

    fn ready_again(&self, is_meant: impl Fn(Stands) -> bool) {
        for thread in &mut self.state.lock().threads {
            if is_meant(thread.stands) {
                thread.stands = Stands::Ready;
            }
        }
    }
}

/// The run that the calling thread is part of.
fn me() -> Option<(Arc<Steps>, usize)> {
    ME.with_borrow(Clone::clone)
}

/// Ends a step, if the thread is part of a run.
pub(crate) fn pause() {
    if let Some((steps, me)) = me() {
        steps.end_step(me, Stands::Ready);
    }
}
