//! From what a program touches to the locks it needs.
//!
//! A program declares its accesses; for bound inputs each becomes requests on the hierarchy of Barthels
//! 2.3.5: the table in an intention mode, a partition of the primary key's order in an intention mode, the
//! row itself. A reader of a key range takes the partitions in S, so whoever writes into the range
//! conflicts with it whatever index the writer used: every writer of a row knows the row's primary key.
//! Readers by another index, and of ranges that span too many partitions, take the whole table in S:
//! coarse, but never wrong.
//!
//! Source: DESIGN.md (Batches, Lock table); Barthels 2.3.5.

use smallvec::SmallVec;
use std::sync::Arc;
use weft_base::TableId;
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_program::{Access, AccessKind, AccessScratch, Program};
use weft_store::{Catalog, TableDef};
use weft_types::{SqlError, SqlState, range_prefix_len};

/// The requests of one statement or program; most have three.
pub type LockRequests = SmallVec<[LockRequest; 8]>;

/// Partitions a range may span before the whole table is locked instead.
const RANGE_PARTITIONS_MAX: u128 = 16;

/// Which of a program's accesses need locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockScope {
    /// Reads and writes: batch members and SERIALIZABLE transactions.
    ReadsAndWrites,
    /// Writes only: READ COMMITTED and REPEATABLE READ, whose reads are from snapshots.
    Writes,
}

fn push(out: &mut LockRequests, resource: ResourceId, mode: LockMode) {
    if !out.iter().any(|r| r.resource == resource && r.mode == mode) {
        out.push(LockRequest { resource, mode });
    }
}

/// How many bytes of an encoded primary key name its partition; `None` without a primary key.
fn partition_prefix_len(def: &TableDef) -> Option<usize> {
    let first = def
        .primary_index()
        .and_then(|index| index.columns.first().copied())?;
    Some(range_prefix_len(&def.columns.get(first)?.ty))
}

/// The partition of a table's primary key order that a key belongs to; `None` without a primary key.
fn partition_prefix<'k>(def: &TableDef, key: &'k [u8]) -> Option<&'k [u8]> {
    Some(&key[..key.len().min(partition_prefix_len(def)?)])
}

/// Locks for one row by its primary key (empty key: a row of a table without one).
pub(crate) fn row_locks(out: &mut LockRequests, def: &TableDef, key: &[u8], write: bool) {
    let (intent, mode) = if write {
        (LockMode::IX, LockMode::X)
    } else {
        (LockMode::IS, LockMode::S)
    };
    push(out, ResourceId::table(def.id), intent);
    if key.is_empty() {
        return;
    }
    if let Some(prefix) = partition_prefix(def, key) {
        push(out, ResourceId::range(def.id, prefix), intent);
    }
    push(out, ResourceId::row(def.id, key), mode);
}

/// Locks for all keys between two primary keys.
fn range_locks(out: &mut LockRequests, def: &TableDef, lo: &[u8], hi: &[u8]) {
    let (Some(first), Some(last)) = (partition_prefix(def, lo), partition_prefix(def, hi)) else {
        push(out, ResourceId::table(def.id), LockMode::S);
        return;
    };
    let prefix_len = partition_prefix_len(def).unwrap_or(usize::MAX);
    // A bound shorter than a partition's name begins several partitions, those of longer keys among them.
    if first.len() < prefix_len || last.len() < prefix_len || prefix_len > 16 {
        push(out, ResourceId::table(def.id), LockMode::S);
        return;
    }
    let number = |prefix: &[u8]| prefix.iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    let (from, to) = (number(first), number(last));
    if to.saturating_sub(from) >= RANGE_PARTITIONS_MAX {
        push(out, ResourceId::table(def.id), LockMode::S);
        return;
    }
    push(out, ResourceId::table(def.id), LockMode::IS);
    for partition in from..=to {
        let bytes = partition.to_be_bytes();
        push(
            out,
            ResourceId::range(def.id, &bytes[16 - first.len()..]),
            LockMode::S,
        );
    }
}

fn access_locks(
    out: &mut LockRequests,
    def: &TableDef,
    access: &Access,
    key: &[u8],
    hi: Option<&[u8]>,
    scope: LockScope,
) {
    let reads = scope == LockScope::ReadsAndWrites;
    match access.kind {
        AccessKind::ReadRow if reads => row_locks(out, def, key, false),
        AccessKind::ReadRange if reads => match hi {
            Some(hi) => range_locks(out, def, key, hi),
            None => push(out, ResourceId::table(def.id), LockMode::S),
        },
        AccessKind::ReadTable if reads => push(out, ResourceId::table(def.id), LockMode::S),
        AccessKind::ReadRow | AccessKind::ReadRange | AccessKind::ReadTable => {}
        AccessKind::WriteRow | AccessKind::InsertRow => row_locks(out, def, key, true),
        AccessKind::WriteTable => push(out, ResourceId::table(def.id), LockMode::X),
        AccessKind::WriteValue(index) => {
            push(out, ResourceId::table(def.id), LockMode::IX);
            push(out, ResourceId::value(index, key), LockMode::X);
        }
    }
}

/// All locks that `program` needs for `inputs`, in the order of its accesses.
pub fn program_locks(
    program: &Program,
    inputs: &[u8],
    catalog: &Catalog,
    scope: LockScope,
    scratch: &mut AccessScratch,
) -> Result<LockRequests, SqlError> {
    let mut out = LockRequests::new();
    let mut missing: Option<TableId> = None;
    program.for_each_access(inputs, scratch, |access, key, hi| {
        match catalog.table_by_id(access.table) {
            Some(def) => access_locks(&mut out, def, access, key, hi, scope),
            None => missing = Some(access.table),
        }
    })?;
    match missing {
        Some(_) => Err(stale_program()),
        None => Ok(out),
    }
}

/// The definition of a table, or the error for a program that outlived it.
pub(crate) fn table_def(catalog: &Catalog, table: TableId) -> Result<&Arc<TableDef>, SqlError> {
    catalog.table_by_id(table).ok_or_else(stale_program)
}

/// Weft's own SQLSTATE for a statement compiled for an older catalog; sessions retry and never show it.
const STALE_PROGRAM: SqlState = SqlState("WF001");

/// A program compiled for a catalog that is no longer there. Callers compile the statement again and retry.
pub fn stale_program() -> SqlError {
    SqlError::new(STALE_PROGRAM, "the statement was compiled for an older catalog")
}

/// True when the error says that the statement must be compiled again.
pub fn is_stale(error: &SqlError) -> bool {
    error.state == STALE_PROGRAM
}
