//! Running the members of one wave.
//!
//! The members of a wave do not conflict (DESIGN.md, invariant 2), so they run in any order and on any
//! thread. That freedom is used twice: a worker runs its members in groups, so that their memory accesses
//! overlap ([`group`]), and a large wave is split among workers ([`workers`]). Which worker ran what, and
//! when, enters nothing: row ids come from the member's place, and the digest does not depend on order.
//!
//! ```text
//!   members  0 ........ 2047 | 2048 ........ 4095      one range for each worker
//!            [64][64][64] ..   [64][64][64] ..         claimed in morsels; who is through helps the others
//!             +- group: fetch all declared keys, then execute, turning to the next at every wait
//! ```
//!
//! What a member comes to goes into an [`AnswerSink`], one for each worker, while the buffers it lies in
//! still belong to the executor: who only counts allocates nothing.
//!
//! Source: Hobbes 3.3.3 (isolation by admission alone); BionicDB 4.5 (a batch executed as one).

mod group;
mod workers;

use crate::request::{Answer, Committed, Refused};
use group::{BatchGround, SnapshotGround};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_base::BatchId;
use weft_program::{Outcome, Program};
use weft_store::{BatchWriter, ReadView};
use weft_types::SqlError;

/// Instructions a one-shot program may execute. Running out is an error of that program alone.
pub(crate) const INSTRUCTION_BUDGET: u32 = 1_000_000;

/// Members a worker claims at once: a few groups.
const MORSEL_MEMBERS: usize = 64;

/// What one member does.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// A one-shot program.
    Program {
        /// What to run.
        program: &'a Arc<Program>,
        /// Its encoded inputs.
        inputs: &'a [u8],
    },
    /// A session's write set.
    WriteSet(&'a [u8]),
}

/// How a worker runs its members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Execution {
    /// One after the other: for measuring what interleaving is worth.
    Serial,
    /// In groups whose memory accesses overlap.
    #[default]
    Interleaved,
}

/// Takes what members come to, in no particular order.
pub trait AnswerSink: Send {
    /// A member has ended. The outcome may be taken; it is reused otherwise. `observed` is the highest batch
    /// that the answer depends on.
    fn answer(&mut self, member: usize, result: Result<&mut Outcome, SqlError>, observed: BatchId);
}

impl<F: FnMut(usize, Result<&mut Outcome, SqlError>, BatchId) + Send> AnswerSink for F {
    fn answer(&mut self, member: usize, result: Result<&mut Outcome, SqlError>, observed: BatchId) {
        self(member, result, observed);
    }
}

/// Keeps the answers with their members' numbers.
struct Collected(Vec<(usize, Answer<Committed>)>);

impl AnswerSink for Collected {
    fn answer(&mut self, member: usize, result: Result<&mut Outcome, SqlError>, observed: BatchId) {
        let answer = match result {
            Ok(outcome) => Ok(Committed {
                outcome: std::mem::take(outcome),
                batch: observed,
                observed,
            }),
            Err(error) => Err(Box::new(Refused { error, observed })),
        };
        self.0.push((member, answer));
    }
}

/// Runs one member of a batch. Its place makes its row ids; nobody else may run in conflict with it
/// meanwhile.
pub fn run_member(
    writer: &BatchWriter<'_>,
    batch: BatchId,
    member: usize,
    work: Work<'_>,
) -> Answer<Committed> {
    let mut answers = Collected(Vec::with_capacity(1));
    run_member_into(writer, batch, member, work, &mut answers);
    let lost = || Err(Refused::early(crate::engine::lost_answer()));
    answers.0.pop().map_or_else(lost, |(_, answer)| answer)
}

/// As [`run_member`], with the answer into a sink: allocates nothing in steady state.
pub fn run_member_into<S: AnswerSink>(
    writer: &BatchWriter<'_>,
    batch: BatchId,
    member: usize,
    work: Work<'_>,
    sink: &mut S,
) {
    group::run_one(&BatchGround { writer, batch }, member, work, sink);
}

/// Fetches what some programs' declared keys lead to, so that running them soon finds it in the cache. A
/// hint, for those who run members one by one.
pub fn fetch_ahead<'a>(writer: &BatchWriter<'_>, batch: BatchId, works: impl Iterator<Item = Work<'a>>) {
    group::fetch_ahead(&BatchGround { writer, batch }, works);
}

/// Runs all members and returns their answers in member order. `workers` threads share the work, the caller's
/// included; with one, or a batch below `split_at`, the caller does it alone.
pub fn run_wave(
    writer: &BatchWriter<'_>,
    batch: BatchId,
    members: &[Work<'_>],
    workers: usize,
    split_at: usize,
) -> Vec<Answer<Committed>> {
    run_wave_as(Execution::default(), writer, batch, members, workers, split_at)
}

/// As [`run_wave`], in a given way.
pub fn run_wave_as(
    execution: Execution,
    writer: &BatchWriter<'_>,
    batch: BatchId,
    members: &[Work<'_>],
    workers: usize,
    split_at: usize,
) -> Vec<Answer<Committed>> {
    let workers = if members.len() < split_at {
        1
    } else {
        workers.max(1)
    };
    let share = members.len().div_ceil(workers);
    let mut sinks: Vec<Collected> = (0..workers)
        .map(|_| Collected(Vec::with_capacity(share)))
        .collect();
    run_wave_into(execution, writer, batch, members, &mut sinks);
    let mut answers = std::mem::take(&mut sinks)
        .into_iter()
        .map(|sink| sink.0)
        .reduce(|mut all, more| {
            all.extend(more);
            all
        })
        .unwrap_or_default();
    answers.sort_unstable_by_key(|(n, _)| *n);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Runs all members on as many workers as there are sinks, the caller's thread included. Every member is
/// answered once, into the sink of the worker that ran it.
pub fn run_wave_into<S: AnswerSink>(
    execution: Execution,
    writer: &BatchWriter<'_>,
    batch: BatchId,
    members: &[Work<'_>],
    sinks: &mut [S],
) {
    run_shared(&BatchGround { writer, batch }, execution, members, sinks);
}

/// Runs programs that only read at a view's boundary, on as many workers as there are sinks.
pub fn run_reads_into<S: AnswerSink>(
    execution: Execution,
    view: ReadView<'_>,
    members: &[Work<'_>],
    sinks: &mut [S],
) {
    run_shared(&SnapshotGround { view }, execution, members, sinks);
}

/// Runs programs that only read at a view's boundary, on this thread; answers in their order.
pub(crate) fn run_reads(
    execution: Execution,
    view: ReadView<'_>,
    calls: &[Work<'_>],
) -> Vec<Answer<Committed>> {
    let mut sinks = [Collected(Vec::with_capacity(calls.len()))];
    run_reads_into(execution, view, calls, &mut sinks);
    let [Collected(mut answers)] = sinks;
    answers.sort_unstable_by_key(|(n, _)| *n);
    let batch = view.batch();
    let at_boundary = |committed: Committed| Committed { batch, ..committed };
    answers
        .into_iter()
        .map(|(_, answer)| answer.map(at_boundary))
        .collect()
}

fn run_shared<G: group::Ground, S: AnswerSink>(
    ground: &G,
    execution: Execution,
    members: &[Work<'_>],
    sinks: &mut [S],
) {
    let run = |range: Range<usize>, sink: &mut S| match execution {
        Execution::Serial => {
            for (n, work) in members.iter().enumerate().take(range.end).skip(range.start) {
                group::run_one(ground, n, *work, sink);
            }
        }
        Execution::Interleaved => group::run_range(ground, members, range, sink),
    };
    if let [sink] = sinks {
        return run(0..members.len(), sink);
    }
    let shares = Shares::new(members.len(), sinks.len());
    let sinks: Vec<Mutex<&mut S>> = sinks.iter_mut().map(Mutex::new).collect();
    workers::run(sinks.len(), &|worker| {
        if let Some(mut sink) = sinks.get(worker).map(Mutex::lock) {
            while let Some(morsel) = shares.claim(worker) {
                run(morsel, &mut sink);
            }
        }
    });
}

/// A range of members; on lines of its own, so that a worker that claims from its own disturbs nobody.
#[repr(align(128))]
struct Share {
    next: AtomicUsize,
    end: usize,
}

/// The members of a wave in one range for each worker.
struct Shares(Vec<Share>);

impl Shares {
    fn new(members: usize, workers: usize) -> Shares {
        let bound = |worker: usize| members * worker / workers.max(1);
        let share = |worker| Share {
            next: AtomicUsize::new(bound(worker)),
            end: bound(worker + 1),
        };
        Shares((0..workers).map(share).collect())
    }

    /// The next morsel of a worker's own range, or of another's when that is through.
    fn claim(&self, worker: usize) -> Option<Range<usize>> {
        let (before, from) = self.0.split_at_checked(worker)?;
        from.iter().chain(before).find_map(|share| {
            if share.next.load(Ordering::Relaxed) >= share.end {
                return None;
            }
            let start = share.next.fetch_add(MORSEL_MEMBERS, Ordering::Relaxed);
            (start < share.end).then(|| start..share.end.min(start + MORSEL_MEMBERS))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_claimed_once_whoever_comes() {
        for (members, workers) in [(0, 1), (1, 2), (63, 2), (64, 3), (1000, 4)] {
            for only in 0..workers {
                let shares = Shares::new(members, workers);
                let mut seen = vec![0; members];
                let first = shares.claim((only + 1) % workers);
                for range in first.into_iter().chain(std::iter::from_fn(|| shares.claim(only))) {
                    seen[range].iter_mut().for_each(|count| *count += 1);
                }
                assert!(
                    seen.iter().all(|count| *count == 1),
                    "{members} members, {workers} workers"
                );
            }
        }
    }
}
