//! How a requester gets its finished job: a [`Ticket`] for one, a [`FinishedQueue`] for many.
//!
//! Neither takes a thread while jobs run. A ticket is a future and can also be waited for; the queue is
//! X-DB's Finished Queue: results in the order of arrival, and a waker that is called when one arrives.
//!
//! A job whose result nobody wants any more is cancelled: by dropping its ticket, or by its [`JobHandle`]. If
//! it waits, it leaves the queue. If a unit has it, nobody waits for that: the requester is told
//! [`crate::JobError::Cancelled`], the unit is told that it may stop, and its place is free when it has
//! answered, or is late.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
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

impl Slot {
    fn take(&mut self) -> Option<Finished> {
        let finished = self.finished.take();
        self.taken |= finished.is_some();
        finished
    }
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

/// Cancels jobs by their number.
pub(crate) trait CancelJobs: Send + Sync {
    /// The job's requester wants no result. No effect on a job that is finished.
    fn cancel(&self, job: u64);
}

/// Names a job that was submitted. Dropping it has no effect.
#[derive(Clone)]
pub struct JobHandle {
    scheduler: Weak<dyn CancelJobs>,
    job: u64,
}

impl JobHandle {
    pub(crate) fn new(scheduler: Weak<dyn CancelJobs>, job: u64) -> JobHandle {
        JobHandle { scheduler, job }
    }

    /// Cancels the job. Its requester is told so, unless it has been told a result. Never waits for a unit.
    pub fn cancel(&self) {
        if let Some(scheduler) = self.scheduler.upgrade() {
            scheduler.cancel(self.job);
        }
    }
}

/// The place of one job's result. The result can be taken once. Dropped without it, the job is cancelled.
#[must_use]
pub struct Ticket {
    cell: Arc<Cell>,
    handle: JobHandle,
}

impl Ticket {
    pub(crate) fn new(cell: Arc<Cell>, handle: JobHandle) -> Ticket {
        Ticket { cell, handle }
    }

    /// Blocks until the job is finished.
    pub fn wait(self) -> Finished {
        blocking::section(|| {
            let mut slot = self.cell.slot.lock();
            loop {
                if let Some(finished) = slot.take() {
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
        let finished = self.cell.slot.lock().take();
        finished.ok_or(self)
    }
}

impl Future for Ticket {
    type Output = Finished;

    /// Ready once; a ticket that is polled again stays pending.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        let mut slot = self.cell.slot.lock();
        if let Some(finished) = slot.take() {
            return Poll::Ready(finished);
        }
        if !slot.taken {
            slot.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let slot = self.cell.slot.lock();
        let is_finished = slot.taken || slot.finished.is_some();
        drop(slot);
        if !is_finished {
            self.handle.cancel();
        }
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
