//! What callers ask of the sequencer, and what they get back.

use crate::locks::LockRequests;
use crate::ticket::{Responder, TicketCell};
use std::sync::Arc;
use weft_base::{BatchId, TxnId};
use weft_lock::LockRequest;
use weft_program::{AccessKeys, Outcome, Program};
use weft_store::CatalogOp;
use weft_types::SqlError;
use weft_types::interrupt::Interrupt;

/// A transaction that took its place in the order.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    /// What its statements returned.
    pub outcome: Outcome,
    /// The batch it stood in; for a program that only reads, the boundary it read at.
    pub batch: BatchId,
    /// The highest batch it observed: a reply may be sent once this batch is durable (DESIGN.md, invariant
    /// 3).
    pub observed: BatchId,
}

/// An answer, with the batch that must be durable before it is given, errors included.
pub type Answer<T> = Result<T, Box<Refused>>;

/// A refusal and what it observed.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The error to report.
    pub error: SqlError,
    /// The highest batch that the refusal depends on.
    pub observed: BatchId,
}

impl Refused {
    /// A refusal that depends on no data.
    pub(crate) fn early(error: SqlError) -> Box<Refused> {
        Box::new(Refused {
            error,
            observed: BatchId::default(),
        })
    }
}

/// A one-shot program waiting for a batch.
#[derive(Debug)]
pub(crate) struct ProgramRequest {
    pub program: Arc<Program>,
    pub inputs: Vec<u8>,
    /// Of its accesses.
    pub keys: AccessKeys,
    pub locks: LockRequests,
    /// As [`ProgramRequest::count_held_bytes`] has it.
    pub held_bytes: usize,
    pub ticket: Responder<Committed>,
}

/// A program from this size on counts in the queue's memory: it is one statement's own, as a rule, with long
/// constants. Shorter ones are kept by who prepared them and shared.
const LONG_PROGRAM_BYTES: usize = 64 << 10;

impl ProgramRequest {
    /// About how much memory a request holds while it waits.
    pub(crate) fn count_held_bytes(program: &Program, inputs: &Vec<u8>, locks: &LockRequests) -> usize {
        let program = program.encoded_len();
        let own_program = if program < LONG_PROGRAM_BYTES { 0 } else { program };
        size_of::<ProgramRequest>() + inputs.capacity() + size_of_val(locks.as_slice()) + own_program
    }

    /// Bytes that it takes in a record, its program's definition not counted.
    pub(crate) fn record_bytes(&self) -> usize {
        MEMBER_BYTES + self.inputs.len()
    }
}

impl CommitRequest {
    /// Bytes that it takes in a record, at most.
    pub(crate) fn record_bytes(&self) -> usize {
        let ops = self.catalog_ops.iter().map(|op| {
            let mut bytes = Vec::new();
            op.encode(&mut bytes);
            bytes.len() + MEMBER_BYTES
        });
        MEMBER_BYTES + self.write_set.len() + ops.sum::<usize>()
    }
}

/// Bytes of a member in a record but for what has any length: tag, hash, lengths.
const MEMBER_BYTES: usize = 32;

/// An interactive transaction's commit.
#[derive(Debug)]
pub(crate) struct CommitRequest {
    pub txn: TxnId,
    pub catalog_ops: Vec<CatalogOp>,
    pub write_set: Vec<u8>,
    /// What ends the statement while it changes definitions, if it can be ended.
    pub interrupt: Option<Arc<dyn Interrupt>>,
    pub ticket: Responder<Committed>,
}

/// A transaction's wish for locks.
#[derive(Debug)]
pub(crate) struct LockWish {
    pub txn: TxnId,
    pub requests: Vec<LockRequest>,
    /// True when the transaction holds nothing yet; only then may the sequencer hold it back for a starving
    /// program.
    pub first: bool,
    /// Refuse at once what is not free at once.
    pub no_wait: bool,
    pub ticket: Responder<()>,
}

/// Anything that can be asked of the sequencer.
#[derive(Debug)]
pub(crate) enum Request {
    Program(ProgramRequest),
    Commit(CommitRequest),
    Lock(LockWish),
    CancelWait(TxnId),
    /// Takes a program out that has not been admitted, and refuses it with this error.
    CancelProgram(Arc<TicketCell<Answer<Committed>>>, SqlError),
    Release(TxnId),
}
