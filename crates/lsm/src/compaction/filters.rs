//! Filters of a compaction's tables, built outside of the thread that writes the tables.
//!
//! ```text
//! table full ─► hashes to the executor ─► (the next table is merged meanwhile) ─► valid filter? ─► stored
//!                                                                  │ no, or none arrives
//!                                                                  └─► the writer builds it; counted
//! ```
//!
//! A filter without one of its keys would lose reads unnoticed: so every hash is looked up before there is a
//! [`CheckedFilter`], wherever the filter was built. One table waits for its filter at a time.
//!
//! Source: X-DB, "Conclusion": filters as the next task for units. Decision 0022.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use bytes::Bytes;
use weft_ops::filter::CheckedFilter;

use super::wait::receive;
use crate::error::LsmError;
use crate::executor::{CompactionExecutor, ExecutorError, FilterExecutor};

/// Where filters are built.
pub(crate) struct FilterBuilder<'a> {
    executor: &'a dyn FilterExecutor,
    bits_per_key: u32,
    /// Filters that the writer had to build because the executor's was not usable.
    rebuilt: &'a AtomicU64,
    is_stopped: &'a dyn Fn() -> bool,
}

/// A filter that was requested.
pub(crate) struct PendingFilter {
    hashes: Arc<[u64]>,
    answer: Receiver<Result<CheckedFilter, ExecutorError>>,
}

impl<'a> FilterBuilder<'a> {
    /// `None` if there are no filters, or the executor builds none: then the tables' writer does.
    pub(crate) fn new(
        executor: &'a dyn CompactionExecutor,
        bits_per_key: u32,
        rebuilt: &'a AtomicU64,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> Option<Self> {
        let executor = executor.filters().filter(|_| bits_per_key > 0)?;
        Some(Self {
            executor,
            bits_per_key,
            rebuilt,
            is_stopped,
        })
    }

    /// Requests the filter of these hashes. May wait while the executor's queue is full.
    ///
    /// # Errors
    /// `Closed` if the engine is being closed.
    pub(crate) fn ask(&self, parts: &[Vec<u64>]) -> Result<PendingFilter, LsmError> {
        let hashes: Arc<[u64]> = parts.iter().flatten().copied().collect();
        let (sender, answer) = channel();
        let done = move |built| {
            // After a failed compaction nobody receives its filters.
            let _ = sender.send(built);
        };
        let own = Arc::clone(&hashes);
        self.executor
            .build_filter(own, self.bits_per_key, self.is_stopped, Box::new(done));
        if (self.is_stopped)() {
            return Err(LsmError::Closed);
        }
        Ok(PendingFilter { hashes, answer })
    }

    /// The stored filter, waiting for it; `None` if the writer is to build it.
    ///
    /// # Errors
    /// `Closed` if the engine is being closed before it is there.
    pub(crate) fn wait(&self, pending: &PendingFilter) -> Result<Option<Bytes>, LsmError> {
        let built = receive(&pending.answer, self.is_stopped)?;
        Ok(self.taken(pending, built.and_then(Result::ok)))
    }

    /// The same, without waiting.
    pub(crate) fn try_take(&self, pending: &PendingFilter) -> Option<Option<Bytes>> {
        match pending.answer.try_recv() {
            Ok(built) => Some(self.taken(pending, built.ok())),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(self.taken(pending, None)),
        }
    }

    fn taken(&self, pending: &PendingFilter, built: Option<CheckedFilter>) -> Option<Bytes> {
        let built = built.filter(|filter| filter.is_of(&pending.hashes, self.bits_per_key));
        if built.is_none() {
            self.rebuilt.fetch_add(1, Ordering::Relaxed);
        }
        built.map(|filter| filter.stored().clone())
    }
}

impl PendingFilter {
    /// The hashes that the filter was requested for.
    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes
    }
}
