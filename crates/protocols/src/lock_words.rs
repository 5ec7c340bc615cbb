//! A table of one-word locks that record their holders.
//!
//! Every mode has a bit for each worker, and a worker runs one transaction at a time, so the word identifies
//! the holders of each mode without a list. Acquiring is one compare-and-swap, releasing one AND; a worker
//! never conflicts with itself, and releasing twice is harmless.
//!
//! ```text
//! word (u64)   | 63 .. 48 | 47 .. 32 | 31 .. 16 | 15 .. 0 |
//!              | X        | S        | IX       | IS      |   one bit per worker; SIX is S and IX
//! ```
//!
//! Invariant: two workers never hold conflicting modes (Barthels 2.3.5, table 2.1) on one word. A word
//! represents every resource that hashes to it: a collision can only cause unnecessary waiting.
//!
//! Source: Hobbes 3.2.2 (a shared table of read-write locks), with the modes of Barthels 5.2.2.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_lock::LockMode;

/// A set of workers as a bit mask.
pub type WorkerSet = u16;

const IS: u32 = 0;
const IX: u32 = 16;
const S: u32 = 32;
const X: u32 = 48;

/// The fields of a mode, one bit each, for worker 0.
const fn fields(mode: LockMode) -> u64 {
    match mode {
        LockMode::NL => 0,
        LockMode::IS => 1 << IS,
        LockMode::IX => 1 << IX,
        LockMode::S => 1 << S,
        LockMode::SIX => 1 << S | 1 << IX,
        LockMode::X => 1 << X,
    }
}

/// The fields of the modes that conflict with a mode.
const fn conflicting(mode: LockMode) -> u64 {
    match mode {
        LockMode::NL => 0,
        LockMode::IS => 1 << X,
        LockMode::IX => 1 << S | 1 << X,
        LockMode::S => 1 << IX | 1 << X,
        LockMode::SIX => 1 << IX | 1 << S | 1 << X,
        LockMode::X => 1 << IS | 1 << IX | 1 << S | 1 << X,
    }
}

const EVERYBODY: u64 = WorkerSet::MAX as u64;

/// See the module. 8 bytes per lock.
#[derive(Debug)]
pub struct LockWords {
    words: Box<[AtomicU64]>,
}

impl LockWords {
    /// A table of `slot_mask + 1` free locks.
    pub fn new(slot_mask: u32) -> LockWords {
        LockWords {
            words: (0..=slot_mask).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn word(&self, slot: u32) -> &AtomicU64 {
        &self.words[slot as usize & (self.words.len() - 1)]
    }

    /// Acquires a lock for a worker, in addition to what it holds there. Refused: returns the conflicting
    /// holders.
    #[inline]
    pub fn try_lock(&self, slot: u32, mode: LockMode, worker: u32) -> Result<(), WorkerSet> {
        let word = self.word(slot);
        let mine = fields(mode) << worker;
        let others = conflicting(mode) * (EVERYBODY & !(1 << worker));
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let in_the_way = now & others;
            if in_the_way != 0 {
                return Err(holders_of(in_the_way));
            }
            match word.compare_exchange_weak(now, now | mine, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => now = found,
            }
        }
    }

    /// Releases everything that a worker holds on a slot.
    #[inline]
    pub fn unlock(&self, slot: u32, worker: u32) {
        let word = self.word(slot);
        let mine = fields_of_all(worker);
        let now = word.load(Ordering::Relaxed);
        if now == 1 << X << worker {
            // Only its holder can change the word of an exclusive lock.
            word.store(0, Ordering::Release);
        } else {
            word.fetch_and(!mine, Ordering::Release);
        }
    }

    /// Whether no lock is held.
    pub fn is_free(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }
}

const fn fields_of_all(worker: u32) -> u64 {
    (1 << IS | 1 << IX | 1 << S | 1 << X) << worker
}

fn holders_of(word: u64) -> WorkerSet {
    (word >> IS | word >> IX | word >> S | word >> X) as WorkerSet
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_lock::{compatible, join};

    const MODES: [LockMode; 5] = [
        LockMode::IS,
        LockMode::IX,
        LockMode::S,
        LockMode::SIX,
        LockMode::X,
    ];

    proptest! {
        /// Compares with a map from worker to mode: a lock is granted exactly if it is compatible with all
        /// other holders, and a refusal names exactly the conflicting ones.
        #[test]
        fn words_grant_as_the_matrix_says(
            steps in prop::collection::vec((0usize..6, 0u32..4, any::<bool>()), 1..80),
        ) {
            let locks = LockWords::new(63);
            let mut held = [LockMode::NL; 4];
            for (mode, worker, release) in steps {
                if release {
                    locks.unlock(5, worker);
                    held[worker as usize] = LockMode::NL;
                    continue;
                }
                let Some(mode) = MODES.get(mode).copied() else { continue };
                let in_the_way: WorkerSet = held.iter().enumerate()
                    .filter(|(other, theirs)| *other as u32 != worker && !compatible(mode, **theirs))
                    .map(|(other, _)| 1 << other).sum();
                let granted = locks.try_lock(5, mode, worker);
                prop_assert_eq!(granted, if in_the_way == 0 { Ok(()) } else { Err(in_the_way) });
                if granted.is_ok() {
                    let mine = &mut held[worker as usize];
                    *mine = join(*mine, mode);
                }
            }
            (0..4).for_each(|worker| locks.unlock(5, worker));
            prop_assert!(locks.is_free());
        }
    }

    #[test]
    fn exclusive_locks_exclude_across_threads() {
        let locks = LockWords::new(63);
        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (locks, inside) = (&locks, &inside);
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        while locks.try_lock(9, LockMode::X, worker).is_err() {
                            std::thread::yield_now();
                        }
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        locks.unlock(9, worker);
                    }
                });
            }
        });
        assert!(locks.is_free());
    }
}
