//! SQL types as Arrow types: for storage only; the semantics are those of each column's SQL type.
//!
//! | SQL                               | Arrow                  | remark                                          |
//! |-----------------------------------|------------------------|-------------------------------------------------|
//! | boolean, int2/4/8                 | Boolean, Int16/32/64   |                                                 |
//! | float4/8                          | Float32/64             |                                                 |
//! | numeric(p,s) columns, 0<=s<=p<=38 | Decimal128(p,s)        | every value has s digits; NaN is [`DECIMAL_NAN`]|
//! | every other numeric               | Binary                 | `Numeric::encode`: exact, own display scale     |
//! | text, varchar, char, name, "char" | Utf8                   | char(n) without trailing blanks                 |
//! | json                              | Utf8                   | its text                                        |
//! | jsonb                             | Binary                 | its stored form (`weft_types::json`)            |
//! | bytea                             | Binary                 |                                                 |
//! | date                              | Int32                  | days since 2000                                 |
//! | timestamp, timestamptz            | Int64                  | microseconds since 2000                         |
//! | time                              | Int64                  | microseconds since midnight                     |
//! | uuid, interval                    | FixedSizeBinary(16)    | `Interval::to_bytes`                            |
//! | oid, regclass, regtype, regproc   | UInt32                 |                                                 |
//! | arrays, records                   | Binary                 | `Value::encode`                                 |
//!
//! NaN in a Decimal128 column is the greatest `i128`, which no number of 38 digits reaches. NaN equals NaN
//! and is greater than every number, so code that only compares, hashes, sorts, groups or joins such columns
//! needs no special case. Code that computes with them or displays them does: [`crate::arrays`] and
//! [`crate::evaluate`].

use datafusion::arrow::datatypes::{DataType, Field, i256};
use weft_expression::ColumnId;
use weft_types::{NumericSpec, SqlType};

/// NaN in a Decimal128 column.
pub const DECIMAL_NAN: i128 = i128::MAX;

/// NaN in a Decimal256 column. There are such columns only between an expression and the sum of its values.
pub const WIDE_NAN: i256 = i256::MAX;

/// Maximum number of digits of a Decimal128 column.
pub const DECIMAL_DIGITS: u8 = 38;

/// The Arrow type of computed values of `ty`.
#[must_use]
pub fn arrow_type(ty: &SqlType) -> DataType {
    match ty {
        SqlType::Bool => DataType::Boolean,
        SqlType::Int2 => DataType::Int16,
        SqlType::Int4 | SqlType::Date => DataType::Int32,
        SqlType::Int8 | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time => DataType::Int64,
        SqlType::Float4 => DataType::Float32,
        SqlType::Float8 => DataType::Float64,
        SqlType::Text
        | SqlType::Varchar(_)
        | SqlType::Char(_)
        | SqlType::Name
        | SqlType::InternalChar
        | SqlType::Json
        | SqlType::Void => DataType::Utf8,
        SqlType::Numeric(_) | SqlType::Bytea | SqlType::Jsonb | SqlType::Array(_) | SqlType::Record => {
            DataType::Binary
        }
        SqlType::Uuid | SqlType::Interval => DataType::FixedSizeBinary(16),
        SqlType::Oid | SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace => {
            DataType::UInt32
        }
    }
}

/// The Arrow type of a table's column of type `ty`, and of casts to `ty`: like [`arrow_type`], but Decimal128
/// where precision and scale allow it.
#[must_use]
pub fn column_type(ty: &SqlType) -> DataType {
    match ty {
        SqlType::Numeric(Some(NumericSpec { precision, scale })) => decimal_type(*precision, *scale),
        other => arrow_type(other),
    }
}

fn decimal_type(precision: u16, scale: i16) -> DataType {
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(digits @ 1..=DECIMAL_DIGITS), Ok(scale @ 0..)) if scale.unsigned_abs() <= digits => {
            DataType::Decimal128(digits, scale)
        }
        _ => DataType::Binary,
    }
}

/// The name of a column's field.
#[must_use]
pub fn field_name(id: ColumnId) -> String {
    format!("c{}", id.0)
}

/// The field of a column.
#[must_use]
pub fn field(id: ColumnId, data_type: DataType) -> Field {
    Field::new(field_name(id), data_type, true)
}
