//! A view of tables whose rows are on several ranks: this rank's view, and the parts that others have.
//!
//! The query engine reads tables in chunks. Those of another rank's part follow this rank's own, so that
//! every query runs over spread tables as it does over others; where a row is has no meaning to it.

use std::ops::Bound;
use std::sync::Arc;

use weft_base::{BatchId, TableId};
use weft_query::{ReadSource, RowVisitor};
use weft_store::columns::ChunkColumns;
use weft_store::{Catalog, Distribution, IndexDef};
use weft_types::SqlError;

/// A view of the rows that one rank has. Of another rank it is read from afar; [`TableView`] is this rank's.
pub trait RankView: Send + Sync {
    /// How many chunks the table has there.
    fn chunk_count(&self, table: TableId) -> usize;

    /// Visits the rows of a chunk, encoded with the table's layout.
    ///
    /// # Errors
    ///
    /// The rank does not answer, or the rows cannot be read.
    fn read_chunk(&self, table: TableId, chunk: usize, visit: &mut dyn FnMut(&[u8])) -> Result<(), SqlError>;

    /// About how many rows it has there.
    fn row_count_estimate(&self, table: TableId) -> usize;
}

/// What one statement sees of this rank's tables, kept for as long as it is read.
#[derive(Clone)]
pub struct TableView(pub(crate) Arc<dyn ReadSource>);

impl RankView for TableView {
    fn chunk_count(&self, table: TableId) -> usize {
        self.0.chunk_count(table)
    }

    fn read_chunk(&self, table: TableId, chunk: usize, visit: &mut dyn FnMut(&[u8])) -> Result<(), SqlError> {
        self.0.read_chunk(table, chunk, &mut |row, _| visit(row))
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        self.0.row_count_estimate(table)
    }
}

/// This rank's view with the parts of the others.
pub(crate) struct SpreadSource {
    pub local: Arc<dyn ReadSource>,
    /// In the order of the ranks, without this one.
    pub parts: Vec<Arc<dyn RankView>>,
}

impl SpreadSource {
    /// The parts that have rows of a table; none of a replicated one, which is here as a whole.
    fn parts_of(&self, table: TableId) -> &[Arc<dyn RankView>] {
        match self
            .local
            .catalog()
            .table_by_id(table)
            .map(|def| def.distribution)
        {
            Some(Distribution::Hash | Distribution::Single) => &self.parts,
            Some(Distribution::Replicated) | None => &[],
        }
    }
}

/// The handle of rows of other ranks: statements that lock or change rows do not read them.
const NO_HANDLE: weft_base::RowId = weft_base::RowId {
    batch: BatchId(u64::MAX),
    member: u32::MAX,
    ordinal: u32::MAX,
};

impl ReadSource for SpreadSource {
    fn catalog(&self) -> Arc<Catalog> {
        self.local.catalog()
    }

    fn batch(&self) -> BatchId {
        self.local.batch()
    }

    fn chunk_count(&self, table: TableId) -> usize {
        let others = self.parts_of(table).iter().map(|part| part.chunk_count(table));
        self.local.chunk_count(table) + others.sum::<usize>()
    }

    fn read_chunk(&self, table: TableId, chunk: usize, visit: RowVisitor<'_>) -> Result<(), SqlError> {
        let own = self.local.chunk_count(table);
        if chunk < own {
            return self.local.read_chunk(table, chunk, visit);
        }
        let mut chunk = chunk - own;
        for part in self.parts_of(table) {
            let chunks = part.chunk_count(table);
            if chunk < chunks {
                let read = || part.read_chunk(table, chunk, &mut |row| visit(row, NO_HANDLE));
                return weft_base::blocking::section(read);
            }
            chunk -= chunks;
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
        if chunk < self.local.chunk_count(table) {
            return self.local.read_chunk_columns(table, chunk, columns, visit);
        }
        Ok(None)
    }

    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: RowVisitor<'_>,
    ) -> Result<bool, SqlError> {
        if self.parts_of(index.table).is_empty() {
            return self.local.read_range(index, low, high, visit);
        }
        Ok(false)
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        let others = self
            .parts_of(table)
            .iter()
            .map(|part| part.row_count_estimate(table));
        self.local.row_count_estimate(table) + others.sum::<usize>()
    }

    fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        // Rows are spread by a hash, so those of any rank are a sample.
        self.local.few_values(table, column)
    }
}
