//! What a session says about how its queries run: its zone, its time limit, how to stop them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::Notify;
use weft_expression::Session;
use weft_types::TimeZone;

/// A session's part in one execution. Cheap to clone.
#[derive(Clone)]
pub struct QuerySettings {
    /// What functions ask the session for.
    pub session: Arc<dyn Session>,
    /// The session's time zone.
    pub zone: TimeZone,
    /// The statement fails with 57014 from then on.
    pub deadline: Option<Instant>,
    /// Raised to stop the query.
    pub cancel: CancelSignal,
}

impl fmt::Debug for QuerySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuerySettings")
            .field("deadline", &self.deadline)
            .field("cancel", &self.cancel)
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
    /// Asks the query to stop; it ends with 57014 within milliseconds.
    pub fn cancel(&self) {
        self.shared.requests.fetch_add(1, Ordering::SeqCst);
        self.shared.raised.store(true, Ordering::SeqCst);
        self.shared.notify.notify_waiters();
    }

    /// Forgets an earlier request, before the next statement.
    pub fn reset(&self) {
        self.shared.raised.store(false, Ordering::SeqCst);
    }

    /// Whether somebody asked.
    pub fn is_canceled(&self) -> bool {
        self.shared.raised.load(Ordering::SeqCst)
    }

    /// How often somebody has asked. Who looks only now and then sees a request that [`CancelSignal::reset`]
    /// has forgotten meanwhile.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Resolves when somebody asks.
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
