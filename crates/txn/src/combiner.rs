//! Flat combining: a role that one thread has at a time, and how it is passed on.
//!
//! No thread is the sequencer permanently. A thread that submitted work takes the role if it is free, and
//! works until nothing is left; if the role is taken, the thread leaves its work to the holder. A holder that
//! has served others for long hands over to the background thread, which has no work of its own.
//!
//! ```text
//! submit work ──> free? ──yes──> work ──nothing left──> release, check once more ──work came──┐
//!    ^             └no: the holder does it   └long──> wake the background thread, release     │
//!    └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariant: work that was submitted before [`Combiner::serve`] was called is done by the caller, by the
//! thread that held the role at that time or by the background thread. For the holder checks for work once
//! more after it has released the role, and a thread that submitted work after this check finds the role
//! free.

use crate::sync::{Condvar, Mutex};

/// The role, and the state that only its holder may touch.
pub(crate) struct Combiner<S> {
    holder: Mutex<S>,
    hand_over: Mutex<HandOver>,
    hand_over_signal: Condvar,
}

#[derive(Default)]
struct HandOver {
    is_wanted: bool,
    /// The background thread must end.
    is_stopped: bool,
}

impl<S> Combiner<S> {
    pub(crate) fn new(state: S) -> Combiner<S> {
        Combiner {
            holder: Mutex::new(state),
            hand_over: Mutex::new(HandOver::default()),
            hand_over_signal: Condvar::new(),
        }
    }

    /// Takes the role if it is free, and works until `has_work` returns false. `work` returns false if
    /// another thread should continue.
    pub(crate) fn serve(&self, mut work: impl FnMut(&mut S) -> bool, has_work: impl Fn() -> bool) {
        while let Some(mut state) = self.holder.try_lock() {
            let is_done = work(&mut state);
            drop(state);
            if !is_done {
                self.hand_over.lock().is_wanted = true;
                self.hand_over_signal.notify_one();
                return;
            }
            if !has_work() {
                return;
            }
        }
    }

    /// Accesses the state while nobody has the role. The caller must then call `serve`: work may have arrived
    /// in the meantime.
    pub(crate) fn with_state<T>(&self, f: impl FnOnce(&mut S) -> T) -> T {
        f(&mut self.holder.lock())
    }

    /// The background thread: calls `serve` whenever the role is handed over, until it is stopped.
    pub(crate) fn run_background(&self, serve: impl Fn()) {
        loop {
            let mut hand_over = self.hand_over.lock();
            while !hand_over.is_wanted {
                if hand_over.is_stopped {
                    return;
                }
                self.hand_over_signal.wait(&mut hand_over);
            }
            hand_over.is_wanted = false;
            drop(hand_over);
            serve();
        }
    }

    /// Ends the background thread once it has finished what was handed over.
    pub(crate) fn stop_background(&self) {
        self.hand_over.lock().is_stopped = true;
        self.hand_over_signal.notify_one();
    }
}
