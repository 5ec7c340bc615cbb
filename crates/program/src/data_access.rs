//! How programs reach rows: one trait, and its two implementations over the store.
//!
//! The interpreter never sees transactions, snapshots or overlays, only a [`DataAccess`]. In a batch that is
//! [`BatchAccess`] (reads the newest state, earlier writes of the same batch included); for a program that
//! only reads, [`ReadAccess`] at a batch boundary; a session's overlay brings its own.

use std::cell::Cell;
use std::ops::Bound;

use weft_base::{BatchId, IndexId, TableId};
use weft_store::{Fetch, MemberWriter, Planned, Probe, ReadView, RowVersion, SlotId, Snapshot};
use weft_types::{SqlError, SqlState};

use crate::ahead::KeyList;

/// A row that a program holds in a collect register. What `slot` means is the implementation's business.
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
    /// What [`DataAccess::row`] would give for it, where the search had it in hand.
    pub bytes: Option<&'r [u8]>,
}

/// The promise of a [`DataAccess`] that rows stay where they are: what [`DataAccess::row`], or a search, has
/// given for a row lies there unchanged, and is what it gives, as long as the access lives, until the access
/// is told to update or to remove that row, or to go back to a savepoint.
#[derive(Clone, Copy, Debug)]
pub struct RowsStay(());

impl RowsStay {
    /// # Safety
    /// The access keeps the promise: machine code goes on reading where a row lay.
    pub const unsafe fn promise() -> RowsStay {
        RowsStay(())
    }
}

/// Reads and writes of one program. Every method may fail with the error that the client sees; the caller
/// then rolls back.
pub trait DataAccess {
    /// Where it is made, machine code asks once for a row that it looks at several times.
    const ROWS_STAY: Option<RowsStay> = None;

    /// The row with a complete key in a unique index.
    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError>;

    /// Begins to fetch from memory what [`DataAccess::search`] with this key would touch. True when it is
    /// worth turning to another program meanwhile; false, as here, where programs are not interleaved. A
    /// hint: it changes nothing.
    fn fetch(&mut self, index: IndexId, table: TableId, key: &[u8]) -> bool {
        let _ = (index, table, key);
        false
    }

    /// As [`DataAccess::fetch`], of what [`DataAccess::range`] from `lowest` on would touch first.
    fn fetch_range(&mut self, index: IndexId, table: TableId, lowest: &[u8]) -> bool {
        let _ = (index, table, lowest);
        false
    }

    /// Finds where the rows with these keys are, for searches that will come later, and fetches this of them.
    /// `slots` gets a hint for each; false, as here, where there are none to give.
    fn find_ahead(
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

    /// As [`DataAccess::search`], with what [`DataAccess::find_ahead`] said of the key.
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

    /// The row's present bytes, writes of this program included; `None` once it is removed.
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

    /// A point to come back to; several are open at once, the newest of which is meant below. Errors: XX000,
    /// as here, where writes cannot be taken back one by one; no handler may get that error.
    fn savepoint(&mut self) -> Result<(), SqlError> {
        Err(SqlError::internal(
            "a program that catches errors cannot run under this concurrency control",
        ))
    }

    /// Takes back every write since the newest savepoint, which is gone then. Rows found since are not at
    /// hand any more.
    fn rollback_to_savepoint(&mut self) {}

    /// Keeps the writes since the newest savepoint, which is gone then.
    fn release_savepoint(&mut self) {}

    /// The highest batch that anything read was written by.
    fn observed(&self) -> BatchId;
}

/// Rows found lately, by slot: a program looks at each of its rows several times, and finding one again costs
/// a walk from the table to the version. Who writes to a row forgets it before.
struct Recent<'b>([Cell<Kept<'b>>; RECENT_ROWS]);

/// A row and its bytes.
type Kept<'b> = Option<(RowHandle, &'b [u8])>;

/// As many as a program has rows at hand, as a rule; a power of two.
const RECENT_ROWS: usize = 16;

impl<'b> Recent<'b> {
    fn new() -> Self {
        Recent([const { Cell::new(None) }; RECENT_ROWS])
    }

    #[inline]
    fn cell(&self, row: &RowHandle) -> &Cell<Kept<'b>> {
        // Tables fill their slots in the same order, so the slot alone would bring an order and its lines
        // together.
        let at = row.slot.wrapping_add(u64::from(row.table.0)) as usize % RECENT_ROWS;
        &self.0[at]
    }

    #[inline]
    fn keep(&self, row: RowHandle, bytes: &'b [u8]) {
        self.cell(&row).set(Some((row, bytes)));
    }

    /// For the rows of a range: appends them, and keeps those that it begins with.
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

    /// The row's bytes, as kept or as `find` finds them.
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
    planned: Planned<'m, 'b>,
    /// Where a search that must wait for memory leaves its probe, if programs are interleaved.
    probe: Option<&'m mut Option<Probe>>,
}

impl<'m, 'b> BatchAccess<'m, 'b> {
    /// Through a member's writer; the caller commits or rolls it back.
    pub fn new(writer: &'m mut MemberWriter<'b>) -> Self {
        BatchAccess {
            writer,
            recent: Recent::new(),
            planned: Planned::default(),
            probe: None,
        }
    }

    /// With lookups of the program's accesses that were planned and finished.
    #[must_use]
    pub fn with_planned(self, planned: Planned<'m, 'b>) -> Self {
        BatchAccess { planned, ..self }
    }

    /// As [`BatchAccess::new`], for programs that are interleaved: when the run waits, its probe is in
    /// `probe`, for the caller to advance to its end and hand in again when the run is resumed.
    pub fn interleaved(writer: &'m mut MemberWriter<'b>, probe: &'m mut Option<Probe>) -> Self {
        BatchAccess {
            probe: Some(probe),
            ..BatchAccess::new(writer)
        }
    }
}

impl<'b> BatchAccess<'_, 'b> {
    // What is found stays in registers (see `ReadView::lookup_probed`).
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
    const ROWS_STAY: Option<RowsStay> = Some(unsafe { RowsStay::promise() });

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

    fn find_ahead(
        &self,
        index: IndexId,
        table: TableId,
        keys: &KeyList,
        fetch: Fetch,
        slots: &mut [SlotId],
    ) -> bool {
        self.writer.find_ahead((table, index), keys.iter(), fetch, slots);
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
        let find = || self.writer.bytes(row.table, SlotId(row.slot));
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
            // The range's, which has served.
            **probe = None;
        }
        let see = self.recent.collector(table, out);
        self.writer
            .range_each(table, index, (lo, hi), reverse, limit, see)
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        let slot = self.writer.insert(table, row)?;
        let handle = RowHandle { table, slot: slot.0 };
        // Another row may have lain there before.
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
    planned: Planned<'m, 's>,
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
            planned: Planned::default(),
            probe: None,
        }
    }

    /// With lookups of the program's accesses that were planned and finished.
    #[must_use]
    pub fn with_planned(self, planned: Planned<'m, 's>) -> Self {
        ReadAccess { planned, ..self }
    }

    /// As [`ReadAccess::over`], for a run that is resumed and has observed this much so far.
    pub fn resumed(view: ReadView<'s>, observed: BatchId) -> Self {
        ReadAccess {
            observed,
            ..ReadAccess::over(view)
        }
    }

    /// As [`ReadAccess::over`], for programs that are interleaved: when the run waits, its probe is in
    /// `probe`, for the caller to advance to its end and hand in again when the run is resumed. `observed` is
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
    const ROWS_STAY: Option<RowsStay> = Some(unsafe { RowsStay::promise() });

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

    fn find_ahead(
        &self,
        index: IndexId,
        table: TableId,
        keys: &KeyList,
        fetch: Fetch,
        slots: &mut [SlotId],
    ) -> bool {
        self.view.find_ahead((table, index), keys.iter(), fetch, slots);
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
        let find = || Some(self.view.bytes(row.table, SlotId(row.slot))?.0);
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
        // What is not there was seen too, and any batch may have removed it.
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
