//! How a program accesses rows inside an interactive transaction: through the overlay, over a snapshot.
//!
//! The locks of the program are acquired before it runs (`Transaction::run`), so what it reads either cannot
//! change or comes from a snapshot, and a write only has to check its constraints against the newest state
//! and go into the overlay. The rows that a program holds are numbered in the order in which it found them;
//! the number is the handle. Their images are stored one after another in memory that the caller keeps
//! between runs.

use std::cell::Cell;
use std::ops::{Bound, Deref, Range};
use std::sync::Arc;

use smallvec::SmallVec;
use weft_base::{BatchId, IndexId, TableId};
use weft_program::{DataAccess, RowHandle};
use weft_store::{Catalog, IndexDef, Snapshot, TableDef};
use weft_types::{SqlError, SqlState};

use crate::locks;
use crate::overlay::{Overlay, OverlayMark, OverlayRow};
use crate::transaction::check_unique;
use crate::view::{Layers, ViewRow, overlay_row, own_row_id};

struct Held<'t> {
    def: &'t Arc<TableDef>,
    row: OverlayRow,
    /// The row among the images, as it was found. Valid unless the overlay holds the row.
    found: Range<usize>,
}

/// A row as the transaction sees it now.
enum CurrentImage<'a> {
    Found(&'a [u8]),
    Written(Arc<[u8]>),
}

impl Deref for CurrentImage<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            CurrentImage::Found(image) => image,
            CurrentImage::Written(image) => image,
        }
    }
}

/// What a program inside a transaction reads and writes.
pub(crate) struct StatementContext<'t> {
    /// What the statement reads.
    pub snapshot: &'t Snapshot,
    /// What constraints are checked against: the newest boundary after the locks were granted.
    pub newest: &'t Snapshot,
    pub catalog: &'t Catalog,
    pub overlay: &'t mut Overlay,
    /// Under REPEATABLE READ, refuse to change a row that another transaction changed since the snapshot.
    pub first_updater_wins: bool,
    /// The program locks what it finds (FOR UPDATE) and changes nothing.
    pub locks_only: bool,
}

impl StatementContext<'_> {
    fn layers(&self) -> Layers<'_> {
        Layers {
            snapshot: self.snapshot,
            overlay: self.overlay,
            catalog: self.catalog,
        }
    }
}

/// A program's reads and writes inside a transaction.
pub(crate) struct SessionAccess<'t> {
    context: StatementContext<'t>,
    rows: HeldRows<'t>,
    /// Savepoints within the program, newest last.
    marks: Vec<OverlayMark>,
    observed: Cell<BatchId>,
}

/// The rows that the program found or made.
struct HeldRows<'t> {
    rows: SmallVec<[Held<'t>; 4]>,
    images: &'t mut Vec<u8>,
}

impl<'t> HeldRows<'t> {
    fn push(&mut self, def: &'t Arc<TableDef>, row: OverlayRow, image: &[u8]) -> RowHandle {
        let start = self.images.len();
        self.images.extend_from_slice(image);
        self.rows.push(Held {
            def,
            row,
            found: start..self.images.len(),
        });
        RowHandle {
            table: def.id,
            slot: self.rows.len() as u64 - 1,
        }
    }

    fn held(&self, row: &RowHandle) -> Result<&Held<'t>, SqlError> {
        self.rows.get(row.slot as usize).ok_or_else(|| {
            SqlError::new(
                SqlState::INTERNAL_ERROR,
                "a program used a row that it does not hold",
            )
        })
    }

    fn found(&self, held: &Held<'_>) -> &[u8] {
        self.images.get(held.found.clone()).unwrap_or_default()
    }

    /// What the overlay holds for a row: `None` if it is unchanged, `Some(None)` if it is deleted.
    fn overlaid<'o>(held: &Held<'_>, overlay: &'o Overlay) -> Option<Option<&'o Arc<[u8]>>> {
        let table = overlay.table(held.def.id)?;
        match held.row {
            OverlayRow::Own(_) => Some(table.image(held.row)),
            OverlayRow::Base(row_id) => table.base_image(row_id).map(Option::as_ref),
        }
    }

    /// The image of a row that is about to be changed; an error if it is deleted.
    fn image(&self, held: &Held<'_>, overlay: &Overlay) -> Result<CurrentImage<'_>, SqlError> {
        match Self::overlaid(held, overlay) {
            None => Ok(CurrentImage::Found(self.found(held))),
            Some(Some(image)) => Ok(CurrentImage::Written(Arc::clone(image))),
            Some(None) => Err(SqlError::new(
                SqlState::INTERNAL_ERROR,
                "a program changed a row that it had removed",
            )),
        }
    }
}

impl<'t> SessionAccess<'t> {
    /// `images` is memory to reuse, whatever it contains.
    pub(crate) fn new(context: StatementContext<'t>, images: &'t mut Vec<u8>) -> SessionAccess<'t> {
        images.clear();
        SessionAccess {
            context,
            rows: HeldRows {
                rows: SmallVec::new(),
                images,
            },
            marks: Vec::new(),
            observed: Cell::default(),
        }
    }

    fn index(&self, table: TableId, index: IndexId) -> Result<(&'t Arc<TableDef>, &'t IndexDef), SqlError> {
        let def = locks::table_def(self.context.catalog, table)?;
        let index = def.index(index).ok_or_else(locks::stale_program)?;
        Ok((def, index))
    }

    fn observe(&self, batch: BatchId) {
        self.observed.set(self.observed.get().max(batch));
    }

    /// Refuses, under REPEATABLE READ, a row that another transaction changed since the snapshot.
    fn check_unchanged(&self, held: &Held<'_>) -> Result<(), SqlError> {
        let OverlayRow::Base(row_id) = held.row else {
            return Ok(());
        };
        if !self.context.first_updater_wins {
            return Ok(());
        }
        let newest = Layers {
            snapshot: self.context.newest,
            ..self.context.layers()
        };
        let now = newest.current(held.def, row_id, self.rows.found(held))?;
        self.observe(now.as_ref().map_or(self.context.newest.batch(), |now| now.batch));
        if now.is_some_and(|now| now.batch <= self.context.snapshot.batch()) {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "could not serialize access due to concurrent update",
        ))
    }
}

impl DataAccess for SessionAccess<'_> {
    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        let (def, index) = self.index(table, index)?;
        let mut found: SmallVec<[ViewRow<'_>; 1]> = SmallVec::new();
        self.context.layers().find(index, key, &mut found)?;
        let Some(row) = found.first() else {
            // That there is no such row is an observation too.
            self.observe(self.context.snapshot.batch());
            return Ok(None);
        };
        self.observe(row.batch);
        let handle = self.rows.push(def, overlay_row(row.row_id), &row.bytes);
        if self.context.locks_only {
            let held = self.rows.held(&handle)?;
            self.rows.image(held, self.context.overlay)?;
            self.check_unchanged(held)?;
        }
        Ok(Some(handle))
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        let held = self.rows.rows.get(row.slot as usize)?;
        match HeldRows::overlaid(held, self.context.overlay) {
            None => Some(self.rows.found(held)),
            Some(image) => image.map(|image| image.as_ref()),
        }
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
        let rows = self.context.layers().range(index, lo, hi, reverse, limit)?;
        self.observe(self.context.snapshot.batch());
        for row in rows {
            out.push(self.rows.push(def, overlay_row(row.row_id), &row.bytes));
        }
        Ok(())
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        let context = &mut self.context;
        let def = locks::table_def(context.catalog, table)?;
        def.check_row(row)?;
        if def.indexes.iter().any(|index| index.unique) {
            self.observed.set(self.observed.get().max(context.newest.batch()));
        }
        check_unique(def, context.newest, context.overlay, context.catalog, row, None)?;
        let place = context.overlay.insert(def, Arc::from(row));
        Ok(self.rows.push(def, place, row))
    }

    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError> {
        let held = self.rows.held(row)?;
        let image = self.rows.image(held, self.context.overlay)?;
        self.check_unchanged(held)?;
        let (context, def) = (&mut self.context, held.def);
        def.check_row(bytes)?;
        let row_id = match held.row {
            OverlayRow::Base(row_id) => row_id,
            OverlayRow::Own(n) => own_row_id(n),
        };
        if def.unique_key_changes(&image, bytes) {
            self.observed.set(self.observed.get().max(context.newest.batch()));
            check_unique(
                def,
                context.newest,
                context.overlay,
                context.catalog,
                bytes,
                Some(row_id),
            )?;
        }
        context.overlay.update(def, held.row, &image, Arc::from(bytes));
        Ok(())
    }

    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError> {
        let held = self.rows.held(row)?;
        let image = self.rows.image(held, self.context.overlay)?;
        self.check_unchanged(held)?;
        self.context.overlay.delete(held.def, held.row, &image);
        Ok(())
    }

    fn savepoint(&mut self) -> Result<(), SqlError> {
        self.marks.push(self.context.overlay.mark());
        Ok(())
    }

    fn rollback_to_savepoint(&mut self) {
        if let Some(mark) = self.marks.pop() {
            self.context.overlay.rollback_to(mark);
        }
    }

    fn release_savepoint(&mut self) {
        self.marks.pop();
    }

    fn observed(&self) -> BatchId {
        self.observed.get()
    }
}
