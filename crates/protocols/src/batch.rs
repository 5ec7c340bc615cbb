//! Deterministic batches: admits transactions that do not conflict, runs them without locks, defers the
//! others.
//!
//! Source: Hobbes 3.3.3, Algorithm 1, with stamps instead of cleared bitmaps. Deferred transactions are first
//! in the next batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_store::{Catalog, Store};
use weft_txn::Execution;

use crate::epoch::worker_count;
use crate::members::MemberRunner;
use crate::needs::{CoarseTables, NeedFinder};
use crate::report::Counts;
use crate::stamps::BatchLocks;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

/// Single-wave batches. The product has several waves ([`crate::waves`]).
#[derive(Debug, Clone, Copy)]
pub struct Batch<G = Sound> {
    /// Maximum number of members per batch.
    pub max_members: usize,
    /// Slots of the batch lock manager.
    pub lock_slots: usize,
    /// Whether members of a batch overlap their memory accesses.
    pub execution: Execution,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            max_members: 4096,
            lock_slots: 1 << 16,
            execution: Execution::Interleaved,
            safeguards: Sound,
        }
    }
}

impl<G> Batch<G> {
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Batch<H> {
        Batch {
            max_members: self.max_members,
            lock_slots: self.lock_slots,
            execution: self.execution,
            safeguards,
        }
    }
}

/// Forms batches, one after another.
pub(crate) struct Admission<'j> {
    jobs: &'j [Job],
    coarse: CoarseTables,
    locks: BatchLocks,
    finder: NeedFinder,
    deferred: VecDeque<usize>,
    next: usize,
    /// When formation of the first batch that considered it began, for jobs whose latency is sampled.
    first_seen: Vec<(usize, Instant)>,
}

impl<'j> Admission<'j> {
    /// Admission of `jobs`, with `lock_slots` slots.
    pub(crate) fn new(jobs: &'j [Job], coarse: CoarseTables, lock_slots: usize) -> Self {
        Admission {
            jobs,
            coarse,
            locks: BatchLocks::new(lock_slots),
            finder: NeedFinder::default(),
            deferred: VecDeque::new(),
            next: 0,
            first_seen: Vec::new(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.jobs.len() && self.deferred.is_empty()
    }

    /// The next job; deferred jobs first.
    fn take(&mut self) -> Option<(usize, bool)> {
        if let Some(n) = self.deferred.pop_front() {
            return Some((n, false));
        }
        let n = self.next;
        self.next += 1;
        (n < self.jobs.len()).then_some((n, true))
    }

    /// Fills `members` with jobs that do not conflict.
    pub(crate) fn form<G: Safeguards, O: Observe>(
        &mut self,
        max_members: usize,
        catalog: &Catalog,
        members: &mut Vec<usize>,
        report: &mut RunReport,
        observe: &O,
    ) {
        members.clear();
        self.locks.begin();
        let mut deferred = VecDeque::new();
        while members.len() < max_members && deferred.len() < max_members {
            let Some((n, is_new)) = self.take() else { break };
            let Some(job) = self.jobs.get(n) else { break };
            if is_new && let Some(now) = Counts::start(n) {
                self.first_seen.push((n, now));
            }
            match self.finder.guarded_requests::<G>(job, catalog, &self.coarse) {
                Err(error) => {
                    report.failed += 1;
                    observe.answered(n, Err(&error));
                }
                Ok(requests) if self.locks.admit(requests) => members.push(n),
                Ok(_) => {
                    report.deferrals += 1;
                    deferred.push_back(n);
                }
            }
        }
        deferred.append(&mut self.deferred);
        self.deferred = deferred;
    }

    /// Records the latencies of jobs that are no longer deferred.
    fn ended(&mut self, report: &mut RunReport) {
        let deferred = &self.deferred;
        self.first_seen.retain(|(n, start)| {
            let waits = deferred.contains(n);
            if !waits {
                report.latency.add(start.elapsed());
            }
            waits
        });
    }
}

impl<G: Safeguards> Protocol for Batch<G> {
    const NAME: &'static str = "batch";

    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let mut report = RunReport::default();
        let began = Instant::now();
        let max_members = self.max_members.max(1);
        let mut admission = Admission::new(jobs, CoarseTables::of(jobs), self.lock_slots);
        let mut runner = MemberRunner::new(jobs, observe, self.execution, worker_count(workers));
        let mut members = Vec::with_capacity(max_members);
        let mut planning = Duration::ZERO;
        while !admission.is_done() {
            let planned = Instant::now();
            let catalog = store.catalog();
            admission.form::<G, O>(max_members, &catalog, &mut members, &mut report, observe);
            planning += planned.elapsed();
            if !members.is_empty() {
                runner.run_waves(store, &members, &[members.len()]);
                report.batches += 1;
            }
            admission.ended(&mut report);
        }
        runner.report(&mut report);
        report.elapsed = began.elapsed();
        report.planning = planning;
        report
    }
}
