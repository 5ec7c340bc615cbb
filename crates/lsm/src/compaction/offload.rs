//! Merging on units that may fail: tasks go to the offload runtime's scheduler.
//!
//! No thread waits for a task. Whoever finishes it in the scheduler wakes its [`Callback`], which hands the
//! result on. What a unit may do wrong ends in the scheduler: a result that comes from it was checked, or was
//! made by the CPU, and the scheduler's counters say which. A task that nobody can do is merged once more
//! here, only to learn which block is at fault.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use weft_offload::{Finished, Job, JobError, Scheduler, Ticket};
use weft_ops::merge::{MergeOutput, MergeTask, merge};

use super::executor::{CompactionExecutor, ExecutorError, TaskDone};

/// Gives tasks to a scheduler, which may serve others as well.
#[derive(Clone)]
pub struct OffloadExecutor {
    scheduler: Arc<Scheduler>,
}

impl OffloadExecutor {
    /// An executor over a scheduler. With [`Scheduler::manual`] somebody else must drive it.
    #[must_use]
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler }
    }

    /// The scheduler, for its counters and its timeline.
    #[must_use]
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }
}

impl CompactionExecutor for OffloadExecutor {
    fn submit(&self, task: MergeTask, done: TaskDone) {
        let task = Arc::new(task);
        // The longest key and value are found out by the unit that gets the task.
        let ticket = self.scheduler.submit(Job::merge(Arc::clone(&task), 0, 0));
        let callback = Arc::new(Callback(Mutex::new(Some(Pending { ticket, task, done }))));
        callback.wake();
    }
}

struct Pending {
    ticket: Ticket,
    task: Arc<MergeTask>,
    done: TaskDone,
}

/// A task on its way, until its result was handed on.
struct Callback(Mutex<Option<Pending>>);

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut slot = self.0.lock();
        let Some(pending) = slot.as_mut() else {
            return;
        };
        let Poll::Ready(finished) = Pin::new(&mut pending.ticket).poll(&mut Context::from_waker(&waker))
        else {
            return;
        };
        let pending = slot.take();
        drop(slot);
        if let Some(Pending { task, done, .. }) = pending {
            done(result(finished, &task));
        }
    }
}

fn result(finished: Finished, task: &MergeTask) -> Result<MergeOutput, ExecutorError> {
    match finished.result {
        Ok(output) => output
            .into_merge()
            .map_err(|error| ExecutorError::Failed(format!("a result that is none: {error}"))),
        Err(JobError::Invalid(why)) => match merge(task) {
            Err(error) => Err(ExecutorError::Merge(error)),
            Ok(_) => Err(ExecutorError::Failed(format!(
                "refused, but it can be done: {why}"
            ))),
        },
        Err(error) => Err(ExecutorError::Failed(error.to_string())),
    }
}
