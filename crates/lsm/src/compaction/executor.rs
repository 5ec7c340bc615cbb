//! Who merges. The engine hands over tasks and is called back; it does not care where they run.

use std::fmt;

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

/// Merges tasks, each exactly as [`weft_ops::merge::merge`] would, byte for byte.
pub trait CompactionExecutor: Send + Sync {
    /// Takes a task. May wait while its queue is full.
    fn submit(&self, task: MergeTask, done: TaskDone);

    /// Whether results are those of [`weft_ops::merge::merge`] itself, computed by the thread that submits
    /// and carried nowhere: their blocks' checksums need no second look, and tasks are cut to fit its cache.
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
