//! How programs access rows: one trait, and its two implementations over the store.
//!
//! The interpreter never sees transactions, snapshots or overlays, only a [`DataAccess`]. In a batch that is
//! [`BatchAccess`] (reads the newest state, earlier writes of the same batch included); for a program that
//! only reads, [`ReadAccess`] at a batch boundary; a session's overlay brings its own.

use std::cell::Cell;
use std::ops::Bound;

use weft_base::{BatchId, IndexId, TableId};
use weft_store::{Fetch, MemberWriter, PlannedLookups, Probe, ReadView, RowVersion, SlotId, Snapshot};
use weft_types::{SqlError, SqlState};

use crate::prefetch::KeyList;

/// A row in a collect register. The meaning of `slot` is up to the implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowHandle {
    /// The row's table.
    pub table: TableId,
    /// Where it is.
    pub slot: u64,
}

/// A row that a search has found.
#[derive(Clone, Copy, Debug)]
pub struct FoundRow<'r> {
    /// The row.
    pub handle: RowHandle,
    /// The result of [`DataAccess::row`], if the search has it at hand.
    pub bytes: Option<&'r [u8]>,
}

/// The promise of a [`DataAccess`] that rows do not move: what [`DataAccess::row`] or a search has returned
/// for a row stays there unchanged, and stays the result, as long as the access lives, until the access
/// updates or removes that row, or rolls back to a savepoint.
#[derive(Clone, Copy, Debug)]
pub struct RowsPinned(());

impl RowsPinned {
    /// # Safety
    /// The access keeps the promise: machine code continues to read at a row's address.
    pub const unsafe fn promise() -> RowsPinned {
        RowsPinned(())
    }
}

/// Reads and writes of one program. Every method may fail with the error that the client sees; the caller
/// then rolls back.
pub trait DataAccess {
    /// With this promise, machine code asks only once for a row that it reads several times.
    const ROWS_STAY: Option<RowsPinned> = None;

    /// The row with a complete key in a unique index.
    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError>;

    /// Begins to prefetch what [`DataAccess::search`] with this key would access. True if it is worth
    /// switching to another program; false, as here, if programs are not interleaved. A hint: it changes
    /// nothing.
    fn fetch(&mut self, index: IndexId, table: TableId, key: &[u8]) -> bool {
        let _ = (index, table, key);
        false
    }

    /// As [`DataAccess::fetch`], for what [`DataAccess::range`] from `lowest` on would access first.
    fn fetch_range(&mut self, index: IndexId, table: TableId, lowest: &[u8]) -> bool {
        let _ = (index, table, lowest);
        false
    }

    /// Finds where the rows with these keys are, for later searches, and prefetches this part of them.
    /// `slots` gets a hint for each; false, as here, if there are none.
    fn prefetch_lookups(
        &self,
        index: IndexId,
        table: TableId,
        keys: &KeyList,
        fetch: Fetch,
        slots: &mut [SlotId],
    ) -> bool {
        let _ = (index, table, keys, fetch, slots);
        false
    }

    /// As [`DataAccess::search`], with the hint of [`DataAccess::prefetch_lookups`] for the key.
    fn search_hinted(
        &mut self,
        index: IndexId,
        table: TableId,
        key: &[u8],
        hint: SlotId,
    ) -> Result<Option<FoundRow<'_>>, SqlError> {
        let _ = hint;
        let found = self.search(index, table, key)?;
        Ok(found.map(|handle| FoundRow { handle, bytes: None }))
    }

    /// As [`DataAccess::search`], for the key of the declared access with this number, whose lookup may have
    /// been planned ([`crate::Scratch::plan_lookups`]).
    fn search_planned(
        &mut self,
        access: u32,
        index: IndexId,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<FoundRow<'_>>, SqlError> {
        let _ = access;
        let found = self.search(index, table, key)?;
        Ok(found.map(|handle| FoundRow { handle, bytes: None }))
    }

    /// The row's current bytes, including writes of this program; `None` once it is removed.
    fn row(&self, row: &RowHandle) -> Option<&[u8]>;

    /// Appends rows with keys in the bounds, at most `limit`, in key order or its reverse.
    #[expect(clippy::too_many_arguments, reason = "a range read has this many parts")]
    fn range(
        &mut self,
        index: IndexId,
        table: TableId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
        out: &mut Vec<RowHandle>,
    ) -> Result<(), SqlError>;

    /// Inserts a row; constraints are checked.
    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError>;

    /// Replaces a row; constraints are checked.
    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError>;

    /// Removes a row.
    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError>;

    /// Sets a savepoint; several may be open at once, and the methods below refer to the newest. Errors:
    /// XX000, as here, if writes cannot be undone one by one; no handler may catch that error.
    fn savepoint(&mut self) -> Result<(), SqlError> {
        Err(SqlError::internal(
            "a program that catches errors cannot run under this concurrency control",
        ))
    }

    /// Undoes every write since the newest savepoint and closes it. Rows found since are no longer valid.
    fn rollback_to_savepoint(&mut self) {}

    /// Closes the newest savepoint and keeps the writes since.
    fn release_savepoint(&mut self) {}

    /// The highest batch among the versions read.
    fn observed(&self) -> BatchId;
}

/// Recently found rows, by slot: a program reads each of its rows several times, and finding one again means
/// following pointers from the table to the version. A write to a row must remove its entry first.
struct Recent<'b>([Cell<Kept<'b>>; RECENT_ROWS]);

/// A row and its bytes.
type Kept<'b> = Option<(RowHandle, &'b [u8])>;

/// As many as a program usually uses at once; a power of two.
const RECENT_ROWS: usize = 16;

impl<'b> Recent<'b> {
    fn new() -> Self {
        Recent([const { Cell::new(None) }; RECENT_ROWS])
    }

    #[inline]
    fn cell(&self, row: &RowHandle) -> &Cell<Kept<'b>> {
        // Tables fill their slots in the same order, so by the slot alone an order and its lines would
        // collide.
        let at = row.slot.wrapping_add(u64::from(row.table.0)) as usize % RECENT_ROWS;
        &self.0[at]
    }

    #[inline]
    fn keep(&self, row: RowHandle, bytes: &'b [u8]) {
        self.cell(&row).set(Some((row, bytes)));
    }

    /// For the rows of a range: appends them, and caches the first ones.
    #[inline]
    fn collector(&self, table: TableId, out: &mut Vec<RowHandle>) -> impl FnMut(RowVersion<'b>) {
        let mut left = RECENT_ROWS;
        move |row| {
            let handle = RowHandle {
                table,
                slot: row.slot.0,
            };
            out.push(handle);
            if left > 0 {
                left -= 1;
                self.keep(handle, row.bytes);
            }
        }
    }

    #[inline]
    fn forget(&self, row: &RowHandle) {
        self.cell(row).set(None);
    }

    fn forget_all(&self) {
        self.0.iter().for_each(|cell| cell.set(None));
    }

    /// The row's bytes, cached or found by `find`.
    #[inline]
    fn bytes(&self, row: &RowHandle, find: impl FnOnce() -> Option<&'b [u8]>) -> Option<&'b [u8]> {
        match self.cell(row).get() {
            Some((kept, bytes)) if kept == *row => Some(bytes),
            _ => find().inspect(|bytes| self.keep(*row, bytes)),
        }
    }
}

/// A batch member's reads and writes.
pub struct BatchAccess<'m, 'b> {
    writer: &'m mut MemberWriter<'b>,
    recent: Recent<'b>,
    /// Lookups of the declared accesses, if they were planned.
    planned: PlannedLookups<'m, 'b>,
    /// Where a search that must wait for memory leaves its probe, if programs are interleaved.
    probe: Option<&'m mut Option<Probe>>,
}

impl<'m, 'b> BatchAccess<'m, 'b> {
    /// Through a member's writer; the caller commits or rolls it back.
    pub fn new(writer: &'m mut MemberWriter<'b>) -> Self {
        BatchAccess {
            writer,
            recent: Recent::new(),
            planned: PlannedLookups::default(),
            probe: None,
        }
    }

    /// With lookups of the program's accesses that were planned and finished.
    #[must_use]
    pub fn with_planned(self, planned: PlannedLookups<'m, 'b>) -> Self {
        BatchAccess { planned, ..self }
    }

    /// As [`BatchAccess::new`], for programs that are interleaved: when the run is suspended, its probe is in
    /// `probe`, for the caller to advance to its end and pass in again when the run is resumed.
    pub fn interleaved(writer: &'m mut MemberWriter<'b>, probe: &'m mut Option<Probe>) -> Self {
        BatchAccess {
            probe: Some(probe),
            ..BatchAccess::new(writer)
        }
    }
}

impl<'b> BatchAccess<'_, 'b> {
    // The result stays in registers (see `ReadView::lookup_probed`).
    #[inline(always)]
    fn found(&mut self, table: TableId, row: Option<RowVersion<'b>>) -> Option<FoundRow<'b>> {
        let row = row?;
        let handle = RowHandle {
            table,
            slot: row.slot.0,
        };
        self.recent.keep(handle, row.bytes);
        Some(FoundRow {
            handle,
            bytes: Some(row.bytes),
        })
    }
}

impl DataAccess for BatchAccess<'_, '_> {
    // SAFETY: all bytes are the writer's for `'b`, beyond this access; `Recent` relies on the same. A row's
    // place changes where this member writes to it, or takes that back, and nobody else writes to rows that
    // it has at hand. Rows that are inserted come into slots of no row.
    const ROWS_STAY: Option<RowsPinned> = Some(unsafe { RowsPinned::promise() });

    fn fetch(&mut self, index: IndexId, table: TableId, key: &[u8]) -> bool {
        if let Some(probe) = &mut self.probe {
            **probe = Some(self.writer.begin_probe(table, index, key));
        }
        self.probe.is_some()
    }

    fn fetch_range(&mut self, index: IndexId, table: TableId, lowest: &[u8]) -> bool {
        if let Some(probe) = &mut self.probe {
            **probe = Some(self.writer.begin_range_probe(table, index, lowest));
        }
        self.probe.is_some()
    }

    fn prefetch_lookups(
        &self,
        index: IndexId,
        table: TableId,
        keys: &KeyList,
        fetch: Fetch,
        slots: &mut [SlotId],
    ) -> bool {
        self.writer
            .prefetch_lookups((table, index), keys.iter(), fetch, slots);
        true
    }

    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        let row = match self.probe.as_mut().and_then(|probe| probe.take()) {
            Some(probe) => self.writer.lookup_probed(table, index, key, &probe)?,
            None => self.writer.lookup_one(table, index, key)?,
        };
        Ok(self.found(table, row).map(|found| found.handle))
    }

    #[inline(always)]
    fn search_hinted(
        &mut self,
        index: IndexId,
        table: TableId,
        key: &[u8],
        hint: SlotId,
    ) -> Result<Option<FoundRow<'_>>, SqlError> {
        let row = self.writer.lookup_hinted((table, index), key, hint)?;
        Ok(self.found(table, row))
    }

    #[inline(always)]
    fn search_planned(
        &mut self,
        access: u32,
        index: IndexId,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<FoundRow<'_>>, SqlError> {
        let (planned, number) = (&mut self.planned, access as usize);
        let row = self.writer.lookup_planned(planned, number, (table, index), key)?;
        Ok(self.found(table, row))
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        // A row that is not in memory is noted, and the batch is undone: nobody uses what comes of this.
        let find = || self.writer.bytes(row.table, SlotId(row.slot)).ok().flatten();
        self.recent.bytes(row, find)
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
        if let Some(probe) = &mut self.probe {
            // It belongs to the range and is no longer needed.
            **probe = None;
        }
        let see = self.recent.collector(table, out);
        self.writer
            .range_each(table, index, (lo, hi), reverse, limit, see)
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        let slot = self.writer.insert(table, row)?;
        let handle = RowHandle { table, slot: slot.0 };
        // Another row may have been in the slot before.
        self.recent.forget(&handle);
        Ok(handle)
    }

    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError> {
        self.recent.forget(row);
        self.writer.update(row.table, SlotId(row.slot), bytes)
    }

    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError> {
        self.recent.forget(row);
        self.writer.remove(row.table, SlotId(row.slot))
    }

    fn savepoint(&mut self) -> Result<(), SqlError> {
        self.writer.savepoint();
        Ok(())
    }

    fn rollback_to_savepoint(&mut self) {
        self.recent.forget_all();
        self.writer.rollback_to_savepoint();
    }

    fn release_savepoint(&mut self) {
        self.writer.release_savepoint();
    }

    fn observed(&self) -> BatchId {
        self.writer.observed()
    }
}

/// Reads at a batch boundary. Writes are refused.
pub struct ReadAccess<'m, 's> {
    view: ReadView<'s>,
    observed: BatchId,
    recent: Recent<'s>,
    /// As in [`BatchAccess`].
    planned: PlannedLookups<'m, 's>,
    /// As in [`BatchAccess`].
    probe: Option<&'m mut Option<Probe>>,
}

impl<'m, 's> ReadAccess<'m, 's> {
    /// Reads of a snapshot.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        ReadAccess::over(snapshot.view())
    }

    /// Reads of a view, for callers that keep a pinned reader.
    pub fn over(view: ReadView<'s>) -> Self {
        ReadAccess {
            view,
            observed: BatchId(0),
            recent: Recent::new(),
            planned: PlannedLookups::default(),
            probe: None,
        }
    }

    /// With lookups of the program's accesses that were planned and finished.
    #[must_use]
    pub fn with_planned(self, planned: PlannedLookups<'m, 's>) -> Self {
        ReadAccess { planned, ..self }
    }

    /// As [`ReadAccess::over`], for a run that is resumed and has observed this much so far.
    pub fn resumed(view: ReadView<'s>, observed: BatchId) -> Self {
        ReadAccess {
            observed,
            ..ReadAccess::over(view)
        }
    }

    /// As [`ReadAccess::over`], for programs that are interleaved: when the run is suspended, its probe is in
    /// `probe`, for the caller to advance to its end and pass in again when the run is resumed. `observed` is
    /// what the run has observed so far.
    pub fn interleaved(view: ReadView<'s>, observed: BatchId, probe: &'m mut Option<Probe>) -> Self {
        ReadAccess {
            observed,
            probe: Some(probe),
            ..ReadAccess::over(view)
        }
    }

    #[inline(always)]
    fn found(&mut self, table: TableId, row: Option<RowVersion<'s>>) -> Option<FoundRow<'s>> {
        let Some(row) = row else {
            // Any batch may have removed it.
            self.observed = self.view.batch();
            return None;
        };
        let handle = RowHandle {
            table,
            slot: row.slot.0,
        };
        self.observed = self.observed.max(row.batch);
        self.recent.keep(handle, row.bytes);
        Some(FoundRow {
            handle,
            bytes: Some(row.bytes),
        })
    }

    fn refuse_write() -> SqlError {
        SqlError::new(SqlState::INTERNAL_ERROR, "a program on a snapshot tried to write")
    }
}

impl DataAccess for ReadAccess<'_, '_> {
    // SAFETY: all bytes are the snapshot's for `'s`, beyond this access, and nothing is written.
    const ROWS_STAY: Option<RowsPinned> = Some(unsafe { RowsPinned::promise() });

    fn fetch(&mut self, index: IndexId, table: TableId, key: &[u8]) -> bool {
        if let Some(probe) = &mut self.probe {
            **probe = Some(self.view.begin_probe(table, index, key));
        }
        self.probe.is_some()
    }

    fn fetch_range(&mut self, index: IndexId, table: TableId, lowest: &[u8]) -> bool {
        if let Some(probe) = &mut self.probe {
            **probe = Some(self.view.begin_range_probe(table, index, lowest));
        }
        self.probe.is_some()
    }

    fn prefetch_lookups(
        &self,
        index: IndexId,
        table: TableId,
        keys: &KeyList,
        fetch: Fetch,
        slots: &mut [SlotId],
    ) -> bool {
        self.view
            .prefetch_lookups((table, index), keys.iter(), fetch, slots);
        true
    }

    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        let row = match self.probe.as_mut().and_then(|probe| probe.take()) {
            Some(probe) => self.view.lookup_probed(table, index, key, &probe)?,
            None => self.view.lookup_one(table, index, key)?,
        };
        Ok(self.found(table, row).map(|found| found.handle))
    }

    #[inline(always)]
    fn search_hinted(
        &mut self,
        index: IndexId,
        table: TableId,
        key: &[u8],
        hint: SlotId,
    ) -> Result<Option<FoundRow<'_>>, SqlError> {
        let row = self.view.lookup_hinted((table, index), key, hint)?;
        Ok(self.found(table, row))
    }

    #[inline(always)]
    fn search_planned(
        &mut self,
        access: u32,
        index: IndexId,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<FoundRow<'_>>, SqlError> {
        let row = self
            .planned
            .lookup(access as usize, &self.view, (table, index), key)?;
        Ok(self.found(table, row))
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        // Whoever runs programs on a view asks it whether all rows could be read.
        let find = || Some(self.view.bytes(row.table, SlotId(row.slot)).ok()??.0);
        self.recent.bytes(row, find)
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
        if let Some(probe) = &mut self.probe {
            **probe = None;
        }
        // That nothing was found is an observation too, and any batch may have removed it.
        self.observed = self.view.batch();
        let see = self.recent.collector(table, out);
        self.view.range_each(table, index, (lo, hi), reverse, limit, see)
    }

    fn insert(&mut self, _table: TableId, _row: &[u8]) -> Result<RowHandle, SqlError> {
        Err(ReadAccess::refuse_write())
    }

    fn update(&mut self, _row: &RowHandle, _bytes: &[u8]) -> Result<(), SqlError> {
        Err(ReadAccess::refuse_write())
    }

    fn remove(&mut self, _row: &RowHandle) -> Result<(), SqlError> {
        Err(ReadAccess::refuse_write())
    }

    fn savepoint(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    fn observed(&self) -> BatchId {
        self.observed
    }
}
