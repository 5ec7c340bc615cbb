//! Takes the locks of a stream of transactions without running any: the cost of a lock manager in isolation.
//!
//! Each manager gets the same jobs in the same order and derives their needs in the same way
//! ([`crate::needs`]); [`LockManager::None`] measures the cost of deriving them.
//!
//! ```text
//!   calvin   every job enters its requests; once a window of jobs holds or waits, the oldest releases
//!   batch    jobs that do not conflict are admitted, the others are first in the next batch
//!   waves    every job gets a wave of its batch, and members are sorted by wave
//! ```
//!
//! The oldest of Calvin's open jobs holds all its locks in any case, so releasing in stream order is a valid
//! schedule.
//!
//! Source: Hobbes 3.4, figure 3.9.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_store::Catalog;
use weft_types::SqlError;

use crate::batch::{Admission, Batch};
use crate::calvin::{Calvin, OrderedLockManager};
use crate::needs::{CoarseTables, Need, NeedFinder, slot_mask};
use crate::waves::{BatchPlanner, Waves};
use crate::{Job, RunReport, Sound, Unobserved};

/// The lock manager to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockManager {
    /// None: only the needs are derived.
    None,
    /// Queues in stream order, as in [`Calvin`].
    Calvin,
    /// Admission to single-wave batches, as in [`Batch`].
    Batch,
    /// Batches of several waves by the product's planner. Every batch is planned, whereas [`Waves`] skips
    /// most once the stream has become serial.
    Waves,
}

/// The result of taking all locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Locked {
    /// From the first job to the last, without creating the manager's tables.
    pub elapsed: Duration,
    /// The number of times that a job waited for a lock, was deferred to the next batch, or was placed in a
    /// wave after the first.
    pub deferrals: u64,
    /// The number of batches; 0 for managers without batches.
    pub batches: u64,
}

impl LockManager {
    /// All managers; those to be compared are last.
    pub const ALL: [LockManager; 4] = [
        LockManager::None,
        LockManager::Calvin,
        LockManager::Batch,
        LockManager::Waves,
    ];

    /// The name that figures print.
    pub fn name(self) -> &'static str {
        match self {
            LockManager::None => "needs",
            LockManager::Calvin => "calvin",
            LockManager::Batch => "batch",
            LockManager::Waves => "waves",
        }
    }

    /// Takes the locks of all jobs once, with the protocol's default sizes. Errors: inputs that do not fit
    /// their program.
    pub fn take_all(self, jobs: &[Job], catalog: &Catalog) -> Result<Locked, SqlError> {
        let coarse = CoarseTables::of(jobs);
        match self {
            LockManager::None => find_needs(jobs, catalog, &coarse),
            LockManager::Calvin => enter_and_release(jobs, catalog, &coarse),
            LockManager::Batch => admit(jobs, catalog, &coarse),
            LockManager::Waves => plan(jobs, catalog, &coarse),
        }
    }
}

fn find_needs(jobs: &[Job], catalog: &Catalog, coarse: &CoarseTables) -> Result<Locked, SqlError> {
    let mut finder = NeedFinder::default();
    let began = Instant::now();
    for job in jobs {
        std::hint::black_box(finder.requests(job, catalog, coarse)?);
    }
    Ok(Locked {
        elapsed: began.elapsed(),
        ..Locked::default()
    })
}

fn enter_and_release(jobs: &[Job], catalog: &Catalog, coarse: &CoarseTables) -> Result<Locked, SqlError> {
    let sizes = Calvin::<Sound>::default();
    let mask = slot_mask(sizes.lock_slots);
    let mut locks = OrderedLockManager::default();
    let mut finder = NeedFinder::default();
    // Needs of the open jobs, and spare lists to be reused.
    let mut open: VecDeque<(u32, Vec<Need>)> = VecDeque::with_capacity(sizes.window);
    let mut spare: Vec<Vec<Need>> = Vec::new();
    let mut ready = Vec::new();
    let mut locked = Locked::default();
    let began = Instant::now();
    for (n, job) in jobs.iter().enumerate() {
        let mut needs = spare.pop().unwrap_or_default();
        needs.clear();
        finder.needs(job, catalog, coarse, mask, &mut needs)?;
        locked.deferrals += u64::from(!locks.lock(n as u32, &needs));
        open.push_back((n as u32, needs));
        if open.len() == sizes.window
            && let Some((oldest, needs)) = open.pop_front()
        {
            locks.release(oldest, &needs, &mut ready);
            ready.clear();
            spare.push(needs);
        }
    }
    for (n, needs) in open {
        locks.release(n, &needs, &mut ready);
    }
    debug_assert!(locks.is_empty());
    locked.elapsed = began.elapsed();
    Ok(locked)
}

fn admit(jobs: &[Job], catalog: &Catalog, coarse: &CoarseTables) -> Result<Locked, SqlError> {
    let sizes = Batch::<Sound>::default();
    let mut admission = Admission::new(jobs, coarse.clone(), sizes.lock_slots);
    let mut report = RunReport::default();
    let (mut members, mut batches) = (Vec::with_capacity(sizes.max_members), 0);
    let began = Instant::now();
    while !admission.is_done() {
        admission.form::<Sound, _>(sizes.max_members, catalog, &mut members, &mut report, &Unobserved);
        batches += 1;
    }
    let elapsed = began.elapsed();
    if report.failed > 0 {
        // This reports which job failed, and why.
        find_needs(jobs, catalog, coarse)?;
    }
    Ok(Locked {
        elapsed,
        deferrals: report.deferrals,
        batches,
    })
}

fn plan(jobs: &[Job], catalog: &Catalog, coarse: &CoarseTables) -> Result<Locked, SqlError> {
    let sizes = Waves::<Sound>::default();
    let mut planner = BatchPlanner::new(coarse.clone(), sizes.lock_slots);
    let mut locked = Locked::default();
    let mut failed = None;
    let began = Instant::now();
    for batch in sizes.batches(jobs.len()) {
        let plan = planner.plan::<Sound>(jobs, batch, catalog, |_, error| {
            failed.get_or_insert(error);
        });
        locked.batches += 1;
        locked.deferrals += plan.deferrals();
    }
    match failed {
        Some(error) => Err(error),
        None => {
            locked.elapsed = began.elapsed();
            Ok(locked)
        }
    }
}
