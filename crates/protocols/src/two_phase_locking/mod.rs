//! Two-phase locking: each worker acquires the locks of its transaction, runs it, and releases them.
//!
//! As in Hobbes 3.2.2 all workers share a table of locks ([`crate::lock_words`]). Read and write sets are
//! known, so the growing phase precedes the first instruction: a transaction that has to abort has changed
//! nothing, and aborting costs only its locks. The policy decides what happens when a lock is held by
//! others; it is a type parameter, with one file per policy:
//!
//! ```text
//! ordered        locks in slot order, so that there is no cycle; always wait        Hobbes 3.2.2
//! no_wait        never wait                                                         Barthels 5.2.2
//! wait_die       wait only for younger transactions                                 Barthels 5.2.2
//! bounded_wait   wait for a bounded time (DL-BW)                                    Barthels 5.2.2
//! detection      wait unless that closes a cycle (DL-D)                             Barthels 5.2.2
//! ```
//!
//! These are the policies of crate `lock` for spinning threads: there a single-threaded table keeps queues,
//! as the sequencer requires; here a lock is a word that waiting workers poll.
//!
//! Transactions run inside epochs of the store ([`crate::epoch`]); the locks determine their order, which is
//! not repeatable.

mod bounded_wait;
mod detection;
mod no_wait;
mod ordered;
mod wait_die;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use bounded_wait::BoundedWait;
pub use detection::Detection;
pub use no_wait::NoWait;
pub use ordered::Ordered;
pub use wait_die::WaitDie;

use weft_store::Store;
use weft_txn::Execution;

use crate::epoch::{Claims, Epoch, Runner, WORKERS_MAX, run_epochs, worker_count};
use crate::lock_words::{LockWords, WorkerSet};
use crate::needs::{CoarseTables, Need, NeedFinder, slot_mask};
use crate::report::Counts;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

/// Information that all workers publish about their transactions.
#[derive(Debug)]
pub struct Workers {
    ages: [WorkerCell; WORKERS_MAX],
    waits: [WorkerCell; WORKERS_MAX],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerCell(AtomicU64);

impl Workers {
    fn new() -> Workers {
        Workers {
            ages: Default::default(),
            waits: Default::default(),
        }
    }

    /// The age of a worker's current transaction: the smaller, the older. A retried transaction keeps it.
    pub fn age(&self, worker: u32) -> u64 {
        self.ages[worker as usize % WORKERS_MAX].0.load(Ordering::Acquire)
    }

    fn set_age(&self, worker: u32, age: u64) {
        self.ages[worker as usize % WORKERS_MAX]
            .0
            .store(age, Ordering::Release);
    }

    /// The workers that a worker is waiting for.
    pub fn waits_for(&self, worker: u32) -> WorkerSet {
        self.waits[worker as usize % WORKERS_MAX]
            .0
            .load(Ordering::Acquire) as WorkerSet
    }

    /// Publishes the workers that a worker waits for.
    pub fn set_waits_for(&self, worker: u32, others: WorkerSet) {
        self.waits[worker as usize % WORKERS_MAX]
            .0
            .store(u64::from(others), Ordering::Release);
    }
}

/// The reaction to a lock that others hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Poll again.
    Wait,
    /// Release all locks and retry.
    Abort,
}

/// A conflict policy for spinning workers.
pub trait LockPolicy: Send + Sync + Copy + Default + 'static {
    /// The protocol's name with this policy.
    const NAME: &'static str;
    /// Whether locks are taken in slot order.
    const SORTS: bool = false;
    /// Whether waiting workers publish whom they wait for.
    const PUBLISHES_WAITS: bool = false;

    /// Decides for `worker` after each unsuccessful poll; there have been `polls` so far.
    fn decide(&self, worker: u32, holders: WorkerSet, polls: u32, workers: &Workers) -> OnConflict;
}

/// Two-phase locking with a policy.
#[derive(Debug, Clone, Copy)]
pub struct TwoPhaseLocking<P = Ordered, G = Sound> {
    /// Locks in the table; rows that collide share one.
    pub lock_slots: usize,
    /// Transactions between two publications of the store.
    pub epoch_transactions: usize,
    /// Whether a worker prefetches the rows of its next few transactions before it runs them.
    pub execution: Execution,
    /// The conflict policy.
    pub policy: P,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for TwoPhaseLocking {
    fn default() -> TwoPhaseLocking {
        TwoPhaseLocking::under(Ordered)
    }
}

impl<P: LockPolicy> TwoPhaseLocking<P> {
    /// Default sizes with a policy.
    pub fn under(policy: P) -> TwoPhaseLocking<P> {
        TwoPhaseLocking {
            lock_slots: 1 << 16,
            epoch_transactions: 1024,
            execution: Execution::Serial,
            policy,
            safeguards: Sound,
        }
    }
}

impl<P, G> TwoPhaseLocking<P, G> {
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> TwoPhaseLocking<P, H> {
        TwoPhaseLocking {
            lock_slots: self.lock_slots,
            epoch_transactions: self.epoch_transactions,
            execution: self.execution,
            policy: self.policy,
            safeguards,
        }
    }
}

#[derive(Default)]
struct Worker {
    number: u32,
    counts: Counts,
    finder: NeedFinder,
    needs: Vec<Need>,
    runner: Runner,
}

/// The state that workers share.
struct Shared<'s, P> {
    locks: LockWords,
    workers: Workers,
    policy: &'s P,
}

impl<P: LockPolicy> Shared<'_, P> {
    /// Acquires all locks, or none. Counts one wait for each lock that was not immediately free.
    fn lock_all(&self, worker: u32, needs: &[Need], counts: &mut Counts) -> bool {
        for (n, need) in needs.iter().enumerate() {
            let mut polls = 0;
            while let Err(holders) = self.locks.try_lock(need.slot, need.mode, worker) {
                counts.deferrals += u64::from(polls == 0);
                polls += 1;
                if P::PUBLISHES_WAITS {
                    self.workers.set_waits_for(worker, holders);
                }
                if self.policy.decide(worker, holders, polls, &self.workers) == OnConflict::Abort {
                    self.unlock_all(worker, needs.get(..n).unwrap_or_default());
                    if P::PUBLISHES_WAITS {
                        self.workers.set_waits_for(worker, 0);
                    }
                    return false;
                }
                pause(polls);
            }
            if P::PUBLISHES_WAITS && polls > 0 {
                self.workers.set_waits_for(worker, 0);
            }
        }
        true
    }

    fn unlock_all(&self, worker: u32, needs: &[Need]) {
        needs.iter().for_each(|need| self.locks.unlock(need.slot, worker));
    }
}

/// Spins briefly, later yields to another thread.
pub(crate) fn pause(polls: u32) {
    if polls < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Backs off longer after each aborted attempt, so that transactions that abort each other diverge.
pub(crate) fn back_off(attempts: u32, worker: u32) {
    let spins = (1u32 << attempts.min(8)).saturating_mul(1 + worker);
    (0..spins).for_each(|_| std::hint::spin_loop());
    if attempts > 4 {
        std::thread::yield_now();
    }
}

impl<P: LockPolicy, G: Safeguards> TwoPhaseLocking<P, G> {
    fn work<O: Observe>(
        &self,
        shared: &Shared<'_, P>,
        worker: &mut Worker,
        (epoch, claims): (Epoch<'_>, &Claims),
        coarse: &CoarseTables,
        observe: &O,
    ) {
        let mask = slot_mask(self.lock_slots);
        while let Some(range) = claims.claim() {
            if self.execution != Execution::Serial {
                epoch.prefetch_accesses(range.clone());
            }
            for n in range {
                let Some(job) = epoch.jobs.get(n) else { continue };
                let number = epoch.first + n;
                let start = Counts::start(number);
                let needs = &mut worker.needs;
                if let Err(error) = worker
                    .finder
                    .guarded_needs::<G>(job, epoch.catalog, coarse, mask, needs)
                {
                    observe.answered(number, Err(&error));
                    worker.counts.ended(false);
                    continue;
                }
                if P::SORTS {
                    needs.sort_unstable_by_key(|need| need.slot);
                }
                shared.workers.set_age(worker.number, number as u64);
                let mut attempts = 0;
                while !shared.lock_all(worker.number, &worker.needs, &mut worker.counts) {
                    worker.counts.aborts += 1;
                    attempts += 1;
                    back_off(attempts, worker.number);
                }
                G::pause();
                let committed = worker.runner.run_member(epoch.writer, n, job, number, observe);
                shared.unlock_all(worker.number, &worker.needs);
                worker.counts.ended(committed);
                worker.counts.end(start);
            }
        }
    }
}

impl<P: LockPolicy, G: Safeguards> Protocol for TwoPhaseLocking<P, G> {
    const NAME: &'static str = P::NAME;

    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let coarse = CoarseTables::of(jobs);
        let shared = Shared {
            locks: LockWords::new(slot_mask(self.lock_slots)),
            workers: Workers::new(),
            policy: &self.policy,
        };
        let mut states: Vec<Worker> = (0..worker_count(workers) as u32)
            .map(|number| Worker {
                number,
                ..Worker::default()
            })
            .collect();
        run_epochs(
            store,
            jobs,
            self.epoch_transactions,
            || (),
            &mut states,
            |worker| &worker.counts,
            |worker, epoch, claims| self.work(&shared, worker, (epoch, claims), &coarse, observe),
        )
    }
}
