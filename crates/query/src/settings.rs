//! A session's settings for its queries: its time zone, its deadline, its cancel signal.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::{Notify, Semaphore};
use weft_expression::Session;
use weft_types::TimeZone;

/// The session's settings for one execution. Cheap to clone.
#[derive(Clone)]
pub struct QuerySettings {
    /// Answers functions that depend on the session.
    pub session: Arc<dyn Session>,
    /// The session's time zone.
    pub zone: TimeZone,
    /// After this time the statement fails with 57014.
    pub deadline: Option<Instant>,
    /// Raised to stop the query.
    pub cancel: CancelSignal,
    /// The session's turn to plan a large query.
    pub planning: PlanningTurn,
    /// Which threads run it.
    pub priority: QueryPriority,
    /// Which algorithm joins by one integer-like key.
    pub join: JoinChoice,
}

impl QuerySettings {
    /// The same for a statement that locks rows as it reads them: others may wait for it.
    #[must_use]
    pub fn locking(self) -> QuerySettings {
        let priority = match self.priority {
            QueryPriority::Auto => QueryPriority::Normal,
            asked => asked,
        };
        QuerySettings { priority, ..self }
    }
}

/// Whether a query gives way to transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueryPriority {
    /// If it is expected to read many rows.
    #[default]
    Auto,
    /// Never: somebody may wait for locks that its transaction holds.
    Normal,
    /// Always.
    Low,
}

/// Which algorithm joins by one integer-like key. Other joins are not concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum JoinChoice {
    /// By the expected rows: see [`crate::join`].
    #[default]
    Auto,
    /// DataFusion's hash join.
    Hash,
    /// One hash table for all threads.
    Unpartitioned,
    /// The radix join.
    Radix,
    /// The sort-merge join.
    SortMerge,
}

impl JoinChoice {
    /// All.
    pub const ALL: [JoinChoice; 5] = [
        JoinChoice::Auto,
        JoinChoice::Hash,
        JoinChoice::Unpartitioned,
        JoinChoice::Radix,
        JoinChoice::SortMerge,
    ];

    /// Its name in SQL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            JoinChoice::Auto => "auto",
            JoinChoice::Hash => "hash",
            JoinChoice::Unpartitioned => "unpartitioned",
            JoinChoice::Radix => "radix",
            JoinChoice::SortMerge => "sort_merge",
        }
    }
}

/// A session plans one large query at a time, counting one that was stopped and whose plan nobody waits for
/// any more. The same for all executions of a session.
#[derive(Debug, Clone)]
pub struct PlanningTurn(pub(crate) Arc<Semaphore>);

impl Default for PlanningTurn {
    fn default() -> Self {
        PlanningTurn(Arc::new(Semaphore::new(1)))
    }
}

impl fmt::Debug for QuerySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuerySettings")
            .field("deadline", &self.deadline)
            .field("cancel", &self.cancel)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// Stops a running query from another thread.
#[derive(Debug, Clone, Default)]
pub struct CancelSignal {
    shared: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    raised: AtomicBool,
    requests: AtomicU64,
    notify: Notify,
}

impl CancelSignal {
    /// Requests the query to stop; it ends with 57014 within milliseconds.
    pub fn cancel(&self) {
        self.shared.requests.fetch_add(1, Ordering::SeqCst);
        self.shared.raised.store(true, Ordering::SeqCst);
        self.shared.notify.notify_waiters();
    }

    /// Forgets an earlier request, before the next statement.
    pub fn reset(&self) {
        self.shared.raised.store(false, Ordering::SeqCst);
    }

    /// Whether a cancellation was requested.
    pub fn is_canceled(&self) -> bool {
        self.shared.raised.load(Ordering::SeqCst)
    }

    /// The number of requests so far. A caller that polls rarely can still detect a request that
    /// [`CancelSignal::reset`] has cleared in between.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Resolves when a cancellation is requested.
    pub async fn canceled(&self) {
        loop {
            let notified = self.shared.notify.notified();
            if self.is_canceled() {
                return;
            }
            notified.await;
        }
    }
}
