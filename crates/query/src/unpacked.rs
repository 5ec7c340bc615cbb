//! Packed columns of a chunk as a record batch.
//!
//! A column is decoded whole, then the rows of a mask are taken; if these are few, they alone are decoded.
//! Numbers and strings become Arrow's buffers without being copied.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, PrimitiveArray,
    RecordBatch, RecordBatchOptions, StringArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::{FilterBuilder, FilterPredicate};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, SchemaRef,
    UInt32Type,
};
use datafusion::arrow::error::ArrowError;
use weft_column::segment::{Decoded, Encoding, SegmentError, Values};
use weft_store::columns::{ChunkColumns, NAN, SlotMask};

use crate::columns::decimal_cell;
use crate::schema::DECIMAL_NAN;

/// Of a column of which one row in so many is wanted, or fewer, only these are decoded.
const FEW: usize = 16;
/// Of compressed strings so many: each costs the decompression of a block.
const FEW_COMPRESSED: usize = 32;

/// Why a chunk cannot be unpacked: its bytes are damaged, or they are not what the schema says.
#[derive(Debug)]
pub(crate) enum UnpackError {
    Segment(SegmentError),
    Arrow(ArrowError),
    Schema(&'static str),
}

impl std::fmt::Display for UnpackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UnpackError::Segment(error) => write!(f, "{error}"),
            UnpackError::Arrow(error) => write!(f, "{error}"),
            UnpackError::Schema(what) => f.write_str(what),
        }
    }
}

impl From<SegmentError> for UnpackError {
    fn from(error: SegmentError) -> Self {
        UnpackError::Segment(error)
    }
}

impl From<ArrowError> for UnpackError {
    fn from(error: ArrowError) -> Self {
        UnpackError::Arrow(error)
    }
}

/// The rows of the mask; `columns[i]` of the table fills field `i` of `schema`.
pub(crate) fn batch(
    chunk: &ChunkColumns,
    mask: &SlotMask,
    schema: &SchemaRef,
    columns: &[usize],
) -> Result<RecordBatch, UnpackError> {
    let rows = mask.count();
    if rows == 0 {
        return Ok(RecordBatch::new_empty(Arc::clone(schema)));
    }
    let mut arrays = Vec::with_capacity(columns.len());
    let mut before: Option<(usize, FilterPredicate)> = None;
    let few = (rows <= mask.words().len() * 64 / FEW).then(|| mask.offsets().collect::<Vec<u32>>());
    for (column, field) in columns.iter().zip(schema.fields()) {
        let segment = chunk
            .column(*column)
            .ok_or(UnpackError::Schema("a column is missing"))?;
        let column = segment.column(0)?;
        let is_compressed = column.encoding() == Encoding::Blocks;
        let decoded = match &few {
            Some(few) if rows <= FEW_COMPRESSED || !is_compressed => column.take(few)?,
            _ => column.decode(0..segment.row_count())?,
        };
        let length = decoded.rows;
        let array = array(decoded, field.data_type())?;
        if length == rows {
            arrays.push(array);
            continue;
        }
        // Columns that were copied at one time are of one length.
        let taken = match before.take() {
            Some((of, taken)) if of == length => taken,
            _ => FilterBuilder::new(&selected(mask, length)).optimize().build(),
        };
        arrays.push(taken.filter(&array)?);
        before = Some((length, taken));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        arrays,
        &options,
    )?)
}

fn selected(mask: &SlotMask, rows: usize) -> BooleanArray {
    BooleanArray::new(bits(mask.words().to_vec(), rows), None)
}

/// The first `rows` bits, 64 in a word.
fn bits(words: Vec<u64>, rows: usize) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from_vec(words), 0, rows)
}

/// Decoded values as an array of this type.
fn array(decoded: Decoded, data_type: &DataType) -> Result<ArrayRef, UnpackError> {
    let rows = decoded.rows;
    let nulls = decoded.validity.map(|words| NullBuffer::new(bits(words, rows)));
    Ok(match (decoded.values, data_type) {
        (Values::Bool(words), DataType::Boolean) => Arc::new(BooleanArray::new(bits(words, rows), nulls)),
        (Values::I16(values), DataType::Int16) => primitive::<Int16Type>(values, nulls),
        (Values::I32(values), DataType::Int32) => primitive::<Int32Type>(values, nulls),
        (Values::I64(values), DataType::Int64) => primitive::<Int64Type>(values, nulls),
        (Values::U32(values), DataType::UInt32) => primitive::<UInt32Type>(values, nulls),
        (Values::F32(values), DataType::Float32) => primitive::<Float32Type>(values, nulls),
        (Values::F64(values), DataType::Float64) => primitive::<Float64Type>(values, nulls),
        (Values::I64(values), DataType::Decimal128(_, _)) => {
            let wide = values.into_iter().map(|value| match value {
                NAN => DECIMAL_NAN,
                value => i128::from(value),
            });
            let values = ScalarBuffer::from(wide.collect::<Vec<_>>());
            Arc::new(Decimal128Array::new(values, nulls).with_data_type(data_type.clone()))
        }
        (Values::Bytes16(bytes), DataType::FixedSizeBinary(16)) => {
            Arc::new(FixedSizeBinaryArray::try_new(16, Buffer::from_vec(bytes), nulls)?)
        }
        (Values::Bytes { offsets, bytes }, data_type) => strings(offsets, bytes, nulls, data_type)?,
        _ => return Err(UnpackError::Schema("a column is of another type")),
    })
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
}

fn strings(
    offsets: Vec<i32>,
    bytes: Vec<u8>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, UnpackError> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let bytes = Buffer::from_vec(bytes);
    Ok(match data_type {
        DataType::Utf8 => Arc::new(StringArray::try_new(offsets, bytes, nulls)?),
        DataType::Binary => Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?),
        DataType::Decimal128(_, scale) => {
            let stored = BinaryArray::try_new(offsets, bytes, nulls)?;
            let scale = u16::from(scale.unsigned_abs());
            let mut values = Vec::with_capacity(stored.len());
            for number in &stored {
                let number = number.map(|bytes| decimal_cell(bytes, scale, 0)).transpose();
                values.push(number.map_err(|_| UnpackError::Schema("a value is no numeric"))?);
            }
            Arc::new(Decimal128Array::from(values).with_data_type(data_type.clone()))
        }
        _ => return Err(UnpackError::Schema("a column is of another type")),
    })
}
