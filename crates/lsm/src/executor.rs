//! The interface to what merges. The engine submits tasks and gets results by callback, wherever they run.
//!
//! The engine trusts no executor and validates no result itself: it only accepts results that were validated,
//! or computed by the golden model of this process, which the result types guarantee ([`CheckedMerge`],
//! [`CheckedFilter`]). An executor that gets a result from elsewhere validates it while the task can still be
//! redone.

use std::fmt;
use std::sync::Arc;

use weft_ops::filter::CheckedFilter;
use weft_ops::merge::{CheckedMerge, MergeError, MergeTask};

use crate::compaction::TASK_RUNS_MAX;

/// Why an executor has no result for a task.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The task itself cannot be done by anybody.
    Merge(MergeError),
    /// The executor failed and did not fall back to the CPU.
    Failed(String),
}

impl fmt::Display for ExecutorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merge(error) => error.fmt(f),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ExecutorError {}

/// Takes a task's result. Called once, from any thread, also before `submit` returns.
pub type TaskDone = Box<dyn FnOnce(Result<CheckedMerge, ExecutorError>) + Send>;

/// Takes a filter. Called at most once, from any thread, also before `build_filter` returns.
pub type FilterDone = Box<dyn FnOnce(Result<CheckedFilter, ExecutorError>) + Send>;

/// Merges tasks, each exactly as [`weft_ops::merge::merge`] would, byte for byte.
pub trait CompactionExecutor: Send + Sync {
    /// Takes a task. May wait while its queue is full, but polls `is_stopped` in the meantime and returns at
    /// once when that is true: the result is not needed any more.
    fn submit(&self, task: MergeTask, is_stopped: &dyn Fn() -> bool, done: TaskDone);

    /// The most runs of a task that it merges at its usual speed; the engine makes no task with more.
    fn runs_max(&self) -> usize {
        TASK_RUNS_MAX
    }

    /// What builds the filters of tables, if not the thread that writes them.
    fn filters(&self) -> Option<&dyn FilterExecutor> {
        None
    }

    /// Whether `submit` merges on the calling thread: tasks are then sized to fit its cache.
    fn is_inline(&self) -> bool {
        false
    }
}

/// Builds filters outside of the thread that writes tables.
pub trait FilterExecutor: Send + Sync {
    /// Builds the filter of a table whose keys have these hashes, exactly as
    /// [`weft_ops::filter::build_filter`] would. The table's writer builds it if none arrives, or one for
    /// other hashes. May wait while the queue is full, as [`CompactionExecutor::submit`] may.
    fn build_filter(
        &self,
        hashes: Arc<[u64]>,
        bits_per_key: u32,
        is_stopped: &dyn Fn() -> bool,
        done: FilterDone,
    );
}

/// Merges on the thread that submits.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineExecutor;

impl CompactionExecutor for InlineExecutor {
    fn submit(&self, task: MergeTask, _: &dyn Fn() -> bool, done: TaskDone) {
        done(CheckedMerge::merge(&task).map_err(ExecutorError::Merge));
    }

    fn is_inline(&self) -> bool {
        true
    }
}
