//! Compaction on the offload runtime: units that may fail, and the CPU for whatever they fail at.

use std::sync::Arc;

use weft_offload::{Job, JobError, Scheduler};
use weft_ops::merge::MergeTask;

use super::executor::{CompactionExecutor, ExecutorError, TaskDone};

/// Gives tasks to a scheduler's units. How long keys and values are is left to the units to find out.
pub struct UnitExecutor {
    scheduler: Arc<Scheduler>,
}

impl UnitExecutor {
    /// An executor over a scheduler that others may use, too.
    #[must_use]
    pub fn new(scheduler: Arc<Scheduler>) -> UnitExecutor {
        UnitExecutor { scheduler }
    }
}

impl CompactionExecutor for UnitExecutor {
    fn submit(&self, task: MergeTask, done: TaskDone) {
        let failed = |why: String| ExecutorError::Failed(why);
        self.scheduler
            .submit_with(Job::merge(task, 0, 0), move |finished| {
                done(match finished.result {
                    Ok(output) => output.into_merge().map_err(|error| failed(error.to_string())),
                    Err(JobError::Merge(error)) => Err(ExecutorError::Merge(error)),
                    Err(error) => Err(failed(error.to_string())),
                });
            });
    }
}
