//! Locks on the rows that a transaction found or is about to write.
//!
//! A row is locked under its primary key, or its id where the table has none; its unique values are locked
//! with it when they are written. After `row_locks_before_escalation` rows of a table the table is locked
//! instead.

use weft_base::{RowId, TableId};
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_store::TableDef;
use weft_types::{SqlError, SqlState};

use super::Transaction;
use crate::locks::{self, LockRequests};
use crate::view;

impl Transaction {
    /// Locks rows that a query found, for change (`write`) or against change (FOR SHARE). Each row is given
    /// by its id and the image that was found. Rows inserted by this transaction need no lock.
    pub fn lock_rows<'a>(
        &mut self,
        def: &TableDef,
        rows: impl IntoIterator<Item = (RowId, &'a [u8])>,
        write: bool,
    ) -> Result<(), SqlError> {
        let mut requests = LockRequests::new();
        for (row_id, image) in rows {
            let Some(key) = key_to_lock(def, row_id, image) else {
                continue;
            };
            if !self.count_row_lock(def.id, &mut requests, write) {
                locks::row_locks(&mut requests, def, &key, write);
            }
        }
        self.lock(requests)
    }

    /// Locks rows like [`Self::lock_rows`], but waits for none: false if another transaction holds one of
    /// them, and then some of the others may be locked. A table is never locked in place of its rows, so
    /// that what is refused is the row.
    ///
    /// # Errors
    /// 54000 for more rows of a table than are locked one by one.
    pub fn try_lock_rows<'a>(
        &mut self,
        rows: impl IntoIterator<Item = (&'a TableDef, RowId, &'a [u8])>,
        write: bool,
    ) -> Result<bool, SqlError> {
        let most = self.engine.shared().config.row_locks_before_escalation;
        let mut requests = LockRequests::new();
        let mut counts: Vec<(TableId, usize)> = Vec::new();
        for (def, row_id, image) in rows {
            let Some(key) = key_to_lock(def, row_id, image) else {
                continue;
            };
            locks::row_locks(&mut requests, def, &key, write);
            match counts.iter_mut().find(|(table, _)| *table == def.id) {
                Some((_, count)) => *count += 1,
                None => counts.push((def.id, 1)),
            }
        }
        for (table, count) in &counts {
            let locked = self.row_lock_counts.get(table).copied().unwrap_or_default();
            if locked + count >= most {
                return Err(SqlError::new(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    format!("SKIP LOCKED locks at most {most} rows of a table in one transaction"),
                ));
            }
        }
        self.no_wait = true;
        let locked = self.lock(requests);
        self.no_wait = false;
        match locked {
            Ok(()) => {}
            Err(error) if error.state == SqlState::LOCK_NOT_AVAILABLE => return Ok(false),
            Err(error) => return Err(error),
        }
        for (table, count) in counts {
            *self.row_lock_counts.entry(table).or_default() += count;
        }
        Ok(true)
    }

    /// Counts a row lock; beyond the limit the table is locked instead and true is returned.
    fn count_row_lock(&mut self, table: TableId, requests: &mut LockRequests, write: bool) -> bool {
        let count = self.row_lock_counts.entry(table).or_default();
        *count += 1;
        if *count < self.engine.shared().config.row_locks_before_escalation {
            return false;
        }
        let mode = if write { LockMode::X } else { LockMode::S };
        let resource = ResourceId::table(table);
        if !requests.iter().any(|r| r.resource == resource && r.mode == mode) {
            requests.push(LockRequest { resource, mode });
        }
        true
    }

    /// Locks for rows about to be written with these images: their keys and their unique values.
    pub(crate) fn lock_new_rows<'a>(
        &mut self,
        def: &TableDef,
        rows: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), SqlError> {
        let mut requests = LockRequests::new();
        let mut key = Vec::new();
        for row in rows {
            if self.count_row_lock(def.id, &mut requests, true) {
                break;
            }
            key.clear();
            if let Some(primary) = def.primary_index() {
                weft_types::encode_key_from_row(&mut key, &def.layout, row, &primary.columns);
            }
            locks::row_locks(&mut requests, def, &key, true);
            for index in def.indexes.iter().filter(|index| index.unique && !index.primary) {
                key.clear();
                weft_types::encode_key_from_row(&mut key, &def.layout, row, &index.columns);
                requests.push(LockRequest {
                    resource: ResourceId::value(index.id, &key),
                    mode: LockMode::X,
                });
            }
        }
        self.lock(requests)
    }
}

/// The key under which a row is locked; none if this transaction inserted it.
fn key_to_lock(def: &TableDef, row_id: RowId, image: &[u8]) -> Option<Vec<u8>> {
    let row = view::overlay_row(row_id);
    if matches!(row, crate::overlay::OverlayRow::Own(_)) {
        return None;
    }
    Some(match crate::overlay::locator_of(def, row, image) {
        weft_store::Locator::Key(key) => key,
        weft_store::Locator::RowId(row_id) => row_id.encode().to_vec(),
    })
}
