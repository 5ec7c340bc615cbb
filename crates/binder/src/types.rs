//! Type names in casts: converts them from the syntax tree to [`SqlType`].

use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};
use weft_expression::category::{BPCHAR, array_of};
use weft_types::{Element, NumericSpec, SqlError, SqlState, SqlType};

use crate::names::last_part;

/// A type and, for date/time types, the number of fractional digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The type.
    pub ty: SqlType,
    /// `timestamp(p)` and the like.
    pub digits: Option<u64>,
}

/// The type that a name in the syntax tree denotes.
///
/// # Errors
/// 42704 for an unknown type, 0A000 for unsupported types, 22023 for a modifier out of range.
pub fn sql_type(data_type: &DataType) -> Result<SqlType, SqlError> {
    named(data_type).map(|named| named.ty)
}

pub(crate) fn named(data_type: &DataType) -> Result<Named, SqlError> {
    let digits = match data_type {
        DataType::Timestamp(digits, _) | DataType::Time(digits, _) => *digits,
        _ => None,
    };
    let ty = plain(data_type)?;
    if digits.is_some_and(|digits| digits > 6) {
        return Err(SqlError::unsupported(format!(
            "{} of more than 6 digits is not supported",
            ty.base_name()
        )));
    }
    Ok(Named { ty, digits })
}

fn plain(data_type: &DataType) -> Result<SqlType, SqlError> {
    Ok(match data_type {
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
            SqlType::Varchar(character_length(length, "varchar")?)
        }
        DataType::Char(length) | DataType::Character(length) => {
            SqlType::Char(character_length(length, "char")?.unwrap_or(1))
        }
        DataType::Bytea => SqlType::Bytea,
        DataType::Date => SqlType::Date,
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => SqlType::Timestamp,
        DataType::Timestamp(_, _) => SqlType::TimestampTz,
        DataType::Uuid => SqlType::Uuid,
        // "char" in quotes is a separate type.
        DataType::Custom(name, _) if is_internal_char(name) => SqlType::InternalChar,
        DataType::Custom(name, arguments) => custom(&last_part(name).unwrap_or_default(), arguments)?,
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            let element = plain(element)?;
            array_of(&element).ok_or_else(|| unsupported(&format!("{}[]", element.base_name())))?
        }
        other => named_by_text(other)?,
    })
}

/// Types that have variants in the syntax tree but are resolved by name here.
fn named_by_text(data_type: &DataType) -> Result<SqlType, SqlError> {
    let name = match data_type {
        DataType::Interval {
            fields: None,
            precision: None,
        } => return Ok(SqlType::Interval),
        DataType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => return Ok(SqlType::Time),
        DataType::Regclass => return Ok(SqlType::Regclass),
        DataType::JSON => "json",
        DataType::JSONB => "jsonb",
        other => return Err(unsupported(&other.to_string().to_lowercase())),
    };
    custom(name, &[])
}

fn unsupported(name: &str) -> SqlError {
    SqlError::unsupported(format!("type {name} is not supported"))
}

fn custom(name: &str, arguments: &[String]) -> Result<SqlType, SqlError> {
    let length = arguments.first().and_then(|length| length.parse().ok());
    if let Some(element) = name.strip_prefix('_') {
        let element = custom(element, &[])?;
        return array_of(&element).ok_or_else(|| unsupported(name));
    }
    Ok(match name {
        "bool" | "boolean" => SqlType::Bool,
        "int2" | "smallint" => SqlType::Int2,
        "int4" | "int" | "integer" => SqlType::Int4,
        "int8" | "bigint" => SqlType::Int8,
        "float4" | "real" => SqlType::Float4,
        "float8" => SqlType::Float8,
        "numeric" | "decimal" => SqlType::Numeric(None),
        "text" => SqlType::Text,
        "varchar" => SqlType::Varchar(length),
        "bpchar" => length.map_or(BPCHAR, SqlType::Char),
        "bytea" => SqlType::Bytea,
        "date" => SqlType::Date,
        "timestamp" => SqlType::Timestamp,
        "timestamptz" => SqlType::TimestampTz,
        "uuid" => SqlType::Uuid,
        "time" => SqlType::Time,
        "interval" => SqlType::Interval,
        "oid" => SqlType::Oid,
        "name" => SqlType::Name,
        "regclass" => SqlType::Regclass,
        "regtype" => SqlType::Regtype,
        "regproc" => SqlType::Regproc,
        "regnamespace" => SqlType::Regnamespace,
        "int2vector" => SqlType::Array(Element::Int2Vector),
        "oidvector" => SqlType::Array(Element::OidVector),
        "json" => SqlType::Json,
        "jsonb" => SqlType::Jsonb,
        "record" => SqlType::Record,
        "void" => SqlType::Void,
        "xml" | "money" | "inet" | "cidr" | "point" | "bit" | "varbit" | "timetz" | "tsvector"
        | "tsquery" => return Err(unsupported(name)),
        _ => {
            return Err(SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("type \"{}\" does not exist", name),
            ));
        }
    })
}

/// The type with a name, for a call.
pub(crate) fn by_name(name: &str) -> Option<SqlType> {
    custom(name, &[]).ok()
}

fn is_internal_char(name: &sqlparser::ast::ObjectName) -> bool {
    let last = name.0.last().and_then(|part| part.as_ident());
    last.is_some_and(|ident| ident.quote_style.is_some() && ident.value == "char")
}

fn numeric(info: &ExactNumberInfo) -> Result<SqlType, SqlError> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(SqlType::Numeric(None)),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    let wrong = |what: &str, value: i64, least: i64| {
        SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC {what} {value} must be between {least} and 1000"),
        )
    };
    let long = i64::try_from(precision).unwrap_or(i64::MAX);
    let precision = u16::try_from(precision)
        .ok()
        .filter(|precision| (1..=1000).contains(precision))
        .ok_or_else(|| wrong("precision", long, 1))?;
    let long = scale;
    let scale = i16::try_from(scale)
        .ok()
        .filter(|scale| (-1000..=1000).contains(scale))
        .ok_or_else(|| wrong("scale", long, -1000))?;
    Ok(SqlType::Numeric(Some(NumericSpec { precision, scale })))
}

fn character_length(length: &Option<CharacterLength>, name: &str) -> Result<Option<u32>, SqlError> {
    let Some(length) = length else { return Ok(None) };
    let wrong = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    match length {
        CharacterLength::IntegerLength { length: 0, .. } => {
            Err(wrong(format!("length for type {name} must be at least 1")))
        }
        CharacterLength::IntegerLength { length, .. } => u32::try_from(*length)
            .ok()
            .filter(|length| *length <= weft_types::sql_type::CHARACTERS_MAX)
            .map(Some)
            .ok_or_else(|| wrong(format!("length for type {name} cannot exceed 10485760"))),
        CharacterLength::Max => Err(unsupported(&format!("{name}(max)"))),
    }
}

/// PostgreSQL's internal name of a type, which is the column name of a cast.
pub(crate) fn catalog_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Custom(name, _) => last_part(name).unwrap_or_default(),
        DataType::Interval { .. } => "interval".to_owned(),
        DataType::Time(..) => "time".to_owned(),
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => catalog_name(element),
        _ => match plain(data_type) {
            Ok(ty) => ty.catalog_name().to_string(),
            Err(_) => data_type.to_string().to_lowercase(),
        },
    }
}
