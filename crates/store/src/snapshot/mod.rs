//! Reading at a batch boundary.
//!
//! [`Store::snapshot`] registers a reader at the newest boundary and pins boundary, catalog and digest
//! together. A [`Snapshot`] may be cloned and sent; the registration ends with the last clone. A caller that
//! reads often keeps a [`Reader`] and pins it per statement, which costs one store and one fence and no
//! allocation.

mod published;
mod registry;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_base::{BatchId, CatalogVersion, IndexId, TableId};
use weft_types::SqlError;

use crate::catalog::{Catalog, TableDef};
use crate::columns::ChunkColumns;
use crate::memory::{Pin, ReadContext, SlotId};
use crate::read::{Locator, ReadView, RowVersion};
use crate::store::Store;
use crate::table::{Schema, TableCore, TableData};
use crate::table_map::TableMap;
pub(crate) use published::Published;
pub(crate) use registry::ReaderRegistry;
use registry::{CellId, IDLE};

/// A registered cell, given back on drop.
struct Registration {
    store: Arc<Store>,
    cell: CellId,
}

impl Registration {
    fn new(store: &Arc<Store>) -> Self {
        loop {
            // There is not enough memory for millions of readers; if it happens, wait for a cell.
            if let Some((cell, _)) = store.readers().claim(IDLE) {
                return Registration {
                    store: Arc::clone(store),
                    cell,
                };
            }
            std::thread::yield_now();
        }
    }

    fn pin(&self) -> Option<published::State> {
        self.store
            .readers()
            .cell_of(self.cell)
            .map(|cell| self.store.published().pin(cell))
    }

    /// Registers the present epoch in place of an earlier one, for a reader that uses nothing at the moment.
    fn renew_epoch(&self) {
        if let Some(cell) = self.store.readers().cell_of(self.cell) {
            self.store.published().renew_epoch(cell);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.store.readers().release(self.cell);
    }
}

struct SnapshotInner {
    schema: Arc<Schema>,
    batch: BatchId,
    digest: u64,
    context: ReadContext,
    registered: Registered,
}

/// What keeps a snapshot's boundary.
enum Registered {
    Here(Registration),
    /// Another one's: these are the same rows, under other definitions or for one read.
    With(Snapshot),
}

impl SnapshotInner {
    fn registration(&self) -> &Registration {
        match &self.registered {
            Registered::Here(registration) => registration,
            Registered::With(base) => base.inner.registration(),
        }
    }
}

/// The state at one batch boundary. Takes no locks and stops no batch; keeps superseded versions alive while
/// it exists.
#[derive(Clone)]
pub struct Snapshot {
    inner: Arc<SnapshotInner>,
}

impl Store {
    /// The state at the newest boundary.
    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        let registration = Registration::new(self);
        loop {
            // The cell exists: it was claimed just now.
            if let Some(state) = registration.pin() {
                // SAFETY: the registration lives in the same snapshot as everything read through it.
                let schema = unsafe { state.schema_arc() };
                let batch = BatchId(state.boundary);
                return Snapshot {
                    inner: Arc::new(SnapshotInner {
                        schema,
                        batch,
                        digest: state.digest,
                        context: ReadContext::default(),
                        registered: Registered::Here(registration),
                    }),
                };
            }
        }
    }

    /// A handle for reading often.
    pub fn reader(self: &Arc<Self>) -> Reader {
        Reader {
            registration: Registration::new(self),
            context: ReadContext::default(),
        }
    }

    /// The catalog version at the newest boundary. Cheaper than the catalog, whose reference count all
    /// threads share.
    pub fn catalog_version(self: &Arc<Self>) -> CatalogVersion {
        self.reader().pin().view().catalog().version()
    }

    /// The catalog at the newest boundary.
    pub fn catalog(self: &Arc<Self>) -> Arc<Catalog> {
        let mut reader = self.reader();
        let pinned = reader.pin();
        Arc::clone(pinned.view().catalog())
    }
}

impl Snapshot {
    /// All reads of the snapshot.
    pub fn view(&self) -> ReadView<'_> {
        // SAFETY: the registration is held by `self` at `batch`, and was made when that was the boundary.
        let pin = unsafe { Pin::new(self.inner.batch.0) }.with_context(&self.inner.context);
        ReadView::new(&self.inner.schema, pin, self.inner.batch, self.inner.digest)
    }

    /// The same rows under definitions that a transaction has made and not committed: the columns that it
    /// added or dropped are there or not. The catalog, and so the set of tables and indexes, is still that of
    /// the boundary.
    #[must_use]
    pub fn under(&self, definitions: &Catalog) -> Snapshot {
        let mut tables = TableMap::clone(&self.inner.schema.tables);
        for def in definitions.tables() {
            if let Some(table) = tables.get(&def.id).filter(|table| table.def != *def) {
                let table = Arc::new(table.under(def));
                tables.insert(def.id, table);
            }
        }
        self.with_schema(Arc::new(Schema {
            catalog: Arc::clone(&self.inner.schema.catalog),
            tables: Arc::new(tables),
        }))
    }

    /// The same snapshot for one read of a table: copies of rows that have an earlier layout go with it and
    /// are not kept for as long as this one.
    #[must_use]
    pub fn for_one_read(&self, table: TableId) -> Snapshot {
        let has_earlier = |table: &Arc<TableData>| table.laid_out_since() > BatchId(0);
        match self.inner.schema.tables.get(&table).is_some_and(has_earlier) {
            true => self.with_schema(Arc::clone(&self.inner.schema)),
            false => self.clone(),
        }
    }

    fn with_schema(&self, schema: Arc<Schema>) -> Snapshot {
        Snapshot {
            inner: Arc::new(SnapshotInner {
                schema,
                batch: self.inner.batch,
                digest: self.inner.digest,
                context: ReadContext::default(),
                registered: Registered::With(self.clone()),
            }),
        }
    }

    /// Says that nothing that was read before is used any more: what has left memory since need not be kept
    /// for this snapshot, and a row that could not be read then may be readable now. False if it has clones,
    /// whose users may use something.
    pub fn forget_what_was_read(&mut self) -> bool {
        // Whoever reads borrows the snapshot or a clone of it.
        let Some(inner) = Arc::get_mut(&mut self.inner) else {
            return false;
        };
        let Registered::Here(registration) = &inner.registered else {
            return false;
        };
        registration.renew_epoch();
        inner.context = ReadContext::default();
        true
    }

    /// The boundary.
    pub fn batch(&self) -> BatchId {
        self.inner.batch
    }

    /// The catalog at the boundary.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.inner.schema.catalog
    }

    /// The state digest at the boundary.
    pub fn digest(&self) -> u64 {
        self.inner.digest
    }

    /// The rows of a table, if they are laid out as this definition says.
    pub(crate) fn core_of(&self, def: &TableDef) -> Option<Arc<TableCore>> {
        let table = self.inner.schema.tables.get(&def.id)?;
        let is_same = table.def.layout == def.layout && table.laid_out_since() == def.laid_out_since();
        is_same.then(|| Arc::clone(&table.core))
    }

    /// All tables, in any order.
    pub(crate) fn table_data(&self) -> impl Iterator<Item = &Arc<TableData>> {
        self.inner.schema.tables.values()
    }

    /// A table.
    pub(crate) fn table(&self, id: TableId) -> Option<&Arc<TableData>> {
        self.inner.schema.tables.get(&id)
    }

    /// The rows of all tables, in any order.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (TableId, &Arc<TableCore>)> {
        let tables = self.inner.schema.tables.values();
        tables.map(|table| (table.core.table, &table.core))
    }

    /// The store that this snapshot reads.
    pub fn store(&self) -> &Arc<Store> {
        &self.inner.registration().store
    }

    /// See [`ReadView::lookup`].
    pub fn lookup<'s>(
        &'s self,
        table: TableId,
        index: IndexId,
        key: &[u8],
        see: impl FnMut(RowVersion<'s>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.view().lookup(table, index, key, see)
    }

    /// See [`ReadView::lookup_one`].
    pub fn lookup_one(
        &self,
        table: TableId,
        index: IndexId,
        key: &[u8],
    ) -> Result<Option<RowVersion<'_>>, SqlError> {
        self.view().lookup_one(table, index, key)
    }

    /// See [`ReadView::get`].
    pub fn get(&self, table: TableId, slot: SlotId) -> Result<Option<RowVersion<'_>>, SqlError> {
        self.view().get(table, slot)
    }

    /// See [`ReadView::range`].
    pub fn range(
        &self,
        table: TableId,
        index: IndexId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<RowVersion<'_>>, SqlError> {
        self.view().range(table, index, lo, hi, reverse, limit)
    }

    /// See [`ReadView::locate`].
    pub fn locate(&self, table: TableId, locator: &Locator) -> Result<Option<SlotId>, SqlError> {
        self.view().locate(table, locator)
    }

    /// See [`ReadView::scan_chunks`].
    pub fn scan_chunks(&self, table: TableId) -> u64 {
        self.view().scan_chunks(table)
    }

    /// See [`ReadView::scan_chunk`].
    pub fn scan_chunk(
        &self,
        table: TableId,
        chunk: u64,
        mut see: impl FnMut(RowVersion<'_>),
    ) -> Result<(), SqlError> {
        let mut rows = 0;
        self.view().scan_chunk(table, chunk, |row| {
            rows += 1;
            see(row);
        })?;
        self.count_rows_from_slots(rows);
        Ok(())
    }

    fn count_rows_from_slots(&self, rows: u64) {
        let counters = self.store().column_counters();
        counters.rows_from_slots.fetch_add(rows, Ordering::Relaxed);
    }

    /// The copied columns of a chunk, if there are all of these ([`ReadView::chunk_columns`]); `see` is
    /// called for the rows that are not in their mask ([`ReadView::scan_rest`]). Counts both.
    pub fn read_chunk_columns(
        &self,
        table: TableId,
        chunk: u64,
        columns: &[usize],
        mut see: impl FnMut(RowVersion<'_>),
    ) -> Result<Option<ChunkColumns>, SqlError> {
        let Some(read) = self.view().chunk_columns(table, chunk, columns) else {
            return Ok(None);
        };
        let counters = self.store().column_counters();
        counters
            .rows_from_columns
            .fetch_add(read.mask().count() as u64, Ordering::Relaxed);
        let mut rows = 0;
        self.view().scan_rest(table, chunk, read.mask(), |row| {
            rows += 1;
            see(row);
        })?;
        self.count_rows_from_slots(rows);
        Ok(Some(read))
    }

    /// See [`ReadView::row_count_estimate`].
    pub fn row_count_estimate(&self, table: TableId) -> u64 {
        self.view().row_count_estimate(table)
    }

    /// See [`ReadView::few_values`].
    pub fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        self.view().few_values(table, column)
    }

    /// Recomputes the state digest over all rows of the snapshot; equals [`Snapshot::digest`] unless memory
    /// is damaged. Errors: a cold row could not be read.
    pub fn verify_digest(&self) -> Result<u64, SqlError> {
        self.view().recompute_digest()
    }
}

/// A claimed place in the registry. One thread at a time; idle until pinned.
pub struct Reader {
    registration: Registration,
    context: ReadContext,
}

impl Reader {
    /// Registers at the newest boundary until the guard is dropped.
    pub fn pin(&mut self) -> Pinned<'_> {
        self.context = ReadContext::default();
        loop {
            // The cell exists: it is claimed as long as `self` lives.
            if let Some(state) = self.registration.pin() {
                // SAFETY: the guard keeps the cell at this boundary for its lifetime, and the view borrows
                // the guard.
                let pin = unsafe { Pin::new(state.boundary) }.with_context(&self.context);
                // SAFETY: as above.
                let schema = unsafe { state.schema() };
                let view = ReadView::new(schema, pin, BatchId(state.boundary), state.digest);
                return Pinned { reader: self, view };
            }
        }
    }
}

/// A pinned [`Reader`]: reads go through [`Pinned::view`].
pub struct Pinned<'r> {
    reader: &'r Reader,
    view: ReadView<'r>,
}

impl Pinned<'_> {
    /// All reads at the pinned boundary; rows live as long as the guard is borrowed.
    pub fn view(&self) -> ReadView<'_> {
        self.view
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let Registration { store, cell } = &self.reader.registration;
        if let Some(cell) = store.readers().cell_of(*cell) {
            cell.set(IDLE);
        }
    }
}

const _: () = {
    const fn is_send_sync<T: Send + Sync>() {}
    is_send_sync::<Snapshot>();
    is_send_sync::<Reader>();
};
