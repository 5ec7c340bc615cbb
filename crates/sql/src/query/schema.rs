//! SQL types as Arrow types, and back.
//!
//! | SQL                     | Arrow                    | remark                                                   |
//! |-------------------------|--------------------------|----------------------------------------------------------|
//! | boolean, int2/4/8       | Boolean, Int16/32/64     |                                                          |
//! | float4/8                | Float32/64               |                                                          |
//! | numeric(p,s), p <= 38   | Decimal128(p,s)          |                                                          |
//! | numeric                 | Decimal256(76,16)        | 60 digits before the point; more is refused with 22003   |
//! | a numeric quotient, avg | Decimal256(76,20)        | printed with PostgreSQL's number of digits               |
//! | text, varchar(n)        | Utf8                     |                                                          |
//! | char(n)                 | Utf8, blanks trimmed     | so that comparison ignores them; padded again on output  |
//! | bytea                   | Binary                   |                                                          |
//! | date                    | Date32 (since 1970)      |                                                          |
//! | timestamp, timestamptz  | Timestamp(us[, "UTC"])   | since 1970; the store counts from 2000                   |
//! | uuid                    | FixedSizeBinary(16)      |                                                          |
//! | oid (catalog only)      | UInt32                   |                                                          |
//!
//! Arrow cannot tell varchar(10) from text: the exact type travels as field metadata ([`TYPE_KEY`]) and is
//! believed only while the Arrow type still agrees with it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use weft_store::TableDef;
use weft_types::{NumericSpec, SqlType};

/// Field metadata key: "oid:typmod" of the exact SQL type.
pub const TYPE_KEY: &str = "weft.type";
/// Digits after the point of an unconstrained numeric while it is being computed with.
pub const NUMERIC_SCALE: i8 = 16;
/// Digits after the point of a numeric quotient (division, avg).
pub const QUOTIENT_SCALE: i8 = 20;
/// Digits of an unconstrained numeric in all.
pub const NUMERIC_PRECISION: u8 = 76;
/// Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
pub const EPOCH_DAYS: i32 = 10_957;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;
/// Hidden column: the row's handle (16 bytes, see [`super::RowHandle`]).
pub const ROW_ID_COLUMN: &str = "__weft_row_id";
/// Hidden column: the row's stored bytes.
pub const ROW_BYTES_COLUMN: &str = "__weft_row";

/// The Arrow type in which values of `ty` are computed with.
pub fn arrow_type(ty: &SqlType) -> DataType {
    match ty {
        SqlType::Bool => DataType::Boolean,
        SqlType::Int2 => DataType::Int16,
        SqlType::Int4 => DataType::Int32,
        SqlType::Int8 => DataType::Int64,
        SqlType::Float4 => DataType::Float32,
        SqlType::Float8 => DataType::Float64,
        SqlType::Numeric(spec) => match spec {
            Some(NumericSpec { precision, scale })
                if *precision <= 38 && *scale >= 0 && *scale as u16 <= *precision =>
            {
                DataType::Decimal128(*precision as u8, *scale as i8)
            }
            _ => DataType::Decimal256(NUMERIC_PRECISION, NUMERIC_SCALE),
        },
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => DataType::Utf8,
        SqlType::Bytea => DataType::Binary,
        SqlType::Date => DataType::Date32,
        SqlType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        SqlType::TimestampTz => timestamptz(),
        SqlType::Uuid => DataType::FixedSizeBinary(16),
    }
}

/// Arrow's timestamptz: microseconds, UTC.
pub fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
}

/// A field that remembers its exact SQL type.
pub fn arrow_field(name: &str, ty: &SqlType, nullable: bool) -> Field {
    Field::new(name, arrow_type(ty), nullable).with_metadata(type_metadata(ty))
}

/// Metadata naming the exact SQL type.
pub fn type_metadata(ty: &SqlType) -> HashMap<String, String> {
    HashMap::from([(TYPE_KEY.to_string(), format!("{}:{}", ty.oid(), ty.typmod()))])
}

/// The SQL type of a result field.
pub fn sql_type_of(field: &Field) -> SqlType {
    if let Some(exact) = exact_type(field)
        && arrow_type(&exact) == *field.data_type()
    {
        return exact;
    }
    sql_type_of_arrow(field.data_type())
}

fn exact_type(field: &Field) -> Option<SqlType> {
    let (oid, typmod) = field.metadata().get(TYPE_KEY)?.split_once(':')?;
    SqlType::from_typmod(oid.parse().ok()?, typmod.parse().ok()?)
}

/// The SQL type in which values of an Arrow type are sent; what PostgreSQL has and Weft has not (intervals,
/// arrays) is sent as text.
pub fn sql_type_of_arrow(ty: &DataType) -> SqlType {
    match ty {
        DataType::Boolean => SqlType::Bool,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => SqlType::Int2,
        DataType::UInt16 | DataType::Int32 => SqlType::Int4,
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => SqlType::Int8,
        DataType::Float16 | DataType::Float32 => SqlType::Float4,
        DataType::Float64 => SqlType::Float8,
        DataType::Decimal32(_, _)
        | DataType::Decimal64(_, _)
        | DataType::Decimal128(_, _)
        | DataType::Decimal256(_, _) => SqlType::Numeric(None),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => SqlType::Bytea,
        DataType::FixedSizeBinary(16) => SqlType::Uuid,
        DataType::FixedSizeBinary(_) => SqlType::Bytea,
        DataType::Date32 | DataType::Date64 => SqlType::Date,
        DataType::Timestamp(_, None) => SqlType::Timestamp,
        DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
        DataType::Dictionary(_, value) => sql_type_of_arrow(value),
        _ => SqlType::Text,
    }
}

/// A table's columns as an Arrow schema; with `hidden`, followed by the row's handle and its stored bytes.
pub fn table_schema(table: &TableDef, hidden: bool) -> SchemaRef {
    let mut fields: Vec<FieldRef> = table
        .columns
        .iter()
        .map(|column| Arc::new(arrow_field(&column.name, &column.ty, !column.not_null)))
        .collect();
    if hidden {
        fields.push(Arc::new(Field::new(
            ROW_ID_COLUMN,
            DataType::FixedSizeBinary(16),
            false,
        )));
        fields.push(Arc::new(Field::new(ROW_BYTES_COLUMN, DataType::Binary, false)));
    }
    Arc::new(Schema::new(fields))
}
