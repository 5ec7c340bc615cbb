//! Batches of several waves: conflicting transactions go to a later wave of the same batch, not to a later
//! batch.
//!
//! Conflicting transactions keep stream order, so the outcome is that of serial execution, and one hot key
//! costs no more than running its transactions serially.
//!
//! If nearly every transaction conflicts with an earlier one, planning finds no parallelism and costs a third
//! of the execution time. After such a batch, the next ones therefore run in stream order, unplanned, and one
//! in [`BATCHES_SERIAL`] is planned again to detect that the stream has changed. The outcome is the same in
//! both cases.
//!
//! Source: Hobbes 3.3.3 (batch locking) with `weft_txn::waves` instead of refusal; DESIGN.md, Batches.

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

/// Batches of several waves.
#[derive(Debug, Clone, Copy)]
pub struct Waves<G = Sound> {
    /// Maximum number of members per batch, limited by the number of waves.
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
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Waves<H> {
        Waves {
            max_members: self.max_members,
            lock_slots: self.lock_slots,
            execution: self.execution,
            safeguards,
        }
    }

    /// The batches of a stream of `jobs` jobs.
    pub fn batches(&self, jobs: usize) -> impl Iterator<Item = Range<usize>> + use<G> {
        let members = self.max_members.clamp(1, WAVES_MAX as usize);
        let batch = move |first: usize| first..jobs.min(first + members);
        (0..jobs).step_by(members).map(batch)
    }
}

/// Batches that run unplanned after one with hardly any parallelism.
const BATCHES_SERIAL: u32 = 15;
/// A batch with fewer members per wave than this is serial.
const MEMBERS_PER_WAVE: usize = 2;
/// Smaller batches are not representative of the stream.
const REPRESENTATIVE_MEMBERS: usize = 64;

/// Whether the stream has become serial.
#[derive(Debug, Default)]
struct SerialPhase {
    /// The number of further batches that are not planned.
    remaining: u32,
}

impl SerialPhase {
    /// Updates the state after a planned batch.
    fn update(&mut self, plan: &WavePlan) {
        let members = plan.members().len();
        let is_serial = members >= REPRESENTATIVE_MEMBERS && members < plan.ends().len() * MEMBERS_PER_WAVE;
        self.remaining = if is_serial { BATCHES_SERIAL } else { 0 };
    }

    /// Whether the next batch needs no plan. Counts it.
    fn skips_planning(&mut self) -> bool {
        let takes = self.remaining > 0;
        self.remaining = self.remaining.saturating_sub(1);
        takes
    }
}

/// Jobs whose slots are prefetched before the first of them is placed.
const GROUP_JOBS: usize = 16;

/// A planned batch: members in wave order, and the end of each wave. Reuses its memory.
#[derive(Debug, Default)]
pub struct WavePlan {
    /// The placed jobs in stream order, and the wave of each.
    jobs: Vec<usize>,
    waves: Vec<u32>,
    arrangement: Arrangement,
    /// Jobs by wave, in stream order within each wave.
    members: Vec<usize>,
    group: Group,
}

/// Jobs about to be placed: all requests, and where those of each job end.
#[derive(Debug, Default)]
struct Group {
    jobs: Vec<usize>,
    requests: Vec<LockRequest>,
    ends: Vec<usize>,
}

impl WavePlan {
    /// The jobs, in wave order.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// The end of each wave in [`WavePlan::members`].
    pub fn ends(&self) -> &[usize] {
        self.arrangement.ends()
    }

    /// Deferred members: those after the first wave.
    pub fn deferrals(&self) -> u64 {
        let first = self.ends().first().copied().unwrap_or(0);
        (self.members.len() - first) as u64
    }

    /// Places each job of a range in its own wave.
    fn plan_serially(&mut self, range: Range<usize>) {
        self.arrangement.arrange(0..range.len() as u32);
        self.members.clear();
        self.members.extend(range);
    }

    /// Sorts the placed jobs by wave.
    fn arrange(&mut self) {
        self.arrangement.arrange(self.waves.iter().copied());
        let jobs = &self.jobs;
        let by_wave = self.arrangement.order().iter();
        self.members.clear();
        self.members.extend(by_wave.filter_map(|index| jobs.get(*index)));
    }

    /// Places the jobs of the group. A batch of at most [`WAVES_MAX`] jobs has enough waves for all.
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

/// Plans the batches of a stream in order.
#[derive(Debug)]
pub struct BatchPlanner {
    coarse: CoarseTables,
    finder: NeedFinder,
    planner: WavePlanner,
    plan: WavePlan,
}

impl BatchPlanner {
    /// A planner with `lock_slots` slots, for a stream with these tables.
    pub fn new(coarse: CoarseTables, lock_slots: usize) -> BatchPlanner {
        BatchPlanner {
            coarse,
            finder: NeedFinder::default(),
            planner: WavePlanner::new(lock_slots),
            plan: WavePlan::default(),
        }
    }

    /// Plans one batch from a range of jobs. Jobs whose inputs do not fit are passed to `fails`.
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

    /// A batch in stream order, unplanned.
    fn plan_serially(&mut self, range: Range<usize>) -> &WavePlan {
        self.plan.plan_serially(range);
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
        let mut phase = SerialPhase::default();
        for range in self.batches(jobs.len()) {
            let planned = Instant::now();
            let catalog = store.catalog();
            let batch = range.clone();
            let plan = if phase.skips_planning() {
                planner.plan_serially(batch)
            } else {
                let plan = planner.plan::<G>(jobs, batch, &catalog, |n, error| {
                    report.failed += 1;
                    observe.answered(n, Err(&error));
                });
                phase.update(plan);
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
    fn a_serial_stream_is_planned_again_after_some_batches() {
        let mut phase = SerialPhase::default();
        assert!(!phase.skips_planning());
        phase.update(&plan(1000, 500));
        assert!(!phase.skips_planning(), "two may run side by side everywhere");
        phase.update(&plan(
            REPRESENTATIVE_MEMBERS - 1,
            REPRESENTATIVE_MEMBERS as u32 - 1,
        ));
        assert!(!phase.skips_planning(), "too few to tell");
        phase.update(&plan(1000, 501));
        for _ in 0..BATCHES_SERIAL {
            assert!(phase.skips_planning());
        }
        assert!(!phase.skips_planning());
        phase.update(&plan(1000, 1));
        assert!(!phase.skips_planning());
    }

    #[test]
    fn a_serial_plan_has_one_wave_per_job_in_order() {
        let mut serial = plan(10, 2);
        serial.plan_serially(5..9);
        assert_eq!(serial.members(), [5, 6, 7, 8]);
        assert_eq!(serial.ends(), [1, 2, 3, 4]);
    }
}
