//! Two-phase locking: each worker takes the locks of its transaction, runs it, and lets them go.
//!
//! As in Hobbes 3.2.2 all workers share a table of locks ([`crate::lock_words`]). Read and write sets are
//! known, so the growing phase comes before the first instruction: a transaction that has to give up has
//! changed nothing, and giving up costs its locks alone. What happens at a lock that is taken is the policy's
//! business, a type parameter with a file each:
//!
//! ```text
//! ordered        locks in slot order, so that no circle can close; always wait      Hobbes 3.2.2
//! no_wait        never wait                                                         Barthels 5.2.2
//! wait_die       wait for the younger only                                          Barthels 5.2.2
//! bounded_wait   wait, but not for ever (DL-BW)                                     Barthels 5.2.2
//! detection      wait unless that closes a circle (DL-D)                            Barthels 5.2.2
//! ```
//!
//! These are the policies of crate `lock` for threads that spin: there a single-threaded table keeps
//! queues, as the sequencer wants it; here a lock is a word and whoever waits looks again.
//!
//! Transactions run inside epochs of the store ([`crate::epoch`]); their order is what the locks made it, and
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

/// What all workers publish about the transactions they run.
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

    /// The age of a worker's present transaction: the smaller, the older. A transaction that is run again
    /// keeps it.
    pub fn age(&self, worker: u32) -> u64 {
        self.ages[worker as usize % WORKERS_MAX].0.load(Ordering::Acquire)
    }

    fn set_age(&self, worker: u32, age: u64) {
        self.ages[worker as usize % WORKERS_MAX]
            .0
            .store(age, Ordering::Release);
    }

    /// The workers that a worker waits for now.
    pub fn waits_for(&self, worker: u32) -> WorkerSet {
        self.waits[worker as usize % WORKERS_MAX]
            .0
            .load(Ordering::Acquire) as WorkerSet
    }

    /// Tells the others for whom a worker waits.
    pub fn set_waits_for(&self, worker: u32, others: WorkerSet) {
        self.waits[worker as usize % WORKERS_MAX]
            .0
            .store(u64::from(others), Ordering::Release);
    }
}

/// What to do about a lock that others hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Look again in a moment.
    Wait,
    /// Give all locks back and begin again.
    GiveUp,
}

/// A conflict policy for spinning workers.
pub trait LockPolicy: Send + Sync + Copy + Default + 'static {
    /// The protocol's name with this policy.
    const NAME: &'static str;
    /// Locks are taken in slot order.
    const SORTS: bool = false;
    /// Waiters publish whom they wait for.
    const PUBLISHES_WAITS: bool = false;

    /// Decides for `worker`, each time it has looked at the lock in vain, `looks` times by now.
    fn decide(&self, worker: u32, holders: WorkerSet, looks: u32, workers: &Workers) -> OnConflict;
}

/// Two-phase locking under a policy.
#[derive(Debug, Clone, Copy)]
pub struct TwoPhaseLocking<P = Ordered, G = Sound> {
    /// Locks in the table; a collision makes two rows share one.
    pub lock_slots: usize,
    /// Transactions between two publications of the store.
    pub epoch_transactions: usize,
    /// Whether a worker fetches what its next few transactions will touch before it runs them.
    pub execution: Execution,
    /// What happens at a lock that is taken.
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
    /// Default sizes under a policy.
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
    /// The same with other safeguards.
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

/// What the workers share.
struct Shared<'s, P> {
    locks: LockWords,
    workers: Workers,
    policy: &'s P,
}

impl<P: LockPolicy> Shared<'_, P> {
    /// Takes all locks, or none. Counts one wait for each lock that was not free at once.
    fn lock_all(&self, worker: u32, needs: &[Need], counts: &mut Counts) -> bool {
        for (n, need) in needs.iter().enumerate() {
            let mut looks = 0;
            while let Err(holders) = self.locks.try_lock(need.slot, need.mode, worker) {
                counts.deferrals += u64::from(looks == 0);
                looks += 1;
                if P::PUBLISHES_WAITS {
                    self.workers.set_waits_for(worker, holders);
                }
                if self.policy.decide(worker, holders, looks, &self.workers) == OnConflict::GiveUp {
                    self.unlock_all(worker, needs.get(..n).unwrap_or_default());
                    if P::PUBLISHES_WAITS {
                        self.workers.set_waits_for(worker, 0);
                    }
                    return false;
                }
                pause(looks);
            }
            if P::PUBLISHES_WAITS && looks > 0 {
                self.workers.set_waits_for(worker, 0);
            }
        }
        true
    }

    fn unlock_all(&self, worker: u32, needs: &[Need]) {
        needs.iter().for_each(|need| self.locks.unlock(need.slot, worker));
    }
}

/// Spins for a moment, then lets another thread run.
pub(crate) fn pause(looks: u32) {
    if looks < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Waits a little longer after each attempt that was given up, so that two that give up for one another part.
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
                let committed = worker.runner.run_alone(epoch.writer, n, job, number, observe);
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
