//! The queue in front of the sequencer, bounded in bytes.
//!
//! What callers have submitted and no batch has taken yet costs memory, and clients decide how much: programs
//! may wait behind locks for long. So while programs of [`EngineConfig::queue_bytes`] or more wait, a caller
//! with another one waits for space, for at most [`EngineConfig::queue_wait`], and is then refused with
//! 53200. A single submission may exceed the bound.
//!
//! ```text
//! programs ──wait for space──> requests ──taken──> admission (waiting, parked) ──> batch
//! commits, locks, releases ───────^                 counted until a batch takes them
//! ```
//!
//! Only programs wait. A commit, a release or a lock request may be what others wait for; their memory is the
//! transaction's own, which is bounded where it writes.

use crate::config::EngineConfig;
use crate::request::{ProgramRequest, Request};
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};
use weft_base::blocking;
use weft_types::{SqlError, SqlState};

/// Requests that have not been taken, and how much waits in all.
pub(crate) struct RequestQueue {
    state: Mutex<State>,
    room: Condvar,
    bytes_max: usize,
    wait: Duration,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    /// Bytes of programs: those in `requests`, and those that the sequencer last reported.
    bytes: usize,
    callers_waiting: usize,
}

impl RequestQueue {
    pub(crate) fn new(config: &EngineConfig) -> RequestQueue {
        RequestQueue {
            state: Mutex::default(),
            room: Condvar::new(),
            bytes_max: config.queue_bytes.max(1),
            wait: config.queue_wait,
        }
    }

    /// Adds a request that never waits.
    pub(crate) fn push(&self, request: Request) {
        self.state.lock().requests.push(request);
    }

    /// Adds programs in this order, once there is space.
    ///
    /// # Errors
    /// There was no space for too long (53200): the programs have been dropped.
    pub(crate) fn push_programs(&self, programs: Vec<ProgramRequest>) -> Result<(), SqlError> {
        let bytes: usize = programs.iter().map(|program| program.held_bytes).sum();
        self.push_held(bytes, |requests| {
            requests.extend(programs.into_iter().map(Request::Program))
        })
    }

    /// As [`Self::push_programs`] with one.
    pub(crate) fn push_program(&self, program: ProgramRequest) -> Result<(), SqlError> {
        self.push_held(program.held_bytes, |requests| {
            requests.push(Request::Program(program))
        })
    }

    fn push_held(&self, bytes: usize, push: impl FnOnce(&mut Vec<Request>)) -> Result<(), SqlError> {
        let mut deadline = None;
        loop {
            let mut state = self.state.lock();
            if state.bytes < self.bytes_max {
                state.bytes += bytes;
                push(&mut state.requests);
                return Ok(());
            }
            drop(state);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.wait);
            if Instant::now() >= deadline {
                return Err(self.is_full());
            }
            blocking::section(|| self.wait_for_room(deadline));
        }
    }

    fn wait_for_room(&self, deadline: Instant) {
        let mut state = self.state.lock();
        state.callers_waiting += 1;
        while state.bytes >= self.bytes_max && !self.room.wait_until(&mut state, deadline).timed_out() {}
        state.callers_waiting -= 1;
    }

    fn is_full(&self) -> SqlError {
        SqlError::new(SqlState::OUT_OF_MEMORY, "too many statements wait to be executed")
            .detail(format!(
                "Statements of {} bytes or more waited for {} ms.",
                self.bytes_max,
                self.wait.as_millis()
            ))
            .hint("Try again, or look for a transaction that holds locks for long.")
    }

    /// Takes all requests. `waiting_bytes` is the memory of the programs that were taken earlier and still
    /// wait.
    pub(crate) fn take(&self, waiting_bytes: usize) -> Vec<Request> {
        let mut state = self.state.lock();
        let requests = std::mem::take(&mut state.requests);
        let taken = requests.iter().map(|request| match request {
            Request::Program(program) => program.held_bytes,
            _ => 0,
        });
        state.bytes = waiting_bytes + taken.sum::<usize>();
        if state.callers_waiting > 0 && state.bytes < self.bytes_max {
            self.room.notify_all();
        }
        requests
    }

    /// True if nothing was added since the last [`Self::take`].
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().requests.is_empty()
    }
}
