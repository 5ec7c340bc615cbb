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
    pub ticket: Responder<Committed>,
}

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
