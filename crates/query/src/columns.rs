//! Decodes rows into Arrow columns, cell by cell, without intermediate values.
//!
//! The builder of a column is chosen once per scan; each cell costs one branch on the builder and one read at
//! a fixed offset of the row. A numeric is copied as its stored bytes or, if its column is a Decimal128, as
//! their mantissa, which always fits.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder, FixedSizeBinaryBuilder, Float32Builder,
    Float64Builder, Int16Builder, Int32Builder, Int64Builder, RecordBatch, RecordBatchOptions, StringBuilder,
    UInt32Builder,
};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::DataFusionError;
use weft_types::{ColumnKind, Numeric, RowLayout, SqlError, SqlState, SqlType};

use crate::errors::external;
use crate::schema::{DECIMAL_NAN, column_type};
use crate::source::RowHandle;

/// The source of one column of a scan's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CellSource {
    /// The table's column at this position.
    Column(usize),
    /// The row's handle, 16 bytes.
    Handle,
    /// The row's stored bytes.
    Bytes,
}

impl CellSource {
    /// The table's column; `None` for the hidden columns.
    #[must_use]
    pub fn table_column(self) -> Option<usize> {
        match self {
            CellSource::Column(at) => Some(at),
            CellSource::Handle | CellSource::Bytes => None,
        }
    }
}

/// The builder of one Arrow column of a scan.
enum Cell {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Oid(UInt32Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal(Decimal128Builder, u16),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Fixed16(FixedSizeBinaryBuilder),
}

/// Collects rows of one table into a [`RecordBatch`].
pub struct BatchBuilder {
    schema: SchemaRef,
    layout: Arc<RowLayout>,
    cells: Vec<(CellSource, Cell)>,
    row_count: usize,
    failure: Option<SqlError>,
}

impl BatchBuilder {
    /// A builder in which `columns[i]` fills field `i` of `schema`.
    pub fn new(schema: SchemaRef, layout: Arc<RowLayout>, columns: &[CellSource]) -> Result<Self, SqlError> {
        let mut cells = Vec::with_capacity(columns.len());
        for &column in columns {
            let cell = match column {
                CellSource::Column(at) => Cell::new(layout.types().get(at), at)?,
                CellSource::Handle => Cell::Fixed16(FixedSizeBinaryBuilder::new(16)),
                CellSource::Bytes => Cell::Bytes(BinaryBuilder::new()),
            };
            cells.push((column, cell));
        }
        Ok(BatchBuilder {
            schema,
            layout,
            cells,
            row_count: 0,
            failure: None,
        })
    }

    /// Rows added so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.row_count
    }

    /// Adds one row. The first failure (bytes that encode no value) is reported by [`BatchBuilder::finish`].
    pub fn push(&mut self, row: &[u8], handle: RowHandle) {
        for (column, cell) in &mut self.cells {
            if let Err(error) = cell.push(&self.layout, row, *column, handle) {
                self.failure.get_or_insert(error);
            }
        }
        self.row_count += 1;
    }

    /// The batch, or the first failure of a row in it.
    pub fn finish(self) -> Result<RecordBatch, DataFusionError> {
        if let Some(error) = self.failure {
            return Err(external(error));
        }
        let arrays = self.cells.into_iter().map(|(_, cell)| cell.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        Ok(RecordBatch::try_new_with_options(self.schema, arrays, &options)?)
    }
}

impl Cell {
    fn new(ty: Option<&SqlType>, column: usize) -> Result<Cell, SqlError> {
        let ty = ty.ok_or_else(|| SqlError::internal(format!("column {column} is not in the row layout")))?;
        Ok(match column_type(ty) {
            DataType::Boolean => Cell::Bool(BooleanBuilder::new()),
            DataType::Int16 => Cell::Int2(Int16Builder::new()),
            DataType::Int32 => Cell::Int4(Int32Builder::new()),
            DataType::Int64 => Cell::Int8(Int64Builder::new()),
            DataType::UInt32 => Cell::Oid(UInt32Builder::new()),
            DataType::Float32 => Cell::Float4(Float32Builder::new()),
            DataType::Float64 => Cell::Float8(Float64Builder::new()),
            DataType::Decimal128(precision, scale) => {
                let ty = DataType::Decimal128(precision, scale);
                let scale = u16::from(scale.unsigned_abs());
                Cell::Decimal(Decimal128Builder::new().with_data_type(ty), scale)
            }
            DataType::Utf8 => Cell::Text(StringBuilder::new()),
            DataType::Binary if ty.column_kind() == ColumnKind::Variable => Cell::Bytes(BinaryBuilder::new()),
            DataType::FixedSizeBinary(16) => Cell::Fixed16(FixedSizeBinaryBuilder::new(16)),
            _ => {
                return Err(SqlError::unsupported(format!(
                    "columns of type {} are not supported",
                    ty.name()
                )));
            }
        })
    }

    fn push(
        &mut self,
        layout: &RowLayout,
        row: &[u8],
        source: CellSource,
        handle: RowHandle,
    ) -> Result<(), SqlError> {
        let column = match (source, &mut *self) {
            (CellSource::Column(column), _) => column,
            (CellSource::Handle, Cell::Fixed16(builder)) => return append_fixed(builder, &handle.encode()),
            (CellSource::Bytes, Cell::Bytes(builder)) => {
                builder.append_value(row);
                return Ok(());
            }
            _ => return Ok(()),
        };
        if layout.is_null(row, column) {
            self.push_null();
            return Ok(());
        }
        let fixed = || layout.fixed_u64(row, column).unwrap_or_default();
        let bytes = || layout.var_bytes(row, column).unwrap_or_default();
        match self {
            Cell::Bool(builder) => builder.append_value(fixed() != 0),
            Cell::Int2(builder) => builder.append_value(fixed() as i16),
            Cell::Int4(builder) => builder.append_value(fixed() as i32),
            Cell::Int8(builder) => builder.append_value(fixed() as i64),
            Cell::Oid(builder) => builder.append_value(fixed() as u32),
            Cell::Float4(builder) => builder.append_value(f32::from_bits(fixed() as u32)),
            Cell::Float8(builder) => builder.append_value(f64::from_bits(fixed())),
            Cell::Decimal(builder, scale) => builder.append_value(decimal_cell(bytes(), *scale, column)?),
            Cell::Text(builder) => builder.append_value(text(bytes(), column)?),
            Cell::Bytes(builder) => builder.append_value(bytes()),
            Cell::Fixed16(builder) => match layout.raw(row, column).and_then(|raw| raw.try_into().ok()) {
                Some(bytes) => return append_fixed(builder, bytes),
                None => builder.append_null(),
            },
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Cell::Bool(builder) => builder.append_null(),
            Cell::Int2(builder) => builder.append_null(),
            Cell::Int4(builder) => builder.append_null(),
            Cell::Int8(builder) => builder.append_null(),
            Cell::Oid(builder) => builder.append_null(),
            Cell::Float4(builder) => builder.append_null(),
            Cell::Float8(builder) => builder.append_null(),
            Cell::Decimal(builder, _) => builder.append_null(),
            Cell::Text(builder) => builder.append_null(),
            Cell::Bytes(builder) => builder.append_null(),
            Cell::Fixed16(builder) => builder.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Cell::Bool(mut builder) => Arc::new(builder.finish()),
            Cell::Int2(mut builder) => Arc::new(builder.finish()),
            Cell::Int4(mut builder) => Arc::new(builder.finish()),
            Cell::Int8(mut builder) => Arc::new(builder.finish()),
            Cell::Oid(mut builder) => Arc::new(builder.finish()),
            Cell::Float4(mut builder) => Arc::new(builder.finish()),
            Cell::Float8(mut builder) => Arc::new(builder.finish()),
            Cell::Decimal(mut builder, _) => Arc::new(builder.finish()),
            Cell::Text(mut builder) => Arc::new(builder.finish()),
            Cell::Bytes(mut builder) => Arc::new(builder.finish()),
            Cell::Fixed16(mut builder) => Arc::new(builder.finish()),
        }
    }
}

fn append_fixed(builder: &mut FixedSizeBinaryBuilder, bytes: &[u8; 16]) -> Result<(), SqlError> {
    builder
        .append_value(bytes)
        .map_err(|error| SqlError::internal(error.to_string()))
}

fn text(bytes: &[u8], column: usize) -> Result<&str, SqlError> {
    std::str::from_utf8(bytes).map_err(|_| {
        SqlError::new(
            SqlState::DATA_CORRUPTED,
            format!("text in column {} is not valid UTF-8", column + 1),
        )
    })
}

/// The mantissa of a stored numeric of this scale.
pub(crate) fn decimal_cell(bytes: &[u8], scale: u16, column: usize) -> Result<i128, SqlError> {
    if let Some((mantissa, own)) = mantissa(bytes)
        && own == scale
    {
        return Ok(mantissa);
    }
    let number = Numeric::decode(bytes).map_err(|error| {
        SqlError::new(
            SqlState::DATA_CORRUPTED,
            format!("numeric in column {}: {error}", column + 1),
        )
    })?;
    if number.is_nan() {
        return Ok(DECIMAL_NAN);
    }
    number.to_i128(scale)
}

/// Mantissa and scale of a stored numeric, unless it is NaN or has more than 16 bytes.
#[inline]
#[must_use]
pub fn mantissa(bytes: &[u8]) -> Option<(i128, u16)> {
    let (scale, digits) = bytes.split_first_chunk::<2>()?;
    let scale = u16::from_le_bytes(*scale);
    if scale == u16::MAX || digits.len() > 16 {
        return None;
    }
    let negative = digits.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = if negative { [0xff; 16] } else { [0; 16] };
    for (to, from) in wide.iter_mut().zip(digits) {
        *to = *from;
    }
    Some((i128::from_le_bytes(wide), scale))
}

/// Appends the stored form of `mantissa / 10^scale`; the reverse of [`mantissa`].
#[inline]
pub fn put_mantissa(out: &mut Vec<u8>, mantissa: i128, scale: u16) {
    out.extend_from_slice(&scale.to_le_bytes());
    if mantissa != 0 {
        let significant = 128 - (if mantissa < 0 { !mantissa } else { mantissa }).leading_zeros();
        let bytes = mantissa.to_le_bytes();
        let length = significant as usize / 8 + 1;
        out.extend_from_slice(bytes.get(..length).unwrap_or(&bytes));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn mantissas_are_what_numeric_stores(wide in any::<i128>(), shift in 0u32..127, scale in 0u16..40) {
            let mantissa_in = wide >> shift;
            let mut stored = Vec::new();
            Numeric::from_i128(mantissa_in, scale).unwrap().encode(&mut stored);
            let mut ours = Vec::new();
            put_mantissa(&mut ours, mantissa_in, scale);
            prop_assert_eq!(&ours, &stored);
            prop_assert_eq!(mantissa(&stored), Some((mantissa_in, scale)));
        }
    }

    #[test]
    fn nan_is_no_mantissa() {
        let mut stored = Vec::new();
        Numeric::NAN.encode(&mut stored);
        assert_eq!(mantissa(&stored), None);
        assert_eq!(decimal_cell(&stored, 2, 0), Ok(DECIMAL_NAN));
    }
}
