//! Everybody waits, but not for ever: a deadlock is resolved without being recognised.
//!
//! The document's bound is 100 ms, for locks behind a network; here it is a number of looks at the lock,
//! most of which let another thread run in between, since a clock would cost more than a look.
//!
//! Source: Barthels 5.2.2 (DL-BW).

use super::{LockPolicy, OnConflict, Workers};
use crate::lock_words::WorkerSet;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct BoundedWait {
    /// Looks at a lock before a transaction gives up.
    pub looks_max: u32,
}

impl Default for BoundedWait {
    fn default() -> BoundedWait {
        BoundedWait { looks_max: 512 }
    }
}

impl LockPolicy for BoundedWait {
    const NAME: &'static str = "two-phase-locking-bounded-wait";

    fn decide(&self, _: u32, _: WorkerSet, looks: u32, _: &Workers) -> OnConflict {
        if looks > self.looks_max {
            OnConflict::GiveUp
        } else {
            OnConflict::Wait
        }
    }
}
