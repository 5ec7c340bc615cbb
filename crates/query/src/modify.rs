//! Computes the rows that INSERT, UPDATE and DELETE write.
//!
//! A bound INSERT, UPDATE or DELETE ([`Modify`]) contains a query for its rows. For UPDATE and DELETE its
//! rows contain the handle of the row to change, its bytes as read, and the new values, already of the
//! columns' types; they are put into a copy of the row. This module writes nothing and locks nothing.
//!
//! Under READ COMMITTED a row may have changed before its lock was granted. [`QueryEngine::reevaluate`] runs
//! the same query with the locked row as the whole content of the target (other tables, and the target in
//! subqueries, are read from the new view): no result means that the row no longer qualifies.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use weft_base::RowId;
use weft_binder::relation::{ConflictUpdate, Modify, ModifyKind, Query};
use weft_store::TableDef;
use weft_types::{RowBuilder, SqlError, SqlState, SqlType, Value};

use crate::arrays::ValueColumn;
use crate::engine::{QueryEngine, Reading, StepRows};
use crate::lower::Environment;
use crate::settings::QuerySettings;
use crate::source::{GivenRows, ReadSource, RowHandle};
use crate::stream::RowStream;
use crate::value_rows::ValueRows;

/// One row to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// The row to change.
    pub handle: RowHandle,
    /// The row as the query read it.
    pub old: Vec<u8>,
    /// The new row; `None` to delete it.
    pub new: Option<Vec<u8>>,
    /// Values of other tables that RETURNING uses.
    pub carried: Vec<Value>,
}

/// A row to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// The encoded row.
    pub row: Vec<u8>,
    /// Values that RETURNING uses besides the row.
    pub carried: Vec<Value>,
}

/// The inputs of every evaluation besides the query.
#[derive(Clone, Copy)]
pub struct Evaluation<'a> {
    /// Values of the statement's parameters.
    pub parameters: &'a [Value],
    /// The session's settings.
    pub settings: &'a QuerySettings,
    /// The system catalogs.
    pub environment: &'a Arc<dyn Environment>,
    /// The rows of the statement's steps.
    pub steps: &'a StepRows,
}

impl Evaluation<'_> {
    pub(crate) fn reading(&self, source: Arc<dyn ReadSource>) -> Reading {
        Reading {
            source,
            target: None,
            given: None,
            steps: Arc::clone(self.steps),
            environment: Arc::clone(self.environment),
        }
    }
}

/// Applies new values to the old row.
fn changed_row(
    table: &TableDef,
    columns: &[usize],
    old: &[u8],
    values: &[Value],
) -> Result<Vec<u8>, SqlError> {
    let layout = &table.layout;
    let mut builder = RowBuilder::new(layout);
    for column in 0..layout.column_count() {
        let assigned = columns.iter().position(|assigned| *assigned == column);
        match assigned.and_then(|position| values.get(position)) {
            Some(value) => builder.set(column, value)?,
            None if layout.is_null(old, column) => builder.set_null(column),
            None => {
                let raw = layout.raw(old, column).ok_or_else(|| {
                    SqlError::new(SqlState::DATA_CORRUPTED, "a stored row does not fit its table")
                })?;
                builder.set_raw(column, raw)?;
            }
        }
    }
    builder.try_finish()
}

impl QueryEngine {
    /// Computes the rows that an UPDATE or DELETE changes and calls `each` with them, once per row.
    ///
    /// # Errors
    /// Those of the query and of `each`.
    pub fn changes(
        &self,
        query: &Modify,
        source: Arc<dyn ReadSource>,
        with: &Evaluation<'_>,
        mut each: impl FnMut(RowChange) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.run_changes(query, with.reading(source), with, &mut each)
    }

    /// Evaluates the statement again for one locked row: returns the change to make, or `None` if the row no
    /// longer qualifies.
    ///
    /// # Errors
    /// Those of the query.
    pub fn reevaluate(
        &self,
        query: &Modify,
        source: Arc<dyn ReadSource>,
        handle: RowHandle,
        row: Vec<u8>,
        with: &Evaluation<'_>,
    ) -> Result<Option<RowChange>, SqlError> {
        let given = GivenRows::new(Arc::clone(&source), query.table.id, vec![(handle, row)]);
        let mut reading = with.reading(source);
        reading.target = Some(Arc::new(given));
        let mut change = None;
        self.run_changes(query, reading, with, &mut |found| {
            change = Some(found);
            Ok(())
        })?;
        Ok(change)
    }

    fn run_changes(
        &self,
        query: &Modify,
        reading: Reading,
        with: &Evaluation<'_>,
        each: &mut dyn FnMut(RowChange) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut stream = self.run_over(&query.rows, reading, with.parameters, with.settings)?;
        let types = types_of(&query.rows);
        let mut seen: HashSet<RowId> = HashSet::new();
        while let Some(batch) = stream.next_batch()? {
            let columns = value_columns(&batch, &types, 2)?;
            for row in 0..batch.num_rows() {
                let (handle, old) = hidden_columns(&batch, 0, row)?;
                if !seen.insert(handle) {
                    continue;
                }
                let mut values: Vec<Value> = columns.iter().map(|column| column.value(row)).collect();
                let carried = values.split_off(values.len().saturating_sub(query.carried));
                let new = match query.kind {
                    ModifyKind::Delete => None,
                    _ => Some(changed_row(&query.table, &query.columns, old, &values)?),
                };
                each(RowChange {
                    handle,
                    old: old.to_vec(),
                    new,
                    carried,
                })?;
            }
        }
        Ok(())
    }

    /// Computes the rows that an INSERT adds and calls `each` with every one.
    ///
    /// # Errors
    /// Those of the query and of `each`.
    pub fn new_rows(
        &self,
        query: &Modify,
        source: Arc<dyn ReadSource>,
        with: &Evaluation<'_>,
        mut each: impl FnMut(NewRow) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let table = &query.table;
        let mut places = vec![None; table.columns.len()];
        for (position, column) in query.columns.iter().enumerate() {
            if let Some(place) = places.get_mut(*column) {
                *place = Some(position);
            }
        }
        let mut values = vec![Value::Null; table.columns.len()];
        if let Some(listed) = ValueRows::of(&query.rows) {
            return listed.each(&query.rows, with, &mut |row| {
                for (value, place) in values.iter_mut().zip(&places) {
                    let given = place.and_then(|position: usize| row.get_mut(position));
                    *value = given.map(std::mem::take).unwrap_or_default();
                }
                each(NewRow {
                    row: table.layout.encode(&values)?,
                    carried: row.get(query.columns.len()..).unwrap_or_default().to_vec(),
                })
            });
        }
        let reading = with.reading(source);
        let mut stream = self.run_over(&query.rows, reading, with.parameters, with.settings)?;
        let types = types_of(&query.rows);
        while let Some(batch) = stream.next_batch()? {
            let columns = value_columns(&batch, &types, 0)?;
            for row in 0..batch.num_rows() {
                for (value, place) in values.iter_mut().zip(&places) {
                    *value = match place.and_then(|position: usize| columns.get(position)) {
                        Some(given) => given.value(row),
                        None => Value::Null,
                    };
                }
                let carried = columns
                    .iter()
                    .skip(query.columns.len())
                    .map(|column| column.value(row));
                each(NewRow {
                    row: table.layout.encode(&values)?,
                    carried: carried.collect(),
                })?;
            }
        }
        Ok(())
    }

    /// ON CONFLICT DO UPDATE: for each pair of an existing and a proposed row, the new version of the
    /// existing one; `None` if WHERE does not hold.
    ///
    /// # Errors
    /// Those of the query.
    pub fn conflict_updates(
        &self,
        query: &Modify,
        update: &ConflictUpdate,
        source: Arc<dyn ReadSource>,
        pairs: &[(Vec<u8>, Vec<u8>)],
        with: &Evaluation<'_>,
    ) -> Result<Vec<Option<Vec<u8>>>, SqlError> {
        let table = &query.table;
        let layout = &table.layout;
        let mut given = Vec::with_capacity(pairs.len());
        for (number, (old, proposed)) in (0_i64..).zip(pairs) {
            let mut values = Vec::with_capacity(1 + 2 * layout.column_count());
            values.push(Value::Int8(number));
            for row in [old, proposed] {
                values.extend((0..layout.column_count()).map(|column| layout.value(row, column)));
            }
            given.push(values);
        }
        let mut reading = with.reading(source);
        reading.given = Some(Arc::new(given));
        let mut stream = self.run_over(&update.rows, reading, with.parameters, with.settings)?;
        let types = types_of(&update.rows);
        let mut changed = vec![None; pairs.len()];
        while let Some(batch) = stream.next_batch()? {
            let columns = value_columns(&batch, &types, 0)?;
            for row in 0..batch.num_rows() {
                let mut values = columns.iter().map(|column| column.value(row));
                let number = values.next().and_then(|number| number.as_i64());
                let place = number.and_then(|number| usize::try_from(number).ok());
                let pair = place.and_then(|place| Some((pairs.get(place)?, changed.get_mut(place)?)));
                let Some(((old, _), changed)) = pair else {
                    return Err(SqlError::internal("a row in conflict lost its number"));
                };
                let values: Vec<Value> = values.collect();
                *changed = Some(changed_row(table, &update.columns, old, &values)?);
            }
        }
        Ok(changed)
    }

    /// RETURNING over the rows that were written (for DELETE: removed), in their order, each with the values
    /// that it carries.
    ///
    /// # Errors
    /// Those of the query.
    pub fn returning(
        &self,
        query: &Modify,
        source: Arc<dyn ReadSource>,
        rows: &[NewRow],
        with: &Evaluation<'_>,
    ) -> Result<RowStream, SqlError> {
        let Some(returning) = &query.returning else {
            return Err(SqlError::internal("the statement returns nothing"));
        };
        let layout = &query.table.layout;
        let mut given = Vec::with_capacity(rows.len());
        for NewRow { row, carried } in rows {
            let mut values = Vec::with_capacity(layout.column_count() + carried.len());
            for column in 0..layout.column_count() {
                values.push(layout.value(row, column));
            }
            values.extend(carried.iter().cloned());
            given.push(values);
        }
        let mut reading = with.reading(source);
        reading.given = Some(Arc::new(given));
        self.run_over(returning, reading, with.parameters, with.settings)
    }
}

fn types_of(query: &Query) -> Vec<SqlType> {
    query.output.iter().map(|output| output.ty).collect()
}

fn value_columns(batch: &RecordBatch, types: &[SqlType], skip: usize) -> Result<Vec<ValueColumn>, SqlError> {
    let pairs = batch.columns().iter().zip(types).skip(skip);
    pairs.map(|(array, ty)| ValueColumn::new(array, ty)).collect()
}

pub(crate) fn hidden_columns(
    batch: &RecordBatch,
    first: usize,
    row: usize,
) -> Result<(RowId, &[u8]), SqlError> {
    let handles = batch
        .columns()
        .get(first)
        .and_then(|column| column.as_fixed_size_binary_opt());
    let rows = batch
        .columns()
        .get(first + 1)
        .and_then(|column| column.as_binary_opt::<i32>());
    match (handles, rows) {
        (Some(handles), Some(rows)) => {
            let handle = handles.value(row).try_into().unwrap_or_default();
            Ok((RowId::decode(handle), rows.value(row)))
        }
        _ => Err(SqlError::internal(
            "a query for rows to change lost its hidden columns",
        )),
    }
}
