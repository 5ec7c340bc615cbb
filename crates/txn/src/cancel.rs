//! Cancelling a statement from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that a session's waits and queries look at. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks whoever runs under this token to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Takes the wish back; the session does so before each statement.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// True once `cancel` was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
