//! How a program reaches rows inside an interactive transaction: snapshot and overlay below, overlay above.
//!
//! The locks of the program were taken before it runs (`Transaction::run`), so reads are of what cannot
//! change, or of a snapshot, and a write only has to go into the overlay after its constraints were checked
//! against the newest state. Rows that a program holds are numbered in the order it found them; the number
//! is the handle.

use std::ops::Bound;
use std::sync::Arc;

use weft_base::{BatchId, IndexId, TableId};
use weft_program::{DataAccess, RowHandle};
use weft_store::{Catalog, IndexDef, Snapshot, TableDef};
use weft_types::{SqlError, SqlState};

use crate::locks;
use crate::overlay::{Overlay, OverlayMark, OverlayRow};
use crate::transaction::check_unique;
use crate::view::{Layers, ViewRow, overlay_row, own_row_id};

struct Held {
    def: Arc<TableDef>,
    row: OverlayRow,
    /// The row as it was found, for rows that the overlay does not hold.
    image: Box<[u8]>,
}

/// A program's reads and writes inside a transaction.
pub(crate) struct SessionAccess<'t> {
    /// What the statement reads.
    pub snapshot: &'t Snapshot,
    /// What constraints are checked against: the newest boundary after the locks were granted.
    pub newest: &'t Snapshot,
    pub catalog: &'t Catalog,
    pub overlay: &'t mut Overlay,
    /// Under REPEATABLE READ, the snapshot that rows must not have changed since.
    pub first_updater_wins: bool,
    /// The program locks what it finds (FOR UPDATE) and changes nothing.
    locks_only: bool,
    held: Vec<Held>,
    /// Savepoints within the program, newest last.
    marks: Vec<OverlayMark>,
    observed: BatchId,
}

impl<'t> SessionAccess<'t> {
    pub(crate) fn new(
        snapshot: &'t Snapshot,
        newest: &'t Snapshot,
        catalog: &'t Catalog,
        overlay: &'t mut Overlay,
        first_updater_wins: bool,
        locks_only: bool,
    ) -> SessionAccess<'t> {
        let observed = BatchId::default();
        SessionAccess {
            snapshot,
            newest,
            catalog,
            overlay,
            first_updater_wins,
            locks_only,
            held: Vec::new(),
            marks: Vec::new(),
            observed,
        }
    }

    fn layers(&self) -> Layers<'_> {
        Layers {
            snapshot: self.snapshot,
            overlay: self.overlay,
            catalog: self.catalog,
        }
    }

    fn index(&self, table: TableId, index: IndexId) -> Result<(Arc<TableDef>, Arc<IndexDef>), SqlError> {
        let def = locks::table_def(self.catalog, table)?;
        let index = def.index(index).ok_or_else(locks::stale_program)?;
        Ok((Arc::clone(def), Arc::clone(index)))
    }

    fn hold(&mut self, def: &Arc<TableDef>, row: OverlayRow, image: &[u8]) -> RowHandle {
        self.held.push(Held {
            def: Arc::clone(def),
            row,
            image: image.into(),
        });
        RowHandle {
            table: def.id,
            slot: self.held.len() as u64 - 1,
        }
    }

    fn held(&self, row: &RowHandle) -> Result<&Held, SqlError> {
        self.held.get(row.slot as usize).ok_or_else(|| {
            SqlError::new(
                SqlState::INTERNAL_ERROR,
                "a program used a row that it does not hold",
            )
        })
    }

    /// A held row's definition, place and present image; an error if it is removed, or, under REPEATABLE
    /// READ, if another transaction changed it since the snapshot.
    fn writable(&self, row: &RowHandle) -> Result<(Arc<TableDef>, OverlayRow, Vec<u8>), SqlError> {
        let held = self.held(row)?;
        let image = self.row(row).ok_or_else(|| {
            SqlError::new(
                SqlState::INTERNAL_ERROR,
                "a program changed a row that it had removed",
            )
        })?;
        if self.first_updater_wins
            && let OverlayRow::Base(row_id) = held.row
        {
            let newest = Layers {
                snapshot: self.newest,
                overlay: self.overlay,
                catalog: self.catalog,
            };
            let unchanged = newest
                .current(&held.def, row_id, &held.image)?
                .is_some_and(|now| now.batch <= self.snapshot.batch());
            if !unchanged {
                return Err(SqlError::new(
                    SqlState::SERIALIZATION_FAILURE,
                    "could not serialize access due to concurrent update",
                ));
            }
        }
        Ok((Arc::clone(&held.def), held.row, image.to_vec()))
    }
}

impl DataAccess for SessionAccess<'_> {
    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        let (def, index) = self.index(table, index)?;
        let mut found: Vec<ViewRow<'_>> = Vec::new();
        self.layers().find(&index, key, &mut found)?;
        let Some(row) = found.into_iter().next() else {
            // That there is no such row is an observation too.
            self.observed = self.observed.max(self.snapshot.batch());
            return Ok(None);
        };
        let (row_id, batch, image) = (row.row_id, row.batch, row.bytes.into_owned());
        self.observed = self.observed.max(batch);
        let handle = self.hold(&def, overlay_row(row_id), &image);
        if self.locks_only {
            self.writable(&handle)?;
        }
        Ok(Some(handle))
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        let held = self.held.get(row.slot as usize)?;
        if let Some(overlay) = self.overlay.table(held.def.id) {
            match held.row {
                OverlayRow::Own(_) => return overlay.image(held.row).map(|image| image.as_ref()),
                OverlayRow::Base(row_id) => {
                    if let Some(image) = overlay.base_image(row_id) {
                        return image.as_deref();
                    }
                }
            }
        }
        Some(&held.image)
    }

    fn range(
        &mut self,
        index: IndexId,
        table: TableId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
        out: &mut Vec<RowHandle>,
    ) -> Result<(), SqlError> {
        let (def, index) = self.index(table, index)?;
        let rows = self.layers().range(&index, lo, hi, reverse, limit)?;
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| (row.row_id, row.bytes.into_owned()))
            .collect();
        self.observed = self.observed.max(self.snapshot.batch());
        for (row_id, image) in rows {
            let handle = self.hold(&def, overlay_row(row_id), &image);
            out.push(handle);
        }
        Ok(())
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        let def = Arc::clone(locks::table_def(self.catalog, table)?);
        def.check_not_null(row)?;
        if def.indexes.iter().any(|index| index.unique) {
            self.observed = self.observed.max(self.newest.batch());
        }
        check_unique(&def, self.newest, self.overlay, self.catalog, row, None)?;
        let place = self.overlay.insert(&def, Arc::from(row));
        Ok(self.hold(&def, place, row))
    }

    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError> {
        let (def, place, image) = self.writable(row)?;
        def.check_not_null(bytes)?;
        let row_id = match place {
            OverlayRow::Base(row_id) => row_id,
            OverlayRow::Own(n) => own_row_id(n),
        };
        if def.unique_key_changes(&image, bytes) {
            self.observed = self.observed.max(self.newest.batch());
            check_unique(&def, self.newest, self.overlay, self.catalog, bytes, Some(row_id))?;
        }
        self.overlay.update(&def, place, &image, Arc::from(bytes));
        Ok(())
    }

    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError> {
        let (def, place, image) = self.writable(row)?;
        self.overlay.delete(&def, place, &image);
        Ok(())
    }

    fn savepoint(&mut self) -> Result<(), SqlError> {
        self.marks.push(self.overlay.mark());
        Ok(())
    }

    fn rollback_to_savepoint(&mut self) {
        if let Some(mark) = self.marks.pop() {
            self.overlay.rollback_to(mark);
        }
    }

    fn release_savepoint(&mut self) {
        self.marks.pop();
    }

    fn observed(&self) -> BatchId {
        self.observed
    }
}
