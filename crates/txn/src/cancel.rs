//! Cancelling a statement from another thread, and its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use weft_types::{SqlError, SqlState};

#[derive(Debug, Default)]
struct Wishes {
    cancelled: AtomicBool,
    deadline: Mutex<Option<Instant>>,
}

/// What a session's waits look at: somebody's wish to stop, and the statement's deadline. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<Wishes>);

impl CancelToken {
    /// Asks whoever runs under this token to stop.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
    }

    /// Takes the wish back and sets the deadline anew; the session does so before each statement.
    pub fn reset(&self, deadline: Option<Instant>) {
        self.0.cancelled.store(false, Ordering::Release);
        *self.0.deadline.lock() = deadline;
    }

    /// True once `cancel` was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// The error with which whoever runs under this token must stop now (57014).
    pub fn error(&self) -> Option<SqlError> {
        let message = if self.is_cancelled() {
            "canceling statement due to user request"
        } else if self
            .0
            .deadline
            .lock()
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            "canceling statement due to statement timeout"
        } else {
            return None;
        };
        Some(SqlError::new(SqlState::QUERY_CANCELED, message))
    }
}
