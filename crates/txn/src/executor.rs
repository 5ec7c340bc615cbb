//! Running the members of one wave.
//!
//! The members of a wave do not conflict (DESIGN.md, invariant 2), so they run in any order and on any
//! thread. A small batch runs on the sequencer's own thread; a large one is cut into morsels that workers
//! claim. Which worker ran what enters nothing: row ids come from the member's place, and the digest does
//! not depend on order.
//!
//! Source: Hobbes 3.3.3 (isolation by admission alone); BionicDB 4.5 (a batch executed as one).

use crate::request::{Answer, Committed, Refused};
use crate::write_set;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_base::BatchId;
use weft_program::{BatchAccess, Outcome, Program, Scratch};
use weft_store::BatchWriter;

/// Instructions a one-shot program may execute. Running out is an error of that program alone.
pub(crate) const INSTRUCTION_BUDGET: u32 = 1_000_000;

/// Members a worker claims at once.
const MORSEL_MEMBERS: usize = 32;

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

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Runs one member of a batch. Its place makes its row ids; nobody else may run in conflict with it
/// meanwhile.
pub fn run_member(
    writer: &BatchWriter<'_>,
    batch: BatchId,
    member: usize,
    work: Work<'_>,
) -> Answer<Committed> {
    let mut outcome = Outcome::default();
    let mut member_writer = writer.member(member as u32);
    let result = match work {
        Work::Program { program, inputs } => {
            let mut access = BatchAccess::new(&mut member_writer);
            SCRATCH.with_borrow_mut(|scratch| {
                weft_program::run(
                    program,
                    inputs,
                    &mut access,
                    INSTRUCTION_BUDGET,
                    scratch,
                    &mut outcome,
                )
            })
        }
        Work::WriteSet(bytes) => write_set::apply(bytes, &mut member_writer),
    };
    // The answer stands in the batch's record, a refusal too, so both wait for that record.
    match result {
        Ok(()) => {
            member_writer.commit();
            Ok(Committed {
                outcome,
                batch,
                observed: batch,
            })
        }
        Err(error) => {
            member_writer.rollback();
            Err(Box::new(Refused {
                error,
                observed: batch,
            }))
        }
    }
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
    if workers <= 1 || members.len() < split_at.max(2) {
        return members
            .iter()
            .enumerate()
            .map(|(n, work)| run_member(writer, batch, n, *work))
            .collect();
    }
    let next = AtomicUsize::new(0);
    let claim = || {
        let mut answers = Vec::new();
        loop {
            let start = next.fetch_add(MORSEL_MEMBERS, Ordering::Relaxed);
            let morsel = members.iter().enumerate().skip(start).take(MORSEL_MEMBERS);
            if start >= members.len() {
                return answers;
            }
            answers.extend(morsel.map(|(n, work)| (n, run_member(writer, batch, n, *work))));
        }
    };
    let mut answers = std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(claim)).collect();
        let mut answers = claim();
        for other in others {
            match other.join() {
                Ok(more) => answers.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        answers
    });
    answers.sort_unstable_by_key(|(n, _)| *n);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
