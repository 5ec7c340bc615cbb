//! An index that is built while batches go on, and rows that are checked.
//!
//! ```text
//!   boundary a   the entries of all rows                      build.rs
//!   boundary b   of slots written since a: entries out, entries in
//!      ...       the same again, until few are written meanwhile
//!   the batch in which the index appears: the same for the last time
//! ```
//!
//! While others may write to the table, the snapshot of the last step is kept, so what an entry stood for can
//! still be read: the index is exactly that of one boundary at any time, without entries of older versions.
//! Nobody finds it before it appears, and then only readers of that boundary and later ones.
//!
//! SET NOT NULL goes the same way: it looks at all rows of a boundary, then at those written since.
//!
//! In a replay there is nothing prepared: the batch builds the index. The outcome is the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_base::BatchId;
use weft_ops::hash64;
use weft_types::interrupt::{self, Pace};
use weft_types::{SqlError, SqlState};

use super::IndexData;
use super::build::{BuildError, build};
use super::hash::Candidates;
use crate::catalog::{CatalogOp, IndexDef, TableDef};
use crate::memory::{Pin, Scratch, SlotId, VersionRef};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::table::{TableCore, Watch};
use crate::writer::violation;

/// How long a finished batch may stay out of the log before the statement gives up.
const UNPUBLISHED_MAX: Duration = Duration::from_secs(60);
/// Units of work of a slot that may have been written.
const SLOT_UNITS: usize = 16;

/// An index of a boundary, not yet visible to anybody. Keeps what readers of that boundary may read.
pub struct PreparedIndex {
    table: Arc<TableDef>,
    def: Arc<IndexDef>,
    core: Arc<TableCore>,
    data: IndexData,
    written: Watch,
    /// The boundary that it is of.
    at: BatchId,
    /// Kept while others may write to the table: what the entries of then stood for.
    then: Option<Snapshot>,
}

impl std::fmt::Debug for PreparedIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedIndex")
            .field("def", &self.def)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// What was done for a change of definitions while batches went on.
#[derive(Debug)]
pub enum Prepared {
    /// For CREATE INDEX and ADD PRIMARY KEY.
    Index(Box<PreparedIndex>),
    /// For SET NOT NULL.
    NotNull(CheckedNotNull),
}

/// That no row of a boundary has a NULL in a column.
pub struct CheckedNotNull {
    table: Arc<TableDef>,
    column: usize,
    core: Arc<TableCore>,
    written: Watch,
    store: Arc<Store>,
}

impl std::fmt::Debug for CheckedNotNull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckedNotNull")
            .field("table", &self.table.name)
            .field("column", &self.column)
            .finish_non_exhaustive()
    }
}

/// Keys of a row at two times.
#[derive(Default)]
struct Change {
    slot: SlotId,
    removed: Option<Vec<u8>>,
    added: Option<Vec<u8>>,
    /// The added key has a NULL.
    has_null: bool,
}

impl Store {
    /// Builds an index over a table's rows while batches go on; `None` if there is no such table, or its rows
    /// have not these columns. Takes as long as the building does, with one thread.
    ///
    /// # Errors
    /// A duplicate, or a NULL in a primary key; a row that could not be read; the end of the statement; a
    /// batch that stays unpublished since the log has failed.
    pub fn prepare_index(
        self: &Arc<Self>,
        table: &Arc<TableDef>,
        def: &IndexDef,
    ) -> Result<Option<PreparedIndex>, SqlError> {
        let Some(core) = self.snapshot().core_of(table) else {
            return Ok(None);
        };
        let mut written = Watch::new(&core);
        let (_, then) = taken(self, &mut written)?;
        if !then
            .core_of(table)
            .is_some_and(|newest| Arc::ptr_eq(&newest, &core))
        {
            return Ok(None);
        }
        let pin = then.view().pin();
        if def.primary {
            for column in &def.columns {
                check_no_nulls(table, &core, pin, *column)?;
            }
        }
        let data = build((table, def), &core, pin, core.rows(), 1)
            .map_err(|why| build_error(why, (table, def), &core, pin))?;
        Ok(Some(PreparedIndex {
            table: Arc::clone(table),
            def: Arc::new(def.clone()),
            core,
            data,
            written,
            at: then.batch(),
            then: Some(then),
        }))
    }
}

impl Store {
    /// Checks that no row has a NULL in a column while batches go on; `None` as for an index.
    ///
    /// # Errors
    /// There is a NULL (23502); otherwise as [`Store::prepare_index`].
    pub fn check_not_null(
        self: &Arc<Self>,
        table: &Arc<TableDef>,
        column: usize,
    ) -> Result<Option<CheckedNotNull>, SqlError> {
        let Some(core) = self.snapshot().core_of(table) else {
            return Ok(None);
        };
        let mut written = Watch::new(&core);
        let (_, now) = taken(self, &mut written)?;
        if !now
            .core_of(table)
            .is_some_and(|newest| Arc::ptr_eq(&newest, &core))
        {
            return Ok(None);
        }
        check_no_nulls(table, &core, now.view().pin(), column)?;
        Ok(Some(CheckedNotNull {
            table: Arc::clone(table),
            column,
            core,
            written,
            store: Arc::clone(self),
        }))
    }
}

impl Prepared {
    /// Goes on to the newest boundary; how many slots may have been written since the last one.
    ///
    /// # Errors
    /// As the preparation. It cannot be used then.
    pub fn catch_up(&mut self) -> Result<usize, SqlError> {
        match self {
            Prepared::Index(index) => index.catch_up(),
            Prepared::NotNull(checked) => checked.catch_up(),
        }
    }

    /// Goes on to the newest boundary for the last time: nobody else writes to the table until the change
    /// appears.
    ///
    /// # Errors
    /// As [`Prepared::catch_up`].
    pub fn catch_up_last(&mut self) -> Result<(), SqlError> {
        match self {
            Prepared::Index(index) => index.catch_up_last(),
            Prepared::NotNull(checked) => checked.catch_up().map(|_| ()),
        }
    }

    /// Whether it was made for this change.
    pub fn is_for(&self, op: &CatalogOp) -> bool {
        match (self, op) {
            (Prepared::Index(index), CatalogOp::CreateIndex(def) | CatalogOp::AddPrimaryKey(def)) => {
                index.def.id == def.id
            }
            (
                Prepared::NotNull(checked),
                CatalogOp::SetNotNull {
                    table,
                    column,
                    not_null,
                },
            ) => *not_null && checked.table.id == *table && checked.column == *column as usize,
            _ => false,
        }
    }
}

impl CheckedNotNull {
    fn catch_up(&mut self) -> Result<usize, SqlError> {
        let (marks, now) = taken(&self.store, &mut self.written)?;
        let slots: Vec<SlotId> = self.core.slots.ids_of_marks(&marks).collect();
        let (mut pace, mut scratch) = (Pace::default(), Scratch::default());
        for slot in &slots {
            pace.step(SLOT_UNITS)?;
            let mut is_null = false;
            self.core
                .visit(*slot, now.view().pin(), &mut scratch, |_, version| {
                    is_null = self.is_null(version);
                })?;
            if is_null {
                return Err(violation::null_in_rows(&self.table, self.column));
            }
        }
        Ok(slots.len())
    }

    fn is_null(&self, version: VersionRef<'_>) -> bool {
        let mut buffer = Vec::new();
        let row = self.table.present(version.batch(), version.bytes(), &mut buffer);
        self.table.layout.is_null(row, self.column)
    }

    /// Whether it is this column of these rows.
    pub(crate) fn is_of(&self, def: &TableDef, core: &Arc<TableCore>, column: usize) -> bool {
        Arc::ptr_eq(&self.core, core)
            && self.column == column
            && self.table.laid_out_since() == def.laid_out_since()
    }

    /// Checks what the open batch has written: nobody else has since the last time.
    pub(crate) fn finish(mut self, pin: Pin<'_>) -> Result<(), SqlError> {
        let marks = self.written.take();
        // Rows that the batch has written are in memory.
        let newest = self.core.slots.ids_of_marks(&marks);
        let mut versions = newest.filter_map(|slot| self.core.peek(slot, pin));
        match versions.any(|(_, version)| self.is_null(version)) {
            true => Err(violation::null_in_rows(&self.table, self.column)),
            false => Ok(()),
        }
    }
}

impl PreparedIndex {
    /// Goes on to the newest boundary; how many slots may have been written since the last one.
    ///
    /// # Errors
    /// As [`Store::prepare_index`]. It cannot be used then.
    pub fn catch_up(&mut self) -> Result<usize, SqlError> {
        let Some(then) = &self.then else {
            return Ok(0);
        };
        let (marks, now) = taken(then.store(), &mut self.written)?;
        let slots: Vec<SlotId> = self.core.slots.ids_of_marks(&marks).collect();
        // Rows on disk are those of a checkpoint.
        let is_cold_old = || then.store().saved() <= self.at;
        self.change(&slots, then.view().pin(), now.view().pin(), is_cold_old)?;
        self.at = now.batch();
        self.then = Some(now);
        Ok(slots.len())
    }

    /// Goes on to the newest boundary for the last time: nobody else writes to the table until the index
    /// appears. What older readers need is not kept any more.
    ///
    /// # Errors
    /// As [`PreparedIndex::catch_up`].
    pub fn catch_up_last(&mut self) -> Result<(), SqlError> {
        self.catch_up()?;
        self.then = None;
        Ok(())
    }

    /// Its definition.
    pub fn def(&self) -> &IndexDef {
        &self.def
    }

    /// Whether it is this index of these rows.
    pub(crate) fn is_of(&self, def: &IndexDef, core: &Arc<TableCore>) -> bool {
        *self.def == *def && Arc::ptr_eq(&self.core, core)
    }

    /// The index of the open batch. `before` sees what was there before it.
    pub(crate) fn finish(mut self, before: Pin<'_>, pin: Pin<'_>) -> Result<IndexData, SqlError> {
        let marks = self.written.take();
        let slots: Vec<SlotId> = self.core.slots.ids_of_marks(&marks).collect();
        match &self.then {
            Some(then) => {
                let is_cold_old = || then.store().saved() <= self.at;
                self.change(&slots, then.view().pin(), pin, is_cold_old)?;
            }
            // Only the batch has written since, and its rows are in memory.
            None => self.change(&slots, before, pin, || true)?,
        }
        Ok(self.data)
    }

    /// Brings the entries of these slots from what one pin sees to what another does. `is_cold_old`: whether
    /// rows that were on disk a moment ago are older than `at`.
    fn change(
        &self,
        slots: &[SlotId],
        from: Pin<'_>,
        pin: Pin<'_>,
        is_cold_old: impl Fn() -> bool,
    ) -> Result<(), SqlError> {
        let mut changes = Vec::new();
        let (mut pace, mut scratch) = (Pace::default(), Scratch::default());
        for slot in slots {
            pace.step(SLOT_UNITS)?;
            if self.is_old(*slot, pin, &is_cold_old) {
                continue;
            }
            let (removed, _) = self.key_at(*slot, from, &mut scratch)?;
            let (added, has_null) = self.key_at(*slot, pin, &mut scratch)?;
            if removed == added {
                continue;
            }
            if has_null && self.def.primary {
                return Err(self.null_in(*slot, pin));
            }
            changes.push(Change {
                slot: *slot,
                removed,
                added,
                has_null,
            });
        }
        // Keys may have moved from one row to another.
        for change in &changes {
            if let Some(key) = &change.removed {
                self.remove(key, change.slot);
            }
        }
        for change in &changes {
            pace.step(SLOT_UNITS)?;
            if let Some(key) = &change.added {
                if self.def.unique && !change.has_null {
                    self.check_unique(key, pin, &mut scratch)?;
                }
                self.add(key, change.slot);
            }
        }
        Ok(())
    }

    /// Whether nobody has written to a slot since `at`, as far as that is known without reading the disk.
    /// Marks are of groups of slots, so most are old.
    fn is_old(&self, slot: SlotId, pin: Pin<'_>, is_cold_old: &impl Fn() -> bool) -> bool {
        match self.core.slots.peek(slot) {
            Some(place) => place.at(pin).is_none_or(|version| version.batch() <= self.at),
            None => is_cold_old(),
        }
    }

    /// The key of the row in a slot that the pin sees, if there is one, and whether uniqueness does not apply
    /// to it.
    fn key_at(
        &self,
        slot: SlotId,
        pin: Pin<'_>,
        scratch: &mut Scratch,
    ) -> Result<(Option<Vec<u8>>, bool), SqlError> {
        let layout = self.table.layout.as_ref();
        let (mut key, mut has_null) = (None, false);
        self.core.visit(slot, pin, scratch, |_, version| {
            let (mut bytes, mut buffer) = (Vec::new(), Vec::new());
            let row = self.table.present(version.batch(), version.bytes(), &mut buffer);
            self.data.key_of(layout, row, &mut bytes);
            has_null = self.def.unique && self.data.has_null(layout, row);
            key = Some(bytes);
        })?;
        Ok((key, has_null))
    }

    fn add(&self, key: &[u8], slot: SlotId) {
        if let Some(hash) = self.data.hash_for(key) {
            hash.add(hash64(key), slot);
        }
        if let Some(ordered) = &self.data.ordered {
            ordered.add(key, slot);
        }
    }

    fn remove(&self, key: &[u8], slot: SlotId) {
        if let Some(hash) = self.data.hash_for(key) {
            hash.remove(hash64(key), slot);
        }
        if let Some(ordered) = &self.data.ordered {
            ordered.remove(key, slot);
        }
    }

    /// All entries are those of rows that the pin sees, so each row with this key is one too many.
    fn check_unique(&self, key: &[u8], pin: Pin<'_>, scratch: &mut Scratch) -> Result<(), SqlError> {
        let layout = self.table.layout.as_ref();
        let mut candidates = Candidates::new();
        self.data.candidates(key, &mut candidates);
        for slot in candidates {
            let mut duplicate = None;
            self.core.visit(slot, pin, scratch, |_, version| {
                let mut buffer = Vec::new();
                let row = self.table.present(version.batch(), version.bytes(), &mut buffer);
                if self.data.carries(layout, row, key) {
                    duplicate = Some(violation::duplicate_rows(&self.table, &self.def, row));
                }
            })?;
            if let Some(error) = duplicate {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The error for the row in this slot, which has a NULL in a primary key.
    fn null_in(&self, slot: SlotId, pin: Pin<'_>) -> SqlError {
        let mut column = None;
        let shown = self.core.visit(slot, pin, &mut Scratch::default(), |_, version| {
            let mut buffer = Vec::new();
            let row = self.table.present(version.batch(), version.bytes(), &mut buffer);
            let is_null = |column: &&usize| self.table.layout.is_null(row, **column);
            column = self.def.columns.iter().find(is_null).copied();
        });
        let column = column.unwrap_or_default();
        shown.map_or_else(|error| error, |()| violation::null_in_rows(&self.table, column))
    }
}

/// Fails if a row that the pin sees has a NULL in a column.
pub(crate) fn check_no_nulls(
    table: &TableDef,
    core: &TableCore,
    pin: Pin<'_>,
    column: usize,
) -> Result<(), SqlError> {
    let (mut is_null, mut pace, mut outcome) = (false, Pace::default(), Ok(()));
    let mut buffer = Vec::new();
    core.each_live(pin, |_, _, version| {
        if outcome.is_ok() {
            outcome = pace.step(2);
            let row = table.present(version.batch(), version.bytes(), &mut buffer);
            is_null |= table.layout.is_null(row, column);
        }
    })?;
    outcome?;
    match is_null {
        true => Err(violation::null_in_rows(table, column)),
        false => Ok(()),
    }
}

/// What the statement is told of an index that was not built.
pub(crate) fn build_error(
    why: BuildError,
    (table, def): (&TableDef, &IndexDef),
    core: &TableCore,
    pin: Pin<'_>,
) -> SqlError {
    let slot = match why {
        BuildError::Duplicate(slot) => slot,
        BuildError::Ended(error) => return error,
    };
    let mut duplicate = None;
    let shown = core.visit(slot, pin, &mut Scratch::default(), |_, version| {
        let mut buffer = Vec::new();
        let row = table.present(version.batch(), version.bytes(), &mut buffer);
        duplicate = Some(violation::duplicate_rows(table, def, row));
    });
    let missing = || SqlError::internal("a duplicate row is gone");
    shown.err().unwrap_or_else(|| duplicate.unwrap_or_else(missing))
}

/// Marks of the slots that were written, and the newest boundary.
fn taken(store: &Arc<Store>, written: &mut Watch) -> Result<(Vec<u64>, Snapshot), SqlError> {
    let until = Instant::now() + UNPUBLISHED_MAX;
    loop {
        interrupt::check()?;
        if let Some(taken) = store.at_rest(|now| (written.take(), now)) {
            return Ok(taken);
        }
        if Instant::now() > until {
            return Err(SqlError::new(
                SqlState::IO_ERROR,
                "a batch does not get into the log",
            ));
        }
    }
}
