//! What a session contributes to its queries: clock, names, parameters, cancellation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// A session's part in the meaning of a query. Cheap to clone where the maps are shared.
#[derive(Debug, Clone)]
pub struct QuerySettings {
    /// `now()`: start of the transaction, microseconds since 1970, UTC.
    pub transaction_micros: i64,
    /// Start of the statement, likewise.
    pub statement_micros: i64,
    /// `current_user` and `session_user`.
    pub user: Arc<str>,
    /// `current_database()`.
    pub database: Arc<str>,
    /// `pg_backend_pid()`.
    pub backend_pid: i32,
    /// Run-time parameters as `current_setting` and `pg_settings` show them, by lower-case name.
    pub parameters: Arc<BTreeMap<String, String>>,
    /// The statement fails with 57014 after this long.
    pub statement_timeout: Option<Duration>,
    /// Raised to stop the query.
    pub cancel: CancelSignal,
}

impl Default for QuerySettings {
    fn default() -> Self {
        QuerySettings {
            transaction_micros: 0,
            statement_micros: 0,
            user: Arc::from("postgres"),
            database: Arc::from("postgres"),
            backend_pid: 0,
            parameters: Arc::new(BTreeMap::new()),
            statement_timeout: None,
            cancel: CancelSignal::default(),
        }
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
