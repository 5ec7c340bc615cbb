//! What one statement of a transaction reads: a snapshot, with the transaction's own changes applied.
//!
//! A view is frozen: it shares the overlay as it was when the view was taken, so threads of a query may read
//! it while the session waits for them. Every read of a session goes through a view, including the query
//! engine's (DESIGN.md, Sessions).

use crate::overlay::{Overlay, OverlayRow, TableOverlay, locator_of};
use crate::snapshots::RunningSnapshot;
use std::borrow::Cow;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use weft_base::{BatchId, RowId, TableId};
use weft_store::columns::ChunkColumns;
use weft_store::{Catalog, IndexDef, RowVersion, Snapshot, TableDef};
use weft_types::{SqlError, encode_key_from_row};

/// The batch number in the ids of rows that exist only in an overlay. No batch ever has it.
const OWN_ROW_BATCH: BatchId = BatchId(u64::MAX);

/// The id by which a view names one of the transaction's own rows.
pub(crate) fn own_row_id(n: u32) -> RowId {
    RowId {
        batch: OWN_ROW_BATCH,
        member: 0,
        ordinal: n,
    }
}

/// The row that an id of a view names.
pub(crate) fn overlay_row(row_id: RowId) -> OverlayRow {
    if row_id.batch == OWN_ROW_BATCH {
        OverlayRow::Own(row_id.ordinal)
    } else {
        OverlayRow::Base(row_id)
    }
}

/// One row as a view shows it.
#[derive(Debug, Clone)]
pub struct ViewRow<'a> {
    /// Its id; for a row that this transaction made, one that only the transaction understands.
    pub row_id: RowId,
    /// The batch that wrote it last; 0 for what this transaction wrote.
    pub batch: BatchId,
    /// The encoded row.
    pub bytes: Cow<'a, [u8]>,
}

/// A snapshot and an overlay, read as one. A view uses it; a running program reads through it too, while its
/// overlay grows.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a> {
    pub snapshot: &'a Snapshot,
    pub overlay: &'a Overlay,
    pub catalog: &'a Catalog,
}

/// Bounds on encoded keys.
type KeyBounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// A row with its key.
type Keyed<'a> = (Vec<u8>, ViewRow<'a>);

/// The first `limit` rows of both, merged in key order; each list is sorted. Among equal keys the
/// transaction's own rows come last, and first in reverse.
fn merged<'a>(base: Vec<Keyed<'a>>, own: Vec<Keyed<'a>>, reverse: bool, limit: usize) -> Vec<ViewRow<'a>> {
    let (mut base, mut own) = (base.into_iter().peekable(), own.into_iter().peekable());
    let next = std::iter::from_fn(|| {
        let is_own = match (base.peek(), own.peek()) {
            (Some((base, _)), Some((own, _))) if reverse => own >= base,
            (Some((base, _)), Some((own, _))) => own < base,
            (base, _) => base.is_none(),
        };
        if is_own { own.next() } else { base.next() }
    });
    next.take(limit).map(|(_, row)| row).collect()
}

/// The error for using the rows of a table whose primary key was dropped in the same transaction.
pub(crate) fn without_key() -> SqlError {
    SqlError::unsupported("a table whose primary key was dropped can be used after the commit only")
        .hint("Commit the change of the table first.")
}

/// A frozen view. Cheap to clone.
#[derive(Clone)]
pub struct TxnView {
    pub(crate) snapshot: Snapshot,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) catalog: Arc<Catalog>,
    /// Tables whose primary key this transaction dropped.
    pub(crate) unusable: Arc<[TableId]>,
    /// The statement that reads, which is ended if the snapshot keeps too much in memory.
    pub(crate) _reading: Option<Arc<RunningSnapshot>>,
}

impl std::fmt::Debug for TxnView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxnView")
            .field("batch", &self.batch())
            .finish_non_exhaustive()
    }
}

impl TxnView {
    /// A view of a snapshot alone.
    pub fn of_snapshot(snapshot: Snapshot) -> TxnView {
        let catalog = Arc::clone(snapshot.catalog());
        TxnView {
            snapshot,
            overlay: Arc::default(),
            catalog,
            unusable: Arc::default(),
            _reading: None,
        }
    }

    /// An error (0A000) for a table whose primary key this transaction dropped: its rows cannot be found
    /// again before the commit.
    pub fn check_readable(&self, table: TableId) -> Result<(), SqlError> {
        if self.unusable.contains(&table) {
            Err(without_key())
        } else {
            Ok(())
        }
    }

    /// The same view for one read of a table ([`Snapshot::for_one_read`]).
    #[must_use]
    pub fn for_one_read(&self, table: TableId) -> TxnView {
        TxnView {
            snapshot: self.snapshot.for_one_read(table),
            ..self.clone()
        }
    }

    /// The definitions that the rows follow; a transaction's own catalog changes included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The boundary read.
    pub fn batch(&self) -> BatchId {
        self.snapshot.batch()
    }

    pub(crate) fn layers(&self) -> Layers<'_> {
        Layers {
            snapshot: &self.snapshot,
            overlay: &self.overlay,
            catalog: &self.catalog,
        }
    }

    /// How many chunks `read_chunk` knows: those of the snapshot, and one more for this transaction's own
    /// rows.
    pub fn chunk_count(&self, table: TableId) -> usize {
        self.layers().chunk_count(table)
    }

    /// Visits the rows of one chunk, each once. None if it is out of range. Errors: a row could not be read
    /// from disk.
    pub fn read_chunk(
        &self,
        table: TableId,
        chunk: usize,
        visit: &mut dyn FnMut(&[u8], RowId),
    ) -> Result<(), SqlError> {
        self.layers().read_chunk(table, chunk, visit)
    }

    /// The copied columns of a chunk, if all of these are copied and this transaction has not written to the
    /// table; the other rows of the chunk are visited.
    pub fn read_chunk_columns(
        &self,
        table: TableId,
        chunk: usize,
        columns: &[usize],
        visit: &mut dyn FnMut(&[u8], RowId),
    ) -> Result<Option<ChunkColumns>, SqlError> {
        if self.layers().table_overlay(table).is_some() {
            return Ok(None);
        }
        let visit = |row: RowVersion<'_>| visit(row.bytes, row.row_id);
        self.snapshot
            .read_chunk_columns(table, chunk as u64, columns, visit)
    }

    /// A guess at the number of rows.
    pub fn row_count_estimate(&self, table: TableId) -> usize {
        self.layers().row_count_estimate(table)
    }

    /// A guess at the number of distinct values of a column, if they are few: [`Snapshot::few_values`].
    pub fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        self.snapshot.few_values(table, column)
    }

    /// All rows whose key in `index` is `key`.
    pub fn find<'a>(
        &'a self,
        index: &IndexDef,
        key: &[u8],
        out: &mut Vec<ViewRow<'a>>,
    ) -> Result<(), SqlError> {
        self.layers().find(index, key, out)
    }

    /// Rows whose key in the ordered `index` lies between the bounds, in key order (descending when
    /// `reverse`), at most `limit`. A prefix of a key is a valid bound.
    pub fn range<'a>(
        &'a self,
        index: &IndexDef,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<ViewRow<'a>>, SqlError> {
        self.layers().range(index, lo, hi, reverse, limit)
    }

    /// The row that had this id and this image when it was read, as the view shows it now; `None` if it is
    /// gone. The image is only used to find the row: by primary key, if the table has one.
    pub fn current<'a>(
        &'a self,
        def: &TableDef,
        row_id: RowId,
        image: &[u8],
    ) -> Result<Option<ViewRow<'a>>, SqlError> {
        self.layers().current(def, row_id, image)
    }
}

impl<'a> Layers<'a> {
    fn table_overlay(self, table: TableId) -> Option<&'a TableOverlay> {
        self.overlay.table(table).filter(|overlay| !overlay.is_empty())
    }

    fn base_chunks(self, table: TableId) -> usize {
        if self.table_overlay(table).is_some_and(TableOverlay::base_hidden) {
            return 0;
        }
        self.snapshot.scan_chunks(table) as usize
    }

    fn chunk_count(self, table: TableId) -> usize {
        self.base_chunks(table) + usize::from(self.table_overlay(table).is_some())
    }

    fn read_chunk(
        self,
        table: TableId,
        chunk: usize,
        visit: &mut dyn FnMut(&[u8], RowId),
    ) -> Result<(), SqlError> {
        let overlay = self.table_overlay(table);
        if chunk < self.base_chunks(table) {
            self.snapshot.scan_chunk(table, chunk as u64, |row| {
                match overlay.and_then(|overlay| overlay.base_image(row.row_id)) {
                    None => visit(row.bytes, row.row_id),
                    Some(Some(image)) => visit(image, row.row_id),
                    Some(None) => {}
                }
            })?;
        } else if let Some(overlay) = overlay {
            for (n, image) in overlay.own_rows() {
                visit(image, own_row_id(n));
            }
        }
        Ok(())
    }

    /// The rows of a table that satisfy a condition, by reading all of them.
    pub(crate) fn matching(
        self,
        table: TableId,
        matches: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<(RowId, Vec<u8>)>, SqlError> {
        let mut rows = Vec::new();
        for chunk in 0..self.chunk_count(table) {
            self.read_chunk(table, chunk, &mut |bytes, row_id| {
                if matches(bytes) {
                    rows.push((row_id, bytes.to_vec()));
                }
            })?;
        }
        Ok(rows)
    }

    fn row_count_estimate(self, table: TableId) -> usize {
        let own = self
            .table_overlay(table)
            .map_or(0, |overlay| overlay.own_rows().count());
        let base = if self.base_chunks(table) == 0 {
            0
        } else {
            self.snapshot.row_count_estimate(table) as usize
        };
        base + own
    }

    fn visible(overlay: Option<&'a TableOverlay>, row: RowVersion<'a>) -> Option<ViewRow<'a>> {
        match overlay.and_then(|overlay| overlay.base_image(row.row_id)) {
            // A changed row is found by its new key, through the overlay.
            Some(_) => None,
            None => Some(ViewRow {
                row_id: row.row_id,
                batch: row.batch,
                bytes: Cow::Borrowed(row.bytes),
            }),
        }
    }

    fn overlay_view(overlay: &'a TableOverlay, row: OverlayRow) -> Option<ViewRow<'a>> {
        let bytes = Cow::Borrowed(overlay.image(row)?.as_ref());
        let row_id = match row {
            OverlayRow::Base(row_id) => row_id,
            OverlayRow::Own(n) => own_row_id(n),
        };
        Some(ViewRow {
            row_id,
            batch: BatchId::default(),
            bytes,
        })
    }

    /// True if neither the snapshot nor the overlay has built this index: this transaction created it over
    /// rows that existed before. It is used after commit; until then the table is scanned instead.
    fn is_unbuilt(self, index: &IndexDef) -> bool {
        self.snapshot.catalog().index_by_id(index.id).is_none()
            && !self
                .table_overlay(index.table)
                .is_some_and(|overlay| overlay.is_complete(index.id))
    }

    /// All rows with their keys in `index`, by scanning.
    fn scan_keys(self, index: &IndexDef) -> Result<Vec<(Vec<u8>, ViewRow<'a>)>, SqlError> {
        let mut rows = Vec::new();
        let Some(def) = self.catalog.table_by_id(index.table) else {
            return Ok(rows);
        };
        for chunk in 0..self.chunk_count(index.table) {
            self.read_chunk(index.table, chunk, &mut |bytes, row_id| {
                let mut key = Vec::new();
                encode_key_from_row(&mut key, &def.layout, bytes, &index.columns);
                let bytes = Cow::Owned(bytes.to_vec());
                rows.push((
                    key,
                    ViewRow {
                        row_id,
                        batch: self.snapshot.batch(),
                        bytes,
                    },
                ));
            })?;
        }
        Ok(rows)
    }

    pub(crate) fn find(
        self,
        index: &IndexDef,
        key: &[u8],
        out: &mut impl Extend<ViewRow<'a>>,
    ) -> Result<(), SqlError> {
        if self.is_unbuilt(index) {
            out.extend(
                self.scan_keys(index)?
                    .into_iter()
                    .filter(|(k, _)| k == key)
                    .map(|(_, row)| row),
            );
            return Ok(());
        }
        let overlay = self.table_overlay(index.table);
        if !overlay.is_some_and(TableOverlay::base_hidden) {
            self.snapshot.lookup(index.table, index.id, key, |row| {
                out.extend(Self::visible(overlay, row));
                std::ops::ControlFlow::Continue(())
            })?;
        }
        if let Some(overlay) = overlay {
            out.extend(
                overlay
                    .find(index.id, key)
                    .iter()
                    .filter_map(|row| Self::overlay_view(overlay, *row)),
            );
        }
        Ok(())
    }

    pub(crate) fn range(
        self,
        index: &IndexDef,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<ViewRow<'a>>, SqlError> {
        if self.is_unbuilt(index) {
            let mut rows = self.scan_keys(index)?;
            rows.retain(|(key, _)| RangeBounds::<[u8]>::contains(&(lo, hi), key.as_slice()));
            rows.sort_by(|a, b| a.0.cmp(&b.0));
            if reverse {
                rows.reverse();
            }
            rows.truncate(limit);
            return Ok(rows.into_iter().map(|(_, row)| row).collect());
        }
        if let Some(overlay) = self.table_overlay(index.table) {
            return self.merged_range(overlay, index, (lo, hi), reverse, limit);
        }
        let rows = self
            .snapshot
            .range(index.table, index.id, lo, hi, reverse, limit)?;
        Ok(rows
            .into_iter()
            .filter_map(|row| Self::visible(None, row))
            .collect())
    }

    /// The range with the overlay's changes applied. No more of the snapshot is read than the limit needs:
    /// that many rows first, and twice as many whenever the overlay hides so many of them that they do not
    /// suffice.
    fn merged_range(
        self,
        overlay: &'a TableOverlay,
        index: &IndexDef,
        (lo, hi): KeyBounds<'_>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<ViewRow<'a>>, SqlError> {
        let Some(def) = self.catalog.table_by_id(index.table) else {
            return Ok(Vec::new());
        };
        let entries = overlay.range(index.id, lo, hi);
        let entries: &mut dyn Iterator<Item = _> = match reverse {
            true => &mut entries.rev(),
            false => &mut { entries },
        };
        let own: Vec<Keyed<'a>> = entries
            .filter_map(|(key, row)| Some((key.to_vec(), Self::overlay_view(overlay, row)?)))
            .take(limit)
            .collect();
        if overlay.base_hidden() {
            return Ok(own.into_iter().map(|(_, row)| row).collect());
        }
        let keyed = |row: ViewRow<'a>| {
            let mut key = Vec::new();
            encode_key_from_row(&mut key, &def.layout, &row.bytes, &index.columns);
            (key, row)
        };
        let mut read_max = limit;
        loop {
            let base = self
                .snapshot
                .range(index.table, index.id, lo, hi, reverse, read_max)?;
            let is_all = base.len() < read_max;
            let visible: Vec<Keyed<'a>> = base
                .into_iter()
                .filter_map(|row| Self::visible(Some(overlay), row))
                .map(keyed)
                .collect();
            if is_all || visible.len() >= limit {
                return Ok(merged(visible, own, reverse, limit));
            }
            read_max = read_max.saturating_mul(2);
        }
    }

    pub(crate) fn current(
        self,
        def: &TableDef,
        row_id: RowId,
        image: &[u8],
    ) -> Result<Option<ViewRow<'a>>, SqlError> {
        let overlay = self.table_overlay(def.id);
        let row = overlay_row(row_id);
        Ok(match (overlay, row) {
            (Some(overlay), OverlayRow::Own(_)) => Self::overlay_view(overlay, row),
            (None, OverlayRow::Own(_)) => None,
            (Some(overlay), OverlayRow::Base(_)) if overlay.base_image(row_id).is_some() => {
                Self::overlay_view(overlay, row)
            }
            (Some(overlay), OverlayRow::Base(_)) if overlay.base_hidden() => None,
            (_, OverlayRow::Base(_)) => {
                let Some(slot) = self.snapshot.locate(def.id, &locator_of(def, row, image))? else {
                    return Ok(None);
                };
                let found = self.snapshot.get(def.id, slot)?;
                let found = found.filter(|found| found.row_id == row_id);
                found.map(|found| ViewRow {
                    row_id,
                    batch: found.batch,
                    bytes: Cow::Borrowed(found.bytes),
                })
            }
        })
    }
}
