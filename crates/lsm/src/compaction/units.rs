//! Compaction on the offload runtime: units that may fail, and the CPU as a fallback.

use std::sync::Arc;

use weft_offload::kinds::{BuildFilter, Merge, WAYS};
use weft_offload::{Job, JobError, Scheduler};
use weft_ops::merge::{MergeError, MergeTask};

use crate::executor::{CompactionExecutor, ExecutorError, FilterDone, FilterExecutor, TaskDone};

/// Submits tasks and filters to a scheduler's units. The lengths of keys and values are left to the units to
/// find out.
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
    fn submit(&self, task: MergeTask, is_stopped: &dyn Fn() -> bool, done: TaskDone) {
        self.scheduler
            .submit_with(Job::merge(task, 0, 0), is_stopped, move |finished| {
                done(match finished.result {
                    Ok(output) => output.take::<Merge>().ok_or_else(not_validated),
                    Err(error) => Err(match &error {
                        JobError::Refused(why) => why.get::<MergeError>().cloned().map(ExecutorError::Merge),
                        _ => None,
                    }
                    .unwrap_or_else(|| ExecutorError::Failed(error.to_string()))),
                });
            });
    }

    fn runs_max(&self) -> usize {
        let ways = self.scheduler.limit_of::<Merge>(WAYS);
        ways.and_then(|ways| usize::try_from(ways).ok())
            .unwrap_or(usize::MAX)
    }

    fn filters(&self) -> Option<&dyn FilterExecutor> {
        Some(self)
    }
}

impl FilterExecutor for UnitExecutor {
    fn build_filter(
        &self,
        hashes: Arc<[u64]>,
        bits_per_key: u32,
        is_stopped: &dyn Fn() -> bool,
        done: FilterDone,
    ) {
        let job = Job::build_filter(hashes, bits_per_key);
        self.scheduler.submit_with(job, is_stopped, move |finished| {
            done(match finished.result {
                Ok(output) => output.take::<BuildFilter>().ok_or_else(not_validated),
                Err(error) => Err(ExecutorError::Failed(error.to_string())),
            });
        });
    }
}

/// For a scheduler that was made with another validator.
fn not_validated() -> ExecutorError {
    ExecutorError::Failed("the scheduler does not look through results".to_owned())
}
