//! Column types: PostgreSQL's names, aliases and modifiers, and the pseudo-types SERIAL.

use sqlparser::ast::DataType;
use weft_types::sql_type::CHARACTERS_MAX;
use weft_types::{SqlError, SqlState, SqlType};

use super::super::names;
use crate::error;
use weft_binder::sql_type;

/// The type in a column definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnType {
    pub(crate) ty: SqlType,
    /// SERIAL and its variants: NOT NULL, with a default from a dedicated sequence.
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

/// A column type, with checked modifiers.
pub(crate) fn known_type(data_type: &DataType) -> Result<SqlType, SqlError> {
    let ty = sql_type(data_type)?;
    let unsupported = |what: String| Err(error::unsupported(format!("{what} is not supported")));
    match data_type {
        DataType::Timestamp(Some(digits), _) | DataType::Time(Some(digits), _) => {
            return unsupported(format!(
                "{}({digits}) as the type of a column",
                error::bare_name(&ty)
            ));
        }
        DataType::Interval { fields, precision } if fields.is_some() || precision.is_some() => {
            return unsupported("interval with fields or a precision as the type of a column".to_owned());
        }
        _ => {}
    }
    if !is_column_type(&ty) {
        return unsupported(format!("type {} of a column", error::bare_name(&ty)));
    }
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

/// Whether columns of tables may have the type.
fn is_column_type(ty: &SqlType) -> bool {
    !matches!(
        ty,
        SqlType::InternalChar
            | SqlType::Regclass
            | SqlType::Regtype
            | SqlType::Regproc
            | SqlType::Regnamespace
            | SqlType::Record
            | SqlType::Void
    )
}
