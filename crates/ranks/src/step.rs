//! The steps of a commit of several ranks, for tests that let a rank die at each of them.

use std::fmt;
use std::sync::Arc;

/// A moment of a commit of several ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Home: no rank has been asked for its vote.
    Voting,
    /// Home: all ranks have voted for the commit.
    Voted,
    /// Home: the commit is in the log, perhaps not on disk.
    Decided,
    /// Home: the commit is on disk.
    Durable,
    /// Home: all ranks have been told.
    Told,
    /// Another rank: it is about to vote.
    Preparing,
    /// Another rank: its vote is on disk and not sent.
    Prepared,
    /// Another rank: it was told of the commit.
    Committing,
    /// Another rank: its commit is on disk and not acknowledged.
    Committed,
}

/// Called by each rank, with its number, at each step.
#[derive(Clone, Default)]
pub struct AtStep(pub Option<Arc<dyn Fn(u32, Step) + Send + Sync>>);

impl AtStep {
    pub(crate) fn reached(&self, rank: u32, step: Step) {
        if let Some(hook) = &self.0 {
            hook(rank, step);
        }
    }
}

impl fmt::Debug for AtStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "AtStep(set)" } else { "AtStep" })
    }
}
