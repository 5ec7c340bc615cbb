//! Values between Arrow and Weft: a query's result as encoded rows, parameters and literals as scalars.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array,
    FixedSizeBinaryBuilder, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, TimeUnit, i256};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::ScalarValue;
use weft_types::{Numeric, RowLayout, SqlError, SqlState, SqlType, Value, parse_text};

use super::columns::numeric_overflow;
use super::numeric::{decimal_text, numeric_to_i256, round_at, shown_quotient_digits, trim_zeros};
use super::schema::{
    EPOCH_DAYS, EPOCH_MICROS, NUMERIC_PRECISION, NUMERIC_SCALE, QUOTIENT_SCALE, arrow_type, timestamptz,
};

/// Encodes batches as rows of fixed column types.
pub struct RowEncoder {
    types: Vec<SqlType>,
    layout: RowLayout,
}

impl RowEncoder {
    /// Rows with these column types.
    pub fn new(types: Vec<SqlType>) -> Self {
        let layout = RowLayout::new(&types);
        RowEncoder { types, layout }
    }

    /// The layout of the rows.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Calls `each` with every row of the batch; `Ok(false)` when it asked to stop.
    pub fn for_each(
        &self,
        batch: &RecordBatch,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, SqlError> {
        let columns = self.columns(batch)?;
        let mut values = Vec::with_capacity(columns.len());
        for row in 0..batch.num_rows() {
            values.clear();
            for (column, ty) in columns.iter().zip(&self.types) {
                values.push(column.value(row, ty)?);
            }
            if !each(&self.layout.encode(&values)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The batch's rows as values.
    pub fn values(&self, batch: &RecordBatch) -> Result<Vec<Vec<Value>>, SqlError> {
        let columns = self.columns(batch)?;
        let row = |row| {
            columns
                .iter()
                .zip(&self.types)
                .map(|(column, ty)| column.value(row, ty))
                .collect()
        };
        (0..batch.num_rows()).map(row).collect()
    }

    fn columns(&self, batch: &RecordBatch) -> Result<Vec<ValueColumn>, SqlError> {
        batch
            .columns()
            .iter()
            .zip(&self.types)
            .map(|(array, ty)| ValueColumn::new(array, ty))
            .collect()
    }
}

/// One Arrow column, read as values of one SQL type.
pub enum ValueColumn {
    /// Any type with a direct representation, see [`super::schema`].
    Bool(BooleanArray),
    /// smallint.
    Int2(Int16Array),
    /// integer.
    Int4(Int32Array),
    /// bigint.
    Int8(Int64Array),
    /// real.
    Float4(Float32Array),
    /// double precision.
    Float8(Float64Array),
    /// numeric up to 38 digits, with its scale.
    Decimal128(Decimal128Array, i8),
    /// numeric up to 76 digits, with its scale.
    Decimal256(Decimal256Array, i8),
    /// Text of any kind; char(n) is padded to its length.
    Text(StringArray),
    /// bytea.
    Bytea(BinaryArray),
    /// date.
    Date(Date32Array),
    /// timestamp and timestamptz.
    Timestamp(TimestampMicrosecondArray),
    /// uuid.
    Uuid(datafusion::arrow::array::FixedSizeBinaryArray),
    /// What has no type of ours (interval, array): its text.
    Shown(Vec<Option<String>>),
}

impl ValueColumn {
    /// Prepares `array` to be read as `ty`, converting its Arrow type once where it differs.
    pub fn new(array: &ArrayRef, ty: &SqlType) -> Result<ValueColumn, SqlError> {
        let to = |ty: &DataType| -> Result<ArrayRef, SqlError> {
            if array.data_type() == ty {
                return Ok(Arc::clone(array));
            }
            arrow_cast(array, ty).map_err(|error| SqlError::internal(format!("unreadable result: {error}")))
        };
        Ok(match ty {
            SqlType::Bool => ValueColumn::Bool(to(&DataType::Boolean)?.as_boolean().clone()),
            SqlType::Int2 => ValueColumn::Int2(to(&DataType::Int16)?.as_primitive().clone()),
            SqlType::Int4 => ValueColumn::Int4(to(&DataType::Int32)?.as_primitive().clone()),
            SqlType::Int8 => ValueColumn::Int8(to(&DataType::Int64)?.as_primitive().clone()),
            SqlType::Float4 => ValueColumn::Float4(to(&DataType::Float32)?.as_primitive().clone()),
            SqlType::Float8 => ValueColumn::Float8(to(&DataType::Float64)?.as_primitive().clone()),
            SqlType::Numeric(_) => match array.data_type() {
                DataType::Decimal128(_, scale) => {
                    ValueColumn::Decimal128(array.as_primitive::<Decimal128Type>().clone(), *scale)
                }
                DataType::Decimal256(_, scale) => {
                    ValueColumn::Decimal256(array.as_primitive::<Decimal256Type>().clone(), *scale)
                }
                other => {
                    let scale = match other {
                        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => *scale,
                        _ => 0,
                    };
                    let wide = to(&DataType::Decimal256(NUMERIC_PRECISION, scale))?;
                    ValueColumn::Decimal256(wide.as_primitive::<Decimal256Type>().clone(), scale)
                }
            },
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => text_column(array)?,
            SqlType::Bytea => ValueColumn::Bytea(to(&DataType::Binary)?.as_binary::<i32>().clone()),
            SqlType::Date => ValueColumn::Date(to(&DataType::Date32)?.as_primitive().clone()),
            SqlType::Timestamp => ValueColumn::Timestamp(
                to(&DataType::Timestamp(TimeUnit::Microsecond, None))?
                    .as_primitive()
                    .clone(),
            ),
            SqlType::TimestampTz => ValueColumn::Timestamp(to(&timestamptz())?.as_primitive().clone()),
            SqlType::Uuid => {
                ValueColumn::Uuid(to(&DataType::FixedSizeBinary(16))?.as_fixed_size_binary().clone())
            }
        })
    }

    /// The value in `row`.
    pub fn value(&self, row: usize, ty: &SqlType) -> Result<Value, SqlError> {
        if self.is_null(row) {
            return Ok(Value::Null);
        }
        Ok(match self {
            ValueColumn::Bool(array) => Value::Bool(array.value(row)),
            ValueColumn::Int2(array) => Value::Int2(array.value(row)),
            ValueColumn::Int4(array) => Value::Int4(array.value(row)),
            ValueColumn::Int8(array) => Value::Int8(array.value(row)),
            ValueColumn::Float4(array) => Value::Float4(array.value(row)),
            ValueColumn::Float8(array) => Value::Float8(array.value(row)),
            ValueColumn::Decimal128(array, scale) => Value::Numeric(
                Numeric::from_i128(array.value(row), scale.unsigned_abs().into())
                    .ok_or_else(numeric_overflow)?,
            ),
            ValueColumn::Decimal256(array, scale) => wide_numeric(array.value(row), *scale)?,
            ValueColumn::Text(array) => Value::Text(padded(array.value(row), ty)),
            ValueColumn::Shown(texts) => Value::Text(texts.get(row).cloned().flatten().unwrap_or_default()),
            ValueColumn::Bytea(array) => Value::Bytea(array.value(row).to_vec()),
            ValueColumn::Date(array) => Value::Date(array.value(row).wrapping_sub(EPOCH_DAYS)),
            ValueColumn::Timestamp(array) => {
                let micros = array.value(row).wrapping_sub(EPOCH_MICROS);
                if matches!(ty, SqlType::TimestampTz) {
                    Value::TimestampTz(micros)
                } else {
                    Value::Timestamp(micros)
                }
            }
            ValueColumn::Uuid(array) => Value::Uuid(array.value(row).try_into().unwrap_or_default()),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            ValueColumn::Bool(array) => array.is_null(row),
            ValueColumn::Int2(array) => array.is_null(row),
            ValueColumn::Int4(array) => array.is_null(row),
            ValueColumn::Int8(array) => array.is_null(row),
            ValueColumn::Float4(array) => array.is_null(row),
            ValueColumn::Float8(array) => array.is_null(row),
            ValueColumn::Decimal128(array, _) => array.is_null(row),
            ValueColumn::Decimal256(array, _) => array.is_null(row),
            ValueColumn::Text(array) => array.is_null(row),
            ValueColumn::Shown(texts) => texts.get(row).is_none_or(Option::is_none),
            ValueColumn::Bytea(array) => array.is_null(row),
            ValueColumn::Date(array) => array.is_null(row),
            ValueColumn::Timestamp(array) => array.is_null(row),
            ValueColumn::Uuid(array) => array.is_null(row),
        }
    }
}

/// A computed numeric with as many digits as PostgreSQL would show; see [`super::schema`] for the two scales.
fn wide_numeric(value: i256, scale: i8) -> Result<Value, SqlError> {
    if scale == QUOTIENT_SCALE {
        let digits = shown_quotient_digits(value, scale);
        let rounded = round_at(value, i32::from(scale), digits).ok_or_else(numeric_overflow)?;
        let text = decimal_text(rounded, scale);
        let cut = text.len() - (i32::from(scale) - digits) as usize;
        return numeric_of_text(text.get(..cut).unwrap_or(&text).trim_end_matches('.'));
    }
    let text = decimal_text(value, scale);
    numeric_of_text(if scale >= NUMERIC_SCALE {
        trim_zeros(&text)
    } else {
        &text
    })
}

fn numeric_of_text(text: &str) -> Result<Value, SqlError> {
    parse_text(text, &SqlType::Numeric(None))
}

fn padded(text: &str, ty: &SqlType) -> String {
    match ty {
        SqlType::Char(length) => {
            let missing = (*length as usize).saturating_sub(text.chars().count());
            let mut padded = String::with_capacity(text.len() + missing);
            padded.push_str(text);
            padded.extend(std::iter::repeat_n(' ', missing));
            padded
        }
        _ => text.to_string(),
    }
}

fn text_column(array: &ArrayRef) -> Result<ValueColumn, SqlError> {
    match array.data_type() {
        DataType::Utf8 => Ok(ValueColumn::Text(array.as_string::<i32>().clone())),
        DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(_, _) => {
            let plain =
                arrow_cast(array, &DataType::Utf8).map_err(|error| SqlError::internal(error.to_string()))?;
            Ok(ValueColumn::Text(plain.as_string::<i32>().clone()))
        }
        DataType::Null => Ok(ValueColumn::Shown(vec![None; array.len()])),
        DataType::List(_) | DataType::LargeList(_) => list_texts(array).map(ValueColumn::Shown),
        _ => shown_texts(array).map(ValueColumn::Shown),
    }
}

fn shown_texts(array: &ArrayRef) -> Result<Vec<Option<String>>, SqlError> {
    let options = FormatOptions::default();
    let formatter =
        ArrayFormatter::try_new(array, &options).map_err(|error| SqlError::internal(error.to_string()))?;
    Ok((0..array.len())
        .map(|row| (!array.is_null(row)).then(|| formatter.value(row).to_string()))
        .collect())
}

/// Arrays in PostgreSQL's form, `{a,"b c",NULL}`.
fn list_texts(array: &ArrayRef) -> Result<Vec<Option<String>>, SqlError> {
    let mut texts = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        if array.is_null(row) {
            texts.push(None);
            continue;
        }
        let items = match array.data_type() {
            DataType::LargeList(_) => array.as_list::<i64>().value(row),
            _ => array.as_list::<i32>().value(row),
        };
        let items: Vec<String> = shown_texts(&items)?
            .into_iter()
            .map(|item| item.map_or_else(|| "NULL".to_string(), |item| quoted_element(&item)))
            .collect();
        texts.push(Some(format!("{{{}}}", items.join(","))));
    }
    Ok(texts)
}

fn quoted_element(item: &str) -> String {
    let plain = !item.is_empty()
        && !item.eq_ignore_ascii_case("null")
        && !item.contains(['{', '}', ',', '"', '\\', ' ', '\t', '\n']);
    if plain {
        item.to_string()
    } else {
        format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// A value of type `ty` as a scalar of its Arrow type.
pub fn scalar_of_value(value: &Value, ty: &SqlType) -> Result<ScalarValue, SqlError> {
    let array = array_of_values(std::slice::from_ref(value), ty)?;
    ScalarValue::try_from_array(&array, 0).map_err(|error| SqlError::internal(error.to_string()))
}

/// Values of type `ty` as an Arrow array.
pub fn array_of_values(values: &[Value], ty: &SqlType) -> Result<ArrayRef, SqlError> {
    macro_rules! primitive {
        ($array:ty, $variant:ident) => {{
            let cells: Result<Vec<_>, SqlError> = values
                .iter()
                .map(|value| match value {
                    Value::Null => Ok(None),
                    Value::$variant(value) => Ok(Some(*value)),
                    _ => Err(mismatch(ty)),
                })
                .collect();
            Ok(Arc::new(<$array>::from(cells?)) as ArrayRef)
        }};
    }
    match ty {
        SqlType::Bool => primitive!(BooleanArray, Bool),
        SqlType::Int2 => primitive!(Int16Array, Int2),
        SqlType::Int4 => primitive!(Int32Array, Int4),
        SqlType::Int8 => primitive!(Int64Array, Int8),
        SqlType::Float4 => primitive!(Float32Array, Float4),
        SqlType::Float8 => primitive!(Float64Array, Float8),
        SqlType::Numeric(_) => decimal_array(values, ty),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            let blanked = matches!(ty, SqlType::Char(_));
            let cells = cells(values, ty, |value| match value {
                Value::Text(text) if blanked => Some(text.trim_end_matches(' ').to_string()),
                Value::Text(text) => Some(text.clone()),
                _ => None,
            })?;
            Ok(Arc::new(StringArray::from(cells)))
        }
        SqlType::Bytea => {
            let cells = cells(values, ty, |value| match value {
                Value::Bytea(bytes) => Some(bytes.as_slice()),
                _ => None,
            })?;
            Ok(Arc::new(BinaryArray::from_opt_vec(cells)))
        }
        SqlType::Date => {
            let cells = cells(values, ty, |value| match value {
                Value::Date(days) => days.checked_add(EPOCH_DAYS),
                _ => None,
            })?;
            Ok(Arc::new(Date32Array::from(cells)))
        }
        SqlType::Timestamp | SqlType::TimestampTz => {
            let cells = cells(values, ty, |value| match value {
                Value::Timestamp(micros) | Value::TimestampTz(micros) => micros.checked_add(EPOCH_MICROS),
                _ => None,
            })?;
            let array = TimestampMicrosecondArray::from(cells);
            Ok(if matches!(ty, SqlType::TimestampTz) {
                Arc::new(array.with_timezone("UTC"))
            } else {
                Arc::new(array)
            })
        }
        SqlType::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::new(16);
            for value in values {
                match value {
                    Value::Null => builder.append_null(),
                    Value::Uuid(bytes) => {
                        builder
                            .append_value(bytes)
                            .map_err(|error| SqlError::internal(error.to_string()))?;
                    }
                    _ => return Err(mismatch(ty)),
                }
            }
            Ok(Arc::new(builder.finish()))
        }
    }
}

fn cells<'v, T>(
    values: &'v [Value],
    ty: &SqlType,
    cell: impl Fn(&'v Value) -> Option<T>,
) -> Result<Vec<Option<T>>, SqlError> {
    values
        .iter()
        .map(|value| match value {
            Value::Null => Ok(None),
            value => cell(value).map(Some).ok_or_else(|| mismatch(ty)),
        })
        .collect()
}

fn decimal_array(values: &[Value], ty: &SqlType) -> Result<ArrayRef, SqlError> {
    let arrow = arrow_type(ty);
    let (precision, scale, wide) = match arrow {
        DataType::Decimal128(precision, scale) => (precision, scale, false),
        _ => (NUMERIC_PRECISION, NUMERIC_SCALE, true),
    };
    let mut digits: Vec<Option<i256>> = Vec::with_capacity(values.len());
    for value in values {
        digits.push(match value {
            Value::Null => None,
            Value::Numeric(numeric) => Some(numeric_to_i256(numeric, scale)?),
            _ => return Err(mismatch(ty)),
        });
    }
    let failed = |error: datafusion::arrow::error::ArrowError| SqlError::internal(error.to_string());
    if wide {
        return Ok(Arc::new(
            Decimal256Array::from(digits)
                .with_precision_and_scale(precision, scale)
                .map_err(failed)?,
        ));
    }
    let mut narrow: Vec<Option<i128>> = Vec::with_capacity(digits.len());
    for value in digits {
        narrow.push(match value {
            None => None,
            Some(value) => Some(value.to_i128().ok_or_else(numeric_overflow)?),
        });
    }
    Ok(Arc::new(
        Decimal128Array::from(narrow)
            .with_precision_and_scale(precision, scale)
            .map_err(failed)?,
    ))
}

fn mismatch(ty: &SqlType) -> SqlError {
    SqlError::new(
        SqlState::DATATYPE_MISMATCH,
        format!("a value is not of type {}", ty.name()),
    )
}
