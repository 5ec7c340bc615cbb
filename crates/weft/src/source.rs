//! A transaction's view as the query engine's source of rows.

use std::ops::Bound;
use std::sync::Arc;

use weft_base::{BatchId, TableId};
use weft_query::{ReadSource, RowVisitor};
use weft_store::columns::ChunkColumns;
use weft_store::{Catalog, IndexDef};
use weft_txn::TxnView;
use weft_types::SqlError;

/// A key range with more rows than this is read by scanning the table.
const INDEX_RANGE_ROWS_MAX: usize = 4096;

/// A transaction's view as the query engine reads it.
pub(crate) struct ViewSource(pub TxnView);

impl ReadSource for ViewSource {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(self.0.catalog())
    }

    fn batch(&self) -> BatchId {
        self.0.batch()
    }

    fn chunk_count(&self, table: TableId) -> usize {
        self.0.chunk_count(table)
    }

    fn read_chunk(&self, table: TableId, chunk: usize, visit: RowVisitor<'_>) -> Result<(), SqlError> {
        self.0.check_readable(table)?;
        self.0.read_chunk(table, chunk, visit)
    }

    fn read_chunk_columns(
        &self,
        table: TableId,
        chunk: usize,
        columns: &[usize],
        visit: RowVisitor<'_>,
    ) -> Result<Option<ChunkColumns>, SqlError> {
        self.0.check_readable(table)?;
        self.0.read_chunk_columns(table, chunk, columns, visit)
    }

    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: RowVisitor<'_>,
    ) -> Result<bool, SqlError> {
        self.0.check_readable(index.table)?;
        if !index.method.is_ordered() {
            return Ok(false);
        }
        let view = self.0.for_one_read(index.table);
        let rows = view.range(index, low, high, false, INDEX_RANGE_ROWS_MAX + 1)?;
        if rows.len() > INDEX_RANGE_ROWS_MAX {
            return Ok(false);
        }
        for row in rows {
            visit(&row.bytes, row.row_id);
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
        self.0.check_readable(index.table)?;
        let view = self.0.for_one_read(index.table);
        let rows = view.range(index, low, high, reverse, limit)?;
        for row in rows {
            visit(&row.bytes, row.row_id);
        }
        Ok(())
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        self.0.row_count_estimate(table)
    }

    fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        self.0.few_values(table, column)
    }
}
