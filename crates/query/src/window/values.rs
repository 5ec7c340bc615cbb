//! Collects the values of a call before they become a column.
//!
//! The values are copies and exist twice, here and in the column, and many rows may contain the same long
//! text: memory is therefore reserved before each value is added. Collecting them can be interrupted.

use datafusion::execution::memory_pool::MemoryReservation;
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlType, Value};

use crate::errors::sql_error;

/// Values, one per row.
pub(super) struct Values<'r> {
    values: Vec<Value>,
    room: &'r MemoryReservation,
    pace: Pace,
}

impl<'r> Values<'r> {
    /// An empty collection for `count` values.
    pub(super) fn new(count: usize, room: &'r MemoryReservation) -> Values<'r> {
        Values {
            values: Vec::with_capacity(count),
            room,
            pace: Pace::default(),
        }
    }

    /// Appends the value of the next row.
    ///
    /// # Errors
    /// 53200 if there is no memory for it, 57014 when the statement is stopped.
    pub(super) fn push(&mut self, value: Value) -> Result<(), SqlError> {
        let bytes = heap_bytes(&value);
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

/// Heap bytes of a value.
fn heap_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Bytea(bytes) => bytes.len(),
        Value::Json(text) => text.len(),
        Value::Jsonb(json) => json.as_bytes().len(),
        Value::Array(array) => array.items.len() * size_of::<Value>(),
        Value::Record(fields) => fields.len() * size_of::<(SqlType, Value)>(),
        _ => 0,
    }
}
