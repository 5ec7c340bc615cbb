//! The published batch lock manager: decides which programs may be in the same batch. The product plans waves
//! instead ([`weft_txn::waves`]).
//!
//! Hobbes 3.3.3, Algorithm 1, admits a program if none of its keys conflicts with an already admitted
//! program, and clears both bitmaps when the batch is full. Here a slot contains a stamp (the batch that last
//! wrote it) and the set of modes admitted in that batch, so a new batch number alone invalidates every old
//! slot: releasing all costs nothing. The modes are those of the lock table (Barthels 2.3.5), so that one
//! program may hold a table in IX while another holds one of its rows in X, and a reader of a range conflicts
//! with a writer into it.
//!
//! ```text
//! slot (u64)   | 63 ............ 8 | 7 ..... 0          |
//!              | stamp: batch      | set of LockModes   |
//! ```
//!
//! Invariants: 1. `admit` stamps either every request of a program or none. 2. A collision of two resources
//! on one slot can only refuse an admissible program, never admit a conflicting one. 3. The outcome depends
//! only on the sequence of calls.

use weft_lock::LockRequest;
use weft_txn::planning::LockSlots;

const MODE_BITS: u32 = 8;

/// The stamps of the batch being formed.
#[derive(Debug)]
pub struct BatchLocks {
    slots: Box<[u64]>,
    slot_of: LockSlots,
    stamp: u64,
}

impl BatchLocks {
    /// A table of `slot_count` slots for rows, rounded up to a power of two, at least 64, and as many for
    /// coarser resources. 8 bytes per slot.
    pub fn new(slot_count: usize) -> BatchLocks {
        let slot_of = LockSlots::new(slot_count);
        BatchLocks {
            slots: vec![0; slot_of.count()].into_boxed_slice(),
            slot_of,
            stamp: 1,
        }
    }

    /// Starts a new batch, which releases everything admitted before.
    pub fn begin(&mut self) {
        self.stamp += 1;
    }

    /// Admits all requests of a program, or none; true if admitted. Cost: two passes over the requests.
    pub fn admit(&mut self, requests: &[LockRequest]) -> bool {
        for request in requests {
            let word = self.slots[self.slot_of.slot(request.resource)];
            if word >> MODE_BITS == self.stamp && (word as u8) & request.mode.conflicts() != 0 {
                return false;
            }
        }
        for request in requests {
            let slot = self.slot_of.slot(request.resource);
            let word = self.slots[slot];
            let modes = if word >> MODE_BITS == self.stamp {
                word as u8
            } else {
                0
            };
            let modes = modes | request.mode.bit();
            self.slots[slot] = self.stamp << MODE_BITS | u64::from(modes);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_base::TableId;
    use weft_lock::{LockMode, ResourceId};

    fn row(n: u64, mode: LockMode) -> LockRequest {
        LockRequest {
            resource: ResourceId::row(TableId(1), &n.to_be_bytes()),
            mode,
        }
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let mut locks = BatchLocks::new(1 << 16);
        assert!(locks.admit(&[row(1, LockMode::S)]));
        assert!(locks.admit(&[row(1, LockMode::S)]));
        assert!(!locks.admit(&[row(1, LockMode::X)]));
        locks.begin();
        assert!(locks.admit(&[row(1, LockMode::X)]));
        assert!(!locks.admit(&[row(1, LockMode::S)]));
    }

    #[test]
    fn a_refused_program_leaves_no_stamp() {
        let mut locks = BatchLocks::new(1 << 16);
        assert!(locks.admit(&[row(1, LockMode::X)]));
        assert!(!locks.admit(&[row(2, LockMode::X), row(1, LockMode::X)]));
        assert!(locks.admit(&[row(2, LockMode::X)]));
    }

    #[test]
    fn a_program_never_conflicts_with_itself() {
        let mut locks = BatchLocks::new(1 << 16);
        assert!(locks.admit(&[row(1, LockMode::S), row(1, LockMode::X)]));
    }

    proptest! {
        /// Compares with sets, with a table so large that these keys do not collide: equals Algorithm 1.
        #[test]
        fn admits_as_algorithm_1(programs in prop::collection::vec(
            prop::collection::vec((0u64..20, any::<bool>()), 1..4), 1..60)) {
            let mut locks = BatchLocks::new(1 << 20);
            let mut readers = std::collections::HashSet::new();
            let mut writers = std::collections::HashSet::new();
            for program in programs {
                let requests: Vec<LockRequest> = program.iter()
                    .map(|(key, write)| row(*key, if *write { LockMode::X } else { LockMode::S })).collect();
                let free = program.iter().all(|(key, write)|
                    !(writers.contains(key) || (*write && readers.contains(key))));
                prop_assert_eq!(locks.admit(&requests), free);
                if free {
                    for (key, write) in program {
                        if write { writers.insert(key); } else { readers.insert(key); }
                    }
                }
            }
        }
    }
}
