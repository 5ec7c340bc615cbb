//! Cancelling a statement from another thread, and its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::snapshots::snapshot_too_old;
use parking_lot::Mutex;
use weft_types::interrupt::Interrupt;
use weft_types::{SqlError, SqlState};

#[derive(Debug, Default)]
struct CancelState {
    cancelled: AtomicBool,
    snapshot_lost: AtomicBool,
    deadline: Mutex<Option<Instant>>,
}

/// What the waits of a session check: a request to stop from another thread, and the statement's deadline.
/// Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<CancelState>);

impl CancelToken {
    /// Asks the statement that runs under this token to stop.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
    }

    /// Withdraws the request; the session does so before each statement.
    pub fn reset(&self) {
        self.0.cancelled.store(false, Ordering::Release);
        self.0.snapshot_lost.store(false, Ordering::Release);
    }

    /// Ends the statement that runs under this token because its snapshot keeps too much in memory.
    pub(crate) fn drop_snapshot(&self) {
        self.0.snapshot_lost.store(true, Ordering::Release);
    }

    /// Sets the deadline anew.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        *self.0.deadline.lock() = deadline;
    }

    /// The error with which the statement under this token must stop now (57014; 72000 if its snapshot was
    /// given up).
    pub fn error(&self) -> Option<SqlError> {
        self.0.check().err()
    }

    /// What computations poll to see whether they should stop.
    pub fn interrupt(&self) -> Arc<dyn Interrupt> {
        Arc::<CancelState>::clone(&self.0)
    }
}

impl Interrupt for CancelState {
    fn check(&self) -> Result<(), SqlError> {
        if self.snapshot_lost.load(Ordering::Acquire) {
            return Err(snapshot_too_old());
        }
        let message = if self.cancelled.load(Ordering::Acquire) {
            "canceling statement due to user request"
        } else if self
            .deadline
            .lock()
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            "canceling statement due to statement timeout"
        } else {
            return Ok(());
        };
        Err(SqlError::new(SqlState::QUERY_CANCELED, message))
    }
}
