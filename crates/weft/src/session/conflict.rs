//! INSERT ... ON CONFLICT in general form.
//!
//! A proposed row is inserted unless another row has its values in one of the arbiter indexes. DO UPDATE
//! locks that row and computes its new values, for many rows at a time. Only if the update sets unique
//! columns can one row's update affect the next row's conflict; then rows are processed one by one. A row
//! that the command has inserted or updated already is not changed again (21000).

use std::collections::HashSet;
use std::sync::Arc;

use weft_base::RowId;
use weft_binder::relation::{Conflict, ConflictUpdate, Modify};
use weft_query::{NewRow, ReadSource};
use weft_store::{IndexDef, TableDef};
use weft_txn::InsertOutcome;
use weft_types::{SqlError, SqlState, encode_key_from_row};

use super::Session;
use super::modify::{CHUNK_ROWS, LOCKING_ROUNDS, ModifyContext, Written};

/// A row in conflict.
struct InConflict {
    /// Its position among the proposed rows.
    place: usize,
    /// The existing row.
    target: RowId,
}

impl Session {
    /// Inserts proposed rows, or applies ON CONFLICT to the existing rows that they conflict with.
    pub(super) fn insert_or_resolve(
        &mut self,
        modify: &Modify,
        conflict: &Conflict,
        rows: &[NewRow],
        source: &Arc<dyn ReadSource>,
        bound: &ModifyContext<'_>,
    ) -> Result<Written, SqlError> {
        let mut written = Written::new(modify.returning.is_some());
        let mut affected: HashSet<RowId> = HashSet::new();
        let one_by_one = conflict
            .update
            .as_ref()
            .is_some_and(|update| sets_unique(&modify.table, update));
        let chunk_rows = if one_by_one { 1 } else { CHUNK_ROWS };
        for chunk in rows.chunks(chunk_rows) {
            self.check_cancelled()?;
            let images: Vec<Vec<u8>> = chunk.iter().map(|row| row.row.clone()).collect();
            let txn = &mut self.transaction().txn;
            let placed = txn.insert_unless(&modify.table, &images, &conflict.arbiters)?;
            let mut results: Vec<Option<NewRow>> = vec![None; chunk.len()];
            let (mut met, mut pairs) = (Vec::new(), Vec::new());
            for (place, (placed, row)) in placed.into_iter().zip(chunk).enumerate() {
                let placed = match (placed, &conflict.update) {
                    (InsertOutcome::Conflict(target, image), None) => {
                        // Under REPEATABLE READ a row that the snapshot does not show is an error.
                        if !affected.contains(&target) {
                            self.transaction().txn.current(&modify.table, target, &image)?;
                        }
                        continue;
                    }
                    (InsertOutcome::Conflict(target, _), Some(_)) if affected.contains(&target) => {
                        return Err(second_time());
                    }
                    (InsertOutcome::Conflict(target, image), Some(_)) => {
                        self.locked_conflict(&modify.table, &conflict.arbiters, row, target, image)?
                    }
                    (new, _) => new,
                };
                match placed {
                    InsertOutcome::New(id) => {
                        affected.insert(id);
                        if let Some(result) = results.get_mut(place) {
                            *result = Some(row.clone());
                        }
                    }
                    InsertOutcome::Conflict(target, current) => {
                        met.push(InConflict { place, target });
                        pairs.push((current, row.row.clone()));
                    }
                }
            }
            if let Some(update) = &conflict.update
                && !pairs.is_empty()
            {
                let shared = Arc::clone(&self.shared);
                let evaluation = bound.evaluation();
                let changed = shared.queries.conflict_updates(
                    modify,
                    update,
                    Arc::clone(source),
                    &pairs,
                    &evaluation,
                )?;
                for ((met, (old, _)), new) in met.into_iter().zip(&pairs).zip(changed) {
                    if affected.contains(&met.target) {
                        return Err(second_time());
                    }
                    let Some(new) = new else { continue };
                    self.transaction()
                        .txn
                        .update(&modify.table, met.target, old, &new)?;
                    affected.insert(met.target);
                    if let (Some(result), Some(row)) = (results.get_mut(met.place), chunk.get(met.place)) {
                        *result = Some(NewRow {
                            row: new,
                            carried: row.carried.clone(),
                        });
                    }
                }
            }
            for row in results.into_iter().flatten() {
                written.count += 1;
                if written.keeps {
                    written.rows.push(row);
                }
            }
        }
        Ok(written)
    }

    /// The row that conflicts with another, locked and current; `None` if it has gone in the meantime, so
    /// that the other can be inserted.
    fn locked_conflict(
        &mut self,
        table: &Arc<TableDef>,
        arbiters: &[Arc<IndexDef>],
        row: &NewRow,
        mut target: RowId,
        mut image: Vec<u8>,
    ) -> Result<InsertOutcome, SqlError> {
        for _ in 0..LOCKING_ROUNDS {
            let txn = &mut self.transaction().txn;
            txn.lock_rows(table, [(target, image.as_slice())], true)?;
            if let Some(current) = txn.current(table, target, &image)?
                && arbiters
                    .iter()
                    .any(|index| same_key(table, index, &current, &row.row))
            {
                return Ok(InsertOutcome::Conflict(target, current));
            }
            match txn
                .insert_unless(table, std::slice::from_ref(&row.row), arbiters)?
                .pop()
            {
                Some(InsertOutcome::Conflict(next, next_image)) => (target, image) = (next, next_image),
                Some(new) => return Ok(new),
                None => return Err(SqlError::internal("a proposed row was lost")),
            }
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "rows in conflict kept changing",
        ))
    }
}

fn sets_unique(table: &TableDef, update: &ConflictUpdate) -> bool {
    let unique = table.indexes.iter().filter(|index| index.unique);
    unique
        .flat_map(|index| &index.columns)
        .any(|column| update.columns.contains(column))
}

/// Whether two rows have the same values, none of them NULL, in an index.
fn same_key(table: &TableDef, index: &IndexDef, a: &[u8], b: &[u8]) -> bool {
    let null = |row: &[u8]| {
        index
            .columns
            .iter()
            .any(|column| table.layout.is_null(row, *column))
    };
    let key = |row: &[u8]| {
        let mut key = Vec::new();
        encode_key_from_row(&mut key, &table.layout, row, &index.columns);
        key
    };
    !null(a) && !null(b) && key(a) == key(b)
}

fn second_time() -> SqlError {
    let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
    SqlError::new(SqlState::CARDINALITY_VIOLATION, message)
        .hint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values.")
}
