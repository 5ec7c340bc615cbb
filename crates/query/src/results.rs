//! Encodes a query's result as rows, directly from Arrow's buffers.
//!
//! Fixed-width cells are copied as bits, variable-width values as bytes; a numeric in stored form is copied,
//! and a decimal is converted to the stored form of its mantissa.

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use weft_types::{Numeric, RowBuilder, RowLayout, SqlError, SqlType, Value};

use crate::arrays::ValueColumn;
use crate::columns::put_mantissa;
use crate::schema::DECIMAL_NAN;

/// Encodes batches as rows of fixed column types.
pub struct RowEncoder {
    types: Vec<SqlType>,
    layout: RowLayout,
}

impl RowEncoder {
    /// An encoder for rows of these column types.
    #[must_use]
    pub fn new(types: Vec<SqlType>) -> Self {
        let layout = RowLayout::new(&types);
        RowEncoder { types, layout }
    }

    /// The layout of the rows.
    #[must_use]
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Calls `each` with every row of the batch; `Ok(false)` if it asked to stop.
    pub fn for_each(
        &self,
        batch: &RecordBatch,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, SqlError> {
        let columns = self.columns(batch.columns())?;
        let mut builder = RowBuilder::new(&self.layout);
        let mut row_bytes = Vec::new();
        let mut room = Vec::new();
        for row in 0..batch.num_rows() {
            for (at, column) in columns.iter().enumerate() {
                if !column.is_null(row) {
                    put(&mut builder, at, column, row, &mut room)?;
                }
            }
            row_bytes.clear();
            builder.finish_into(&mut row_bytes)?;
            if !each(&row_bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The batch's rows as values.
    pub fn values(&self, batch: &RecordBatch) -> Result<Vec<Vec<Value>>, SqlError> {
        let columns = self.columns(batch.columns())?;
        let row = |row| columns.iter().map(|column| column.value(row)).collect();
        Ok((0..batch.num_rows()).map(row).collect())
    }

    fn columns(&self, arrays: &[ArrayRef]) -> Result<Vec<ValueColumn>, SqlError> {
        if arrays.len() != self.types.len() {
            return Err(SqlError::internal("a result has a wrong number of columns"));
        }
        arrays
            .iter()
            .zip(&self.types)
            .map(|(array, ty)| ValueColumn::new(array, ty))
            .collect()
    }
}

/// Sets a cell to a value that is not NULL.
fn put(
    builder: &mut RowBuilder<'_>,
    at: usize,
    column: &ValueColumn,
    row: usize,
    room: &mut Vec<u8>,
) -> Result<(), SqlError> {
    match column {
        ValueColumn::Bool(array) => builder.set_fixed_u64(at, u64::from(array.value(row))),
        ValueColumn::Int2(array) => builder.set_fixed_u64(at, array.value(row) as u64),
        ValueColumn::Int4(array) | ValueColumn::Date(array) => {
            builder.set_fixed_u64(at, array.value(row) as u64)
        }
        ValueColumn::Int8(array)
        | ValueColumn::Timestamp(array)
        | ValueColumn::TimestampTz(array)
        | ValueColumn::Time(array) => builder.set_fixed_u64(at, array.value(row) as u64),
        ValueColumn::Float4(array) => builder.set_fixed_u64(at, u64::from(array.value(row).to_bits())),
        ValueColumn::Float8(array) => builder.set_fixed_u64(at, array.value(row).to_bits()),
        ValueColumn::Decimal(array, scale) => {
            room.clear();
            match array.value(row) {
                DECIMAL_NAN => Numeric::NAN.encode(room),
                mantissa => put_mantissa(room, mantissa, *scale),
            }
            builder.set_raw(at, room)
        }
        ValueColumn::Oid(array) => builder.set_fixed_u64(at, u64::from(array.value(row))),
        ValueColumn::Numeric(array)
        | ValueColumn::Bytea(array)
        | ValueColumn::Jsonb(array)
        | ValueColumn::Nested(array) => builder.set_raw(at, array.value(row)),
        ValueColumn::Text(array) | ValueColumn::Json(array) => {
            builder.set_raw(at, array.value(row).as_bytes())
        }
        ValueColumn::Uuid(array) | ValueColumn::Interval(array) => builder.set_raw(at, array.value(row)),
        ValueColumn::Nulls => Ok(()),
    }
}
