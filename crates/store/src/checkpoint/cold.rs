//! Cold rows: rows that are read from the engine when somebody needs them.

use std::cmp::Ordering;
use std::sync::{Arc, Weak};

use weft_base::{BatchId, RowId, TableId};
use weft_lsm::{Lsm, LsmIterator, Snapshot};
use weft_types::{SqlError, SqlState};

use super::format::{family, row_key, split_row_value};
use crate::memory::{ColdRows, ColdRowsInOrder};

/// The rows in an engine, as long as it is open.
#[derive(Debug)]
pub(super) struct StoredRows(Weak<Lsm>);

impl StoredRows {
    pub(super) fn of(lsm: &Arc<Lsm>) -> Arc<dyn ColdRows> {
        Arc::new(StoredRows(Arc::downgrade(lsm)))
    }
}

impl ColdRows for StoredRows {
    fn read(&self, table: TableId, row_id: RowId, row: &mut Vec<u8>) -> Result<BatchId, SqlError> {
        let failed = |state, why: &str| {
            SqlError::new(
                state,
                format!("could not read row {row_id} of table {table} from disk: {why}"),
            )
        };
        let Some(lsm) = self.0.upgrade() else {
            return Err(failed(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the database is closed",
            ));
        };
        let stored = lsm
            .get(family(table), &row_key(row_id))
            .map_err(|error| match error {
                weft_lsm::LsmError::Io { .. } => failed(SqlState::IO_ERROR, &error.to_string()),
                _ => failed(SqlState::DATA_CORRUPTED, &error.to_string()),
            })?
            .ok_or_else(|| failed(SqlState::DATA_CORRUPTED, "it is not there"))?;
        let (batch, bytes) =
            split_row_value(&stored).map_err(|error| failed(SqlState::DATA_CORRUPTED, &error.to_string()))?;
        row.clear();
        row.extend_from_slice(bytes);
        Ok(batch)
    }

    fn memory_bytes(&self) -> u64 {
        self.0.upgrade().map_or(0, |lsm| lsm.read_memory_bytes())
    }

    fn in_order(&self, table: TableId, first: RowId) -> Option<Box<dyn ColdRowsInOrder>> {
        let lsm = self.0.upgrade()?;
        let (snapshot, first) = (lsm.snapshot(), row_key(first));
        let mut rows = lsm.iterator_once(family(table), &snapshot, &first, None).ok()?;
        rows.seek(&first).ok()?;
        Some(Box::new(StoredInOrder { rows, snapshot }))
    }
}

/// A walk over a table's rows, as long as no checkpoint changes them.
struct StoredInOrder {
    rows: LsmIterator,
    snapshot: Arc<Snapshot>,
}

/// Rows that are passed over to get to one; beyond, it is read by itself.
const SKIPPED_MAX: usize = 64;

impl ColdRowsInOrder for StoredInOrder {
    fn read(&mut self, row_id: RowId, row: &mut Vec<u8>) -> Option<BatchId> {
        // A row that became cold later may be another version: who has found it cold finds this, too.
        if !self.snapshot.is_newest() {
            return None;
        }
        let (rows, key) = (&mut self.rows, row_key(row_id));
        for _ in 0..SKIPPED_MAX {
            match rows.key().cmp(&key) {
                // It stays where it is: a row further ahead may follow.
                Ordering::Greater => return None,
                Ordering::Equal => {
                    let (batch, bytes) = split_row_value(rows.value()).ok()?;
                    row.clear();
                    row.extend_from_slice(bytes);
                    return Some(batch);
                }
                // At the end, or after an error, there is no key.
                Ordering::Less if !rows.valid() => return None,
                Ordering::Less => rows.forward().ok()?,
            }
        }
        None
    }
}
