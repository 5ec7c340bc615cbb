//! Who merges. The engine hands over tasks and is called back; it does not care where they run.
//!
//! The engine trusts no executor, and looks at no result itself: it takes only what was looked through, or
//! computed by the golden model of this process, and that is the results' type ([`CheckedMerge`],
//! [`CheckedFilter`]). An executor that is given a result by somebody else has it looked through where it can
//! still have the task done again.

use std::fmt;
use std::sync::Arc;

use weft_ops::filter::CheckedFilter;
use weft_ops::merge::{CheckedMerge, MergeError, MergeTask};

/// Why an executor has no result for a task.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The task itself cannot be done, by nobody.
    Merge(MergeError),
    /// The executor failed, and did not do it on the CPU instead.
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
    /// Takes a task. May wait while its queue is full, but asks `is_given_up` every now and then meanwhile,
    /// and once that says so returns at once: nobody wants the result any more.
    fn submit(&self, task: MergeTask, is_given_up: &dyn Fn() -> bool, done: TaskDone);

    /// Who builds the filters of tables, if not the thread that writes them.
    fn filters(&self) -> Option<&dyn FilterExecutor> {
        None
    }

    /// Whether the thread that submits merges before `submit` returns: tasks are then cut to fit its cache.
    fn is_inline(&self) -> bool {
        false
    }
}

/// Builds filters beside whoever writes tables.
pub trait FilterExecutor: Send + Sync {
    /// Builds the filter of a table whose keys have these hashes, exactly as
    /// [`weft_ops::filter::build_filter`] would. The table's writer builds it if none comes, or one of other
    /// hashes. May wait while the queue is full, as [`CompactionExecutor::submit`] may.
    fn build_filter(
        &self,
        hashes: Arc<[u64]>,
        bits_per_key: u32,
        is_given_up: &dyn Fn() -> bool,
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
