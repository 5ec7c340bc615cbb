//! Never waits: a lock that is held by others aborts the attempt. Without waiting there is no
//! deadlock.
//!
//! Source: Barthels 5.2.2 (No-Wait).

use super::{LockPolicy, OnConflict, Workers};
use crate::lock_words::WorkerSet;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWait;

impl LockPolicy for NoWait {
    const NAME: &'static str = "two-phase-locking-no-wait";

    fn decide(&self, _: u32, _: WorkerSet, _: u32, _: &Workers) -> OnConflict {
        OnConflict::Abort
    }
}
