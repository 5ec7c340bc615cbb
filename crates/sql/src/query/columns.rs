//! Encoded rows into Arrow columns, one cell at a time and without a value of ours in between.
//!
//! The builder of a column is chosen once per scan; per cell there is one branch on the builder and one read
//! at a fixed offset of the row.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder,
    FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder,
    RecordBatch, RecordBatchOptions, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::DataFusionError;
use weft_types::{Numeric, RowLayout, SqlError, SqlState, SqlType};

use super::RowHandle;
use super::numeric::numeric_to_i256;
use super::schema::{EPOCH_DAYS, EPOCH_MICROS, arrow_type};

/// What fills one Arrow column of a scan.
enum Cell {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal128(Decimal128Builder, i8),
    Decimal256(Decimal256Builder, i8),
    Text(StringBuilder),
    Blanked(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
    RowId(FixedSizeBinaryBuilder),
    RowBytes(BinaryBuilder),
}

/// Collects rows of one table into a [`RecordBatch`].
pub struct BatchBuilder {
    schema: SchemaRef,
    layout: Arc<RowLayout>,
    cells: Vec<(usize, Cell)>,
    row_count: usize,
    failure: Option<SqlError>,
}

impl BatchBuilder {
    /// `columns[i]` is the table column that fills field `i` of `schema`; `layout.column_count()` and the
    /// number after it stand for the hidden columns (handle, stored bytes).
    pub fn new(schema: SchemaRef, layout: Arc<RowLayout>, columns: &[usize]) -> Result<Self, SqlError> {
        let mut cells = Vec::with_capacity(columns.len());
        for &column in columns {
            let cell = match column.checked_sub(layout.column_count()) {
                None => Cell::new(layout.types().get(column), column)?,
                Some(0) => Cell::RowId(FixedSizeBinaryBuilder::new(16)),
                Some(_) => Cell::RowBytes(BinaryBuilder::new()),
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

    /// Adds one row. The first failure (a numeric too wide for Arrow) is kept and reported by
    /// [`BatchBuilder::finish`].
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
            return Err(DataFusionError::External(Box::new(error)));
        }
        let arrays = self.cells.into_iter().map(|(_, cell)| cell.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        Ok(RecordBatch::try_new_with_options(self.schema, arrays, &options)?)
    }
}

impl Cell {
    fn new(ty: Option<&SqlType>, column: usize) -> Result<Cell, SqlError> {
        let ty = ty.ok_or_else(|| {
            SqlError::new(
                SqlState::INTERNAL_ERROR,
                format!("column {column} is not in the row layout"),
            )
        })?;
        Ok(match ty {
            SqlType::Bool => Cell::Bool(BooleanBuilder::new()),
            SqlType::Int2 => Cell::Int2(Int16Builder::new()),
            SqlType::Int4 => Cell::Int4(Int32Builder::new()),
            SqlType::Int8 => Cell::Int8(Int64Builder::new()),
            SqlType::Float4 => Cell::Float4(Float32Builder::new()),
            SqlType::Float8 => Cell::Float8(Float64Builder::new()),
            SqlType::Numeric(_) => match arrow_type(ty) {
                DataType::Decimal128(precision, scale) => Cell::Decimal128(
                    Decimal128Builder::new().with_data_type(DataType::Decimal128(precision, scale)),
                    scale,
                ),
                other => {
                    let scale = if let DataType::Decimal256(_, scale) = other {
                        scale
                    } else {
                        0
                    };
                    Cell::Decimal256(Decimal256Builder::new().with_data_type(other), scale)
                }
            },
            SqlType::Text | SqlType::Varchar(_) => Cell::Text(StringBuilder::new()),
            SqlType::Char(_) => Cell::Blanked(StringBuilder::new()),
            SqlType::Bytea => Cell::Bytea(BinaryBuilder::new()),
            SqlType::Date => Cell::Date(Date32Builder::new()),
            SqlType::Timestamp => Cell::Timestamp(TimestampMicrosecondBuilder::new()),
            SqlType::TimestampTz => Cell::Timestamp(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            SqlType::Uuid => Cell::Uuid(FixedSizeBinaryBuilder::new(16)),
        })
    }

    fn push(
        &mut self,
        layout: &RowLayout,
        row: &[u8],
        column: usize,
        handle: RowHandle,
    ) -> Result<(), SqlError> {
        match self {
            Cell::RowId(builder) => return append_fixed(builder, &handle.encode()),
            Cell::RowBytes(builder) => {
                builder.append_value(row);
                return Ok(());
            }
            _ => {}
        }
        if layout.is_null(row, column) {
            self.push_null();
            return Ok(());
        }
        let fixed = || layout.fixed_u64(row, column).unwrap_or_default();
        match self {
            Cell::Bool(builder) => builder.append_value(fixed() != 0),
            Cell::Int2(builder) => builder.append_value(fixed() as i16),
            Cell::Int4(builder) => builder.append_value(fixed() as i32),
            Cell::Int8(builder) => builder.append_value(fixed() as i64),
            Cell::Float4(builder) => builder.append_value(f32::from_bits(fixed() as u32)),
            Cell::Float8(builder) => builder.append_value(f64::from_bits(fixed())),
            Cell::Decimal128(builder, scale) => {
                builder.append_value(numeric_cell(layout, row, column)?.to_i128(scale.unsigned_abs().into())?)
            }
            Cell::Decimal256(builder, scale) => {
                builder.append_value(numeric_to_i256(&numeric_cell(layout, row, column)?, *scale)?)
            }
            Cell::Text(builder) => builder.append_value(text(layout, row, column)?),
            Cell::Blanked(builder) => builder.append_value(text(layout, row, column)?.trim_end_matches(' ')),
            Cell::Bytea(builder) => builder.append_value(layout.var_bytes(row, column).unwrap_or_default()),
            Cell::Date(builder) => builder.append_value((fixed() as i32).saturating_add(EPOCH_DAYS)),
            Cell::Timestamp(builder) => builder.append_value((fixed() as i64).saturating_add(EPOCH_MICROS)),
            Cell::Uuid(builder) => match layout.raw(row, column).and_then(|raw| raw.try_into().ok()) {
                Some(bytes) => return append_fixed(builder, bytes),
                None => builder.append_null(),
            },
            Cell::RowId(_) | Cell::RowBytes(_) => {}
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Cell::Bool(builder) => builder.append_null(),
            Cell::Int2(builder) => builder.append_null(),
            Cell::Int4(builder) => builder.append_null(),
            Cell::Int8(builder) => builder.append_null(),
            Cell::Float4(builder) => builder.append_null(),
            Cell::Float8(builder) => builder.append_null(),
            Cell::Decimal128(builder, _) => builder.append_null(),
            Cell::Decimal256(builder, _) => builder.append_null(),
            Cell::Text(builder) | Cell::Blanked(builder) => builder.append_null(),
            Cell::Bytea(builder) | Cell::RowBytes(builder) => builder.append_null(),
            Cell::Date(builder) => builder.append_null(),
            Cell::Timestamp(builder) => builder.append_null(),
            Cell::Uuid(builder) | Cell::RowId(builder) => builder.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Cell::Bool(mut builder) => Arc::new(builder.finish()),
            Cell::Int2(mut builder) => Arc::new(builder.finish()),
            Cell::Int4(mut builder) => Arc::new(builder.finish()),
            Cell::Int8(mut builder) => Arc::new(builder.finish()),
            Cell::Float4(mut builder) => Arc::new(builder.finish()),
            Cell::Float8(mut builder) => Arc::new(builder.finish()),
            Cell::Decimal128(mut builder, _) => Arc::new(builder.finish()),
            Cell::Decimal256(mut builder, _) => Arc::new(builder.finish()),
            Cell::Text(mut builder) | Cell::Blanked(mut builder) => Arc::new(builder.finish()),
            Cell::Bytea(mut builder) | Cell::RowBytes(mut builder) => Arc::new(builder.finish()),
            Cell::Date(mut builder) => Arc::new(builder.finish()),
            Cell::Timestamp(mut builder) => Arc::new(builder.finish()),
            Cell::Uuid(mut builder) | Cell::RowId(mut builder) => Arc::new(builder.finish()),
        }
    }
}

fn append_fixed(builder: &mut FixedSizeBinaryBuilder, bytes: &[u8; 16]) -> Result<(), SqlError> {
    builder
        .append_value(bytes)
        .map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))
}

fn text<'r>(layout: &RowLayout, row: &'r [u8], column: usize) -> Result<&'r str, SqlError> {
    std::str::from_utf8(layout.var_bytes(row, column).unwrap_or_default()).map_err(|_| {
        SqlError::new(
            SqlState::DATA_CORRUPTED,
            format!("text in column {} is not valid UTF-8", column + 1),
        )
    })
}

fn numeric_cell(layout: &RowLayout, row: &[u8], column: usize) -> Result<Numeric, SqlError> {
    Numeric::decode(layout.var_bytes(row, column).unwrap_or_default()).map_err(|error| {
        SqlError::new(
            SqlState::DATA_CORRUPTED,
            format!("numeric in column {}: {error}", column + 1),
        )
    })
}

/// 22003 for a numeric that Arrow's decimals cannot hold.
pub fn numeric_overflow() -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "value overflows numeric format",
    )
    .detail("Queries compute with at most 76 digits, 16 of them after the point.")
}
