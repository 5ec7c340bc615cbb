//! All transactions acquire locks in the same order, so there is no cycle of waiting: the holder of the
//! highest slot among all waiting transactions does not wait for any of them.
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
