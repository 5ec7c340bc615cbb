//! Batches of several waves: who conflicts goes into a later wave of the same batch, not into a later batch.
//!
//! Conflicting transactions keep the order of the stream, so the outcome is that of the stream one by one,
//! and one hot key costs no more than running its transactions one after the other.
//!
//! Source: Hobbes 3.3.3 (batch locking) with `weft_txn::waves` in place of refusal; DESIGN.md, Batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_store::{Catalog, Store};
use weft_txn::Execution;
use weft_txn::waves::WavePlanner;

use crate::epoch::worker_count;
use crate::members::MemberRunner;
use crate::needs::{CoarseTables, NeedFinder};
use crate::report::Counts;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

/// Batches in waves.
#[derive(Debug, Clone, Copy)]
pub struct Waves<G = Sound> {
    /// Most members of one batch.
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
}

/// A planned batch: members in order of waves, and where each wave ends.
#[derive(Debug, Default)]
pub struct WavePlan {
    /// Job and wave, in stream order.
    placed: Vec<(usize, u32)>,
    /// Jobs by wave, in stream order within each.
    members: Vec<usize>,
    ends: Vec<usize>,
}

impl WavePlan {
    /// The jobs, wave after wave.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Where each wave ends in [`WavePlan::members`].
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// Sorts what is placed by wave: counts, sums, deals out.
    fn arrange(&mut self, wave_count: u32) {
        self.ends.clear();
        self.ends.resize(wave_count as usize, 0);
        for (_, wave) in &self.placed {
            if let Some(count) = self.ends.get_mut(*wave as usize) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for count in &mut self.ends {
            sum += std::mem::replace(count, sum);
        }
        self.members.clear();
        self.members.resize(sum, 0);
        for (job, wave) in &self.placed {
            if let Some(at) = self.ends.get_mut(*wave as usize) {
                if let Some(place) = self.members.get_mut(*at) {
                    *place = *job;
                }
                *at += 1;
            }
        }
    }
}

/// Plans one batch from the jobs of a range. Jobs whose inputs do not fit are told to `fails`.
pub fn plan_waves<G: Safeguards>(
    jobs: &[Job],
    range: std::ops::Range<usize>,
    catalog: &Catalog,
    coarse: &CoarseTables,
    (finder, planner, plan): (&mut NeedFinder, &mut WavePlanner, &mut WavePlan),
    mut fails: impl FnMut(usize, weft_types::SqlError),
) {
    planner.begin();
    plan.placed.clear();
    for n in range {
        let Some(job) = jobs.get(n) else { break };
        match finder.guarded_requests::<G>(job, catalog, coarse) {
            Ok(requests) => plan.placed.push((n, planner.place(requests))),
            Err(error) => fails(n, error),
        }
    }
    plan.arrange(planner.wave_count());
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
        let coarse = CoarseTables::of(jobs);
        let mut planner = WavePlanner::new(self.lock_slots);
        let (mut finder, mut plan) = (NeedFinder::default(), WavePlan::default());
        let mut runner = MemberRunner::new(jobs, observe, self.execution, worker_count(workers));
        let mut planning = Duration::ZERO;
        let max_members = self.max_members.max(1);
        for first in (0..jobs.len()).step_by(max_members) {
            let planned = Instant::now();
            let catalog = store.catalog();
            let range = first..jobs.len().min(first + max_members);
            let count = range.len();
            let parts = (&mut finder, &mut planner, &mut plan);
            plan_waves::<G>(jobs, range, &catalog, &coarse, parts, |n, error| {
                report.failed += 1;
                observe.answered(n, Err(&error));
            });
            report.deferrals += plan.ends.first().map_or(0, |first| plan.members.len() - first) as u64;
            planning += planned.elapsed();
            runner.run_waves(store, &plan.members, &plan.ends);
            report.batches += 1;
            let latency = planned.elapsed();
            (first..first + count)
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

    #[test]
    fn members_stand_by_wave_and_in_stream_order_within() {
        let mut plan = WavePlan {
            placed: vec![(5, 1), (6, 0), (7, 2), (8, 0), (9, 1)],
            ..WavePlan::default()
        };
        plan.arrange(3);
        assert_eq!(plan.members, [6, 8, 5, 9, 7]);
        assert_eq!(plan.ends, [2, 4, 5]);
        plan.placed.clear();
        plan.arrange(0);
        assert!(plan.members.is_empty() && plan.ends.is_empty());
    }
}
