//! The source of a query's data: a table's rows at one boundary, chunk by chunk.
//!
//! DataFusion never sees the store. It sees a [`ReadSource`]: a catalog, and for every table a number of
//! chunks (morsels) that any thread may read. There are two main implementations: [`weft_store::Snapshot`],
//! below, and a transaction's view (the snapshot without the rows that its session changed, plus the
//! session's own versions), which is implemented with transactions.
//!
//! Invariants:
//! 1. All answers of one source describe the same instant: the boundary [`ReadSource::batch`] and, for a
//!    transaction's view, its overlay as it was when the view was taken.
//! 2. Chunks are disjoint and together hold every visible row exactly once. So do the two parts of a chunk of
//!    which [`ReadSource::read_chunk_columns`] gives one packed.
//! 3. [`ReadSource::read_range`] may return more rows than asked for, never fewer: filters run again above
//!    it.

use std::ops::Bound;
use std::sync::Arc;

use weft_base::{BatchId, RowId, TableId};
use weft_store::columns::ChunkColumns;
use weft_store::{Catalog, IndexDef};
use weft_types::SqlError;

/// Names one row for callers that lock or change it later: the permanent row id. For a row that its own
/// transaction inserted and that has no place in the order yet, the view invents an id that it recognises.
pub type RowHandle = RowId;

/// Called once per visible row: the encoded row (layout of its table) and its handle.
pub type RowVisitor<'a> = &'a mut dyn FnMut(&[u8], RowHandle);

/// Which values of a column a scan can accept, as bytes of a key of this column alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnRanges {
    /// The position of the column in its table.
    pub column: usize,
    /// Disjoint ranges in order: the first bytes are included, the second ones are not.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ColumnRanges {
    /// Whether a value is accepted, by its bytes in a key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let after = self.ranges.partition_point(|(low, _)| low.as_slice() <= key);
        let last = after.checked_sub(1).and_then(|last| self.ranges.get(last));
        last.is_some_and(|(_, high)| key < high.as_slice())
    }
}

/// What a scan needs of a table's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Positions of the columns that it reads; `None`: whole rows.
    pub columns: Option<Vec<usize>>,
    /// All of these hold for the rows that it needs.
    pub filters: Vec<ColumnRanges>,
    /// It needs no more rows than this.
    pub rows_max: usize,
}

/// Rows and definitions at one instant. Threads can share it.
pub trait ReadSource: Send + Sync + 'static {
    /// The definitions that describe this source's rows.
    fn catalog(&self) -> Arc<Catalog>;

    /// The boundary at which the rows are read.
    fn batch(&self) -> BatchId;

    /// How many chunks the table has; 0 when it is empty or unknown.
    fn chunk_count(&self, table: TableId) -> usize;

    /// Visits the visible rows of chunk `chunk` (0-based). A chunk out of range holds no rows.
    fn read_chunk(&self, table: TableId, chunk: usize, visit: RowVisitor<'_>) -> Result<(), SqlError>;

    /// The columns of a chunk in packed form, if the source has all of these. Its rows are then those of the
    /// mask, read there, and those visited, which are all others. `None`: nothing was visited.
    fn read_chunk_columns(
        &self,
        table: TableId,
        chunk: usize,
        columns: &[usize],
        visit: RowVisitor<'_>,
    ) -> Result<Option<ChunkColumns>, SqlError> {
        let _ = (table, chunk, columns, visit);
        Ok(None)
    }

    /// Whether a chunk is read from afar, so that it matters what is wanted of it.
    fn is_elsewhere(&self, table: TableId, chunk: usize) -> bool {
        let _ = (table, chunk);
        false
    }

    /// As [`ReadSource::read_chunk`], for a caller that needs only some columns of some rows: others may be
    /// NULL, or not visited.
    fn read_wanted(
        &self,
        table: TableId,
        chunk: usize,
        wanted: &Wanted,
        visit: RowVisitor<'_>,
    ) -> Result<(), SqlError> {
        let _ = wanted;
        self.read_chunk(table, chunk, visit)
    }

    /// Whether rows of the table are on other ranks, for those who describe a plan.
    fn is_spread(&self, table: TableId) -> bool {
        let _ = table;
        false
    }

    /// Visits the rows whose encoded key in `index` is within the bounds, and possibly others. `Ok(false)`
    /// declines (no such index, or too many rows): the caller discards the rows visited and scans the table.
    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: RowVisitor<'_>,
    ) -> Result<bool, SqlError> {
        let _ = (index, low, high, visit);
        Ok(false)
    }

    /// Whether [`ReadSource::read_in_order`] is implemented.
    fn reads_in_order(&self) -> bool {
        false
    }

    /// Visits the rows whose encoded key in the ordered `index` is within the bounds, in the order of that
    /// key, descending if `reverse`; at most `limit` of them.
    fn read_in_order(
        &self,
        index: &IndexDef,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: usize,
        visit: RowVisitor<'_>,
    ) -> Result<(), SqlError> {
        let _ = (low, high, reverse, limit, visit);
        Err(SqlError::internal(format!("{} is not read in order", index.name)))
    }

    /// An estimate of the number of visible rows, for join ordering only.
    fn row_count_estimate(&self, table: TableId) -> usize;

    /// An estimate of how many distinct values a column has, if they are few and something is known, for join
    /// ordering only.
    fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        let _ = (table, column);
        None
    }
}

/// A source in which one table consists of exactly the given rows: used to evaluate a predicate again for one
/// locked row, or RETURNING over the rows just written. All other tables are read from the inner source.
pub struct GivenRows {
    inner: Arc<dyn ReadSource>,
    table: TableId,
    rows: Vec<(RowHandle, Vec<u8>)>,
}

impl GivenRows {
    /// Replaces the content of `table` by `rows`, which are encoded with its layout.
    pub fn new(inner: Arc<dyn ReadSource>, table: TableId, rows: Vec<(RowHandle, Vec<u8>)>) -> Self {
        GivenRows { inner, table, rows }
    }
}

impl ReadSource for GivenRows {
    fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog()
    }

    fn batch(&self) -> BatchId {
        self.inner.batch()
    }

    fn chunk_count(&self, table: TableId) -> usize {
        if table == self.table {
            1
        } else {
            self.inner.chunk_count(table)
        }
    }

    fn read_chunk(&self, table: TableId, chunk: usize, visit: RowVisitor<'_>) -> Result<(), SqlError> {
        if table != self.table {
            return self.inner.read_chunk(table, chunk, visit);
        }
        if chunk == 0 {
            for (handle, row) in &self.rows {
                visit(row, *handle);
            }
        }
        Ok(())
    }

    fn read_chunk_columns(
        &self,
        table: TableId,
        chunk: usize,
        columns: &[usize],
        visit: RowVisitor<'_>,
    ) -> Result<Option<ChunkColumns>, SqlError> {
        match table == self.table {
            true => Ok(None),
            false => self.inner.read_chunk_columns(table, chunk, columns, visit),
        }
    }

    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: RowVisitor<'_>,
    ) -> Result<bool, SqlError> {
        if index.table == self.table {
            return Ok(false);
        }
        self.inner.read_range(index, low, high, visit)
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        if table == self.table {
            self.rows.len()
        } else {
            self.inner.row_count_estimate(table)
        }
    }

    fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        self.inner.few_values(table, column)
    }
}

/// A range with more rows than this is declined: a scan, which several threads share, is then faster.
const RANGE_ROWS_MAX: usize = 16_384;

impl ReadSource for weft_store::Snapshot {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(weft_store::Snapshot::catalog(self))
    }

    fn batch(&self) -> BatchId {
        weft_store::Snapshot::batch(self)
    }

    fn chunk_count(&self, table: TableId) -> usize {
        usize::try_from(self.scan_chunks(table)).unwrap_or(usize::MAX)
    }

    fn read_chunk(&self, table: TableId, chunk: usize, visit: RowVisitor<'_>) -> Result<(), SqlError> {
        self.scan_chunk(table, chunk as u64, |version| {
            visit(version.bytes, version.row_id)
        })
    }

    fn read_chunk_columns(
        &self,
        table: TableId,
        chunk: usize,
        columns: &[usize],
        visit: RowVisitor<'_>,
    ) -> Result<Option<ChunkColumns>, SqlError> {
        weft_store::Snapshot::read_chunk_columns(self, table, chunk as u64, columns, |version| {
            visit(version.bytes, version.row_id)
        })
    }

    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: RowVisitor<'_>,
    ) -> Result<bool, SqlError> {
        let snapshot = self.for_one_read(index.table);
        let versions = snapshot.range(index.table, index.id, low, high, false, RANGE_ROWS_MAX + 1)?;
        if versions.len() > RANGE_ROWS_MAX {
            return Ok(false);
        }
        for version in versions {
            visit(version.bytes, version.row_id);
        }
        Ok(true)
    }

    fn reads_in_order(&self) -> bool {
        true
    }

    fn read_in_order(
        &self,
        index: &IndexDef,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: usize,
        visit: RowVisitor<'_>,
    ) -> Result<(), SqlError> {
        let snapshot = self.for_one_read(index.table);
        let versions = snapshot.range(index.table, index.id, low, high, reverse, limit)?;
        for version in versions {
            visit(version.bytes, version.row_id);
        }
        Ok(())
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        usize::try_from(weft_store::Snapshot::row_count_estimate(self, table)).unwrap_or(usize::MAX)
    }

    fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        weft_store::Snapshot::few_values(self, table, column)
    }
}
