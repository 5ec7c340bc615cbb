//! Holds replies back until what they report is durable (DESIGN.md, invariant 3).
//!
//! The session raises the gate to each batch that a result depends on; the thread that sends the reply waits
//! at the gate just before sending, once per write to the client and not once per statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_base::BatchId;
use weft_txn::Engine;
use weft_types::SqlError;

/// A session's gate. Shared between the session and the sender of its replies.
#[derive(Debug)]
pub struct DurabilityGate {
    engine: Engine,
    observed: AtomicU64,
    waits: AtomicBool,
}

impl DurabilityGate {
    pub(crate) fn new(engine: Engine, waits: bool) -> Arc<DurabilityGate> {
        Arc::new(DurabilityGate {
            engine,
            observed: AtomicU64::new(0),
            waits: AtomicBool::new(waits),
        })
    }

    /// A result that depends on `batch` is about to be pushed. Does nothing for a session that chose not to
    /// wait.
    pub(crate) fn raise(&self, batch: BatchId) {
        if self.waits.load(Ordering::Acquire) {
            self.observed.fetch_max(batch.0, Ordering::AcqRel);
        }
    }

    /// Sets whether results pushed from now on wait (`synchronous_commit`).
    pub(crate) fn set_waits(&self, waits: bool) {
        self.waits.store(waits, Ordering::Release);
    }

    /// Whether every batch that the gate was raised to is durable already.
    pub fn is_open(&self) -> bool {
        BatchId(self.observed.load(Ordering::Acquire)) <= self.engine.durable()
    }

    /// Returns when every batch that the gate was raised to is durable. An error means that it never will be:
    /// the reply must not be sent.
    pub fn wait(&self) -> Result<(), SqlError> {
        self.engine
            .wait_durable(BatchId(self.observed.load(Ordering::Acquire)))
    }
}
