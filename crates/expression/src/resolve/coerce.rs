//! Explicit conversions.

use weft_types::{
    CastContext, SqlError, SqlState, SqlType, TimeZone, Value, assign_from, cast_context, cast_from,
    parse_text_in,
};

use crate::category::{element_of, same_type};
use crate::tree::{Expr, Op};

/// Converts an expression of type `from` to type `to`. `None` is PostgreSQL's unknown: a constant of it is
/// read as the type at once; any other expression of it is text.
///
/// # Errors
/// 42846 if there is no such conversion, 42804 if there is none on assignment, 22P02 and the like if a
/// constant is not a valid value of the type.
pub fn coerce(
    expr: Expr,
    from: Option<SqlType>,
    to: SqlType,
    context: CastContext,
) -> Result<Expr, SqlError> {
    let explicit = context == CastContext::Explicit;
    let Some(from) = from else {
        return match expr.as_constant() {
            Some(Value::Null) => Ok(Expr::constant(Value::Null, to)),
            Some(Value::Text(text)) => constant(text, to, explicit),
            _ => Ok(cast_node(expr, SqlType::Text, to, true)),
        };
    };
    if from == to || (same_type(&from, &to) && to.typmod() == -1) {
        return Ok(expr);
    }
    match cast_context(&from, &to) {
        Some(needed) if needed <= context => Ok(cast_node(expr, from, to, explicit)),
        _ if context == CastContext::Assignment => Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "column is of type {} but expression is of type {}",
                to.base_name(),
                from.base_name()
            ),
        )
        .hint("You will need to rewrite or cast the expression.")),
        _ => Err(SqlError::new(
            SqlState::CANNOT_COERCE,
            format!("cannot cast type {} to {}", from.base_name(), to.base_name()),
        )),
    }
}

fn cast_node(expr: Expr, from: SqlType, to: SqlType, explicit: bool) -> Expr {
    Expr::new(Op::Cast { from, explicit }, to, vec![expr])
}

/// Whether reading a text as the type depends on the session.
fn reads_session(ty: &SqlType) -> bool {
    let ty = element_of(ty).unwrap_or(*ty);
    // The name of a relation, type or function is looked up when the statement runs.
    matches!(
        ty,
        SqlType::TimestampTz
            | SqlType::Regclass
            | SqlType::Regtype
            | SqlType::Regproc
            | SqlType::Regnamespace
    )
}

fn constant(text: &str, to: SqlType, explicit: bool) -> Result<Expr, SqlError> {
    if to.is_text() {
        let value = Value::Text(text.to_owned());
        let value = if explicit {
            cast_from(value, &SqlType::Text, &to)?
        } else {
            assign_from(value, &SqlType::Text, &to)?
        };
        return Ok(Expr::constant(value, to));
    }
    let bare = to.without_typmod();
    if reads_session(&to) {
        if matches!(to, SqlType::TimestampTz) {
            parse_text_in(text, &bare, &TimeZone::UTC)?;
        }
        let text = Expr::constant(Value::Text(text.to_owned()), SqlType::Text);
        return Ok(cast_node(text, SqlType::Text, to, true));
    }
    let value = parse_text_in(text, &bare, &TimeZone::UTC)?;
    let value = if to == bare {
        value
    } else if explicit {
        cast_from(value, &bare, &to)?
    } else {
        assign_from(value, &bare, &to)?
    };
    Ok(Expr::constant(value, to))
}
