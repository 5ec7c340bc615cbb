//! How a requester gets its finished job: a [`Ticket`] for one, a [`FinishedQueue`] for many.
//!
//! Neither takes a thread while jobs run. A ticket is a future and can also be waited for; the queue is
//! X-DB's Finished Queue: results in the order of arrival, and a waker that is called when one arrives.
//! Dropping a ticket does not cancel its job; the result is dropped.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use weft_base::blocking;

use crate::report::Finished;

#[derive(Default)]
struct Slot {
    finished: Option<Finished>,
    taken: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
pub(crate) struct Cell {
    slot: Mutex<Slot>,
    ready: Condvar,
}

impl Cell {
    /// Puts the result in and wakes whoever waits.
    pub(crate) fn fill(&self, finished: Finished) {
        let mut slot = self.slot.lock();
        slot.finished = Some(finished);
        let waker = slot.waker.take();
        drop(slot);
        self.ready.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The place of one job's result. The result can be taken once.
#[must_use]
pub struct Ticket {
    cell: Arc<Cell>,
}

impl Ticket {
    pub(crate) fn new() -> (Ticket, Arc<Cell>) {
        let cell = Arc::new(Cell::default());
        (Ticket { cell: cell.clone() }, cell)
    }

    /// Blocks until the job is finished.
    pub fn wait(self) -> Finished {
        blocking::section(|| {
            let mut slot = self.cell.slot.lock();
            loop {
                if let Some(finished) = slot.finished.take() {
                    return finished;
                }
                self.cell.ready.wait(&mut slot);
            }
        })
    }

    /// The result, if the job is finished.
    ///
    /// # Errors
    /// The ticket, if it is not.
    pub fn try_take(self) -> Result<Finished, Ticket> {
        let finished = self.cell.slot.lock().finished.take();
        finished.ok_or(self)
    }
}

impl Future for Ticket {
    type Output = Finished;

    /// Ready once; a ticket that is polled again stays pending.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        let mut slot = self.cell.slot.lock();
        if let Some(finished) = slot.finished.take() {
            slot.taken = true;
            return Poll::Ready(finished);
        }
        if !slot.taken {
            slot.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

/// Finished jobs, each with the tag that its requester gave it. Clones are the same queue.
///
/// It has no bound of its own: it never holds more than what was submitted to it and not yet taken, and the
/// scheduler bounds jobs in progress. A requester that takes nothing should submit nothing.
#[derive(Clone, Default)]
pub struct FinishedQueue {
    shared: Arc<QueueShared>,
}

#[derive(Default)]
struct QueueShared {
    state: Mutex<QueueState>,
    ready: Condvar,
}

#[derive(Default)]
struct QueueState {
    line: VecDeque<(u64, Finished)>,
    waker: Option<Waker>,
}

impl FinishedQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> FinishedQueue {
        FinishedQueue::default()
    }

    pub(crate) fn push(&self, tag: u64, finished: Finished) {
        let mut state = self.shared.state.lock();
        state.line.push_back((tag, finished));
        let waker = state.waker.take();
        drop(state);
        self.shared.ready.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next finished job, if there is one.
    #[must_use]
    pub fn pop(&self) -> Option<(u64, Finished)> {
        self.shared.state.lock().line.pop_front()
    }

    /// Blocks until a job is finished, for at most `limit`.
    #[must_use]
    pub fn wait_for(&self, limit: Duration) -> Option<(u64, Finished)> {
        blocking::section(|| {
            let mut state = self.shared.state.lock();
            self.shared
                .ready
                .wait_while_for(&mut state, |state| state.line.is_empty(), limit);
            state.line.pop_front()
        })
    }

    /// The next finished job; when there is none, `waker` is called once when one comes, in place of an
    /// earlier waker.
    pub fn poll(&self, waker: &Waker) -> Poll<(u64, Finished)> {
        let mut state = self.shared.state.lock();
        if let Some(next) = state.line.pop_front() {
            return Poll::Ready(next);
        }
        state.waker = Some(waker.clone());
        Poll::Pending
    }
}
