//! Compaction on the offload runtime: units that may fail, and the CPU for whatever they fail at.

use std::sync::Arc;

use weft_offload::{Job, JobError, Output, Scheduler};
use weft_ops::merge::MergeTask;

use super::executor::{CompactionExecutor, ExecutorError, FilterDone, TaskDone};

/// Gives tasks and filters to a scheduler's units. How long keys and values are is left to the units to find
/// out.
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

    fn build_filter(&self, hashes: Arc<[u64]>, bits_per_key: u32, done: FilterDone) {
        self.scheduler
            .submit_with(Job::build_filter(hashes, bits_per_key), move |finished| {
                let failed = |error: JobError| ExecutorError::Failed(error.to_string());
                let built = finished.result.map(|output: Output| output.to_bytes());
                done(built.map_err(failed));
            });
    }
}
