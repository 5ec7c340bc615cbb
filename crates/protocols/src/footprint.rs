//! The footprint of a run as lock requests: recorded in one run, and a restriction of another.
//!
//! A program whose keys come from rows cannot declare beforehand which rows it accesses. A recorded run
//! ([`Watched::recording`]) shows it: every row that it searched by primary key, and every row and unique
//! value that it wrote. A later run of the same program that is restricted to that footprint
//! ([`Watched::restricted`]) is refused any access outside of it before the access happens.
//!
//! ```text
//! SEARCH by primary key        the row in S, whether it exists or not
//! INSERT, UPDATE, REMOVE       the row's keys, old and new, and the unique values added or removed, in X
//! anything else                no keys: the footprint is open, and the declared accesses are used instead
//! ```
//!
//! A refusal is remembered, because a program may catch the error. Rows are identified by the hashes that the
//! lock manager uses: two rows with the same hash share a lock, so confusing them is harmless.
//!
//! Source: DESIGN.md, Programs (reconnaissance); Thomson et al. 2012 (Calvin), 3.2.1.

use std::ops::Bound;

use weft_base::{IndexId, TableId};
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_program::{DataAccess, FoundRow, RowHandle};
use weft_store::{Catalog, SlotId, TableDef};
use weft_txn::planning::{LockRequests, row_locks};
use weft_types::{SqlError, SqlState, encode_key_from_row};

use crate::Safeguards;
use crate::forward::forward;

/// The footprint of a run. Reuses its memory.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    requests: LockRequests,
    is_open: bool,
    is_exceeded: bool,
    old_key: Vec<u8>,
    new_key: Vec<u8>,
}

impl Footprint {
    pub fn clear(&mut self) {
        self.requests.clear();
        (self.is_open, self.is_exceeded) = (false, false);
    }

    /// The locks that a run restricted to the footprint needs; `None` if it is open.
    pub fn requests(&self) -> Option<&[LockRequest]> {
        (!self.is_open).then_some(&self.requests)
    }

    /// Whether the restricted run left it.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }
}

/// How a run's accesses are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessMode {
    /// They are recorded; writes are discarded.
    Scout,
    /// They are recorded and executed.
    Record,
    /// They are refused outside of the footprint.
    Restrict,
    /// Only writes are refused outside of it: a fault for tests.
    RestrictWrites,
}

/// The SQLSTATE of a refusal. Protocols act on [`Footprint::is_exceeded`], so clients never see it.
const OUTSIDE: SqlState = SqlState("WF002");

/// The slot of rows that a scout has inserted.
const NO_SLOT: u64 = u64::MAX;

/// Wraps another access and watches it.
pub(crate) struct Watched<'w, A> {
    access: A,
    catalog: &'w Catalog,
    footprint: &'w mut Footprint,
    mode: AccessMode,
}

impl<'w, A: DataAccess> Watched<'w, A> {
    /// For an access that cannot write: writes are recorded but not executed, so the run proceeds as if it
    /// had not made them.
    pub fn scouting(access: A, catalog: &'w Catalog, footprint: &'w mut Footprint) -> Self {
        Watched {
            access,
            catalog,
            footprint,
            mode: AccessMode::Scout,
        }
    }

    /// For an access that writes: records the footprint.
    pub fn recording(access: A, catalog: &'w Catalog, footprint: &'w mut Footprint) -> Self {
        Watched {
            mode: AccessMode::Record,
            ..Watched::scouting(access, catalog, footprint)
        }
    }

    /// Refuses accesses outside of the footprint.
    pub fn restricted<G: Safeguards>(access: A, catalog: &'w Catalog, footprint: &'w mut Footprint) -> Self {
        Watched {
            mode: if G::KEEPS_READS {
                AccessMode::Restrict
            } else {
                AccessMode::RestrictWrites
            },
            ..Watched::scouting(access, catalog, footprint)
        }
    }

    /// An access outside of the footprint: opens a footprint that is being recorded, else is refused.
    fn exceed(&mut self) -> Result<(), SqlError> {
        if matches!(self.mode, AccessMode::Scout | AccessMode::Record) {
            self.footprint.is_open = true;
            return Ok(());
        }
        self.footprint.is_exceeded = true;
        Err(SqlError::new(OUTSIDE, "an access outside of the footprint"))
    }

    fn covers(&self, resource: ResourceId, write: bool) -> bool {
        let covers = |request: &LockRequest| {
            request.resource == resource
                && (request.mode == LockMode::X || !write && request.mode == LockMode::S)
        };
        self.footprint.requests.iter().any(covers)
    }

    fn touch_row(&mut self, def: &TableDef, key: &[u8], write: bool) -> Result<(), SqlError> {
        if self.mode == AccessMode::RestrictWrites && !write {
            return Ok(());
        }
        if matches!(self.mode, AccessMode::Restrict | AccessMode::RestrictWrites) {
            return match self.covers(ResourceId::row(def.id, key), write) {
                true => Ok(()),
                false => self.exceed(),
            };
        }
        row_locks(&mut self.footprint.requests, def, key, write);
        Ok(())
    }

    fn touch_value(&mut self, index: IndexId, key: &[u8]) -> Result<(), SqlError> {
        let resource = ResourceId::value(index, key);
        if matches!(self.mode, AccessMode::Restrict | AccessMode::RestrictWrites) {
            return match self.covers(resource, true) {
                true => Ok(()),
                false => self.exceed(),
            };
        }
        let mode = LockMode::X;
        self.footprint.requests.push(LockRequest { resource, mode });
        Ok(())
    }

    fn touch_write(
        &mut self,
        table: TableId,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<(), SqlError> {
        let catalog = self.catalog;
        let Some((def, primary)) = catalog
            .table_by_id(table)
            .and_then(|def| Some((def, def.primary_index()?)))
        else {
            return self.exceed();
        };
        let mut old_key = std::mem::take(&mut self.footprint.old_key);
        let mut new_key = std::mem::take(&mut self.footprint.new_key);
        let mut touch = |is_primary: bool, index: IndexId, columns: &[usize]| {
            for (key, row) in [(&mut old_key, old), (&mut new_key, new)] {
                key.clear();
                if let Some(row) = row {
                    encode_key_from_row(key, &def.layout, row, columns);
                }
            }
            let is_same = old.is_some() && new.is_some() && old_key == new_key;
            for (key, row) in [(&old_key, old), (&new_key, new)] {
                let has_key =
                    row.is_some_and(|row| columns.iter().all(|column| !def.layout.is_null(row, *column)));
                match is_primary {
                    true if has_key => self.touch_row(def, key, true)?,
                    false if has_key && !is_same => self.touch_value(index, key)?,
                    _ => {}
                }
            }
            Ok(())
        };
        let mut result = touch(true, primary.id, &primary.columns);
        for index in def
            .indexes
            .iter()
            .filter(|index| index.unique && index.id != primary.id)
        {
            result = result.and_then(|()| touch(false, index.id, &index.columns));
        }
        (self.footprint.old_key, self.footprint.new_key) = (old_key, new_key);
        result
    }

    /// Records a search: by primary key it is for a row, whether or not that exists.
    fn touch_search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<(), SqlError> {
        let catalog = self.catalog;
        match catalog.table_by_id(table) {
            Some(def) if def.primary_key == Some(index) => self.touch_row(def, key, false),
            _ => self.exceed(),
        }
    }

    /// Records what a change of a row accesses.
    fn touch_change(&mut self, row: &RowHandle, new: Option<&[u8]>) -> Result<(), SqlError> {
        let Some(old) = self.row(row).map(<[u8]>::to_vec) else {
            return Ok(());
        };
        self.touch_write(row.table, Some(&old), new)
    }
}

impl<A: DataAccess> DataAccess for Watched<'_, A> {
    forward!(hints savepoints observed);

    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        self.touch_search(index, table, key)?;
        self.access.search(index, table, key)
    }

    fn search_hinted(
        &mut self,
        index: IndexId,
        table: TableId,
        key: &[u8],
        hint: SlotId,
    ) -> Result<Option<FoundRow<'_>>, SqlError> {
        self.touch_search(index, table, key)?;
        self.access.search_hinted(index, table, key, hint)
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        (row.slot != NO_SLOT).then(|| self.access.row(row)).flatten()
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
        self.exceed()?;
        self.access.range(index, table, lo, hi, reverse, limit, out)
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        self.touch_write(table, None, Some(row))?;
        match self.mode {
            AccessMode::Scout => Ok(RowHandle { table, slot: NO_SLOT }),
            _ => self.access.insert(table, row),
        }
    }

    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError> {
        self.touch_change(row, Some(bytes))?;
        match self.mode {
            AccessMode::Scout => Ok(()),
            _ => self.access.update(row, bytes),
        }
    }

    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError> {
        self.touch_change(row, None)?;
        match self.mode {
            AccessMode::Scout => Ok(()),
            _ => self.access.remove(row),
        }
    }
}
