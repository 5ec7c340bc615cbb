//! Helper threads for large waves: started once, parked between waves.
//!
//! Starting a thread costs more than running a small batch; waking one costs some microseconds. So the
//! threads live as long as the process, and a caller with a large wave borrows them: they join as soon as
//! they are awake and take what is left. The caller works too, and when nothing is left it dismisses the
//! helpers that have not joined. Only one wave has helpers at a time; another wave then runs on its caller
//! alone.
//!
//! ```text
//!   State: task   what to run, while a wave runs
//!          wanted helpers that may still join
//!          active helpers that work on it
//! ```
//!
//! Invariant: a task is called only during its `run`, since `run` returns only when `wanted` and `active` are
//! both zero.

use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A task without its lifetime.
#[derive(Clone, Copy)]
struct Task(&'static (dyn Fn(usize) + Sync));

#[derive(Default)]
struct State {
    task: Option<Task>,
    wanted: usize,
    active: usize,
    next_worker: usize,
    threads: usize,
    panic: Option<Box<dyn Any + Send>>,
}

struct Pool {
    /// Held while a wave has helpers.
    in_use: Mutex<()>,
    state: Mutex<State>,
    wake: Condvar,
    done: Condvar,
}

static POOL: Pool = Pool {
    in_use: Mutex::new(()),
    state: Mutex::new(State {
        task: None,
        wanted: 0,
        active: 0,
        next_worker: 0,
        threads: 0,
        panic: None,
    }),
    wake: Condvar::new(),
    done: Condvar::new(),
};

/// Calls `task` with 0 on this thread, and with 1 .. `workers` on others, each at most once and only during
/// this call: the task must complete the whole work whichever helpers join. A panic in any of them is passed
/// on to the caller when all have ended.
pub(super) fn run(workers: usize, task: &(dyn Fn(usize) + Sync)) {
    let free = if workers > 1 { POOL.in_use.try_lock() } else { None };
    let Some(_in_use) = free else {
        return task(0);
    };
    // SAFETY: only the lifetime changes. The reference is dead when this function returns: helpers copy it
    // out of `State::task` only while `wanted` is above zero, count as `active` until they have dropped it,
    // and below both are waited for, even if the task panics here.
    let lasting = Task(unsafe {
        std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(task)
    });
    POOL.request_helpers(workers - 1, lasting);
    let own = catch_unwind(AssertUnwindSafe(|| task(0)));
    let others = POOL.withdraw();
    if let Err(panic) = own {
        resume_unwind(panic);
    }
    if let Some(panic) = others {
        resume_unwind(panic);
    }
}

impl Pool {
    fn request_helpers(&'static self, helpers: usize, task: Task) {
        let mut state = self.state.lock();
        while state.threads < helpers {
            let thread = std::thread::Builder::new().name(format!("weft-worker-{}", state.threads + 1));
            // Without another thread, the remaining ones or the caller alone do the work.
            match thread.spawn(|| self.help()) {
                Ok(_) => state.threads += 1,
                Err(_) => break,
            }
        }
        state.task = Some(task);
        state.wanted = helpers.min(state.threads);
        state.next_worker = 1;
        let wanted = state.wanted;
        drop(state);
        for _ in 0..wanted {
            self.wake.notify_one();
        }
    }

    /// Ends the wave: no helper joins any more, and those that joined are waited for.
    fn withdraw(&self) -> Option<Box<dyn Any + Send>> {
        let mut state = self.state.lock();
        state.wanted = 0;
        while state.active > 0 {
            self.done.wait(&mut state);
        }
        state.task = None;
        state.panic.take()
    }

    /// A helper's main loop.
    fn help(&self) {
        let mut state = self.state.lock();
        loop {
            let Some(task) = state.task.filter(|_| state.wanted > 0) else {
                self.wake.wait(&mut state);
                continue;
            };
            state.wanted -= 1;
            state.active += 1;
            let worker = state.next_worker;
            state.next_worker += 1;
            drop(state);
            let ended = catch_unwind(AssertUnwindSafe(|| (task.0)(worker)));
            state = self.state.lock();
            state.active -= 1;
            if let Err(panic) = ended {
                state.panic = Some(panic);
            }
            if state.active == 0 {
                self.done.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn helpers_use_the_callers_data_and_end_before_it_returns() {
        for round in 0..200 {
            let left = AtomicUsize::new(1000 + round);
            let calls = AtomicUsize::new(0);
            let done = AtomicUsize::new(0);
            run(3, &|_| {
                calls.fetch_add(1, Ordering::Relaxed);
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(done.into_inner(), 1000 + round);
            assert!((1..=3).contains(&calls.into_inner()));
        }
    }

    #[test]
    fn a_panic_of_a_helper_reaches_the_caller() {
        // Another test may have the helpers, or they come too late: until one comes.
        for _ in 0..1000 {
            let came = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                run(2, &|worker| {
                    if worker == 1 {
                        came.store(1, Ordering::SeqCst);
                        panic!("on purpose");
                    }
                    let began = Instant::now();
                    while came.load(Ordering::SeqCst) == 0 && began.elapsed() < Duration::from_millis(50) {
                        std::thread::yield_now();
                    }
                });
            }));
            if came.into_inner() == 1 {
                assert!(result.is_err());
                return run(2, &|_| {});
            }
            assert!(result.is_ok());
        }
        panic!("no helper ever came");
    }
}
