//! Requests to the sequencer and their answers.

use crate::locks::LockRequests;
use crate::prepared::PreparedTxn;
use crate::ticket::{Responder, TicketCell};
use parking_lot::Mutex;
use std::sync::Arc;
use weft_base::{BatchId, TxnId};
use weft_lock::LockRequest;
use weft_program::{AccessKeys, Outcome, Program};
use weft_store::{CatalogOp, Prepared};
use weft_types::SqlError;
use weft_types::interrupt::Interrupt;

/// A transaction that was executed.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    /// What its statements returned.
    pub outcome: Outcome,
    /// The batch it was part of; for a read-only program the boundary it read at.
    pub batch: BatchId,
    /// The highest batch it observed: a reply may be sent once this batch is durable (DESIGN.md, invariant
    /// 3).
    pub observed: BatchId,
}

/// An answer with the batch that must be durable before it is sent; this holds for errors too.
pub type Answer<T> = Result<T, Box<Refused>>;

/// An error and what it observed.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The error to report.
    pub error: SqlError,
    /// The highest batch that the refusal depends on.
    pub observed: BatchId,
}

impl Refused {
    /// An error that depends on no data.
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
    /// Keys of its accesses.
    pub keys: AccessKeys,
    pub locks: LockRequests,
    /// As computed by [`ProgramRequest::count_held_bytes`].
    pub held_bytes: usize,
    pub ticket: Responder<Committed>,
}

/// A program of at least this size counts in the queue's memory: it usually belongs to one statement with
/// long constants. Shorter ones are shared and kept by the sessions that prepared them.
const LONG_PROGRAM_BYTES: usize = 64 << 10;

impl ProgramRequest {
    /// About how much memory a request uses while it waits.
    pub(crate) fn count_held_bytes(program: &Program, inputs: &Vec<u8>, locks: &LockRequests) -> usize {
        let program = program.encoded_len();
        let own_program = if program < LONG_PROGRAM_BYTES { 0 } else { program };
        size_of::<ProgramRequest>() + inputs.capacity() + size_of_val(locks.as_slice()) + own_program
    }

    /// Its size in a record, without the program's definition.
    pub(crate) fn record_bytes(&self) -> usize {
        MEMBER_BYTES + self.inputs.len()
    }
}

/// What a transaction did, as its commit applies it.
#[derive(Debug, Default)]
pub(crate) struct TxnWrites {
    pub catalog_ops: Vec<CatalogOp>,
    /// What was done for these already.
    pub preparations: Mutex<Vec<Prepared>>,
    pub write_set: Vec<u8>,
}

impl TxnWrites {
    /// Its maximum size in a record.
    pub(crate) fn record_bytes(&self) -> usize {
        let ops = self.encoded_ops();
        let ops = ops.iter().map(|bytes| bytes.len() + MEMBER_BYTES);
        MEMBER_BYTES + self.write_set.len() + ops.sum::<usize>()
    }

    /// Its catalog operations as a record has them.
    pub(crate) fn encoded_ops(&self) -> Vec<Vec<u8>> {
        let encode = |op: &CatalogOp| {
            let mut bytes = Vec::new();
            op.encode(&mut bytes);
            bytes
        };
        self.catalog_ops.iter().map(encode).collect()
    }
}

/// The fixed part of a member in a record: tag, hash, lengths.
pub(crate) const MEMBER_BYTES: usize = 32;

/// An interactive transaction's commit, or that of a prepared one.
#[derive(Debug)]
pub(crate) struct CommitRequest {
    pub txn: TxnId,
    pub work: CommitWork,
    /// What can end the statement while it changes definitions, if anything can.
    pub interrupt: Option<Arc<dyn Interrupt>>,
    pub ticket: Responder<Committed>,
}

/// Where the writes of a commit are.
#[derive(Debug)]
pub(crate) enum CommitWork {
    /// With the transaction, until now.
    Session(TxnWrites),
    /// With the sequencer, since it was prepared.
    Prepared(Arc<PreparedTxn>),
}

impl CommitRequest {
    pub(crate) fn writes(&self) -> &TxnWrites {
        match &self.work {
            CommitWork::Session(writes) => writes,
            CommitWork::Prepared(prepared) => &prepared.writes,
        }
    }
}

/// A transaction that is to be prepared: its locks are kept, and its session has no more part in it.
#[derive(Debug)]
pub(crate) struct PrepareRequest {
    pub txn: Arc<PreparedTxn>,
    pub ticket: Responder<Committed>,
}

/// What can be asked about a prepared transaction, by name.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    pub name: Arc<str>,
    pub what: PreparedStep,
    pub ticket: Responder<Committed>,
}

/// What becomes of a prepared transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreparedStep {
    Commit,
    RollBack,
    /// It stays prepared, and stands in the log again if it does not since the newest checkpoint began.
    DefineAgain,
}

/// A transaction's request for locks.
#[derive(Debug)]
pub(crate) struct AcquireRequest {
    pub txn: TxnId,
    /// What its session also holds locks under (`weft_lock::LockTable::acquire_with_ally`).
    pub ally: Option<TxnId>,
    pub requests: Vec<LockRequest>,
    /// True if the transaction holds no lock yet; only then may the sequencer let it wait for a starving
    /// program.
    pub first: bool,
    /// Refuse at once if a lock is not free.
    pub no_wait: bool,
    pub ticket: Responder<()>,
}

/// Everything that can be asked of the sequencer.
#[derive(Debug)]
pub(crate) enum Request {
    Program(ProgramRequest),
    Commit(CommitRequest),
    Prepare(PrepareRequest),
    Prepared(PreparedRequest),
    Lock(AcquireRequest),
    CancelWait(TxnId),
    /// Ends a transaction's wait and gives back locks, down to these modes.
    Lower(TxnId, Vec<LockRequest>),
    /// Removes a program that has not been admitted, and refuses it with this error.
    CancelProgram(Arc<TicketCell<Answer<Committed>>>, SqlError),
    Release(TxnId),
}
