//! Threads that validate units' answers.
//!
//! Validating a merge takes a good part of the merge's time. So one thread that did it for all units would
//! limit them together, and everything else that it does would wait: other units, and answers to urgent jobs.
//! Answers to background jobs are validated here; those to urgent jobs, whose validation is short, where they
//! are gathered.
//!
//! Answers of one unit are given back in the order in which they came, whichever thread is done first: so a
//! second answer to an attempt stays the second, and what is said of a unit's health is in order. How many
//! answers are here is bounded by the scheduler: a unit gets no new request while as many of its answers
//! as it may hold requests are not validated.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::Signal;
use super::core::Validator;
use super::validation::{PendingAnswer, ValidatedAnswer};

/// See the module's head. Dropping it ends the threads after the answers that they are at.
pub(super) struct ValidationPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    line: VecDeque<(u64, PendingAnswer)>,
    /// By unit.
    units: BTreeMap<usize, OfUnit>,
    ends: bool,
}

/// The answers of one unit.
#[derive(Default)]
struct OfUnit {
    /// Numbers of its next answer that comes, and that is given back.
    next_in: u64,
    next_out: u64,
    done: BTreeMap<u64, ValidatedAnswer>,
}

impl ValidationPool {
    /// Starts threads; each wakes `signal` when it has validated an answer.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn new(
        threads: usize,
        validator: Validator,
        signal: &Arc<Signal>,
    ) -> io::Result<ValidationPool> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            more: Condvar::new(),
        });
        let mut pool = ValidationPool {
            shared,
            threads: Vec::new(),
        };
        for number in 0..threads {
            let (shared, signal) = (pool.shared.clone(), signal.clone());
            let thread = std::thread::Builder::new().name(format!("validation {number}"));
            let work = move || shared.validate_all(validator, &signal);
            pool.threads.push(thread.spawn(work)?);
        }
        Ok(pool)
    }

    /// Takes an answer.
    pub(super) fn put(&self, answer: PendingAnswer) {
        let mut state = self.shared.state.lock();
        let unit = state.units.entry(answer.unit).or_default();
        let number = unit.next_in;
        unit.next_in += 1;
        state.line.push_back((number, answer));
        drop(state);
        self.shared.more.notify_one();
    }

    /// The answers that are validated, as far as those before them are.
    pub(super) fn take(&self) -> Vec<ValidatedAnswer> {
        let mut taken = Vec::new();
        for unit in self.shared.state.lock().units.values_mut() {
            while let Some(next) = unit.done.remove(&unit.next_out) {
                unit.next_out += 1;
                taken.push(next);
            }
        }
        taken
    }
}

impl Shared {
    fn validate_all(&self, validator: Validator, signal: &Signal) {
        let mut state = self.state.lock();
        while !state.ends {
            let Some((number, answer)) = state.line.pop_front() else {
                self.more.wait(&mut state);
                continue;
            };
            drop(state);
            let validated = answer.judge(validator);
            state = self.state.lock();
            let unit = state.units.entry(validated.unit).or_default();
            unit.done.insert(number, validated);
            signal.wake();
        }
    }
}

impl Drop for ValidationPool {
    fn drop(&mut self) {
        self.shared.state.lock().ends = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            // A validator's panic was caught where it happened.
            let _ = thread.join();
        }
    }
}
