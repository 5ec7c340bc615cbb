//! Cold rows: rows that are read from the engine when somebody needs them.

use std::sync::{Arc, Weak};

use weft_base::{BatchId, RowId, TableId};
use weft_lsm::Lsm;
use weft_types::{SqlError, SqlState};

use super::format::{family, row_key, split_row_value};
use crate::memory::ColdRows;

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
}
