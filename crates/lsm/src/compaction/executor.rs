//! Who merges. The engine hands over tasks and is called back; it does not care where they run.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weft_ops::filter::build_filter;
use weft_ops::merge::{MergeError, MergeOutput, MergeTask, merge};

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
pub type TaskDone = Box<dyn FnOnce(Result<MergeOutput, ExecutorError>) + Send>;

/// Takes a stored filter. Called at most once, from any thread, also before `build_filter` returns.
pub type FilterDone = Box<dyn FnOnce(Result<Bytes, ExecutorError>) + Send>;

/// Merges tasks, each exactly as [`weft_ops::merge::merge`] would, byte for byte.
pub trait CompactionExecutor: Send + Sync {
    /// Takes a task. May wait while its queue is full.
    fn submit(&self, task: MergeTask, done: TaskDone);

    /// Builds the filter of a table whose keys have these hashes, exactly as [`build_filter`] would; at once,
    /// unless the executor has somebody for it. The engine looks through what it gets, and builds the filter
    /// itself if it cannot take it. May wait while its queue is full.
    fn build_filter(&self, hashes: Arc<[u64]>, bits_per_key: u32, done: FilterDone) {
        done(Ok(build_filter(&hashes, bits_per_key).into()));
    }

    /// Whether results are those of [`weft_ops::merge::merge`] itself, computed by the thread that submits
    /// and carried nowhere: their blocks' checksums need no second look, tasks are cut to fit its cache, and
    /// filters are built without it.
    fn is_golden(&self) -> bool {
        false
    }
}

/// Merges on the thread that submits.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineExecutor;

impl CompactionExecutor for InlineExecutor {
    fn submit(&self, task: MergeTask, done: TaskDone) {
        done(merge(&task).map_err(ExecutorError::Merge));
    }

    fn is_golden(&self) -> bool {
        true
    }
}
