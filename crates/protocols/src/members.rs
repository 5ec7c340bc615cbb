//! Runs members that do not conflict, through the product's executor.
//!
//! Unless the observer wants to see installs, waves are run by the executor of crate `txn`, whose groups
//! overlap their memory accesses and whose threads persist. Otherwise each member runs separately on a
//! [`Runner`], so that each write can be reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_base::BatchId;
use weft_program::Outcome;
use weft_store::{BatchWriter, Store};
use weft_txn::Execution;
use weft_txn::planning::{AnswerSink, Work, run_waves_into};
use weft_types::SqlError;

use crate::epoch::{Runner, in_batch};
use crate::report::Counts;
use crate::{Job, Observe, RunReport};

/// Minimum number of members for which a wave is divided among threads.
const SPLIT_MEMBERS: usize = 256;

/// The state that a worker keeps.
#[derive(Default)]
struct Worker {
    counts: Counts,
    runner: Runner,
}

/// Runs one batch after another.
pub(crate) struct MemberRunner<'j, O> {
    jobs: &'j [Job],
    observe: &'j O,
    execution: Execution,
    workers: Vec<Worker>,
    works: Vec<Work<'j>>,
}

/// Counts the outcomes of members.
struct Sink<'s, O> {
    counts: &'s mut Counts,
    /// The jobs of the batch, by position.
    members: &'s [usize],
    observe: &'s O,
}

impl<O: Observe> AnswerSink for Sink<'_, O> {
    fn answer(&mut self, member: usize, result: Result<&mut Outcome, SqlError>, _: BatchId) {
        self.counts.ended(result.is_ok());
        if let Some(job) = self.members.get(member) {
            match &result {
                Ok(outcome) => self.observe.answered(*job, Ok(outcome)),
                Err(error) => self.observe.answered(*job, Err(error)),
            }
        }
    }
}

impl<'j, O: Observe> MemberRunner<'j, O> {
    pub fn new(jobs: &'j [Job], observe: &'j O, execution: Execution, workers: usize) -> Self {
        MemberRunner {
            jobs,
            observe,
            execution,
            workers: (0..workers.max(1)).map(|_| Worker::default()).collect(),
            works: Vec::new(),
        }
    }

    /// Runs waves one after the other, as one batch of the store; each is the slice of `members` up to its
    /// end. The members of a wave do not conflict. A large wave is divided among all workers.
    pub fn run_waves(&mut self, store: &Arc<Store>, members: &[usize], wave_ends: &[usize]) {
        if members.is_empty() {
            return;
        }
        in_batch(store, |writer, _| {
            if !O::INSTALLS {
                return self.run_through(writer, members, wave_ends);
            }
            let mut start = 0;
            for end in wave_ends {
                self.run_observed(writer, start, members.get(start..*end).unwrap_or_default());
                start = *end;
            }
        });
    }

    fn work(&self, job: usize) -> Option<Work<'j>> {
        let job = self.jobs.get(job)?;
        Some(Work::Program {
            program: &job.program,
            inputs: &job.inputs,
            keys: None,
        })
    }

    fn run_through(&mut self, writer: &BatchWriter<'_>, members: &[usize], wave_ends: &[usize]) {
        let mut works = std::mem::take(&mut self.works);
        works.clear();
        works.extend(members.iter().filter_map(|job| self.work(*job)));
        let observe = self.observe;
        let sink = |worker| Sink {
            counts: worker,
            members,
            observe,
        };
        let mut sinks: Vec<Sink<'_, O>> = self
            .workers
            .iter_mut()
            .map(|worker| sink(&mut worker.counts))
            .collect();
        run_waves_into(
            self.execution,
            writer,
            writer.batch().into(),
            &works,
            wave_ends,
            SPLIT_MEMBERS,
            &mut sinks,
        );
        drop(sinks);
        self.works = works;
    }

    fn run_observed(&mut self, writer: &BatchWriter<'_>, first: usize, wave: &[usize]) {
        let next = AtomicUsize::new(0);
        let (jobs, observe) = (self.jobs, self.observe);
        let work = |worker: &mut Worker| {
            while let Some(n) = wave.get(next.fetch_add(1, Ordering::Relaxed)) {
                let Some(job) = jobs.get(*n) else { continue };
                let committed = worker.runner.run_member(writer, first + n, job, *n, observe);
                worker.counts.ended(committed);
            }
        };
        if let Some((mine, others)) = self.workers.split_first_mut() {
            let work = &work;
            std::thread::scope(|scope| {
                for other in others.iter_mut().take(wave.len().saturating_sub(1)) {
                    scope.spawn(move || work(other));
                }
                work(mine);
            });
        }
    }

    /// Adds the counts to a report.
    pub fn report(&self, report: &mut RunReport) {
        self.workers
            .iter()
            .for_each(|worker| report.add_counts(&worker.counts));
    }
}
