//! Stepped threads: a test runs its threads one at a time, and a seed decides which one runs at each step.
//!
//! A step ends wherever a thread takes or releases a latch of [`crate::sync`], or waits. There the thread
//! passes control to the next one: of those that can run, the one with the highest priority. Priorities are
//! random; at random steps the running thread gets the lowest of all. So a thread can be delayed at any point
//! while others progress far, which a fair scheduler almost never does. A wait with a timeout may end at any
//! time, and ends when no other thread can run. If no thread can run at all, the run fails as a deadlock.
//!
//! Threads that are not part of a run (all other tests) use the latches of `parking_lot` unchanged.
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

/// A thread's code: it runs when it is its turn.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

thread_local! {
    static ME: RefCell<Option<(Arc<Steps>, usize)>> = const { RefCell::new(None) };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadStatus {
    Ready,
    /// Waiting for a latch that another thread holds.
    Before(usize),
    /// Waiting for a condition, for a while or until it is notified.
    Waits {
        at: usize,
        timed: bool,
    },
    Done,
}

struct Thread {
    stands: ThreadStatus,
    priority: i64,
    timed_out: bool,
}

struct State {
    threads: Vec<Thread>,
    turn: usize,
    prng: Prng,
    /// One of this many steps gives the running thread the lowest priority.
    demotes_one_in: u64,
    lowest: i64,
    steps: u64,
    /// Differs if the schedule differs.
    trace: u64,
    failed: Option<String>,
}

/// One run.
pub(crate) struct Steps {
    state: parking_lot::Mutex<State>,
    compactions: Vec<parking_lot::Condvar>,
    ended: parking_lot::Condvar,
}

/// Runs threads to their end. Returns a number that is the same for the same schedule.
///
/// # Errors
/// The message of a thread that panicked; a deadlock; too many steps.
pub(crate) fn run(seed: u64, bodies: Vec<Body>) -> Result<u64, String> {
    let mut prng = Prng::new(seed);
    let threads = bodies.iter().map(|_| Thread {
        stands: ThreadStatus::Ready,
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
    state.turn = state.pick().unwrap_or(0);
    let steps = Arc::new(Steps {
        state: parking_lot::Mutex::new(state),
        compactions: bodies.iter().map(|_| parking_lot::Condvar::new()).collect(),
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
    let is_done = |state: &State| {
        state
            .threads
            .iter()
            .all(|thread| thread.stands == ThreadStatus::Done)
    };
    while !is_done(&state) && state.failed.is_none() {
        steps.ended.wait(&mut state);
    }
    if let Some(failed) = state.failed.take() {
        // The other threads stay blocked until the process ends.
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
    /// The thread to run next; `None` if none can.
    fn pick(&mut self) -> Option<usize> {
        let timed: Vec<usize> = (0..self.threads.len())
            .filter(|&at| matches!(self.threads[at].stands, ThreadStatus::Waits { timed: true, .. }))
            .collect();
        let is_ready = |thread: &Thread| thread.stands == ThreadStatus::Ready;
        let none_is_ready = !self.threads.iter().any(is_ready);
        if !timed.is_empty() && (none_is_ready || self.prng.chance(1, 40)) {
            let at = timed[self.prng.below(timed.len() as u64) as usize];
            self.threads[at].stands = ThreadStatus::Ready;
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
            self.compactions[me].wait(&mut state);
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
        state.threads[me].stands = ThreadStatus::Done;
        match state.pick() {
            Some(next) => {
                state.turn = next;
                self.compactions[next].notify_one();
            }
            None => self.nobody_can(&mut state),
        }
    }

    fn nobody_can(&self, state: &mut State) {
        let left = state.threads.iter().map(|thread| thread.stands);
        let left: Vec<ThreadStatus> = left.collect();
        if left.iter().any(|stands| *stands != ThreadStatus::Done) {
            state.failed = Some(format!("deadlock: {left:?}"));
        }
        self.ended.notify_all();
    }

    /// Ends a step of thread `me`, which is now in this state, and returns when it is its turn again. Returns
    /// whether a wait has timed out.
    fn end_step(&self, me: usize, stands: ThreadStatus) -> bool {
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
        match state.pick() {
            Some(next) => {
                state.trace = mix64(state.trace ^ next as u64);
                state.turn = next;
                if next != me {
                    self.compactions[next].notify_one();
                }
            }
            None => {
                self.nobody_can(&mut state);
                state.turn = usize::MAX;
            }
        }
        while state.turn != me || state.failed.is_some() {
            self.compactions[me].wait(&mut state);
        }
        std::mem::take(&mut state.threads[me].timed_out)
    }

    fn ready_again(&self, is_meant: impl Fn(ThreadStatus) -> bool) {
        for thread in &mut self.state.lock().threads {
            if is_meant(thread.stands) {
                thread.stands = ThreadStatus::Ready;
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
        steps.end_step(me, ThreadStatus::Ready);
    }
}
