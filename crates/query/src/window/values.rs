//! The values of a call on their way into a column.
//!
//! They are copies, held as they are and once more in the column, and a long text may be that of many rows:
//! so they take room before they are there. Long columns of them can be ended.

use datafusion::execution::memory_pool::MemoryReservation;
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlType, Value};

use crate::errors::sql_error;

/// Values, one a row.
pub(super) struct Values<'r> {
    values: Vec<Value>,
    room: &'r MemoryReservation,
    pace: Pace,
}

impl<'r> Values<'r> {
    /// None yet, of so many.
    pub(super) fn new(count: usize, room: &'r MemoryReservation) -> Values<'r> {
        Values {
            values: Vec::with_capacity(count),
            room,
            pace: Pace::default(),
        }
    }

    /// The value of the next row.
    ///
    /// # Errors
    /// 53200 without room for it, 57014 when the statement shall end.
    pub(super) fn push(&mut self, value: Value) -> Result<(), SqlError> {
        let bytes = beside(&value);
        self.pace.step(4 + bytes / 16)?;
        if bytes > 0 {
            self.room.try_grow(bytes.saturating_mul(2)).map_err(sql_error)?;
        }
        self.values.push(value);
        Ok(())
    }

    /// The values of all rows.
    pub(super) fn all(&self) -> &[Value] {
        &self.values
    }
}

/// Bytes of a value that lie elsewhere.
fn beside(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Bytea(bytes) => bytes.len(),
        Value::Array(array) => array.items.len() * size_of::<Value>(),
        Value::Record(fields) => fields.len() * size_of::<(SqlType, Value)>(),
        _ => 0,
    }
}
