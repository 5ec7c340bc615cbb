//! Locks are taken in one order by everybody, so no circle of waiting can close: whoever holds the highest
//! slot among all that wait, waits for nobody who waits.
//!
//! Source: Hobbes 3.2.2 ("a deterministic ordering").

use super::{LockPolicy, OnConflict, Workers};
use crate::lock_words::WorkerSet;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ordered;

impl LockPolicy for Ordered {
    const NAME: &'static str = "two-phase-locking";
    const SORTS: bool = true;

    fn decide(&self, _: u32, _: WorkerSet, _: u32, _: &Workers) -> OnConflict {
        OnConflict::Wait
    }
}
