//! Type names in casts: from the syntax tree to [`SqlType`].

use datafusion::sql::sqlparser::ast::{CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};
use weft_types::{NumericSpec, SqlType};

use super::naming::last_part;

/// The SQL type that a cast names, or `None` when it is not one that Weft stores (interval, oid, regclass,
/// arrays).
/// `pg_catalog.text` and the internal names (`bpchar`, `timestamptz`, `name`) are understood.
pub fn sql_type(data_type: &DataType) -> Option<SqlType> {
    Some(match data_type {
        DataType::Bool | DataType::Boolean => SqlType::Bool,
        DataType::SmallInt(_) | DataType::Int2(_) => SqlType::Int2,
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => SqlType::Int4,
        DataType::BigInt(_) | DataType::Int8(_) => SqlType::Int8,
        DataType::Real | DataType::Float4 => SqlType::Float4,
        DataType::Float8 | DataType::DoublePrecision | DataType::Double(_) => SqlType::Float8,
        DataType::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => SqlType::Float4,
        DataType::Float(_) => SqlType::Float8,
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info)?,
        DataType::Text => SqlType::Text,
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            SqlType::Varchar(character_length(length)?)
        }
        DataType::Char(length) | DataType::Character(length) => {
            SqlType::Char(character_length(length)?.unwrap_or(1))
        }
        DataType::Bytea => SqlType::Bytea,
        DataType::Date => SqlType::Date,
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => SqlType::Timestamp,
        DataType::Timestamp(_, _) => SqlType::TimestampTz,
        DataType::Uuid => SqlType::Uuid,
        DataType::Custom(name, arguments) => custom(&last_part(name)?, arguments)?,
        _ => return None,
    })
}

fn custom(name: &str, arguments: &[String]) -> Option<SqlType> {
    let length = arguments.first().and_then(|length| length.parse().ok());
    Some(match name {
        "bool" | "boolean" => SqlType::Bool,
        "int2" | "smallint" => SqlType::Int2,
        "int4" | "int" | "integer" => SqlType::Int4,
        "int8" | "bigint" => SqlType::Int8,
        "float4" | "real" => SqlType::Float4,
        "float8" => SqlType::Float8,
        "numeric" | "decimal" => SqlType::Numeric(None),
        "text" | "name" | "char" | "cstring" | "unknown" => SqlType::Text,
        "varchar" => SqlType::Varchar(length),
        "bpchar" => match length {
            Some(length) => SqlType::Char(length),
            None => SqlType::Text,
        },
        "bytea" => SqlType::Bytea,
        "date" => SqlType::Date,
        "timestamp" => SqlType::Timestamp,
        "timestamptz" => SqlType::TimestampTz,
        "uuid" => SqlType::Uuid,
        _ => return None,
    })
}

fn numeric(info: &ExactNumberInfo) -> Option<SqlType> {
    let spec = match info {
        ExactNumberInfo::None => None,
        ExactNumberInfo::Precision(precision) => Some(NumericSpec {
            precision: u16::try_from(*precision).ok()?,
            scale: 0,
        }),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => Some(NumericSpec {
            precision: u16::try_from(*precision).ok()?,
            scale: i16::try_from(*scale).ok()?,
        }),
    };
    Some(SqlType::Numeric(spec))
}

fn character_length(length: &Option<CharacterLength>) -> Option<Option<u32>> {
    match length {
        None => Some(None),
        Some(CharacterLength::IntegerLength { length, .. }) => u32::try_from(*length).ok().map(Some),
        Some(CharacterLength::Max) => None,
    }
}
