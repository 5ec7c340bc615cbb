//! Literals: what a number or a quoted string is by itself, and as a value of a type.

use sqlparser::ast::{self, Expr};
use weft_types::{SqlError, SqlType, TimeZone, Value};

use super::bind::{Refusal, Typed};
use super::scalar::Scalar;
use super::type_rules::base_type;

type Bound<T> = Result<T, Refusal>;

/// `'name'::regclass` as `'name'`.
pub(super) fn without_regclass(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast {
            expr,
            data_type: ast::DataType::Regclass,
            ..
        } => expr,
        other => other,
    }
}

/// A number as PostgreSQL types it: integer, bigint, or numeric.
pub(super) fn number_literal(digits: &str, negative: bool) -> Bound<Typed> {
    let text = if negative {
        format!("-{digits}")
    } else {
        digits.to_owned()
    };
    if text.contains('_') || text.contains(['x', 'X', 'o', 'O', 'b', 'B']) {
        return Err(Refusal::General);
    }
    if let Ok(value) = text.parse::<i32>() {
        return Ok(Typed::known(Scalar::Constant(Value::Int4(value)), SqlType::Int4));
    }
    if let Ok(value) = text.parse::<i64>() {
        return Ok(Typed::known(Scalar::Constant(Value::Int8(value)), SqlType::Int8));
    }
    let ty = SqlType::Numeric(None);
    Ok(Typed::known(
        Scalar::Constant(weft_types::parse_text(&text, &ty)?),
        ty,
    ))
}

/// An unknown literal as a value of a type, modifiers left out of account.
pub(super) fn parse_unknown(text: &str, to: &SqlType, zone: &TimeZone) -> Result<Value, SqlError> {
    match to {
        // Longer than the column is no error in a comparison; trailing blanks mean nothing.
        SqlType::Char(_) => Ok(Value::Text(text.trim_end_matches(' ').to_owned())),
        _ => weft_types::parse_text_in(text, &base_type(to), zone),
    }
}
