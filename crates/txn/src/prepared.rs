//! Prepared transactions: two-phase commit, seen from one database.
//!
//! PREPARE TRANSACTION ends a transaction for its session. What it wrote and what it locked goes into the log
//! under a name and stays with the sequencer, until somebody says what becomes of it: a commit applies the
//! writes as a member of a batch, a rollback forgets them. A crash in between changes nothing: recovery finds
//! the definition in the log and takes the locks again before anything else runs.
//!
//! ```text
//! prepare ──> definition in the head of a record ──> kept here, locks held ──> commit: a member, by name
//!               ^ again before a checkpoint is valid                       ──> rollback: a name in the head
//! ```
//!
//! Invariants: 1. A transaction that was told to be prepared is defined in the log that recovery reads, until
//! its end is. 2. Its locks are held until its end. 3. Its end is decided once: while one is under way,
//! others are refused.
//!
//! Source: Barthels 5.2.3 (votes); the durable vote is ours (decision 0045).

use crate::record::PreparedRecord;
use crate::request::{Answer, Committed, MEMBER_BYTES, PreparedStep, Refused, TxnWrites};
use crate::ticket::Responder;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_base::codec::{ByteReader, CodecError};
use weft_base::{BatchId, Reservation, TxnId};
use weft_lock::LockRequest;
use weft_store::CatalogOp;
use weft_types::{SqlError, SqlState};

/// Longest name of a prepared transaction in bytes, as in PostgreSQL.
pub const PREPARED_NAME_BYTES_MAX: usize = 199;

/// A transaction that is prepared, or about to be.
#[derive(Debug)]
pub(crate) struct PreparedTxn {
    pub name: Arc<str>,
    pub owner: Arc<str>,
    pub prepared_micros: i64,
    pub txn: TxnId,
    pub locks: Vec<LockRequest>,
    pub writes: TxnWrites,
    /// The memory of its writes.
    pub _memory: Option<Reservation>,
}

impl PreparedTxn {
    /// Its definition in a record.
    pub(crate) fn record(&self) -> PreparedRecord {
        PreparedRecord {
            name: self.name.to_string(),
            owner: self.owner.to_string(),
            prepared_micros: self.prepared_micros,
            locks: self.locks.clone(),
            catalog_ops: self.writes.encoded_ops(),
            write_set: self.writes.write_set.clone(),
        }
    }

    /// What recovery found in the log, under a number of this life.
    pub(crate) fn recovered(record: PreparedRecord, txn: TxnId) -> Result<PreparedTxn, CodecError> {
        let ops = record.catalog_ops.iter();
        let ops = ops.map(|bytes| CatalogOp::decode(&mut ByteReader::new(bytes)));
        Ok(PreparedTxn {
            name: record.name.into(),
            owner: record.owner.into(),
            prepared_micros: record.prepared_micros,
            txn,
            locks: record.locks,
            writes: TxnWrites {
                catalog_ops: ops.collect::<Result<_, _>>()?,
                preparations: Mutex::default(),
                write_set: record.write_set,
            },
            _memory: None,
        })
    }

    /// Its maximum size in a record.
    pub(crate) fn record_bytes(&self) -> usize {
        MEMBER_BYTES
            + self.name.len()
            + self.owner.len()
            + self.writes.record_bytes()
            + self.locks.len() * size_of::<LockRequest>()
    }
}

/// A prepared transaction as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedInfo {
    /// Its name.
    pub name: Arc<str>,
    /// The user who prepared it.
    pub owner: Arc<str>,
    /// Microseconds since 1970, when it was prepared.
    pub prepared_micros: i64,
    /// Its number in this life of the database.
    pub txn: TxnId,
}

/// What was decided about a prepared transaction, other than its commit.
#[derive(Debug)]
pub(crate) struct DecidedRequest {
    pub txn: Arc<PreparedTxn>,
    /// It is rolled back; otherwise it is defined again.
    pub ends: bool,
    pub ticket: Responder<Committed>,
}

#[derive(Debug)]
struct Entry {
    txn: Arc<PreparedTxn>,
    /// Whether it is in the log since the newest checkpoint began.
    is_defined: bool,
    /// Whether its end is under way.
    is_ending: bool,
}

/// The prepared transactions of a database, by name.
#[derive(Debug, Default)]
pub(crate) struct PreparedTxns {
    by_name: BTreeMap<Arc<str>, Entry>,
}

fn undefined(name: &str) -> SqlError {
    let message = format!("prepared transaction with identifier \"{name}\" does not exist");
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

impl PreparedTxns {
    /// Those that recovery found.
    pub(crate) fn recovered(txns: impl IntoIterator<Item = Arc<PreparedTxn>>) -> PreparedTxns {
        let mut all = PreparedTxns::default();
        txns.into_iter().for_each(|txn| all.insert(txn));
        all
    }

    pub(crate) fn transactions(&self) -> impl Iterator<Item = &Arc<PreparedTxn>> {
        self.by_name.values().map(|entry| &entry.txn)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// From here on the log defines none of them.
    pub(crate) fn forget_definitions(&mut self) {
        self.by_name
            .values_mut()
            .for_each(|entry| entry.is_defined = false);
    }

    pub(crate) fn is_defined(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|entry| entry.is_defined)
    }

    pub(crate) fn set_defined(&mut self, name: &str) {
        if let Some(entry) = self.by_name.get_mut(name) {
            entry.is_defined = true;
        }
    }

    /// One that was prepared by a batch that is in the log.
    pub(crate) fn insert(&mut self, txn: Arc<PreparedTxn>) {
        let entry = Entry {
            txn: Arc::clone(&txn),
            is_defined: true,
            is_ending: false,
        };
        self.by_name.insert(Arc::clone(&txn.name), entry);
    }

    /// The end of one: it is in the log.
    pub(crate) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// The end of one was refused: it stays prepared.
    pub(crate) fn stay(&mut self, name: &str) {
        if let Some(entry) = self.by_name.get_mut(name) {
            entry.is_ending = false;
        }
    }

    /// Begins a step of one. None: there is nothing to do, and `boundary` is the answer.
    pub(crate) fn begin(
        &mut self,
        name: &str,
        step: PreparedStep,
        boundary: BatchId,
    ) -> Answer<Option<Arc<PreparedTxn>>> {
        let again = step == PreparedStep::DefineAgain;
        let refused = |error| {
            Box::new(Refused {
                error,
                observed: boundary,
            })
        };
        match self.by_name.get_mut(name) {
            Some(entry) if again => Ok((!entry.is_defined).then(|| Arc::clone(&entry.txn))),
            None if again => Ok(None),
            None => Err(refused(undefined(name))),
            Some(entry) if entry.is_ending => {
                let message = format!("prepared transaction with identifier \"{name}\" is busy");
                Err(refused(SqlError::new(SqlState("55000"), message)))
            }
            Some(entry) => {
                entry.is_ending = true;
                Ok(Some(Arc::clone(&entry.txn)))
            }
        }
    }
}

/// The error of a name that is in use.
pub(crate) fn name_in_use(name: &str) -> SqlError {
    let message = format!("transaction identifier \"{name}\" is already in use");
    SqlError::new(SqlState::DUPLICATE_OBJECT, message)
}

/// The error of one transaction too many.
pub(crate) fn too_many(count_max: usize) -> SqlError {
    let message = "maximum number of prepared transactions reached";
    SqlError::new(SqlState::OUT_OF_MEMORY, message).detail(format!("At most {count_max} are kept."))
}
