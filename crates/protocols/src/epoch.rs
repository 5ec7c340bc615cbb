//! Runs a stream in epochs of the store, for protocols that order transactions while they run.
//!
//! The store publishes at batch boundaries. A protocol without batches runs the transactions of an epoch on
//! all its workers, then finishes and publishes the epoch and collects its garbage. Versions and snapshots
//! therefore work as for batches, and each protocol pays the same for them.
//!
//! ```text
//! worker 0  [claim][claim]...[claim]|finish, publish, collect|[claim]...
//! worker 1  [claim][claim]...       |                        |[claim]...
//! ```
//!
//! Protocols in which one thread leads the others open and close epochs with [`each_epoch`]; protocols that
//! defer members run their batches with [`run_batches`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::RwLock;
use weft_base::BatchId;
use weft_program::{BatchAccess, DataAccess, Outcome, Scratch};
use weft_store::{BatchWriter, Catalog, MemberWriter, Store};
use weft_txn::planning::{Work, prefetch_accesses};
use weft_txn::record::BUDGET;
use weft_types::SqlError;

use crate::observed::ObservedAccess;
use crate::report::Counts;
use crate::two_phase_locking::pause;
use crate::{Job, Observe, RunReport};

/// Maximum number of workers of a run: a lock word has a bit for each of them in every mode.
pub const WORKERS_MAX: usize = 16;

/// Jobs that a worker claims at a time.
const CLAIM_JOBS: usize = 16;

/// The inputs of a worker's step.
#[derive(Clone, Copy)]
pub(crate) struct Epoch<'e> {
    pub writer: &'e BatchWriter<'e>,
    pub catalog: &'e Catalog,
    /// The jobs of this epoch.
    pub jobs: &'e [Job],
    /// Position of the first of them in the stream.
    pub first: usize,
}

impl Epoch<'_> {
    /// Prefetches the rows of some jobs' declared keys.
    pub fn prefetch_accesses(&self, jobs: Range<usize>) {
        let jobs = self.jobs.get(jobs).unwrap_or_default();
        let works = jobs.iter().map(|job| Work::Program {
            program: &job.program,
            inputs: &job.inputs,
            keys: None,
        });
        prefetch_accesses(self.writer, self.writer.batch(), works);
    }
}

/// Limits the workers to 1 to [`WORKERS_MAX`].
pub(crate) fn worker_count(workers: usize) -> usize {
    workers.clamp(1, WORKERS_MAX)
}

/// An open epoch.
struct Open<'s> {
    writer: BatchWriter<'s>,
    catalog: Arc<Catalog>,
    /// Positions of its jobs in the stream.
    range: Range<usize>,
    claims: Claims,
}

/// Shared by the workers: the open epoch, if there is one, and the number of epochs so far.
struct Shared<'s> {
    open: RwLock<Option<Open<'s>>>,
    epochs: AtomicUsize,
}

/// Announces the end of the epochs when dropped, even if the leader panics.
struct EndEpochs<'c>(&'c AtomicUsize);

impl Drop for EndEpochs<'_> {
    fn drop(&mut self) {
        self.0.store(usize::MAX, Ordering::Release);
    }
}

impl Shared<'_> {
    /// Participates in the open epoch, unless it has ended.
    fn join<S>(&self, jobs: &[Job], state: &mut S, work: &impl Fn(&mut S, Epoch<'_>, &Claims)) {
        let open = self.open.read();
        let Some(open) = &*open else { return };
        let epoch = Epoch {
            writer: &open.writer,
            catalog: &open.catalog,
            jobs: jobs.get(open.range.clone()).unwrap_or_default(),
            first: open.range.start,
        };
        work(state, epoch, &open.claims);
    }

    /// The loop of a worker other than the leader: joins every epoch. The leader does not wait for a worker
    /// that wakes too late for an epoch.
    fn follow<S>(&self, jobs: &[Job], state: &mut S, work: &impl Fn(&mut S, Epoch<'_>, &Claims)) {
        let mut seen = 0;
        let mut polls = 0;
        loop {
            let now = self.epochs.load(Ordering::Acquire);
            if now == usize::MAX {
                return;
            }
            if now == seen {
                polls += 1;
                pause(polls);
                continue;
            }
            (seen, polls) = (now, 0);
            self.join(jobs, state, work);
        }
    }
}

/// Runs `jobs` in epochs of `epoch_jobs`. `begin` is called before each, while no worker runs; then `work` on
/// every worker, with that worker's state; it claims jobs until none are left. Threads are started once per
/// stream.
pub(crate) fn run_epochs<S: Send>(
    store: &Arc<Store>,
    jobs: &[Job],
    epoch_jobs: usize,
    begin: impl Fn(),
    states: &mut [S],
    counts: impl Fn(&S) -> &Counts,
    work: impl Fn(&mut S, Epoch<'_>, &Claims) + Sync,
) -> RunReport {
    let mut report = RunReport::default();
    let began = Instant::now();
    let epoch_jobs = epoch_jobs.max(1);
    let shared = Shared {
        open: RwLock::new(None),
        epochs: AtomicUsize::new(0),
    };
    if let Some((mine, others)) = states.split_first_mut() {
        let (work, shared) = (&work, &shared);
        std::thread::scope(|scope| {
            let _end = EndEpochs(&shared.epochs);
            for state in others {
                scope.spawn(move || shared.follow(jobs, state, work));
            }
            for first in (0..jobs.len()).step_by(epoch_jobs) {
                let range = first..jobs.len().min(first + epoch_jobs);
                let batch = BatchId(store.boundary().0 + 1);
                begin();
                *shared.open.write() = Some(Open {
                    catalog: store.catalog(),
                    writer: store.begin_batch(batch),
                    claims: Claims::new(range.len()),
                    range,
                });
                shared.epochs.fetch_add(1, Ordering::Release);
                shared.join(jobs, mine, work);
                // Waits for workers that are still running.
                if let Some(open) = shared.open.write().take() {
                    close(store, open.writer, batch);
                }
                report.batches += 1;
            }
        });
    }
    report.elapsed = began.elapsed();
    states.iter().for_each(|state| report.add_counts(counts(state)));
    report
}

/// Opens a batch of the store, lets `run` write into it, and publishes it.
pub(crate) fn in_batch(store: &Arc<Store>, run: impl FnOnce(&BatchWriter<'_>, &Catalog)) {
    let batch = BatchId(store.boundary().0 + 1);
    let catalog = store.catalog();
    let writer = store.begin_batch(batch);
    run(&writer, &catalog);
    close(store, writer, batch);
}

/// Runs `jobs` in epochs of `epoch_jobs`, for a protocol with its own division of an epoch among workers. The
/// report contains batches and wall time.
pub(crate) fn each_epoch(
    store: &Arc<Store>,
    jobs: &[Job],
    epoch_jobs: usize,
    mut run: impl FnMut(Epoch<'_>),
) -> RunReport {
    let mut report = RunReport::default();
    let began = Instant::now();
    let epoch_jobs = epoch_jobs.max(1);
    for (number, chunk) in jobs.chunks(epoch_jobs).enumerate() {
        in_batch(store, |writer, catalog| {
            run(Epoch {
                writer,
                catalog,
                jobs: chunk,
                first: number * epoch_jobs,
            });
        });
        report.batches += 1;
    }
    report.elapsed = began.elapsed();
    report
}

/// A position in a batch: a job, and how many batches have deferred it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub job: usize,
    pub deferrals: u32,
}

/// Runs a stream of `jobs` jobs batch after batch. A batch has at most `max_members`; the members that it
/// defers, by position, are first in the next one, in order. At least one member of each batch must not be
/// deferred. The report contains batches, wall time and latencies.
pub(crate) fn run_batches(
    store: &Arc<Store>,
    jobs: usize,
    max_members: usize,
    mut run: impl FnMut(&[Chosen], &BatchWriter<'_>, &Catalog, &mut RunReport),
    is_deferred: impl Fn(usize) -> bool,
) -> RunReport {
    let mut report = RunReport::default();
    let began = Instant::now();
    let (mut chosen, mut next): (Vec<Chosen>, usize) = (Vec::new(), 0);
    loop {
        let seen = Instant::now();
        let end = jobs.min(next + max_members.max(1) - chosen.len());
        chosen.extend((next..end).map(|job| Chosen { job, deferrals: 0 }));
        next = end;
        if chosen.is_empty() {
            break;
        }
        in_batch(store, |writer, catalog| {
            run(&chosen, writer, catalog, &mut report)
        });
        report.batches += 1;
        let mut position = 0;
        chosen.retain_mut(|chosen| {
            let again = is_deferred(position);
            position += 1;
            chosen.deferrals += u32::from(again);
            if !again && Counts::start(chosen.job).is_some() {
                report.latency.add(seen.elapsed());
            }
            again
        });
    }
    report.elapsed = began.elapsed();
    report
}

/// Finishes and publishes a batch, and collects its garbage.
fn close(store: &Arc<Store>, writer: BatchWriter<'_>, batch: BatchId) {
    writer.finish();
    store.publish(batch);
    store.collect_garbage(usize::MAX);
}

/// Distributes the jobs of an epoch, each once.
pub(crate) struct Claims {
    next: AtomicUsize,
    len: usize,
}

impl Claims {
    pub fn new(len: usize) -> Claims {
        Claims {
            next: AtomicUsize::new(0),
            len,
        }
    }

    /// Whether all jobs are claimed.
    pub fn are_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.len
    }

    /// Claims some jobs, as positions in the epoch; `None` if all are claimed.
    pub fn claim(&self) -> Option<Range<usize>> {
        let start = self.next.fetch_add(CLAIM_JOBS, Ordering::Relaxed);
        (start < self.len).then(|| start..(start + CLAIM_JOBS).min(self.len))
    }
}

/// State for executing a transaction; kept by a worker, so that the steady state allocates nothing here.
#[derive(Default)]
pub(crate) struct Runner {
    pub scratch: Scratch,
    pub outcome: Outcome,
}

impl Runner {
    /// Runs a program through any access; the caller then commits, installs or rolls back.
    pub fn run<A: DataAccess>(&mut self, job: &Job, access: &mut A) -> Result<(), SqlError> {
        weft_program::run(
            &job.program,
            &job.inputs,
            access,
            BUDGET,
            &mut self.scratch,
            &mut self.outcome,
        )
    }

    /// Runs a program through a member of the open batch, writing in place.
    pub fn run_in_place<O: Observe>(
        &mut self,
        job: &Job,
        number: usize,
        member: &mut MemberWriter<'_>,
        observe: &O,
    ) -> Result<(), SqlError> {
        let access = BatchAccess::new(member);
        if O::INSTALLS {
            self.run(job, &mut ObservedAccess::new(access, number, observe))
        } else {
            let mut access = access;
            self.run(job, &mut access)
        }
    }

    /// Runs a transaction that no other can conflict with, commits it or rolls it back, and reports to the
    /// observer. True if it committed.
    pub fn run_member<O: Observe>(
        &mut self,
        writer: &BatchWriter<'_>,
        member: usize,
        job: &Job,
        number: usize,
        observe: &O,
    ) -> bool {
        let mut member = writer.member(member as u32);
        let result = self.run_in_place(job, number, &mut member, observe);
        match &result {
            Ok(()) => member.commit(),
            Err(_) => member.rollback(),
        }
        observe.answered(number, result.as_ref().map(|()| &self.outcome));
        result.is_ok()
    }
}
