//! Every transaction waits, but only for a bounded time: a deadlock is resolved without being detected.
//!
//! The document's bound is 100 ms, for locks over a network; here it is a number of polls of the lock, most
//! of which yield to another thread in between, because reading a clock would cost more than a poll.
//!
//! Source: Barthels 5.2.2 (DL-BW).

use super::{LockPolicy, OnConflict, Workers};
use crate::lock_words::WorkerSet;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct BoundedWait {
    /// Number of polls of a lock before a transaction aborts.
    pub polls_max: u32,
}

impl Default for BoundedWait {
    fn default() -> BoundedWait {
        BoundedWait { polls_max: 512 }
    }
}

impl LockPolicy for BoundedWait {
    const NAME: &'static str = "two-phase-locking-bounded-wait";

    fn decide(&self, _: u32, _: WorkerSet, polls: u32, _: &Workers) -> OnConflict {
        if polls > self.polls_max {
            OnConflict::Abort
        } else {
            OnConflict::Wait
        }
    }
}
