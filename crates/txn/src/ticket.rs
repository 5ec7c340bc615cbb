//! A ticket: where one caller waits for the answer to its request.
//!
//! The thread in the sequencer's role fills tickets; a caller that became the sequencer itself finds its own
//! ticket filled before it ever waits, so a lone transaction costs no thread handoff (DESIGN.md, Batches).
//! Others spin for a moment, since a batch is often shorter than a sleep, and then block, or register a waker
//! and return.
//!
//! Invariant: every ticket is filled. A request owns its [`Responder`], which answers with an error if it is
//! dropped without an answer; so nobody waits for ever, whatever happens to a request, a panic included.

use crate::request::{Answer, Refused};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering};
use std::ops::Deref;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use weft_base::blocking;
use weft_types::{SqlError, SqlState};

/// How often a waiting thread polls before it sleeps. On few cores spinning takes time from the sequencer
/// itself.
const SPINS_BEFORE_SLEEP: u32 = 64;

#[derive(Debug)]
struct Slot<T> {
    answer: Option<T>,
    /// Called when the answer arrives.
    waker: Option<Waker>,
}

/// The shared state of one answer.
#[derive(Debug)]
pub(crate) struct TicketCell<T> {
    done: AtomicBool,
    slot: Mutex<Slot<T>>,
    ready: Condvar,
}

/// The side that answers.
#[derive(Debug)]
pub(crate) struct Responder<T>(Arc<TicketCell<Answer<T>>>);

impl<T> Responder<T> {
    /// Whether this answers the ticket.
    pub(crate) fn is_for(&self, cell: &Arc<TicketCell<Answer<T>>>) -> bool {
        Arc::ptr_eq(&self.0, cell)
    }

    /// The request was withdrawn: nobody is woken.
    pub(crate) fn withdraw(self) {
        self.0.slot.lock().waker = None;
    }
}

impl<T> Deref for Responder<T> {
    type Target = TicketCell<Answer<T>>;

    fn deref(&self) -> &TicketCell<Answer<T>> {
        &self.0
    }
}

impl<T> Drop for Responder<T> {
    fn drop(&mut self) {
        if !self.is_done() {
            self.fill(Err(Refused::early(lost_answer())));
        }
    }
}

/// The error for a request that was dropped without an answer.
pub(crate) fn lost_answer() -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, "the sequencer gave no answer")
}

impl<T> TicketCell<Answer<T>> {
    /// A ticket without an answer yet, and its responder.
    pub(crate) fn with_responder() -> (Arc<Self>, Responder<T>) {
        let cell = TicketCell::new();
        (Arc::clone(&cell), Responder(cell))
    }
}

impl<T> TicketCell<T> {
    /// A ticket without an answer yet.
    pub(crate) fn new() -> Arc<TicketCell<T>> {
        Arc::new(TicketCell {
            done: AtomicBool::new(false),
            slot: Mutex::new(Slot {
                answer: None,
                waker: None,
            }),
            ready: Condvar::new(),
        })
    }

    /// Stores the answer and wakes the waiting thread. Only the first answer counts.
    pub(crate) fn fill(&self, answer: T) {
        let mut slot = self.slot.lock();
        if self.done.load(Ordering::Relaxed) {
            return;
        }
        slot.answer = Some(answer);
        self.done.store(true, Ordering::Release);
        let waker = slot.waker.take();
        drop(slot);
        self.ready.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the answer if there is one; otherwise `waker` is called when it arrives, instead of an earlier
    /// one.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<T> {
        self.spin();
        let mut slot = self.slot.lock();
        let answer = slot.answer.take();
        if answer.is_none() && !self.is_done() {
            slot.waker = Some(waker.clone());
        }
        answer
    }

    /// True once the answer is there.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn spin(&self) {
        for _ in 0..SPINS_BEFORE_SLEEP {
            if self.is_done() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Blocks until there is an answer and takes it. The answer can be taken once.
    pub(crate) fn wait(&self) -> Option<T> {
        self.spin();
        if !self.is_done() {
            blocking::section(|| {
                let mut guard = self.slot.lock();
                while !self.done.load(Ordering::Acquire) {
                    self.ready.wait(&mut guard);
                }
            });
        }
        self.slot.lock().answer.take()
    }

    /// Blocks for at most `limit`; `None` when no answer came in that time.
    pub(crate) fn wait_for(&self, limit: Duration) -> Option<T> {
        self.spin();
        if !self.is_done() {
            blocking::section(|| {
                let mut guard = self.slot.lock();
                if !self.done.load(Ordering::Acquire) {
                    self.ready.wait_for(&mut guard, limit);
                }
            });
        }
        self.slot.lock().answer.take()
    }
}
