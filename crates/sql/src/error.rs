//! Errors of parsing and planning: constructors with PostgreSQL's codes and messages.
//!
//! All of these are user errors and deterministic: the same text on the same catalog gives the same error.
//! One function per message keeps each message in one place, so that a difference found by comparing with
//! PostgreSQL is fixed in one place.

use weft_types::{SqlError, SqlState, SqlType};

/// 42601 `syntax error at or near "token"`.
pub fn syntax(token: &str) -> SqlError {
    SqlError::new(SqlState("42601"), format!("syntax error at or near \"{token}\""))
}

/// 0A000: something that PostgreSQL supports and Weft does not. `what` is a noun phrase in the plural or a
/// sentence.
pub fn unsupported(what: impl Into<String>) -> SqlError {
    SqlError::unsupported(what)
}

/// 42P01 `relation "name" does not exist`.
pub fn undefined_table(name: &str) -> SqlError {
    SqlError::new(SqlState("42P01"), format!("relation \"{name}\" does not exist"))
}

/// 42703 `column "name" does not exist`.
pub fn undefined_column(name: &str) -> SqlError {
    SqlError::new(SqlState("42703"), format!("column \"{name}\" does not exist"))
}

/// 42703 `column "name" of relation "table" does not exist`, for targets of INSERT and UPDATE.
pub fn undefined_column_of(name: &str, table: &str) -> SqlError {
    SqlError::new(
        SqlState("42703"),
        format!("column \"{name}\" of relation \"{table}\" does not exist"),
    )
}

/// 42P02 `there is no parameter $n`.
pub fn undefined_parameter(number: usize) -> SqlError {
    SqlError::new(SqlState("42P02"), format!("there is no parameter ${number}"))
}

/// A type's name without its modifiers, as in PostgreSQL's messages about operators and columns.
pub fn bare_name(ty: &SqlType) -> String {
    match ty {
        SqlType::Numeric(_) => SqlType::Numeric(None).name(),
        SqlType::Varchar(_) => SqlType::Varchar(None).name(),
        SqlType::Char(_) => "character".to_owned(),
        other => other.name(),
    }
}
