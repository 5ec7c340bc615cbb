//! From the accesses of a program to the locks that it needs.
//!
//! A program declares its accesses; for bound inputs each becomes requests on the hierarchy of Barthels
//! 2.3.5: the table in an intention mode, a partition of the primary key's order in an intention mode, the
//! row itself. A reader of a key range locks the partitions in S and a writer of one locks them in X, so it
//! conflicts with everybody who touches a row in the range, whatever index was used: whoever locks a row
//! knows its primary key. Keys of several columns have partitions of one and of two columns. Readers by
//! another index, and of ranges that span too many partitions, lock the whole table in S: coarse, but never
//! wrong.
//!
//! Source: DESIGN.md (Batches, Lock table); Barthels 2.3.5.

use crate::lock_plan::LockPlans;
use smallvec::SmallVec;
use std::sync::Arc;
use weft_base::TableId;
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_program::{Access, AccessKeys, Program};
use weft_store::{Catalog, TableDef};
use weft_types::{ColumnKind, SqlError, SqlState, SqlType, range_prefix_len};

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

/// Adds a request that many accesses of a program may share; the last ones are compared first, since accesses
/// of one table follow one another.
fn push(out: &mut LockRequests, resource: ResourceId, mode: LockMode) {
    let asked = |r: &LockRequest| r.resource == resource && r.mode == mode;
    if !out.iter().rev().any(asked) {
        out.push(LockRequest { resource, mode });
    }
}

/// The most levels of partitions between table and row.
pub(crate) const LEVELS_MAX: usize = 2;

/// How many bytes of a key name a partition, from coarse to fine.
pub(crate) type Levels = SmallVec<[usize; LEVELS_MAX]>;

/// How many bytes of an encoded primary key name its partition, level by level from coarse to fine, given the
/// types of its columns; none for a table without a primary key.
///
/// A key of one column has one level: keys that agree in all but the last byte of a fixed column, or in the
/// first nine bytes of a variable one. A key of several columns has its first column as the first level and,
/// if it has three or more, its first two as the second, so that a range of one prefix is one partition.
pub(crate) fn partition_levels<'t>(key: impl ExactSizeIterator<Item = Option<&'t SqlType>>) -> Levels {
    let mut levels = Levels::new();
    let columns = key.len();
    let mut key = key.fuse();
    // A marker byte and the bytes of a fixed column.
    let whole = |ty: &SqlType| match ty.column_kind() {
        ColumnKind::Fixed(bytes) => Some(1 + usize::from(bytes)),
        ColumnKind::Variable => None,
    };
    let Some(first) = key.next().flatten() else {
        return levels;
    };
    match whole(first).filter(|_| columns > 1) {
        None => levels.push(range_prefix_len(first)),
        Some(len) => {
            levels.push(len);
            let second = key.next().flatten().filter(|_| columns > 2);
            levels.extend(second.and_then(whole).map(|second| len + second));
        }
    }
    levels
}

/// The same for a table of the catalog.
fn table_levels(def: &TableDef) -> Levels {
    let Some(index) = def.primary_index() else {
        return Levels::new();
    };
    let column_type = |column: &usize| def.columns.get(*column).map(|column| &column.ty);
    partition_levels(index.columns.iter().map(column_type))
}

/// The modes of a row's or partition's table, and of itself.
pub(crate) fn modes(write: bool) -> (LockMode, LockMode) {
    match write {
        true => (LockMode::IX, LockMode::X),
        false => (LockMode::IS, LockMode::S),
    }
}

/// Adds the locks for one row by its encoded primary key (empty key: a row of a table without one).
pub fn row_locks(out: &mut LockRequests, def: &TableDef, key: &[u8], write: bool) {
    let (intent, mode) = modes(write);
    push(out, ResourceId::table(def.id), intent);
    if key.is_empty() {
        return;
    }
    for len in table_levels(def) {
        let prefix = key.get(..len).unwrap_or(key);
        push(out, ResourceId::range(def.id, prefix), intent);
    }
    // A duplicate request is harmless; searching for it would cost more.
    let resource = ResourceId::row(def.id, key);
    out.push(LockRequest { resource, mode });
}

/// The partitions of one level that hold all keys between two prefixes, as first name, last number and the
/// bytes before it; `None` if they are too many or a bound is too short.
pub(crate) fn partitions_between<'k>(lo: &'k [u8], hi: &[u8], len: usize) -> Option<(&'k [u8], u128, u128)> {
    let (first, last) = (lo.get(..len)?, hi.get(..len)?);
    let (head, tail) = first.split_at(len.saturating_sub(16));
    if last.get(..head.len())? != head {
        return None;
    }
    let number = |bytes: &[u8]| bytes.iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    let (from, to) = (number(tail), number(last.get(head.len()..)?));
    (to.saturating_sub(from) < RANGE_PARTITIONS_MAX).then_some((head, from, to))
}

/// All locks that `program` needs for `inputs`: those of tables first, then the others in the order of its
/// accesses. Leaves the keys of the accesses in `keys`.
pub fn program_locks(
    program: &Program,
    inputs: &[u8],
    catalog: &Catalog,
    scope: LockScope,
    keys: &mut AccessKeys,
) -> Result<LockRequests, SqlError> {
    let is_gone = |access: &Access| catalog.table_by_id(access.table).is_none();
    if program.catalog_version != catalog.version() && program.accesses.iter().any(is_gone) {
        return Err(stale_program());
    }
    declared_locks(program, inputs, scope, keys)
}

/// The same, for a caller that checks later whether the program was compiled for the catalog of its batch.
pub(crate) fn declared_locks(
    program: &Program,
    inputs: &[u8],
    scope: LockScope,
    keys: &mut AccessKeys,
) -> Result<LockRequests, SqlError> {
    match program.derived(LockPlans::of) {
        Some(plans) => plans.locks(program, inputs, scope, keys),
        // The program's cache holds another type.
        None => LockPlans::of(program).locks(program, inputs, scope, keys),
    }
}

/// The definition of a table, or the error for a program that outlived it.
pub(crate) fn table_def(catalog: &Catalog, table: TableId) -> Result<&Arc<TableDef>, SqlError> {
    catalog.table_by_id(table).ok_or_else(stale_program)
}

/// Weft's own SQLSTATE for a statement compiled for an older catalog; sessions retry and never show it.
const STALE_PROGRAM: SqlState = SqlState("WF001");

/// The error for a program compiled for a catalog version that is gone. Callers compile the statement again
/// and retry.
pub fn stale_program() -> SqlError {
    SqlError::new(STALE_PROGRAM, "the statement was compiled for an older catalog")
}

/// True when the error says that the statement must be compiled again.
pub fn is_stale(error: &SqlError) -> bool {
    error.state == STALE_PROGRAM
}
