//! Two-phase locking: each worker takes the locks of its transaction, runs it, and lets them go.
//!
//! As in Hobbes 3.2.2 there is a read-write lock per tuple in a table that all workers share. Locks are taken
//! in slot order, so there is no deadlock to detect; a worker that must wait spins for a moment and then
//! yields. Only rows, unique values and whole-table reads or writes are locked: the intention locks of the
//! multi-granularity table would put a hot line before every transaction, and no transaction of these
//! workloads needs them.
//!
//! ```text
//! slot (AtomicU32): 0 free | n readers | WRITER one writer
//! ```
//!
//! Transactions run inside epochs of the store, so that versions and snapshots work as for batches; their
//! order is what the locks made it, and not repeatable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use weft_base::BatchId;
use weft_lock::LockMode;
use weft_store::{Catalog, Store};
use weft_txn::planning::{LockScope, Work, program_locks, run_member};

use crate::{Job, Protocol, RunReport};

const WRITER: u32 = u32::MAX;

/// Two-phase locking with ordered acquisition.
#[derive(Debug, Clone, Copy)]
pub struct TwoPhaseLocking {
    /// Locks in the table; a collision makes two rows share one.
    pub lock_slots: usize,
    /// Transactions between two publications of the store.
    pub epoch_transactions: usize,
}

impl Default for TwoPhaseLocking {
    fn default() -> TwoPhaseLocking {
        TwoPhaseLocking {
            lock_slots: 1 << 20,
            epoch_transactions: 4096,
        }
    }
}

struct TupleLocks {
    slots: Box<[AtomicU32]>,
    waits: AtomicU64,
}

impl TupleLocks {
    fn new(slot_count: usize) -> TupleLocks {
        let slot_count = slot_count.max(64).next_power_of_two();
        TupleLocks {
            slots: (0..slot_count).map(|_| AtomicU32::new(0)).collect(),
            waits: AtomicU64::new(0),
        }
    }

    fn slot_of(&self, resource: u64) -> usize {
        ((resource ^ (resource >> 32)) as usize) & (self.slots.len() - 1)
    }

    fn lock(&self, slot: usize, write: bool) {
        let word = &self.slots[slot];
        let mut spins = 0u32;
        loop {
            let now = word.load(Ordering::Relaxed);
            let next = match (write, now) {
                (true, 0) => Some(WRITER),
                (false, n) if n < WRITER - 1 => Some(n + 1),
                _ => None,
            };
            if let Some(next) = next
                && word
                    .compare_exchange_weak(now, next, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            if spins == 0 {
                self.waits.fetch_add(1, Ordering::Relaxed);
            }
            spins += 1;
            if spins < 100 {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
        }
    }

    fn unlock(&self, slot: usize, write: bool) {
        if write {
            self.slots[slot].store(0, Ordering::Release);
        } else {
            self.slots[slot].fetch_sub(1, Ordering::Release);
        }
    }
}

/// The slots that a job needs, in order, each once, a writer's wish winning.
fn slots_of(locks: &TupleLocks, job: &Job, catalog: &Catalog, slots: &mut Vec<(usize, bool)>) -> bool {
    let mut scratch = Default::default();
    slots.clear();
    let scope = LockScope::ReadsAndWrites;
    let Ok(requests) = program_locks(&job.program, &job.inputs, catalog, scope, &mut scratch) else {
        return false;
    };
    for request in requests {
        let write = match request.mode {
            LockMode::X | LockMode::SIX => true,
            LockMode::S => false,
            LockMode::NL | LockMode::IS | LockMode::IX => continue,
        };
        slots.push((locks.slot_of(request.resource.0), write));
    }
    slots.sort_unstable();
    slots.dedup_by(|later, first| {
        let same = later.0 == first.0;
        first.1 |= same && later.1;
        same
    });
    true
}

impl Protocol for TwoPhaseLocking {
    const NAME: &'static str = "two-phase locking";

    fn run(&self, store: &Arc<Store>, jobs: &[Job], workers: usize) -> RunReport {
        let locks = TupleLocks::new(self.lock_slots);
        let committed = AtomicU64::new(0);
        let failed = AtomicU64::new(0);
        let mut report = RunReport::default();
        let began = Instant::now();
        for epoch in jobs.chunks(self.epoch_transactions.max(1)) {
            let batch = BatchId(store.boundary().0 + 1);
            let catalog = store.catalog();
            let writer = store.begin_batch(batch);
            let next = AtomicUsize::new(0);
            let work = || {
                let mut slots = Vec::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = epoch.get(n) else { return };
                    if !slots_of(&locks, job, &catalog, &mut slots) {
                        failed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    slots.iter().for_each(|(slot, write)| locks.lock(*slot, *write));
                    let work = Work::Program {
                        program: &job.program,
                        inputs: &job.inputs,
                    };
                    let answer = run_member(&writer, batch, n, work);
                    slots.iter().for_each(|(slot, write)| locks.unlock(*slot, *write));
                    let counter = if answer.is_ok() { &committed } else { &failed };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            };
            std::thread::scope(|scope| {
                for _ in 1..workers.max(1) {
                    scope.spawn(work);
                }
                work();
            });
            writer.finish();
            store.publish(batch);
            store.collect_garbage(usize::MAX);
            report.batches += 1;
        }
        report.elapsed = began.elapsed();
        report.committed = committed.into_inner();
        report.failed = failed.into_inner();
        report.deferrals = locks.waits.into_inner();
        report
    }
}
