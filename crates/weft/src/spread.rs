//! A view of tables whose rows are on several ranks: this rank's view, and the parts that others have.
//!
//! The query engine reads tables in chunks. Those of another rank's part follow this rank's own, so that
//! every query runs over spread tables as it does over others; where a row is has no meaning to it.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_base::{BatchId, TableId};
pub use weft_query::{ColumnRanges, Wanted};
use weft_query::{ReadSource, RowVisitor};
use weft_store::columns::ChunkColumns;
use weft_store::{Catalog, Distribution, IndexDef};
use weft_types::{SqlError, encode_key_from_row};

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

    /// As [`RankView::read_chunk`], less the columns and rows that are not wanted; columns may be NULL.
    ///
    /// # Errors
    ///
    /// As for [`RankView::read_chunk`].
    fn read_wanted(
        &self,
        table: TableId,
        chunk: usize,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SqlError>;

    /// Visits the rows whose key in an index is within bounds, and possibly others. False: the rank declines,
    /// and what was visited does not count.
    ///
    /// # Errors
    ///
    /// As for [`RankView::read_chunk`].
    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, SqlError>;

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

    /// Visits whole rows.
    fn read_wanted(
        &self,
        table: TableId,
        chunk: usize,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SqlError> {
        let catalog = self.0.catalog();
        let Some(def) = catalog.table_by_id(table) else {
            return Ok(());
        };
        let (mut key, mut count) = (Vec::new(), 0);
        self.0.read_chunk(table, chunk, &mut |row, _| {
            let is_wanted = |filter: &ColumnRanges| {
                key.clear();
                encode_key_from_row(&mut key, &def.layout, row, &[filter.column]);
                filter.contains(&key)
            };
            if count < wanted.rows_max && wanted.filters.iter().all(is_wanted) {
                count += 1;
                visit(row);
            }
        })
    }

    fn read_range(
        &self,
        index: &IndexDef,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, SqlError> {
        self.0.read_range(index, low, high, &mut |row, _| visit(row))
    }

    fn row_count_estimate(&self, table: TableId) -> usize {
        self.0.row_count_estimate(table)
    }
}

impl TableView {
    /// The definitions of its rows.
    #[must_use]
    pub fn definitions(&self) -> Arc<Catalog> {
        self.0.catalog()
    }
}

/// This rank's view with the parts of the others.
pub(crate) struct SpreadSource {
    pub local: Arc<dyn ReadSource>,
    /// In the order of the ranks, without this one.
    pub parts: Vec<Arc<dyn RankView>>,
    /// Ranges of indexes that parts were asked for.
    pub lookups: AtomicUsize,
}

/// So many ranges are looked up on other ranks for one statement: each is a message there and back. Beyond
/// them tables are scanned.
const LOOKUPS_MAX: usize = 64;

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

    /// The part that has a chunk, counted from this rank's own, and its number there.
    fn remote(&self, table: TableId, mut chunk: usize) -> Option<(&Arc<dyn RankView>, usize)> {
        for part in self.parts_of(table) {
            let chunks = part.chunk_count(table);
            if chunk < chunks {
                return Some((part, chunk));
            }
            chunk -= chunks;
        }
        None
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
        let Some((part, chunk)) = self.remote(table, chunk - own) else {
            return Ok(());
        };
        let read = || part.read_chunk(table, chunk, &mut |row| visit(row, NO_HANDLE));
        weft_base::blocking::section(read)
    }

    fn is_elsewhere(&self, table: TableId, chunk: usize) -> bool {
        chunk >= self.local.chunk_count(table)
    }

    fn read_wanted(
        &self,
        table: TableId,
        chunk: usize,
        wanted: &Wanted,
        visit: RowVisitor<'_>,
    ) -> Result<(), SqlError> {
        let own = self.local.chunk_count(table);
        if chunk < own {
            return self.local.read_chunk(table, chunk, visit);
        }
        let Some((part, chunk)) = self.remote(table, chunk - own) else {
            return Ok(());
        };
        let read = || part.read_wanted(table, chunk, wanted, &mut |row| visit(row, NO_HANDLE));
        weft_base::blocking::section(read)
    }

    fn is_spread(&self, table: TableId) -> bool {
        let def = self
            .local
            .catalog()
            .table_by_id(table)
            .map(|def| def.distribution);
        def == Some(Distribution::Hash)
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
        let parts = self.parts_of(index.table);
        let asked = self.lookups.fetch_add(parts.len(), Ordering::Relaxed);
        if asked + parts.len() > LOOKUPS_MAX && !parts.is_empty() {
            return Ok(false);
        }
        if !self.local.read_range(index, low, high, visit)? {
            return Ok(false);
        }
        for part in parts {
            let read = || part.read_range(index, low, high, &mut |row| visit(row, NO_HANDLE));
            if !weft_base::blocking::section(read)? {
                return Ok(false);
            }
        }
        Ok(true)
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
