//! Filters of a compaction's tables, built by whoever merges.
//!
//! ```text
//! table full ─► hashes to the executor ─► (the next table is merged meanwhile) ─► looked through ─► stored
//!                                                                  │ it hides a key, or does not come
//!                                                                  └─► built here, and counted
//! ```
//!
//! A filter that misses a key loses reads and nobody would notice: so every hash is looked for, whoever built
//! it and whatever he checked. One table waits for its filter at a time.
//!
//! Source: X-DB, "Conclusion": filters as the next thing for units. Decision 0022.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use bytes::Bytes;
use weft_ops::filter::{build_filter, can_be_filter_of};

use super::executor::{CompactionExecutor, ExecutorError};

/// Where filters are built.
pub(crate) struct FilterBuilder<'a> {
    executor: &'a dyn CompactionExecutor,
    bits_per_key: u32,
    /// Filters that were built here because what the executor gave could not be taken.
    rebuilt: &'a AtomicU64,
}

/// A filter that was asked for.
pub(crate) struct PendingFilter {
    hashes: Arc<[u64]>,
    answer: Receiver<Result<Bytes, ExecutorError>>,
}

impl<'a> FilterBuilder<'a> {
    /// `None` if there are no filters, or the executor is this thread: then the table's writer builds them.
    pub(crate) fn new(
        executor: &'a dyn CompactionExecutor,
        bits_per_key: u32,
        rebuilt: &'a AtomicU64,
    ) -> Option<Self> {
        (bits_per_key > 0 && !executor.is_golden()).then_some(Self {
            executor,
            bits_per_key,
            rebuilt,
        })
    }

    /// Asks for the filter of these hashes. May wait while the executor's queue is full.
    pub(crate) fn ask(&self, parts: &[Vec<u64>]) -> PendingFilter {
        let hashes: Arc<[u64]> = parts.iter().flatten().copied().collect();
        let (tell, answer) = channel();
        let done = move |built| {
            // Nobody hears of the filters of a compaction that has failed.
            let _ = tell.send(built);
        };
        self.executor
            .build_filter(Arc::clone(&hashes), self.bits_per_key, Box::new(done));
        PendingFilter { hashes, answer }
    }

    /// The filter, waiting for it.
    pub(crate) fn wait(&self, pending: &PendingFilter) -> Bytes {
        let built = pending.answer.recv();
        self.taken(pending, built.ok().and_then(Result::ok))
    }

    /// The filter if it is there, or will never be.
    pub(crate) fn try_take(&self, pending: &PendingFilter) -> Option<Bytes> {
        match pending.answer.try_recv() {
            Ok(built) => Some(self.taken(pending, built.ok())),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(self.taken(pending, None)),
        }
    }

    fn taken(&self, pending: &PendingFilter, built: Option<Bytes>) -> Bytes {
        let sound = |stored: &Bytes| can_be_filter_of(stored, &pending.hashes, self.bits_per_key);
        built.filter(sound).unwrap_or_else(|| {
            self.rebuilt.fetch_add(1, Ordering::Relaxed);
            build_filter(&pending.hashes, self.bits_per_key).into()
        })
    }
}
