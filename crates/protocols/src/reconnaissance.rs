//! Unknown sets by reconnaissance: a run at the batch's boundary finds the keys, planning locks them, and the
//! actual run is restricted to them.
//!
//! ```text
//! 1. scout    each member whose declared accesses are ranges or tables runs at the boundary, without
//!             writing, many at a time so that their memory accesses overlap; its footprint is recorded
//! 2. plan     waves, by footprints; members with known sets by their declared accesses
//! 3. run      wave after wave; a member that leaves its footprint, because an earlier one changed the rows
//!             that led it there, is rolled back and deferred to the front of the next batch
//! ```
//!
//! After [`ATTEMPTS_MAX`] runs that left their footprints a program is planned by its declared accesses, as
//! is a program whose run accessed something without a key. Deferral depends only on the boundary and on
//! positions, so the outcome is repeatable. Members with a footprint do not keep stream order when one of
//! them is deferred.
//!
//! Source: Thomson et al. 2012 (Calvin), 3.2.1 (optimistic lock location prediction); Hobbes 3.3.3;
//! DESIGN.md, Programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_base::BatchId;
use weft_program::{BatchAccess, DataAccess, Outcome, Progress, ReadAccess, Scratch};
use weft_store::{BatchWriter, Catalog, Probe, ReadView, Store};
use weft_txn::planning::{Work, prefetch_accesses};
use weft_txn::record::BUDGET;
use weft_txn::waves::{Arrangement, WAVES_MAX, WavePlanner};
use weft_types::SqlError;

use crate::epoch::{Chosen, Runner, run_batches, worker_count};
use crate::footprint::{Footprint, Watched};
use crate::needs::{CoarseTables, NeedFinder, is_coarse};
use crate::observed::ObservedAccess;
use crate::report::Counts;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

/// Runs of one job that may leave their footprints; the next one is planned by its declared accesses.
const ATTEMPTS_MAX: u32 = 2;
/// Scouts whose memory accesses overlap.
const GROUP_SCOUTS: usize = 32;
/// Members with known sets that are prefetched together.
const GROUP_MEMBERS: usize = 16;
/// Minimum number of members of a wave, or scouts, that are divided among threads.
const SPLIT_MEMBERS: usize = 256;

/// Waves planned by footprints.
#[derive(Debug, Clone, Copy)]
pub struct Reconnaissance<G = Sound> {
    /// Maximum number of members per batch, limited by the number of waves.
    pub max_members: usize,
    /// Slots of the wave planner.
    pub lock_slots: usize,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for Reconnaissance {
    fn default() -> Reconnaissance {
        Reconnaissance {
            max_members: 1024,
            lock_slots: 1 << 16,
            safeguards: Sound,
        }
    }
}

impl<G> Reconnaissance<G> {
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Reconnaissance<H> {
        Reconnaissance {
            max_members: self.max_members,
            lock_slots: self.lock_slots,
            safeguards,
        }
    }
}

/// A job of a batch.
#[derive(Default)]
struct Member {
    job: usize,
    /// Whether it is restricted to its footprint.
    is_kept: bool,
    footprint: Footprint,
    is_refused: bool,
}

/// A run at the boundary.
#[derive(Default)]
struct Scout {
    scratch: Scratch,
    outcome: Outcome,
    probe: Option<Probe>,
    is_done: bool,
}

/// The state that a worker keeps.
#[derive(Default)]
struct Worker {
    counts: Counts,
    runner: Runner,
    scouts: Vec<Scout>,
}

/// An open batch.
struct Batch<'b> {
    jobs: &'b [Job],
    catalog: &'b Catalog,
    members: &'b [Mutex<Member>],
    writer: &'b BatchWriter<'b>,
}

/// Lets all workers, or only the first, process pieces of a range until none are left.
fn share<W: Send>(
    workers: &mut [W],
    len: usize,
    (piece, split_at): (usize, usize),
    work: impl Fn(&mut W, std::ops::Range<usize>) + Sync,
) {
    let next = AtomicUsize::new(0);
    let run = |worker: &mut W| loop {
        let start = next.fetch_add(piece, Ordering::Relaxed);
        if start >= len {
            return;
        }
        work(worker, start..len.min(start + piece));
    };
    let helpers = if len < split_at {
        0
    } else {
        workers.len().saturating_sub(1)
    };
    if let Some((mine, others)) = workers.split_first_mut() {
        let run = &run;
        std::thread::scope(|scope| {
            for other in others.iter_mut().take(helpers) {
                scope.spawn(move || run(other));
            }
            run(mine);
        });
    }
}

impl Batch<'_> {
    /// Records the footprints of some members with overlapping memory accesses.
    fn scout(&self, view: ReadView<'_>, scouts: &mut Vec<Scout>, members: &[usize]) {
        scouts.resize_with(scouts.len().max(members.len()), Scout::default);
        let mut group: Vec<_> = members
            .iter()
            .filter_map(|position| self.members.get(*position))
            .map(|member| member.lock())
            .zip(scouts)
            .collect();
        let works = group.iter().filter_map(|(member, _)| self.work(member.job));
        prefetch_accesses(self.writer, self.writer.batch(), works);
        for (member, scout) in &mut group {
            member.footprint.clear();
            let Some(job) = self.jobs.get(member.job) else {
                continue;
            };
            (scout.probe, scout.is_done) = (None, false);
            let (scratch, outcome) = (&mut scout.scratch, &mut scout.outcome);
            let begun = weft_program::begin(&job.program, &job.inputs, BUDGET, scratch, outcome);
            scout.is_done = begun.is_err();
        }
        let mut left = group.len();
        while left > 0 {
            left = 0;
            for (member, scout) in &mut group {
                let Some(job) = self.jobs.get(member.job).filter(|_| !scout.is_done) else {
                    continue;
                };
                if scout
                    .probe
                    .as_mut()
                    .is_some_and(|probe| view.advance_probe(probe))
                {
                    left += 1;
                    continue;
                }
                let access = ReadAccess::interleaved(view, BatchId(0), &mut scout.probe);
                let mut access = Watched::scouting(access, self.catalog, &mut member.footprint);
                let (scratch, outcome) = (&mut scout.scratch, &mut scout.outcome);
                // A failed run has recorded its accesses up to the failure.
                let progress = weft_program::resume(&job.program, &job.inputs, &mut access, scratch, outcome);
                scout.is_done = !matches!(progress, Ok(Progress::Waiting));
                left += usize::from(!scout.is_done);
            }
        }
    }

    fn work(&self, job: usize) -> Option<Work<'_>> {
        let job = self.jobs.get(job)?;
        Some(Work::Program {
            program: &job.program,
            inputs: &job.inputs,
            keys: None,
        })
    }

    /// Runs some members of one wave. `first` is the batch position of the first.
    fn run<G: Safeguards, O: Observe>(
        &self,
        worker: &mut Worker,
        first: usize,
        members: &[usize],
        observe: &O,
    ) {
        let known = members.iter().filter_map(|position| {
            let member = self.members.get(*position)?.lock();
            self.work(member.job).filter(|_| !member.is_kept)
        });
        prefetch_accesses(self.writer, self.writer.batch(), known);
        for (n, position) in members.iter().enumerate() {
            let Some(member) = self.members.get(*position) else {
                continue;
            };
            let member = &mut *member.lock();
            let Some(job) = self.jobs.get(member.job) else {
                continue;
            };
            let number = member.job;
            if !member.is_kept {
                let committed = worker
                    .runner
                    .run_member(self.writer, first + n, job, number, observe);
                worker.counts.ended(committed);
                continue;
            }
            let mut writer = self.writer.member((first + n) as u32);
            let access = BatchAccess::new(&mut writer);
            let result = match O::INSTALLS {
                true => {
                    self.run_kept::<G, _>(worker, job, ObservedAccess::new(access, number, observe), member)
                }
                false => self.run_kept::<G, _>(worker, job, access, member),
            };
            member.is_refused = member.footprint.is_exceeded();
            if member.is_refused {
                writer.rollback();
                observe.aborted(number);
                worker.counts.aborts += 1;
                continue;
            }
            match &result {
                Ok(()) => writer.commit(),
                Err(_) => writer.rollback(),
            }
            observe.answered(number, result.as_ref().map(|()| &worker.runner.outcome));
            worker.counts.ended(result.is_ok());
        }
    }

    fn run_kept<G: Safeguards, A: DataAccess>(
        &self,
        worker: &mut Worker,
        job: &Job,
        access: A,
        member: &mut Member,
    ) -> Result<(), SqlError> {
        let mut access = Watched::restricted::<G>(access, self.catalog, &mut member.footprint);
        worker.runner.run(job, &mut access)
    }
}

/// Plans the scouted members; reuses its memory.
struct Planner {
    finder: NeedFinder,
    waves: WavePlanner,
    placed: Vec<(usize, u32)>,
    arrangement: Arrangement,
    /// Positions in the batch's list of members, in wave order.
    order: Vec<usize>,
}

impl Planner {
    /// Assigns the members of a batch to waves. Those whose inputs do not fit are passed to `fails`.
    fn plan(&mut self, batch: &Batch<'_>, coarse: &CoarseTables, mut fails: impl FnMut(usize, SqlError)) {
        self.waves.begin();
        self.placed.clear();
        for (position, member) in batch.members.iter().enumerate() {
            let member = member.lock();
            let Some(job) = batch.jobs.get(member.job) else {
                continue;
            };
            let kept = member.footprint.requests().filter(|_| member.is_kept);
            let wave = match kept {
                Some(requests) => self.waves.place(requests),
                None => match self.finder.requests(job, batch.catalog, coarse) {
                    Ok(requests) => self.waves.place(requests),
                    Err(error) => {
                        fails(member.job, error);
                        continue;
                    }
                },
            };
            // A batch of at most `WAVES_MAX` members has enough waves for all.
            self.placed.extend(wave.map(|wave| (position, wave)));
        }
        self.arrangement
            .arrange(self.placed.iter().map(|(_, wave)| *wave));
        self.order.clear();
        let by_wave = self.arrangement.order().iter();
        self.order
            .extend(by_wave.filter_map(|at| self.placed.get(*at).map(|(position, _)| *position)));
    }
}

/// Assigns the positions of a batch to their jobs; `scouts` receives the positions to be scouted.
fn assign(jobs: &[Job], chosen: &[Chosen], members: &[Mutex<Member>], scouts: &mut Vec<usize>) {
    scouts.clear();
    for (position, (member, chosen)) in members.iter().zip(chosen).enumerate() {
        let mut member = member.lock();
        (member.job, member.is_refused) = (chosen.job, false);
        let is_unknown = jobs.get(chosen.job).is_some_and(|job| is_coarse(&job.program));
        member.is_kept = is_unknown && chosen.deferrals < ATTEMPTS_MAX;
        if member.is_kept {
            scouts.push(position);
        }
    }
}

impl<G: Safeguards> Protocol for Reconnaissance<G> {
    const NAME: &'static str = "reconnaissance";

    /// Planning is the time of the planning thread, without scouting.
    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let coarse = CoarseTables::of(jobs);
        let mut planner = Planner {
            finder: NeedFinder::default(),
            waves: WavePlanner::new(self.lock_slots),
            placed: Vec::new(),
            arrangement: Arrangement::default(),
            order: Vec::new(),
        };
        let max_members = self.max_members.clamp(1, WAVES_MAX as usize);
        let slots: Vec<Mutex<Member>> = (0..max_members.min(jobs.len()))
            .map(|_| Mutex::default())
            .collect();
        let mut workers: Vec<Worker> = (0..worker_count(workers)).map(|_| Worker::default()).collect();
        let (mut scouts, mut planning) = (Vec::new(), Duration::ZERO);
        // For an observer, as much as possible is run concurrently.
        let pieces = if O::INSTALLS {
            (1, 2)
        } else {
            (GROUP_MEMBERS, SPLIT_MEMBERS)
        };
        let run = |chosen: &[Chosen], writer: &BatchWriter<'_>, catalog: &Catalog, report: &mut RunReport| {
            let members = slots.get(..chosen.len()).unwrap_or_default();
            assign(jobs, chosen, members, &mut scouts);
            let snapshot = store.snapshot();
            let batch = Batch {
                jobs,
                catalog,
                members,
                writer,
            };
            share(
                &mut workers,
                scouts.len(),
                (GROUP_SCOUTS, SPLIT_MEMBERS),
                |worker, range| {
                    let scouts = scouts.get(range).unwrap_or_default();
                    batch.scout(snapshot.view(), &mut worker.scouts, scouts);
                },
            );
            let planned = Instant::now();
            for position in &scouts {
                if let Some(member) = members.get(*position) {
                    let mut member = member.lock();
                    member.is_kept = member.footprint.requests().is_some();
                }
            }
            planner.plan(&batch, &coarse, |n, error| {
                report.failed += 1;
                observe.answered(n, Err(&error));
            });
            planning += planned.elapsed();
            let mut start = 0;
            for end in planner.arrangement.ends() {
                let wave = planner.order.get(start..*end).unwrap_or_default();
                share(&mut workers, wave.len(), pieces, |worker, range| {
                    let first = start + range.start;
                    batch.run::<G, O>(worker, first, wave.get(range).unwrap_or_default(), observe);
                });
                start = *end;
            }
            let first_wave = planner.arrangement.ends().first().copied();
            report.deferrals += first_wave.map_or(0, |first| planner.order.len() - first) as u64;
        };
        let is_refused = |position| {
            slots
                .get(position)
                .is_some_and(|member: &Mutex<Member>| member.lock().is_refused)
        };
        let mut report = run_batches(store, jobs.len(), max_members, run, is_refused);
        workers
            .iter()
            .for_each(|worker| report.add_counts(&worker.counts));
        report.planning = planning;
        report
    }
}
