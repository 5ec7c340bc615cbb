//! A role that one thread has at a time, and how it passes on.
//!
//! Nobody is the sequencer for good. Who has brought work takes the role if it is free, and works until
//! nothing is left; who finds it taken leaves the work to the holder. A holder who has served others for long
//! calls the relief, a thread that has no business of its own.
//!
//! ```text
//! bring work ──> free? ──yes──> work ──nothing left──> leave, look once more ──work came──┐
//!    ^            └no: the holder does it   └long──> call the relief, leave               │
//!    └────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariant: work that was brought before [`Role::serve`] was called is done, by the caller, by who held the
//! role then or by the relief. For the holder looks for work once more after it has left the role, and who
//! came later than that look finds the role free.

use crate::sync::{Condvar, Mutex};

/// The role, and what only its holder may touch.
pub(crate) struct Role<S> {
    holder: Mutex<S>,
    relief: Mutex<Relief>,
    relief_signal: Condvar,
}

#[derive(Default)]
struct Relief {
    is_wanted: bool,
    /// The relief must end.
    is_stopped: bool,
}

impl<S> Role<S> {
    pub(crate) fn new(state: S) -> Role<S> {
        Role {
            holder: Mutex::new(state),
            relief: Mutex::new(Relief::default()),
            relief_signal: Condvar::new(),
        }
    }

    /// Takes the role if it is free, and works until `has_work` says that there is nothing left. `work` is
    /// false when somebody else should go on.
    pub(crate) fn serve(&self, mut work: impl FnMut(&mut S) -> bool, has_work: impl Fn() -> bool) {
        while let Some(mut state) = self.holder.try_lock() {
            let is_done = work(&mut state);
            drop(state);
            if !is_done {
                self.relief.lock().is_wanted = true;
                self.relief_signal.notify_one();
                return;
            }
            if !has_work() {
                return;
            }
        }
    }

    /// Does something with what the role guards, when nobody has the role. The caller then serves: work may
    /// have come meanwhile.
    pub(crate) fn between_turns<T>(&self, f: impl FnOnce(&mut S) -> T) -> T {
        f(&mut self.holder.lock())
    }

    /// The relief: calls `serve` whenever it is wanted, until it is stopped.
    pub(crate) fn relieve(&self, serve: impl Fn()) {
        loop {
            let mut relief = self.relief.lock();
            while !relief.is_wanted {
                if relief.is_stopped {
                    return;
                }
                self.relief_signal.wait(&mut relief);
            }
            relief.is_wanted = false;
            drop(relief);
            serve();
        }
    }

    /// Ends the relief, once it has done what it was called for.
    pub(crate) fn stop_relief(&self) {
        self.relief.lock().is_stopped = true;
        self.relief_signal.notify_one();
    }
}
