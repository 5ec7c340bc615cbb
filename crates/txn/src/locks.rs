//! From what a program touches to the locks it needs.
//!
//! A program declares its accesses; for bound inputs each becomes requests on the hierarchy of Barthels
//! 2.3.5: the table in an intention mode, a partition of the primary key's order in an intention mode, the
//! row itself. A reader of a key range takes the partitions in S and a writer of one takes them in X, so
//! whoever touches a row in the range conflicts with it whatever index was used: everybody who locks a row
//! knows its primary key. Keys of several columns have partitions of one and of two columns.
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
use weft_types::{ColumnKind, SqlError, SqlState, SqlType, range_prefix_len};

/// The requests of one statement or program; most have three.
pub type LockRequests = SmallVec<[LockRequest; 8]>;

/// How many requests an access has, more or less.
const REQUESTS_PER_ACCESS: usize = 3;

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

/// Adds a request for what many accesses of a program share; the last ones first, since accesses of one table
/// follow one another.
fn push(out: &mut LockRequests, resource: ResourceId, mode: LockMode) {
    let asked = |r: &LockRequest| r.resource == resource && r.mode == mode;
    if !out.iter().rev().any(asked) {
        out.push(LockRequest { resource, mode });
    }
}

/// Levels of partitions between table and row, at most.
const LEVELS_MAX: usize = 2;

/// How many bytes of an encoded primary key name its partition, level by level from coarse to fine; none
/// without a primary key.
///
/// A key of one column has one level: keys that agree in all but the last byte of a fixed column, or in the
/// first nine bytes of a variable one. A key of several columns has its first column as the first level and,
/// if it has three or more, its first two as the second, so that a range of one prefix is one partition.
fn partition_levels(def: &TableDef) -> SmallVec<[usize; LEVELS_MAX]> {
    let mut levels = SmallVec::new();
    let Some(index) = def.primary_index() else {
        return levels;
    };
    let column_type = |number: usize| {
        let column = index.columns.get(number)?;
        def.columns.get(*column).map(|column| &column.ty)
    };
    // A marker and the bytes of a fixed column.
    let whole = |ty: &SqlType| match ty.column_kind() {
        ColumnKind::Fixed(bytes) => Some(1 + usize::from(bytes)),
        ColumnKind::Variable => None,
    };
    let Some(first) = column_type(0) else {
        return levels;
    };
    match whole(first).filter(|_| index.columns.len() > 1) {
        None => levels.push(range_prefix_len(first)),
        Some(len) => {
            levels.push(len);
            let second = column_type(1).filter(|_| index.columns.len() > 2);
            levels.extend(second.and_then(whole).map(|second| len + second));
        }
    }
    levels
}

/// Adds the locks for one row by its encoded primary key (empty key: a row of a table without one).
pub fn row_locks(out: &mut LockRequests, def: &TableDef, key: &[u8], write: bool) {
    let (intent, mode) = if write {
        (LockMode::IX, LockMode::X)
    } else {
        (LockMode::IS, LockMode::S)
    };
    push(out, ResourceId::table(def.id), intent);
    if key.is_empty() {
        return;
    }
    for len in partition_levels(def) {
        let prefix = key.get(..len).unwrap_or(key);
        push(out, ResourceId::range(def.id, prefix), intent);
    }
    // Asked twice for, a row is locked once; looking for it would cost more.
    let resource = ResourceId::row(def.id, key);
    out.push(LockRequest { resource, mode });
}

/// The partitions of one level that hold all keys between two prefixes, as first name, last number and bytes
/// before it; `None` when they are too many or a bound is too short to tell.
fn partitions_between<'k>(lo: &'k [u8], hi: &[u8], len: usize) -> Option<(&'k [u8], u128, u128)> {
    let (first, last) = (lo.get(..len)?, hi.get(..len)?);
    let (head, tail) = first.split_at(len.saturating_sub(16));
    if last.get(..head.len())? != head {
        return None;
    }
    let number = |bytes: &[u8]| bytes.iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    let (from, to) = (number(tail), number(last.get(head.len()..)?));
    (to.saturating_sub(from) < RANGE_PARTITIONS_MAX).then_some((head, from, to))
}

/// Locks for all keys between two primary keys: partitions of the finest level that holds them in few.
fn range_locks(out: &mut LockRequests, def: &TableDef, lo: &[u8], hi: &[u8], write: bool) {
    let (intent, mode) = if write {
        (LockMode::IX, LockMode::X)
    } else {
        (LockMode::IS, LockMode::S)
    };
    let levels = partition_levels(def);
    for (depth, &len) in levels.iter().enumerate().rev() {
        let Some((head, from, to)) = partitions_between(lo, hi, len) else {
            continue;
        };
        push(out, ResourceId::table(def.id), intent);
        for partition in from..=to {
            let mut name: SmallVec<[u8; 32]> = SmallVec::from_slice(head);
            let bytes = partition.to_be_bytes();
            let tail = len - head.len();
            name.extend_from_slice(bytes.get(bytes.len() - tail..).unwrap_or_default());
            for coarser in levels.iter().take(depth) {
                let prefix = name.get(..*coarser).unwrap_or(&name);
                push(out, ResourceId::range(def.id, prefix), intent);
            }
            push(out, ResourceId::range(def.id, &name), mode);
        }
        return;
    }
    push(out, ResourceId::table(def.id), mode);
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
            Some(hi) => range_locks(out, def, key, hi, false),
            None => push(out, ResourceId::table(def.id), LockMode::S),
        },
        AccessKind::WriteRange => match hi {
            Some(hi) => range_locks(out, def, key, hi, true),
            None => push(out, ResourceId::table(def.id), LockMode::X),
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
    if program.accesses.len() > out.inline_size() / REQUESTS_PER_ACCESS {
        out.reserve(REQUESTS_PER_ACCESS * program.accesses.len());
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamps::BatchLocks;
    use proptest::prelude::*;
    use weft_base::IndexId;
    use weft_store::{ColumnDef, IndexDef, IndexMethod};
    use weft_types::{ValueRef, encode_key_value_ref};

    const TABLE: TableId = TableId(7);

    /// A table whose primary key has so many integer columns.
    fn table(columns: usize) -> TableDef {
        let names = ["w", "d", "o", "n"];
        let defs = names.map(|name| ColumnDef::new(name, SqlType::Int4).not_null());
        TableDef::new(TABLE, "t", defs.to_vec()).with_index(IndexDef {
            id: IndexId(8),
            name: "t_pkey".into(),
            table: TABLE,
            columns: (0..columns).collect(),
            unique: true,
            primary: true,
            method: IndexMethod::Both,
        })
    }

    fn key(values: &[i32]) -> Vec<u8> {
        let mut key = Vec::new();
        for value in values {
            encode_key_value_ref(&mut key, &ValueRef::Int4(*value));
        }
        key
    }

    /// One access: from a prefix to a prefix, or one row.
    #[derive(Clone, Debug)]
    struct Touch {
        lo: Vec<i32>,
        hi: Vec<i32>,
        row: bool,
        write: bool,
    }

    impl Touch {
        fn holds(&self, row: &[i32]) -> bool {
            let (lo, hi) = (row.get(..self.lo.len()), row.get(..self.hi.len()));
            lo >= Some(self.lo.as_slice()) && hi <= Some(self.hi.as_slice())
        }

        fn locks(&self, def: &TableDef) -> LockRequests {
            let kind = match (self.row, self.write) {
                (true, false) => AccessKind::ReadRow,
                (true, true) => AccessKind::WriteRow,
                (false, false) => AccessKind::ReadRange,
                (false, true) => AccessKind::WriteRange,
            };
            let mut out = LockRequests::new();
            let access = Access::table(kind, TABLE);
            let hi = key(&self.hi);
            let hi = (!self.row).then_some(hi.as_slice());
            access_locks(
                &mut out,
                def,
                &access,
                &key(&self.lo),
                hi,
                LockScope::ReadsAndWrites,
            );
            out
        }
    }

    fn touch(columns: usize) -> impl Strategy<Value = Touch> {
        let value = prop_oneof![0..3i32, 250..260i32];
        let part = prop::collection::vec(value, columns);
        (
            part.clone(),
            part,
            any::<bool>(),
            any::<bool>(),
            0..=columns,
            0..=columns,
        )
            .prop_map(move |(lo, hi, row, write, keep_lo, keep_hi)| {
                let cut = |mut key: Vec<i32>, keep: usize| {
                    key.truncate(keep);
                    key
                };
                match row {
                    true => Touch {
                        hi: lo.clone(),
                        lo,
                        row,
                        write,
                    },
                    // As often one prefix as two.
                    false if keep_lo == keep_hi => {
                        let lo = cut(lo, keep_lo);
                        Touch {
                            hi: lo.clone(),
                            lo,
                            row,
                            write,
                        }
                    }
                    false => Touch {
                        lo: cut(lo, keep_lo),
                        hi: cut(hi, keep_hi),
                        row,
                        write,
                    },
                }
            })
    }

    fn rows(columns: usize) -> Vec<Vec<i32>> {
        let values = [0, 1, 2, 250, 251, 252, 253, 254, 255, 256, 257, 258, 259];
        let mut rows = vec![Vec::new()];
        for _ in 0..columns {
            rows = rows
                .into_iter()
                .flat_map(|row: Vec<i32>| {
                    values.iter().map(move |value| {
                        let mut row = row.clone();
                        row.push(*value);
                        row
                    })
                })
                .collect();
        }
        rows
    }

    proptest! {
        /// Two accesses that meet in a row which one of them may change are never admitted into one batch.
        #[test]
        fn who_meets_in_a_row_is_kept_apart(
            (columns, one, other) in (1..=3usize).prop_flat_map(|n| (Just(n), touch(n), touch(n)))
        ) {
            let def = table(columns);
            let meet = (one.write || other.write)
                && rows(columns).iter().any(|row| one.holds(row) && other.holds(row));
            let mut locks = BatchLocks::new(1 << 20);
            prop_assert!(locks.admit(&one.locks(&def)));
            let admitted = locks.admit(&other.locks(&def));
            prop_assert!(!(meet && admitted), "{one:?} {other:?}");
        }
    }

    #[test]
    fn writers_of_different_prefixes_go_together() {
        let def = table(3);
        let range = |prefix: &[i32], write| Touch {
            lo: prefix.to_vec(),
            hi: prefix.to_vec(),
            row: false,
            write,
        };
        let mut locks = BatchLocks::new(1 << 20);
        assert!(locks.admit(&range(&[1, 1], true).locks(&def)));
        assert!(locks.admit(&range(&[1, 2], true).locks(&def)));
        assert!(locks.admit(&range(&[2], true).locks(&def)));
        assert!(!locks.admit(&range(&[1, 2], false).locks(&def)));
        assert!(!locks.admit(&range(&[1], true).locks(&def)));
        assert!(!locks.admit(&range(&[2, 5], true).locks(&def)));
        assert!(locks.admit(&range(&[3, 5], false).locks(&def)));
    }
}
