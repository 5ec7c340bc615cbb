//! Arithmetic errors: results out of their type's range, and division by zero.
//!
//! They are defined here once for casts, operators, aggregates and the interpreter, which must
//! agree.
//!
//! Source: PostgreSQL 15, int.c, int8.c, float.c.

use crate::error::{SqlError, SqlState};
use crate::sql_type::SqlType;

/// 22003 "integer out of range" and the like.
#[cold]
#[must_use]
pub fn out_of_range(ty: &SqlType) -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("{} out of range", ty.base_name()),
    )
}

/// 22003 for floats whose result is too large.
#[cold]
#[must_use]
pub fn float_overflow() -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "value out of range: overflow",
    )
}

/// 22003 for floats whose result is too near to zero.
#[cold]
#[must_use]
pub fn float_underflow() -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "value out of range: underflow",
    )
}

/// 22012
#[cold]
#[must_use]
pub fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}
