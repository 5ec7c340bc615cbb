//! The rows that SELECT ... FOR UPDATE and FOR SHARE lock, and what SKIP LOCKED reads.
//!
//! The query's last outputs are the handle and stored bytes of a row of each locked table. This module
//! locks nothing: it returns what to lock together with the answer, which is valid if none of these rows
//! has changed by the time they are locked.
//!
//! SKIP LOCKED reads its locked tables through [`WithoutRows`], a source without the rows that others have
//! locked. Other scans of the same tables (in subqueries, or of an alias that is not locked) see every row.

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::Schema;
use weft_base::{BatchId, TableId};
use weft_binder::relation::{Output, Query};
use weft_store::{Catalog, IndexDef};
use weft_types::SqlError;

use crate::engine::QueryEngine;
use crate::errors::sql_error;
use crate::modify::{Evaluation, hidden_columns};
use crate::source::{ReadSource, RowHandle, RowVisitor, Wanted};
use crate::stream::RowStream;

/// A row to lock, as one row of an answer names it: table, handle and bytes as read.
pub type LineMember<'a> = (TableId, RowHandle, &'a [u8]);

/// The rows of one table of `source` that SKIP LOCKED has found locked are not there.
#[derive(Clone)]
pub struct WithoutRows {
    inner: Arc<dyn ReadSource>,
    skipped: Arc<HashSet<(TableId, RowHandle)>>,
}

impl QueryEngine {
    /// Runs a query that locks rows: its last outputs are the handle and stored bytes of a row of each of
    /// `tables`, NULL where an outer join has none. Scans of these tables read `target` if it is given.
    /// Calls `each` for each row of the answer, in order, with the rows to lock for it. If one of them has
    /// changed by the time it is locked, the caller runs the query again over a fresh view.
    ///
    /// # Errors
    /// Those of the query.
    pub fn rows_to_lock(
        &self,
        query: &Arc<Query>,
        tables: &[TableId],
        sources: (Arc<dyn ReadSource>, Option<WithoutRows>),
        with: &Evaluation<'_>,
        mut each: impl FnMut(&[LineMember<'_>]),
    ) -> Result<RowStream, SqlError> {
        let (mut stream, first) = self.with_rows_to_lock(query, tables, sources, with)?;
        let own: Vec<usize> = (0..first).collect();
        let mut answer = Vec::new();
        let schema = stream.schema();
        while let Some(batch) = stream.next_batch()? {
            let _ = each_line(&batch, first, tables, |line| {
                each(line);
                Ok(ControlFlow::Continue(()))
            })?;
            answer.push(batch.project(&own).map_err(|error| sql_error(error.into()))?);
        }
        let columns: Vec<Output> = query.output.iter().take(first).cloned().collect();
        let schema = schema.map(|schema| schema.project(&own)).transpose();
        let schema = schema
            .map_err(|error| sql_error(error.into()))?
            .unwrap_or_else(Schema::empty);
        Ok(self.ready_rows(columns, Arc::new(schema), answer, with.settings))
    }

    /// Runs the same kind of query for the rows to lock alone, and calls `each` for each row of its answer,
    /// in order, as [`Self::rows_to_lock`] does, until it breaks.
    ///
    /// # Errors
    /// Those of the query and of `each`.
    pub fn each_line_to_lock(
        &self,
        query: &Arc<Query>,
        tables: &[TableId],
        sources: (Arc<dyn ReadSource>, Option<WithoutRows>),
        with: &Evaluation<'_>,
        mut each: impl FnMut(&[LineMember<'_>]) -> Result<ControlFlow<()>, SqlError>,
    ) -> Result<(), SqlError> {
        let (mut stream, first) = self.with_rows_to_lock(query, tables, sources, with)?;
        while let Some(batch) = stream.next_batch()? {
            if each_line(&batch, first, tables, &mut each)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Starts such a query; returns how many of its outputs are its own.
    fn with_rows_to_lock(
        &self,
        query: &Arc<Query>,
        tables: &[TableId],
        (source, target): (Arc<dyn ReadSource>, Option<WithoutRows>),
        with: &Evaluation<'_>,
    ) -> Result<(RowStream, usize), SqlError> {
        let mut reading = with.reading(source);
        reading.target = target.map(|target| Arc::new(target) as Arc<dyn ReadSource>);
        let stream = self.run_over(query, reading, with.parameters, with.settings)?;
        Ok((stream, query.output.len().saturating_sub(2 * tables.len())))
    }
}

/// Calls `each` for each row of a batch with the rows to lock that it names, until it breaks. The batch
/// begins with `first` outputs of its own.
fn each_line(
    batch: &RecordBatch,
    first: usize,
    tables: &[TableId],
    mut each: impl FnMut(&[LineMember<'_>]) -> Result<ControlFlow<()>, SqlError>,
) -> Result<ControlFlow<()>, SqlError> {
    let mut members = Vec::with_capacity(tables.len());
    for row in 0..batch.num_rows() {
        members.clear();
        for (column, table) in (first..).step_by(2).zip(tables) {
            let handles = batch.columns().get(column);
            if handles.is_none_or(|handles| handles.is_null(row)) {
                continue;
            }
            let (handle, bytes) = hidden_columns(batch, column, row)?;
            members.push((*table, handle, bytes));
        }
        if each(&members)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl WithoutRows {
    /// All rows of `inner` but `skipped`.
    #[must_use]
    pub fn new(inner: Arc<dyn ReadSource>, skipped: Arc<HashSet<(TableId, RowHandle)>>) -> WithoutRows {
        WithoutRows { inner, skipped }
    }
}

/// Passes on the rows that are not skipped.
fn others<'v>(
    skipped: &'v HashSet<(TableId, RowHandle)>,
    table: TableId,
    visit: RowVisitor<'v>,
) -> impl FnMut(&[u8], RowHandle) + 'v {
    move |row, handle| {
        if !skipped.contains(&(table, handle)) {
            visit(row, handle);
        }
    }
}

/// Columns are not read packed: which of their rows are skipped is known by handle only.
impl ReadSource for WithoutRows {
    fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog()
    }

    fn batch(&self) -> BatchId {
        self.inner.batch()
    }

    fn chunk_count(&self, table: TableId) -> usize {
        self.inner.chunk_count(table)
    }

    fn read_chunk(&self, table: TableId, chunk: usize, visit: RowVisitor<'_>) -> Result<(), SqlError> {
        let mut visit = others(&self.skipped, table, visit);
        self.inner.read_chunk(table, chunk, &mut visit)
    }

    fn is_elsewhere(&self, table: TableId, chunk: usize) -> bool {
        self.inner.is_elsewhere(table, chunk)
    }

    fn read_wanted(
        &self,
        table: TableId,
        chunk: usize,
        wanted: &Wanted,
        visit: RowVisitor<'_>,
    ) -> Result<(), SqlError> {
        let mut visit = others(&self.skipped, table, visit);
        let rows_max = wanted.rows_max.saturating_add(self.skipped.len());
        let wanted = Wanted {
            rows_max,
            ..wanted.clone()
        };
        self.inner.read_wanted(table, chunk, &wanted, &mut visit)
    }

    fn is_spread(&self, table: TableId) -> bool {
        self.inner.is_spread(table)
    }

    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: RowVisitor<'_>,
    ) -> Result<bool, SqlError> {
        let mut visit = others(&self.skipped, index.table, visit);
        self.inner.read_range(index, low, high, &mut visit)
    }

    fn reads_in_order(&self) -> bool {
        self.inner.reads_in_order()
    }

    fn read_in_order(
        &self,
        index: &IndexDef,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: usize,
        visit: RowVisitor<'_>,
    ) -> Result<(), SqlError> {
        let mut visit = others(&self.skipped, index.table, visit);
        let limit = limit.saturating_add(self.skipped.len());
        self.inner
            .read_in_order(index, bounds, reverse, limit, &mut visit)
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        self.inner.row_count_estimate(table)
    }

    fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        self.inner.few_values(table, column)
    }
}
