//! Types of columns: PostgreSQL's names, aliases and modifiers, and the pseudo-types SERIAL.

use datafusion::sql::sqlparser::ast::DataType;
use weft_types::sql_type::CHARACTERS_MAX;
use weft_types::{SqlError, SqlState, SqlType};

use super::super::names;
use crate::error;
use crate::query::sql_type;

/// A type name in a column definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnType {
    pub(crate) ty: SqlType,
    /// SERIAL and its sizes: NOT NULL, with a default from a sequence of its own.
    pub(crate) serial: bool,
}

/// The type of a column definition.
pub(crate) fn column_type(data_type: &DataType) -> Result<ColumnType, SqlError> {
    if let DataType::Custom(name, _) = data_type {
        let serial = match names::parts(name).last().map(String::as_str) {
            Some("serial" | "serial4") => Some(SqlType::Int4),
            Some("bigserial" | "serial8") => Some(SqlType::Int8),
            Some("smallserial" | "serial2") => Some(SqlType::Int2),
            _ => None,
        };
        if let Some(ty) = serial {
            return Ok(ColumnType { ty, serial: true });
        }
    }
    Ok(ColumnType {
        ty: known_type(data_type)?,
        serial: false,
    })
}

/// A type that exists, modifiers checked.
pub(crate) fn known_type(data_type: &DataType) -> Result<SqlType, SqlError> {
    let ty = match sql_type(data_type) {
        Some(ty) => ty,
        None => return Err(unknown_type(data_type)),
    };
    let valid = match ty {
        SqlType::Varchar(Some(length)) | SqlType::Char(length) => (1..=CHARACTERS_MAX).contains(&length),
        SqlType::Numeric(Some(spec)) => spec.is_valid(),
        _ => true,
    };
    if valid {
        return Ok(ty);
    }
    let message = match ty {
        SqlType::Varchar(Some(0)) => "length for type varchar must be at least 1".to_owned(),
        SqlType::Char(0) => "length for type char must be at least 1".to_owned(),
        SqlType::Varchar(_) => "length for type varchar cannot exceed 10485760".to_owned(),
        SqlType::Char(_) => "length for type char cannot exceed 10485760".to_owned(),
        SqlType::Numeric(Some(spec)) if spec.precision == 0 || spec.precision > 1000 => {
            format!("NUMERIC precision {} must be between 1 and 1000", spec.precision)
        }
        SqlType::Numeric(Some(spec)) => {
            format!("NUMERIC scale {} must be between -1000 and 1000", spec.scale)
        }
        _ => format!("invalid type modifier of {}", error::bare_name(&ty)),
    };
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

fn unknown_type(data_type: &DataType) -> SqlError {
    let unsupported = matches!(
        data_type,
        DataType::JSON
            | DataType::JSONB
            | DataType::Interval { .. }
            | DataType::Array(_)
            | DataType::Time(..)
            | DataType::Bit(_)
            | DataType::BitVarying(_)
            | DataType::Regclass
            | DataType::TsVector
            | DataType::TsQuery
            | DataType::GeometricType(_)
    );
    let name = match data_type {
        DataType::Custom(name, _) => names::parts(name).join("."),
        other => other.to_string().to_lowercase(),
    };
    match unsupported || POSTGRES_TYPES.contains(&name.as_str()) {
        true => error::unsupported(format!("type {name} is not supported")),
        false => SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("type \"{name}\" does not exist"),
        ),
    }
}

/// Types that PostgreSQL has and Weft lacks, beyond those that the parser knows.
const POSTGRES_TYPES: &[&str] = &[
    "json",
    "jsonb",
    "xml",
    "inet",
    "cidr",
    "macaddr",
    "money",
    "oid",
    "interval",
    "time",
    "timetz",
    "bit",
    "varbit",
    "point",
    "line",
    "lseg",
    "box",
    "path",
    "polygon",
    "circle",
    "tsvector",
    "tsquery",
    "hstore",
    "regclass",
    "int4range",
    "int8range",
];
