//! The part of a program's locks that does not depend on its inputs, computed once and kept with the program.
//!
//! ```text
//!   plan     tables          requests as they are, each once: most accesses of a program share a table
//!            for each access nothing more | row: levels of partitions, mode | range: the same | value
//!   inputs   key of an access -> hash of each partition's prefix, unless it equals the previous one
//!            on that level; hash of the row
//! ```
//!
//! The requests are those that `locks` describes. A table that the program does not describe is locked as a
//! whole; no verified program touches one.
//!
//! Cost: one hash per partition and row, and one request for each that differs from the previous one. The
//! catalog is not consulted: a program runs only on the catalog version that it was compiled for.

use crate::locks::{
    LEVELS_MAX, Levels, LockRequests, LockScope, modes, partition_levels, partitions_between,
};
use smallvec::SmallVec;
use weft_base::{IndexId, TableId};
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_program::{Access, AccessKeys, AccessKind, BoundKey, Program, TableShape};
use weft_types::SqlError;

/// Levels of partitions, over all tables of a program, for which the last requested partition is remembered.
const REMEMBERED: usize = 16;

/// What an access locks besides its table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AccessLock {
    Nothing,
    Row(TableKey),
    /// From key to key. A range to the end of the table is [`AccessLock::Nothing`], since the table is
    /// locked.
    Range(TableKey),
    Value(IndexId),
}

/// How the rows of an access are located.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TableKey {
    table: TableId,
    is_written: bool,
    levels: Levels,
    /// Index of the remembered partition of the first level; the other levels follow.
    remembered: usize,
}

/// The plan of one scope.
#[derive(Debug, Default)]
struct LockPlan {
    tables: LockRequests,
    access_locks: Vec<AccessLock>,
    /// The expected number of requests.
    expected: usize,
}

/// The plans of a program, by scope.
#[derive(Debug)]
pub(crate) struct LockPlans {
    reads_and_writes: LockPlan,
    writes: LockPlan,
}

impl LockPlans {
    pub(crate) fn of(program: &Program) -> LockPlans {
        LockPlans {
            reads_and_writes: LockPlan::of(program, LockScope::ReadsAndWrites),
            writes: LockPlan::of(program, LockScope::Writes),
        }
    }

    /// The requests for these inputs. Leaves the keys of the accesses in `keys`.
    pub(crate) fn locks(
        &self,
        program: &Program,
        inputs: &[u8],
        scope: LockScope,
        keys: &mut AccessKeys,
    ) -> Result<LockRequests, SqlError> {
        let plan = match scope {
            LockScope::ReadsAndWrites => &self.reads_and_writes,
            LockScope::Writes => &self.writes,
        };
        keys.prepare(program, inputs)?;
        Ok(plan.locks(keys))
    }
}

impl LockPlan {
    fn of(program: &Program, scope: LockScope) -> LockPlan {
        let mut plan = LockPlan::default();
        let mut remembered: Vec<TableId> = Vec::new();
        for access in &program.accesses {
            let shape = program.tables.iter().find(|shape| shape.id == access.table);
            let known = remembered.iter().position(|table| *table == access.table);
            let number = known.unwrap_or_else(|| {
                remembered.push(access.table);
                remembered.len() - 1
            });
            let (mode, access_lock) = match scope == LockScope::Writes && !access.kind.is_write() {
                true => (LockMode::NL, AccessLock::Nothing),
                false => access_lock_of(access, shape, number * LEVELS_MAX),
            };
            plan.request_table(access.table, mode);
            plan.expected += match &access_lock {
                AccessLock::Nothing => 0,
                AccessLock::Value(_) => 1,
                AccessLock::Row(place) | AccessLock::Range(place) => 1 + place.levels.len(),
            };
            plan.access_locks.push(access_lock);
        }
        plan.expected += plan.tables.len();
        plan
    }

    fn request_table(&mut self, table: TableId, mode: LockMode) {
        let resource = ResourceId::table(table);
        let asked = |request: &LockRequest| request.resource == resource && request.mode.covers(mode);
        if mode != LockMode::NL && !self.tables.iter().any(asked) {
            self.tables
                .retain(|request| request.resource != resource || !mode.covers(request.mode));
            self.tables.push(LockRequest { resource, mode });
        }
    }

    fn locks(&self, keys: &AccessKeys) -> LockRequests {
        let mut builder = RequestBuilder {
            out: LockRequests::with_capacity(self.expected),
            last: [LockRequest::new(ResourceId(0), LockMode::NL); REMEMBERED],
        };
        builder.out.extend_from_slice(&self.tables);
        keys.for_each(|number, key| match self.access_locks.get(number) {
            Some(AccessLock::Row(place)) => builder.row(place, key),
            Some(AccessLock::Range(place)) => builder.range(place, key.bytes, key.hi),
            Some(AccessLock::Value(index)) => {
                builder.push(ResourceId::value_hashed(*index, key.hash), LockMode::X);
            }
            Some(AccessLock::Nothing) | None => {}
        });
        builder.out
    }
}

/// What an access locks: the mode of its table, and the rest.
fn access_lock_of(access: &Access, shape: Option<&TableShape>, remembered: usize) -> (LockMode, AccessLock) {
    let is_written = access.kind.is_write();
    let (intent, whole) = modes(is_written);
    let primary = shape.and_then(TableShape::primary_index);
    let place = || {
        let types = shape.map(|shape| shape.columns.as_slice()).unwrap_or_default();
        let columns = primary.map(|index| index.columns.as_slice()).unwrap_or_default();
        TableKey {
            table: access.table,
            is_written,
            levels: partition_levels(columns.iter().map(|column| types.get(*column))),
            remembered,
        }
    };
    match access.kind {
        AccessKind::ReadTable | AccessKind::WriteTable => (whole, AccessLock::Nothing),
        AccessKind::WriteValue(index) => (LockMode::IX, AccessLock::Value(index)),
        _ if shape.is_none() => (whole, AccessLock::Nothing),
        AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow if access.key.is_empty() => {
            (intent, AccessLock::Nothing)
        }
        AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow => {
            (intent, AccessLock::Row(place()))
        }
        AccessKind::ReadRange | AccessKind::WriteRange if access.hi.is_none() || primary.is_none() => {
            (whole, AccessLock::Nothing)
        }
        AccessKind::ReadRange | AccessKind::WriteRange => (intent, AccessLock::Range(place())),
    }
}

/// Collects requests.
struct RequestBuilder {
    out: LockRequests,
    /// By table and level: the partition requested last.
    last: [LockRequest; REMEMBERED],
}

impl RequestBuilder {
    #[inline(always)]
    fn push(&mut self, resource: ResourceId, mode: LockMode) {
        self.out.push(LockRequest { resource, mode });
    }

    /// Requests a partition, unless it is the one requested just before.
    #[inline(always)]
    fn partition(&mut self, resource: ResourceId, mode: LockMode, remembered: usize) {
        if let Some(last) = self.last.get_mut(remembered) {
            if last.resource == resource && last.mode.covers(mode) {
                return;
            }
            *last = LockRequest { resource, mode };
        }
        self.push(resource, mode);
    }

    #[inline(always)]
    fn row(&mut self, place: &TableKey, key: BoundKey<'_>) {
        let (intent, mode) = modes(place.is_written);
        for (depth, len) in place.levels.iter().enumerate() {
            let prefix = key.bytes.get(..*len).unwrap_or(key.bytes);
            self.partition(
                ResourceId::range(place.table, prefix),
                intent,
                place.remembered + depth,
            );
        }
        // A duplicate request is harmless; searching for it would cost more.
        self.push(ResourceId::row_hashed(place.table, key.hash), mode);
    }

    /// All keys between two primary keys: partitions of the finest level on which they are few.
    #[inline]
    fn range(&mut self, place: &TableKey, lo: &[u8], hi: &[u8]) {
        for (depth, &len) in place.levels.iter().enumerate().rev() {
            match (lo.get(..len), hi.get(..len)) {
                (Some(first), Some(last)) if first == last => return self.whole(place, depth, first),
                _ => {}
            }
            let Some((head, from, to)) = partitions_between(lo, hi, len) else {
                continue;
            };
            for partition in from..=to {
                let mut name: SmallVec<[u8; 32]> = SmallVec::from_slice(head);
                let bytes = partition.to_be_bytes();
                let tail = len - head.len();
                name.extend_from_slice(bytes.get(bytes.len() - tail..).unwrap_or_default());
                self.whole(place, depth, &name);
            }
            return;
        }
        self.push(ResourceId::table(place.table), modes(place.is_written).1);
    }

    /// A whole partition, by its name on its level.
    fn whole(&mut self, place: &TableKey, depth: usize, name: &[u8]) {
        let (intent, mode) = modes(place.is_written);
        for (level, coarser) in place.levels.iter().enumerate().take(depth) {
            let prefix = name.get(..*coarser).unwrap_or(name);
            self.partition(
                ResourceId::range(place.table, prefix),
                intent,
                place.remembered + level,
            );
        }
        self.partition(
            ResourceId::range(place.table, name),
            mode,
            place.remembered + depth,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::row_locks;
    use crate::waves::WavePlanner;
    use proptest::prelude::*;
    use weft_base::CatalogVersion;
    use weft_program::{KeyPart, ProgramBuilder};
    use weft_store::{ColumnDef, IndexDef, IndexMethod, TableDef};
    use weft_types::{SqlType, Value, ValueRef, encode_key_value_ref};

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
    struct Touched {
        lo: Vec<i32>,
        hi: Vec<i32>,
        row: bool,
        write: bool,
        /// Of a row: an interactive transaction's, which asks by the catalog.
        by_session: bool,
    }

    impl Touched {
        fn holds(&self, row: &[i32]) -> bool {
            let (lo, hi) = (row.get(..self.lo.len()), row.get(..self.hi.len()));
            lo >= Some(self.lo.as_slice()) && hi <= Some(self.hi.as_slice())
        }

        /// What a program of this one access asks for; or, of a row, what a session does.
        fn locks(&self, def: &TableDef) -> LockRequests {
            if self.by_session && self.row {
                let mut out = LockRequests::new();
                row_locks(&mut out, def, &key(&self.lo), self.write);
                return out;
            }
            locks(def, std::slice::from_ref(self), LockScope::ReadsAndWrites)
        }
    }

    /// What a program of these accesses asks for.
    fn locks(def: &TableDef, touches: &[Touched], scope: LockScope) -> LockRequests {
        let mut b = ProgramBuilder::new(CatalogVersion(1));
        b.table(def);
        let mut inputs = Vec::new();
        for touch in touches {
            let mut parts = |values: &[i32]| -> Vec<KeyPart> {
                inputs.extend(values.iter().map(|value| Value::Int4(*value)));
                values
                    .iter()
                    .map(|_| KeyPart::Input(b.input(SqlType::Int4)))
                    .collect()
            };
            let (lo, hi) = (parts(&touch.lo), parts(&touch.hi));
            let kind = match (touch.row, touch.write) {
                (true, false) => AccessKind::ReadRow,
                (true, true) => AccessKind::WriteRow,
                (false, false) => AccessKind::ReadRange,
                (false, true) => AccessKind::WriteRange,
            };
            b.add_access(Access {
                kind,
                table: def.id,
                key: lo,
                hi: (!touch.row).then_some(hi),
            });
        }
        let program = b.finish().unwrap();
        let inputs = program.encode_inputs(&inputs).unwrap();
        let plans = LockPlans::of(&program);
        plans
            .locks(&program, &inputs, scope, &mut AccessKeys::default())
            .unwrap()
    }

    fn touch(columns: usize) -> impl Strategy<Value = Touched> {
        let value = prop_oneof![0..3i32, 250..260i32];
        let part = prop::collection::vec(value, columns);
        (part.clone(), part, any::<[bool; 3]>(), 0..=columns, 0..=columns).prop_map(
            move |(lo, hi, [row, write, by_session], keep_lo, keep_hi)| {
                let cut = |mut key: Vec<i32>, keep: usize| {
                    key.truncate(keep);
                    key
                };
                match row {
                    true => Touched {
                        hi: lo.clone(),
                        lo,
                        row,
                        write,
                        by_session,
                    },
                    // As often one prefix as two.
                    false if keep_lo == keep_hi => {
                        let lo = cut(lo, keep_lo);
                        Touched {
                            hi: lo.clone(),
                            lo,
                            row,
                            write,
                            by_session,
                        }
                    }
                    false => Touched {
                        lo: cut(lo, keep_lo),
                        hi: cut(hi, keep_hi),
                        row,
                        write,
                        by_session,
                    },
                }
            },
        )
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
        /// Two accesses that meet in a row which one of them may change never share a wave.
        #[test]
        fn accesses_to_the_same_row_conflict(
            (columns, one, other) in (1..=3usize).prop_flat_map(|n| (Just(n), touch(n), touch(n)))
        ) {
            let def = table(columns);
            let meet = (one.write || other.write)
                && rows(columns).iter().any(|row| one.holds(row) && other.holds(row));
            let mut planner = WavePlanner::new(1 << 20);
            prop_assert_eq!(planner.place(&one.locks(&def)), Some(0));
            let together = planner.place(&other.locks(&def)) == Some(0);
            prop_assert!(!(meet && together), "{one:?} {other:?}");
        }

        /// A program of many accesses asks for what each of them alone asks for, and for nothing else.
        #[test]
        fn combined_accesses_request_the_locks_of_each(
            (columns, touches) in (1..=3usize)
                .prop_flat_map(|n| (Just(n), prop::collection::vec(touch(n), 0..12)))
        ) {
            let def = table(columns);
            for scope in [LockScope::ReadsAndWrites, LockScope::Writes] {
                let together = locks(&def, &touches, scope);
                let alone: Vec<LockRequest> = touches
                    .iter()
                    .flat_map(|touch| locks(&def, std::slice::from_ref(touch), scope))
                    .collect();
                for asked in &alone {
                    let covers = |r: &LockRequest| r.resource == asked.resource && r.mode.covers(asked.mode);
                    prop_assert!(together.iter().any(covers), "{asked:?} of {touches:?}");
                }
                prop_assert!(together.iter().all(|asked| alone.contains(asked)));
            }
        }
    }

    #[test]
    fn write_only_locking_requests_no_read_locks() {
        let read = |row| Touched {
            lo: vec![1, 2],
            hi: vec![1, 2],
            row,
            write: false,
            by_session: false,
        };
        let def = table(2);
        let touches = [read(true), read(false)];
        assert!(locks(&def, &touches, LockScope::Writes).is_empty());
        assert_eq!(
            locks(&def, &touches, LockScope::ReadsAndWrites).len(),
            4,
            "table, partition for the row, row, partition for the range"
        );
    }

    /// A key with a NULL in it equals nothing, but others of its table may.
    #[test]
    fn an_impossible_row_requests_only_its_table_lock() {
        let def = table(1);
        let mut b = ProgramBuilder::new(CatalogVersion(1));
        b.table(&def);
        for _ in 0..2 {
            let part = KeyPart::Input(b.input(SqlType::Int4));
            b.add_access(Access::new(AccessKind::WriteRow, TABLE, vec![part]));
        }
        let program = b.finish().unwrap();
        let asked = |values: [Value; 2]| {
            let inputs = program.encode_inputs(&values).unwrap();
            let plans = LockPlans::of(&program);
            let mut scratch = AccessKeys::default();
            plans
                .locks(&program, &inputs, LockScope::ReadsAndWrites, &mut scratch)
                .unwrap()
        };
        let mut expected = LockRequests::new();
        row_locks(&mut expected, &def, &key(&[5]), true);
        assert_eq!(asked([Value::Null, Value::Int4(5)]), expected);
        assert_eq!(asked([Value::Int4(5), Value::Null]), expected);
        assert_eq!(asked([Value::Null, Value::Null]).as_slice(), &expected[..1]);
    }

    #[test]
    fn writers_of_different_prefixes_do_not_conflict() {
        let def = table(3);
        let range = |prefix: &[i32], write| Touched {
            lo: prefix.to_vec(),
            hi: prefix.to_vec(),
            row: false,
            write,
            by_session: false,
        };
        let mut planner = WavePlanner::new(1 << 20);
        let mut shares = |access: Touched| planner.place(&access.locks(&def)) == Some(0);
        assert!(shares(range(&[1, 1], true)));
        assert!(shares(range(&[1, 2], true)));
        assert!(shares(range(&[2], true)));
        assert!(!shares(range(&[1, 2], false)));
        assert!(!shares(range(&[1], true)));
        assert!(!shares(range(&[2, 5], true)));
        assert!(shares(range(&[3, 5], false)));
    }
}
