//! An older transaction may wait for a younger one; a younger one dies rather than wait for an older one
//! (Rosenkrantz, Stearns and Lewis 1978). Waiting is only from old to young, so there is no cycle.
//!
//! The holder may have changed between polling the lock and reading the holder's age; the decision is made
//! again at every poll, and in a cycle nothing changes any more. A transaction keeps its age when it is
//! retried, so it eventually becomes the oldest.
//!
//! Source: Barthels 5.2.2 (Wait-Die).

use super::{LockPolicy, OnConflict, Workers};
use crate::lock_words::WorkerSet;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitDie;

impl LockPolicy for WaitDie {
    const NAME: &'static str = "two-phase-locking-wait-die";

    fn decide(&self, worker: u32, holders: WorkerSet, _: u32, workers: &Workers) -> OnConflict {
        let age = workers.age(worker);
        let older = |other: u32| holders >> other & 1 == 1 && workers.age(other) < age;
        if (0..WorkerSet::BITS).any(older) {
            OnConflict::Abort
        } else {
            OnConflict::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_older_waits() {
        let workers = Workers::new();
        workers.set_age(0, 10);
        workers.set_age(1, 20);
        workers.set_age(2, 5);
        assert_eq!(WaitDie.decide(0, 0b010, 1, &workers), OnConflict::Wait);
        assert_eq!(WaitDie.decide(1, 0b001, 1, &workers), OnConflict::Abort);
        assert_eq!(WaitDie.decide(0, 0b110, 1, &workers), OnConflict::Abort);
    }
}
