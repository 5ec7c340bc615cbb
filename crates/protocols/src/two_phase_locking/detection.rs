//! Waits unless that closes a cycle; the youngest transaction of the cycle aborts.
//!
//! Each waiting worker publishes the workers that it waits for. A waiting worker traverses these sets: if the
//! traversal returns to it, the workers that are both reachable from it and reach it are in cycles with it,
//! and it aborts if it is the youngest of them. Sets may be out of date, so a false cycle may be detected
//! (which costs only an attempt); in a true one the sets no longer change, so its youngest member detects it,
//! at the latest at its next poll.
//!
//! Source: Barthels 5.2.2 (DL-D); crate `lock`, `policy/deadlock_detection.rs`.

use super::{LockPolicy, OnConflict, Workers};
use crate::lock_words::WorkerSet;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Detection;

/// Polls between two searches for a cycle.
const POLLS_PER_SEARCH: u32 = 16;

impl LockPolicy for Detection {
    const NAME: &'static str = "two-phase-locking-detection";
    const PUBLISHES_WAITS: bool = true;

    fn decide(&self, worker: u32, _: WorkerSet, polls: u32, workers: &Workers) -> OnConflict {
        if polls.is_multiple_of(POLLS_PER_SEARCH) && is_youngest_in_cycle(worker, workers) {
            OnConflict::Abort
        } else {
            OnConflict::Wait
        }
    }
}

/// All workers that are waited for, directly or indirectly.
fn reached(from: u32, workers: &Workers) -> WorkerSet {
    let mut found: WorkerSet = 0;
    let mut next = workers.waits_for(from);
    while next & !found != 0 {
        let fresh = next & !found;
        found |= fresh;
        next = (0..WorkerSet::BITS)
            .filter(|other| fresh >> other & 1 == 1)
            .fold(next, |sum, other| sum | workers.waits_for(other));
    }
    found
}

fn is_youngest_in_cycle(worker: u32, workers: &Workers) -> bool {
    let ahead = reached(worker, workers);
    if ahead >> worker & 1 == 0 {
        return false;
    }
    let age = workers.age(worker);
    (0..WorkerSet::BITS)
        .filter(|other| *other != worker && ahead >> other & 1 == 1)
        .filter(|other| reached(*other, workers) >> worker & 1 == 1)
        .all(|other| workers.age(other) < age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_youngest_in_a_cycle_aborts() {
        let workers = Workers::new();
        for worker in 0..4 {
            workers.set_age(worker, u64::from(worker));
        }
        // 0 -> 1 -> 2 -> 0, and 3 -> 0, which is in no cycle.
        workers.set_waits_for(0, 0b0010);
        workers.set_waits_for(1, 0b0100);
        workers.set_waits_for(3, 0b0001);
        assert!((0..4).all(|worker| !is_youngest_in_cycle(worker, &workers)));
        workers.set_waits_for(2, 0b0001);
        let found: Vec<u32> = (0..4)
            .filter(|worker| is_youngest_in_cycle(*worker, &workers))
            .collect();
        assert_eq!(found, [2]);
    }
}
