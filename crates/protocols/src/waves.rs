//! Batches of several waves: who conflicts goes into a later wave of the same batch, not into a later batch.
//!
//! Conflicting transactions keep the order of the stream, so the outcome is that of the stream one by one,
//! and one hot key costs no more than running its transactions one after the other.
//!
//! Where nearly every transaction stands behind another, a plan finds nothing that could run side by side
//! and costs a third of the execution. So after such a batch the next ones run in the order of the stream,
//! unplanned, and one in [`BATCHES_IN_LINE`] is planned again to see whether the stream has changed. The
//! outcome is the same either way.
//!
//! Source: Hobbes 3.3.3 (batch locking) with `weft_txn::waves` in place of refusal; DESIGN.md, Batches.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_lock::LockRequest;
use weft_store::{Catalog, Store};
use weft_txn::Execution;
use weft_txn::waves::{Arrangement, WAVES_MAX, WavePlanner};
use weft_types::{SqlError, SqlState};

use crate::epoch::worker_count;
use crate::members::MemberRunner;
use crate::needs::{CoarseTables, NeedFinder};
use crate::report::Counts;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

/// Batches in waves.
#[derive(Debug, Clone, Copy)]
pub struct Waves<G = Sound> {
    /// Most members of one batch; never more than there may be waves.
    pub max_members: usize,
    /// Slots of the wave planner.
    pub lock_slots: usize,
    /// Whether members of a wave overlap their memory accesses.
    pub execution: Execution,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for Waves {
    fn default() -> Waves {
        Waves {
            max_members: 1024,
            lock_slots: 1 << 16,
            execution: Execution::Interleaved,
            safeguards: Sound,
        }
    }
}

impl<G> Waves<G> {
    /// The same with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Waves<H> {
        Waves {
            max_members: self.max_members,
            lock_slots: self.lock_slots,
            execution: self.execution,
            safeguards,
        }
    }

    /// The batches of a stream of so many jobs.
    pub fn batches(&self, jobs: usize) -> impl Iterator<Item = Range<usize>> + use<G> {
        let members = self.max_members.clamp(1, WAVES_MAX as usize);
        let batch = move |first: usize| first..jobs.min(first + members);
        (0..jobs).step_by(members).map(batch)
    }
}

/// Batches that follow one with hardly anything to run side by side, unplanned.
const BATCHES_IN_LINE: u32 = 15;
/// A batch with fewer members than so many for each wave is a line.
const MEMBERS_PER_WAVE: usize = 2;
/// A batch of fewer says nothing about the stream.
const TELLING_MEMBERS: usize = 64;

/// Whether the stream has become a line, one behind the other.
#[derive(Debug, Default)]
struct Line {
    /// Batches to come that are not planned.
    left: u32,
}

impl Line {
    /// Learns from a planned batch.
    fn learn(&mut self, plan: &WavePlan) {
        let members = plan.members().len();
        let is_line = members >= TELLING_MEMBERS && members < plan.ends().len() * MEMBERS_PER_WAVE;
        self.left = if is_line { BATCHES_IN_LINE } else { 0 };
    }

    /// True if the next batch needs no plan. Counts it.
    fn takes_next(&mut self) -> bool {
        let takes = self.left > 0;
        self.left = self.left.saturating_sub(1);
        takes
    }
}

/// Jobs whose slots are fetched before the first of them is placed.
const GROUP_JOBS: usize = 16;

/// A planned batch: members in order of waves, and where each wave ends. Keeps its memory between batches.
#[derive(Debug, Default)]
pub struct WavePlan {
    /// What is placed, in stream order: jobs, and the wave of each.
    jobs: Vec<usize>,
    waves: Vec<u32>,
    arrangement: Arrangement,
    /// Jobs by wave, in stream order within each.
    members: Vec<usize>,
    group: Group,
}

/// Jobs about to be placed: the requests of all, and where each one's end.
#[derive(Debug, Default)]
struct Group {
    jobs: Vec<usize>,
    requests: Vec<LockRequest>,
    ends: Vec<usize>,
}

impl WavePlan {
    /// The jobs, wave after wave.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Where each wave ends in [`WavePlan::members`].
    pub fn ends(&self) -> &[usize] {
        self.arrangement.ends()
    }

    /// Members that stand back for others: behind the first wave.
    pub fn deferrals(&self) -> u64 {
        let first = self.ends().first().copied().unwrap_or(0);
        (self.members.len() - first) as u64
    }

    /// Places all jobs of a range one behind the other.
    fn line_up(&mut self, range: Range<usize>) {
        self.arrangement.arrange(0..range.len() as u32);
        self.members.clear();
        self.members.extend(range);
    }

    /// Sorts what is placed by wave.
    fn arrange(&mut self) {
        self.arrangement.arrange(self.waves.iter().copied());
        let jobs = &self.jobs;
        let by_place = self.arrangement.order().iter();
        self.members.clear();
        self.members.extend(by_place.filter_map(|index| jobs.get(*index)));
    }

    /// Places the jobs of the group. A batch of at most [`WAVES_MAX`] jobs has waves for all.
    fn place_group(&mut self, planner: &mut WavePlanner, mut fails: impl FnMut(usize, SqlError)) {
        let Group { jobs, requests, ends } = &mut self.group;
        let mut start = 0;
        for (job, end) in jobs.iter().zip(&*ends) {
            match planner.place(requests.get(start..*end).unwrap_or_default()) {
                Some(wave) => {
                    self.jobs.push(*job);
                    self.waves.push(wave);
                }
                None => fails(*job, too_many_waves()),
            }
            start = *end;
        }
        jobs.clear();
        requests.clear();
        ends.clear();
    }
}

fn too_many_waves() -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        "the batch has as many waves as it may have",
    )
}

/// Plans the batches of a stream, one after the other.
#[derive(Debug)]
pub struct BatchPlanner {
    coarse: CoarseTables,
    finder: NeedFinder,
    planner: WavePlanner,
    plan: WavePlan,
}

impl BatchPlanner {
    /// Over so many slots, for the stream whose tables these are.
    pub fn new(coarse: CoarseTables, lock_slots: usize) -> BatchPlanner {
        BatchPlanner {
            coarse,
            finder: NeedFinder::default(),
            planner: WavePlanner::new(lock_slots),
            plan: WavePlan::default(),
        }
    }

    /// Plans one batch from the jobs of a range. Jobs whose inputs do not fit are told to `fails`.
    pub fn plan<G: Safeguards>(
        &mut self,
        jobs: &[Job],
        range: Range<usize>,
        catalog: &Catalog,
        mut fails: impl FnMut(usize, SqlError),
    ) -> &WavePlan {
        let BatchPlanner {
            coarse,
            finder,
            planner,
            plan,
        } = self;
        planner.begin();
        plan.jobs.clear();
        plan.waves.clear();
        for n in range {
            let Some(job) = jobs.get(n) else { break };
            match finder.guarded_requests::<G>(job, catalog, coarse) {
                Ok(requests) => {
                    planner.fetch(requests);
                    plan.group.jobs.push(n);
                    plan.group.requests.extend_from_slice(requests);
                    plan.group.ends.push(plan.group.requests.len());
                }
                Err(error) => fails(n, error),
            }
            if plan.group.jobs.len() == GROUP_JOBS {
                plan.place_group(planner, &mut fails);
            }
        }
        plan.place_group(planner, &mut fails);
        plan.arrange();
        plan
    }

    /// One batch in the order of the stream, unplanned.
    fn line_up(&mut self, range: Range<usize>) -> &WavePlan {
        self.plan.line_up(range);
        &self.plan
    }
}

impl<G: Safeguards> Protocol for Waves<G> {
    const NAME: &'static str = "waves";

    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let mut report = RunReport::default();
        let began = Instant::now();
        let mut planner = BatchPlanner::new(CoarseTables::of(jobs), self.lock_slots);
        let mut runner = MemberRunner::new(jobs, observe, self.execution, worker_count(workers));
        let mut planning = Duration::ZERO;
        let mut line = Line::default();
        for range in self.batches(jobs.len()) {
            let planned = Instant::now();
            let catalog = store.catalog();
            let batch = range.clone();
            let plan = if line.takes_next() {
                planner.line_up(batch)
            } else {
                let plan = planner.plan::<G>(jobs, batch, &catalog, |n, error| {
                    report.failed += 1;
                    observe.answered(n, Err(&error));
                });
                line.learn(plan);
                plan
            };
            report.deferrals += plan.deferrals();
            planning += planned.elapsed();
            runner.run_waves(store, plan.members(), plan.ends());
            report.batches += 1;
            let latency = planned.elapsed();
            range
                .filter(|n| Counts::start(*n).is_some())
                .for_each(|_| report.latency.add(latency));
        }
        runner.report(&mut report);
        report.elapsed = began.elapsed();
        report.planning = planning;
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(members: usize, waves: u32) -> WavePlan {
        let mut plan = WavePlan::default();
        plan.jobs.extend(0..members);
        plan.waves.extend((0..members).map(|n| n as u32 % waves));
        plan.arrange();
        plan
    }

    #[test]
    fn a_line_is_followed_for_some_batches_and_then_looked_at_again() {
        let mut line = Line::default();
        assert!(!line.takes_next());
        line.learn(&plan(1000, 500));
        assert!(!line.takes_next(), "two may run side by side everywhere");
        line.learn(&plan(TELLING_MEMBERS - 1, TELLING_MEMBERS as u32 - 1));
        assert!(!line.takes_next(), "too few to tell");
        line.learn(&plan(1000, 501));
        for _ in 0..BATCHES_IN_LINE {
            assert!(line.takes_next());
        }
        assert!(!line.takes_next());
        line.learn(&plan(1000, 1));
        assert!(!line.takes_next());
    }

    #[test]
    fn a_line_up_has_every_job_in_order_in_a_wave_of_its_own() {
        let mut lined = plan(10, 2);
        lined.line_up(5..9);
        assert_eq!(lined.members(), [5, 6, 7, 8]);
        assert_eq!(lined.ends(), [1, 2, 3, 4]);
    }
}
