//! Converts between Arrow arrays and our values, and makes the keys that order them.
//!
//! An array's SQL type is known from the context; its Arrow type only determines the representation
//! ([`crate::schema`]).

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, BooleanBuilder, Decimal128Array,
    Decimal128Builder, FixedSizeBinaryArray, FixedSizeBinaryBuilder, Float32Array, Float32Builder,
    Float64Array, Float64Builder, Int16Array, Int16Builder, Int32Array, Int32Builder, Int64Array,
    Int64Builder, StringArray, StringBuilder, UInt32Array, UInt32Builder,
};
use datafusion::arrow::buffer::{Buffer, OffsetBuffer};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, UInt32Type,
};
use datafusion::arrow::error::ArrowError;
use weft_base::ByteReader;
use weft_types::{Interval, JsonbRef, Numeric, SqlError, SqlType, Value, ValueRef, encode_key_value_ref};

use crate::schema::DECIMAL_NAN;

/// One Arrow column, read as values of one SQL type.
pub enum ValueColumn {
    /// boolean.
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
    /// numeric, with the scale of all values.
    Decimal(Decimal128Array, u16),
    /// numeric in its stored form.
    Numeric(BinaryArray),
    /// Text of any kind.
    Text(StringArray),
    /// bytea.
    Bytea(BinaryArray),
    /// json.
    Json(StringArray),
    /// jsonb.
    Jsonb(BinaryArray),
    /// date.
    Date(Int32Array),
    /// timestamp.
    Timestamp(Int64Array),
    /// timestamptz.
    TimestampTz(Int64Array),
    /// uuid.
    Uuid(FixedSizeBinaryArray),
    /// time.
    Time(Int64Array),
    /// interval.
    Interval(FixedSizeBinaryArray),
    /// oid and the reg* types.
    Oid(UInt32Array),
    /// Arrays and records.
    Nested(BinaryArray),
    /// Only NULLs.
    Nulls,
}

impl ValueColumn {
    /// Reads `array` as values of type `ty`.
    ///
    /// # Errors
    /// XX000 if the array is not a representation of the type.
    pub fn new(array: &ArrayRef, ty: &SqlType) -> Result<ValueColumn, SqlError> {
        Ok(match (ty, array.data_type()) {
            (_, DataType::Null) => ValueColumn::Nulls,
            (SqlType::Bool, DataType::Boolean) => ValueColumn::Bool(array.as_boolean().clone()),
            (SqlType::Int2, DataType::Int16) => ValueColumn::Int2(array.as_primitive::<Int16Type>().clone()),
            (SqlType::Int4, DataType::Int32) => ValueColumn::Int4(array.as_primitive::<Int32Type>().clone()),
            (SqlType::Int8, DataType::Int64) => ValueColumn::Int8(array.as_primitive::<Int64Type>().clone()),
            (SqlType::Float4, DataType::Float32) => {
                ValueColumn::Float4(array.as_primitive::<Float32Type>().clone())
            }
            (SqlType::Float8, DataType::Float64) => {
                ValueColumn::Float8(array.as_primitive::<Float64Type>().clone())
            }
            (SqlType::Numeric(_), DataType::Decimal128(_, scale)) => ValueColumn::Decimal(
                array.as_primitive::<Decimal128Type>().clone(),
                u16::from(scale.unsigned_abs()),
            ),
            (SqlType::Numeric(_), DataType::Binary) => ValueColumn::Numeric(array.as_binary::<i32>().clone()),
            (SqlType::Time, DataType::Int64) => ValueColumn::Time(array.as_primitive::<Int64Type>().clone()),
            (SqlType::Interval, DataType::FixedSizeBinary(16)) => {
                ValueColumn::Interval(array.as_fixed_size_binary().clone())
            }
            (
                SqlType::Oid
                | SqlType::Regclass
                | SqlType::Regtype
                | SqlType::Regproc
                | SqlType::Regnamespace,
                DataType::UInt32,
            ) => ValueColumn::Oid(array.as_primitive::<UInt32Type>().clone()),
            (SqlType::Array(_) | SqlType::Record, DataType::Binary) => {
                ValueColumn::Nested(array.as_binary::<i32>().clone())
            }
            (
                SqlType::Text
                | SqlType::Varchar(_)
                | SqlType::Char(_)
                | SqlType::Name
                | SqlType::InternalChar
                | SqlType::Void,
                DataType::Utf8,
            ) => ValueColumn::Text(array.as_string::<i32>().clone()),
            (SqlType::Bytea, DataType::Binary) => ValueColumn::Bytea(array.as_binary::<i32>().clone()),
            (SqlType::Json, DataType::Utf8) => ValueColumn::Json(array.as_string::<i32>().clone()),
            (SqlType::Jsonb, DataType::Binary) => ValueColumn::Jsonb(array.as_binary::<i32>().clone()),
            (SqlType::Date, DataType::Int32) => ValueColumn::Date(array.as_primitive::<Int32Type>().clone()),
            (SqlType::Timestamp, DataType::Int64) => {
                ValueColumn::Timestamp(array.as_primitive::<Int64Type>().clone())
            }
            (SqlType::TimestampTz, DataType::Int64) => {
                ValueColumn::TimestampTz(array.as_primitive::<Int64Type>().clone())
            }
            (SqlType::Uuid, DataType::FixedSizeBinary(16)) => {
                ValueColumn::Uuid(array.as_fixed_size_binary().clone())
            }
            (ty, found) => return Err(not_stored_as(ty, found)),
        })
    }

    /// The value in `row`, borrowed.
    #[must_use]
    #[inline]
    pub fn value_ref(&self, row: usize) -> ValueRef<'_> {
        if self.is_null(row) {
            return ValueRef::Null;
        }
        match self {
            ValueColumn::Bool(array) => ValueRef::Bool(array.value(row)),
            ValueColumn::Int2(array) => ValueRef::Int2(array.value(row)),
            ValueColumn::Int4(array) => ValueRef::Int4(array.value(row)),
            ValueColumn::Int8(array) => ValueRef::Int8(array.value(row)),
            ValueColumn::Float4(array) => ValueRef::Float4(array.value(row)),
            ValueColumn::Float8(array) => ValueRef::Float8(array.value(row)),
            ValueColumn::Decimal(array, scale) => ValueRef::Numeric(decimal(array.value(row), *scale)),
            // Invalid numerics cannot occur: rows are checked when they are stored.
            ValueColumn::Numeric(array) => {
                Numeric::decode(array.value(row)).map_or(ValueRef::Null, ValueRef::Numeric)
            }
            ValueColumn::Text(array) => ValueRef::Text(array.value(row)),
            ValueColumn::Bytea(array) => ValueRef::Bytea(array.value(row)),
            ValueColumn::Json(array) => ValueRef::Json(array.value(row)),
            ValueColumn::Jsonb(array) => ValueRef::Jsonb(JsonbRef::of_stored(array.value(row))),
            ValueColumn::Date(array) => ValueRef::Date(array.value(row)),
            ValueColumn::Timestamp(array) => ValueRef::Timestamp(array.value(row)),
            ValueColumn::TimestampTz(array) => ValueRef::TimestampTz(array.value(row)),
            ValueColumn::Uuid(array) => ValueRef::Uuid(array.value(row).try_into().unwrap_or_default()),
            ValueColumn::Time(array) => ValueRef::Time(array.value(row)),
            ValueColumn::Interval(array) => ValueRef::Interval(Interval::from_bytes(
                array.value(row).try_into().unwrap_or_default(),
            )),
            ValueColumn::Oid(array) => ValueRef::Oid(array.value(row)),
            ValueColumn::Nested(array) => nested(array.value(row)),
            ValueColumn::Nulls => ValueRef::Null,
        }
    }

    /// The value in `row`, copied.
    #[must_use]
    pub fn value(&self, row: usize) -> Value {
        self.value_ref(row).to_value()
    }

    /// Whether the value in `row` is NULL.
    #[must_use]
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        match self {
            ValueColumn::Bool(array) => array.is_null(row),
            ValueColumn::Int2(array) => array.is_null(row),
            ValueColumn::Int4(array) | ValueColumn::Date(array) => array.is_null(row),
            ValueColumn::Int8(array)
            | ValueColumn::Timestamp(array)
            | ValueColumn::TimestampTz(array)
            | ValueColumn::Time(array) => array.is_null(row),
            ValueColumn::Float4(array) => array.is_null(row),
            ValueColumn::Float8(array) => array.is_null(row),
            ValueColumn::Decimal(array, _) => array.is_null(row),
            ValueColumn::Numeric(array)
            | ValueColumn::Bytea(array)
            | ValueColumn::Jsonb(array)
            | ValueColumn::Nested(array) => array.is_null(row),
            ValueColumn::Text(array) | ValueColumn::Json(array) => array.is_null(row),
            ValueColumn::Uuid(array) | ValueColumn::Interval(array) => array.is_null(row),
            ValueColumn::Oid(array) => array.is_null(row),
            ValueColumn::Nulls => true,
        }
    }
}

/// Decodes an array or record that [`Value::encode`] wrote.
fn nested<'a>(bytes: &[u8]) -> ValueRef<'a> {
    match Value::decode(&mut ByteReader::new(bytes)) {
        Ok(Value::Array(array)) => ValueRef::Array(Cow::Owned(array)),
        Ok(Value::Record(fields)) => ValueRef::Record(Cow::Owned(fields)),
        _ => ValueRef::Null,
    }
}

/// A value of a Decimal128 column.
#[must_use]
pub fn decimal(mantissa: i128, scale: u16) -> Numeric {
    if mantissa == DECIMAL_NAN {
        return Numeric::NAN;
    }
    Numeric::from_i128(mantissa, scale).unwrap_or(Numeric::NAN)
}

/// Builds an array value by value.
pub enum ColumnBuilder {
    /// boolean.
    Bool(BooleanBuilder),
    /// smallint.
    Int2(Int16Builder),
    /// integer and date.
    Int4(Int32Builder),
    /// bigint and times.
    Int8(Int64Builder),
    /// real.
    Float4(Float32Builder),
    /// double precision.
    Float8(Float64Builder),
    /// numeric of one scale.
    Decimal(Decimal128Builder, u16),
    /// oid.
    Oid(UInt32Builder),
    /// bytea; also numeric, jsonb, arrays and records in their stored form, with a scratch buffer to encode
    /// them.
    Bytes(BinaryBuilder, Vec<u8>),
    /// Text of any kind.
    Text(StringBuilder),
    /// uuid.
    Fixed16(FixedSizeBinaryBuilder),
}

impl ColumnBuilder {
    /// An empty column.
    ///
    /// # Errors
    /// XX000 for an Arrow type that represents no SQL type.
    pub fn new(data_type: &DataType, capacity: usize) -> Result<ColumnBuilder, SqlError> {
        Ok(match data_type {
            DataType::Boolean => ColumnBuilder::Bool(BooleanBuilder::with_capacity(capacity)),
            DataType::Int16 => ColumnBuilder::Int2(Int16Builder::with_capacity(capacity)),
            DataType::Int32 => ColumnBuilder::Int4(Int32Builder::with_capacity(capacity)),
            DataType::Int64 => ColumnBuilder::Int8(Int64Builder::with_capacity(capacity)),
            DataType::UInt32 => ColumnBuilder::Oid(UInt32Builder::with_capacity(capacity)),
            DataType::Float32 => ColumnBuilder::Float4(Float32Builder::with_capacity(capacity)),
            DataType::Float64 => ColumnBuilder::Float8(Float64Builder::with_capacity(capacity)),
            DataType::Decimal128(_, scale) => ColumnBuilder::Decimal(
                Decimal128Builder::with_capacity(capacity).with_data_type(data_type.clone()),
                u16::from(scale.unsigned_abs()),
            ),
            DataType::Binary => {
                ColumnBuilder::Bytes(BinaryBuilder::with_capacity(capacity, capacity * 8), Vec::new())
            }
            DataType::Utf8 => ColumnBuilder::Text(StringBuilder::with_capacity(capacity, capacity * 8)),
            DataType::FixedSizeBinary(16) => {
                ColumnBuilder::Fixed16(FixedSizeBinaryBuilder::with_capacity(capacity, 16))
            }
            other => return Err(SqlError::internal(format!("no values lie as {other}"))),
        })
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        match self {
            ColumnBuilder::Bool(builder) => builder.append_null(),
            ColumnBuilder::Int2(builder) => builder.append_null(),
            ColumnBuilder::Int4(builder) => builder.append_null(),
            ColumnBuilder::Int8(builder) => builder.append_null(),
            ColumnBuilder::Oid(builder) => builder.append_null(),
            ColumnBuilder::Float4(builder) => builder.append_null(),
            ColumnBuilder::Float8(builder) => builder.append_null(),
            ColumnBuilder::Decimal(builder, _) => builder.append_null(),
            ColumnBuilder::Bytes(builder, _) => builder.append_null(),
            ColumnBuilder::Text(builder) => builder.append_null(),
            ColumnBuilder::Fixed16(builder) => builder.append_null(),
        }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// XX000 for a value of another type; 54000 if the column exceeds the capacity of an array.
    #[inline]
    pub fn push(&mut self, value: &ValueRef<'_>) -> Result<(), SqlError> {
        match (self, value) {
            (this, ValueRef::Null) => this.push_null(),
            (ColumnBuilder::Bool(builder), ValueRef::Bool(v)) => builder.append_value(*v),
            (ColumnBuilder::Int2(builder), ValueRef::Int2(v)) => builder.append_value(*v),
            (ColumnBuilder::Int4(builder), ValueRef::Int4(v) | ValueRef::Date(v)) => builder.append_value(*v),
            (
                ColumnBuilder::Int8(builder),
                ValueRef::Int8(v) | ValueRef::Timestamp(v) | ValueRef::TimestampTz(v) | ValueRef::Time(v),
            ) => builder.append_value(*v),
            (ColumnBuilder::Float4(builder), ValueRef::Float4(v)) => builder.append_value(*v),
            (ColumnBuilder::Float8(builder), ValueRef::Float8(v)) => builder.append_value(*v),
            (ColumnBuilder::Decimal(builder, scale), ValueRef::Numeric(v)) => {
                if v.is_nan() {
                    builder.append_value(DECIMAL_NAN);
                } else if v.scale() == *scale {
                    builder.append_value(v.to_i128(*scale)?);
                } else {
                    return Err(SqlError::internal("a numeric has another scale than its column"));
                }
            }
            (ColumnBuilder::Bytes(builder, room), ValueRef::Numeric(v)) => {
                room.clear();
                v.encode(room);
                check_room(builder.values_slice().len(), room.len())?;
                builder.append_value(&*room);
            }
            (ColumnBuilder::Oid(builder), ValueRef::Oid(v)) => builder.append_value(*v),
            (ColumnBuilder::Bytes(builder, room), ValueRef::Array(_) | ValueRef::Record(_)) => {
                room.clear();
                value.to_value().encode(room);
                check_room(builder.values_slice().len(), room.len())?;
                builder.append_value(&*room);
            }
            (ColumnBuilder::Fixed16(builder), ValueRef::Interval(v)) => builder
                .append_value(v.to_bytes())
                .map_err(|error| SqlError::internal(error.to_string()))?,
            (ColumnBuilder::Bytes(builder, _), ValueRef::Bytea(v)) => {
                check_room(builder.values_slice().len(), v.len())?;
                builder.append_value(v);
            }
            (ColumnBuilder::Bytes(builder, _), ValueRef::Jsonb(v)) => {
                check_room(builder.values_slice().len(), v.as_bytes().len())?;
                builder.append_value(v.as_bytes());
            }
            (ColumnBuilder::Text(builder), ValueRef::Text(v) | ValueRef::Json(v)) => {
                check_room(builder.values_slice().len(), v.len())?;
                builder.append_value(v);
            }
            (ColumnBuilder::Fixed16(builder), ValueRef::Uuid(v)) => builder
                .append_value(v)
                .map_err(|error| SqlError::internal(error.to_string()))?,
            (_, value) => {
                let ty = value.to_value().sql_type().map_or("null", |ty| ty.base_name());
                return Err(SqlError::internal(format!(
                    "a value of type {ty} in a column of another type"
                )));
            }
        }
        Ok(())
    }

    /// The array.
    #[must_use]
    pub fn finish(self) -> ArrayRef {
        match self {
            ColumnBuilder::Bool(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Int2(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Int4(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Int8(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Oid(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Float4(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Float8(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Decimal(mut builder, _) => Arc::new(builder.finish()),
            ColumnBuilder::Bytes(mut builder, _) => Arc::new(builder.finish()),
            ColumnBuilder::Text(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Fixed16(mut builder) => Arc::new(builder.finish()),
        }
    }
}

/// Checks the capacity: an array's offsets are 32 bits wide.
fn check_room(held: usize, more: usize) -> Result<(), SqlError> {
    if held.saturating_add(more) > i32::MAX as usize {
        return Err(SqlError::new(
            weft_types::SqlState::PROGRAM_LIMIT_EXCEEDED,
            "values of one batch exceed 2 GiB",
        ));
    }
    Ok(())
}

/// One value as an array; text and bytes, which may be long, are not copied.
///
/// # Errors
/// XX000 for a value of another type.
pub fn array_of_one(value: Value, data_type: &DataType) -> Result<ArrayRef, SqlError> {
    let internal = |error: ArrowError| SqlError::internal(error.to_string());
    let whole = |length: usize| OffsetBuffer::<i32>::from_lengths([length]);
    match (value, data_type) {
        (Value::Text(text), DataType::Utf8) => {
            check_room(0, text.len())?;
            let (offsets, bytes) = (whole(text.len()), Buffer::from_vec(text.into_bytes()));
            Ok(Arc::new(
                StringArray::try_new(offsets, bytes, None).map_err(internal)?,
            ))
        }
        (Value::Bytea(bytes), DataType::Binary) => {
            check_room(0, bytes.len())?;
            let (offsets, bytes) = (whole(bytes.len()), Buffer::from_vec(bytes));
            Ok(Arc::new(
                BinaryArray::try_new(offsets, bytes, None).map_err(internal)?,
            ))
        }
        (value, data_type) => {
            let mut builder = ColumnBuilder::new(data_type, 1)?;
            builder.push(&value.as_ref())?;
            Ok(builder.finish())
        }
    }
}

/// Values of type `ty` as an array.
///
/// # Errors
/// XX000 for values of another type.
pub fn array_of_values(values: &[Value], ty: &SqlType, data_type: &DataType) -> Result<ArrayRef, SqlError> {
    let mut builder = ColumnBuilder::new(data_type, values.len())?;
    for value in values {
        if !value.fits(ty) {
            return Err(SqlError::internal(format!(
                "a value is not of type {}",
                ty.name()
            )));
        }
        builder.push(&value.as_ref())?;
    }
    Ok(builder.finish())
}

/// Whether Arrow's own equality or order of such an array differs from that of its values.
#[must_use]
pub fn needs_order_key(ty: &SqlType, data_type: &DataType) -> bool {
    match ty {
        SqlType::Float4 | SqlType::Float8 | SqlType::Interval | SqlType::Jsonb => true,
        SqlType::Array(_) | SqlType::Record => true,
        SqlType::Numeric(_) => !matches!(data_type, DataType::Decimal128(_, _)),
        _ => false,
    }
}

/// Keys that compare and equal as the values do. NULL stays NULL.
///
/// # Errors
/// XX000 if the array is not a representation of the type.
pub fn order_key(array: &ArrayRef, ty: &SqlType) -> Result<ArrayRef, SqlError> {
    let column = ValueColumn::new(array, ty)?;
    let mut builder = BinaryBuilder::with_capacity(array.len(), array.len() * 9);
    let mut key = Vec::new();
    for row in 0..array.len() {
        match column.value_ref(row) {
            ValueRef::Null => builder.append_null(),
            value => {
                key.clear();
                encode_key_value_ref(&mut key, &value);
                check_room(builder.values_slice().len(), key.len())?;
                builder.append_value(&key);
            }
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// The same values in another Arrow type of the same SQL type: decimals in stored form, or with another
/// precision and the same scale.
///
/// # Errors
/// XX000 if there is no such conversion.
pub fn converted(array: &ArrayRef, ty: &SqlType, data_type: &DataType) -> Result<ArrayRef, SqlError> {
    match (array.data_type(), data_type) {
        (found, wanted) if found == wanted => Ok(Arc::clone(array)),
        (DataType::Decimal128(_, found), DataType::Decimal128(_, wanted)) if found == wanted => {
            let array = array.as_primitive::<Decimal128Type>().clone();
            Ok(Arc::new(array.with_data_type(data_type.clone())))
        }
        (DataType::Null, _) => Ok(datafusion::arrow::array::new_null_array(data_type, array.len())),
        _ => {
            let column = ValueColumn::new(array, ty)?;
            let mut builder = ColumnBuilder::new(data_type, array.len())?;
            for row in 0..array.len() {
                builder.push(&column.value_ref(row))?;
            }
            Ok(builder.finish())
        }
    }
}

fn not_stored_as(ty: &SqlType, found: &DataType) -> SqlError {
    SqlError::internal(format!("values of type {} do not lie as {found}", ty.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(text: &str) -> Value {
        Value::Numeric(Numeric::parse(text).unwrap())
    }

    #[test]
    fn decimals_keep_nan_and_their_scale() {
        let ty = SqlType::Numeric(None);
        let values = [numeric("1.50"), Value::Null, numeric("NaN"), numeric("-0.07")];
        let array = array_of_values(&values, &ty, &DataType::Decimal128(10, 2)).unwrap();
        let column = ValueColumn::new(&array, &ty).unwrap();
        let stored = converted(&array, &ty, &DataType::Binary).unwrap();
        let again = ValueColumn::new(&stored, &ty).unwrap();
        for (row, value) in values.iter().enumerate() {
            assert_eq!(column.value(row), *value);
            assert_eq!(again.value(row), *value);
        }
    }

    #[test]
    fn equal_values_have_equal_keys() {
        let values = [
            numeric("1.0"),
            numeric("1.00"),
            numeric("NaN"),
            Value::Null,
            numeric("2"),
        ];
        let array = array_of_values(&values, &SqlType::Numeric(None), &DataType::Binary).unwrap();
        let keys = order_key(&array, &SqlType::Numeric(None)).unwrap();
        let keys = keys.as_binary::<i32>();
        assert_eq!(keys.value(0), keys.value(1));
        assert!(keys.value(2) > keys.value(4) && keys.value(4) > keys.value(0));
        assert!(keys.is_null(3));
        let floats = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY].map(Value::Float8);
        let array = array_of_values(&floats, &SqlType::Float8, &DataType::Float64).unwrap();
        let keys = order_key(&array, &SqlType::Float8).unwrap();
        let keys = keys.as_binary::<i32>();
        assert_eq!(keys.value(0), keys.value(1));
        assert_eq!(keys.value(2), keys.value(3));
        assert!(keys.value(2) > keys.value(4));
    }
}
