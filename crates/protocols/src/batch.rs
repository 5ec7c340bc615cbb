//! Deterministic batches: admit what does not conflict, run it without any lock, put the rest off.
//!
//! Source: Hobbes 3.3.3, Algorithm 1, with stamps in place of cleared bitmaps. Deferred transactions go first
//! into the next batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_base::BatchId;
use weft_store::Store;
use weft_txn::planning::{LockScope, Work, program_locks, run_wave};
use weft_txn::stamps::BatchLocks;

use crate::{Job, Protocol, RunReport};

/// Batch locking as the product does it.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Most members of one batch.
    pub max_members: usize,
    /// Slots of the batch lock manager.
    pub lock_slots: usize,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            max_members: 4096,
            lock_slots: 1 << 16,
        }
    }
}

impl Protocol for Batch {
    const NAME: &'static str = "batch";

    fn run(&self, store: &Arc<Store>, jobs: &[Job], workers: usize) -> RunReport {
        let mut report = RunReport::default();
        let mut locks = BatchLocks::new(self.lock_slots);
        let mut scratch = Default::default();
        let mut deferred: VecDeque<usize> = VecDeque::new();
        let mut next = 0;
        let began = Instant::now();
        let mut planning = Duration::ZERO;
        while next < jobs.len() || !deferred.is_empty() {
            let planned = Instant::now();
            let catalog = store.catalog();
            locks.begin();
            let mut members = Vec::with_capacity(self.max_members);
            let mut put_off = VecDeque::new();
            while members.len() < self.max_members {
                let Some(n) = deferred.pop_front().or_else(|| {
                    next += 1;
                    (next <= jobs.len()).then(|| next - 1)
                }) else {
                    break;
                };
                let job = &jobs[n];
                let scope = LockScope::ReadsAndWrites;
                match program_locks(&job.program, &job.inputs, &catalog, scope, &mut scratch) {
                    Err(_) => report.failed += 1,
                    Ok(requests) if locks.admit(&requests) => {
                        members.push(Work::Program {
                            program: &job.program,
                            inputs: &job.inputs,
                        });
                    }
                    Ok(_) => {
                        report.deferrals += 1;
                        put_off.push_back(n);
                        if put_off.len() >= self.max_members {
                            break;
                        }
                    }
                }
            }
            put_off.append(&mut deferred);
            deferred = put_off;
            planning += planned.elapsed();
            run_batch(store, &members, workers, &mut report);
        }
        report.elapsed = began.elapsed();
        report.planning = planning;
        report
    }
}

fn run_batch(store: &Arc<Store>, members: &[Work<'_>], workers: usize, report: &mut RunReport) {
    if members.is_empty() {
        return;
    }
    let batch = BatchId(store.boundary().0 + 1);
    let writer = store.begin_batch(batch);
    let answers = run_wave(&writer, batch, members, workers, 2 * workers);
    writer.finish();
    store.publish(batch);
    store.collect_garbage(usize::MAX);
    let committed = answers.iter().filter(|answer| answer.is_ok()).count() as u64;
    report.committed += committed;
    report.failed += answers.len() as u64 - committed;
    report.batches += 1;
}
