//! Constants and parameters.

use sqlparser::ast::{
    DateTimeField, Expr as AstExpr, Interval, TypedString, Value as AstValue, ValueWithSpan,
};
use weft_expression::Expr;
use weft_types::{CastContext, SqlError, SqlType, Value, parse_text};

use crate::binder::Binder;
use crate::parameters::Operand;
use crate::types;

impl Binder<'_> {
    pub(super) fn literal(&mut self, value: &ValueWithSpan) -> Result<Operand, SqlError> {
        let bound = match &value.value {
            AstValue::Number(digits, _) => number(digits),
            AstValue::Boolean(truth) => {
                let value = Value::Bool(*truth);
                Ok(Operand::typed(Expr::constant(value, SqlType::Bool)))
            }
            AstValue::Null => Ok(Operand::null()),
            AstValue::Placeholder(name) => match name.strip_prefix('$') {
                Some(number) => match self.names.and_then(|known| known.positional(number)) {
                    Some(meant) => meant.map(Operand::typed),
                    None => self.parameters.operand(number),
                },
                None => Err(crate::names::syntax_error(format!(
                    "syntax error at or near \"{name}\""
                ))),
            },
            other => match text_of(other) {
                Some(text) => Ok(Operand::quoted(text)),
                None => Err(SqlError::unsupported("constants of this form are not supported")),
            },
        };
        let mut operand = bound.map_err(|error| self.at(error, value.span))?;
        operand.span = value.span;
        Ok(operand)
    }

    /// `date '2020-01-01'`
    pub(super) fn typed_string(&mut self, typed: &TypedString) -> Result<Operand, SqlError> {
        let named = types::named(&typed.data_type).map_err(|error| self.at(error, typed.value.span))?;
        let text = text_of(&typed.value.value)
            .ok_or_else(|| SqlError::unsupported("constants of this form are not supported"))?;
        let operand = Operand::quoted(text);
        let bound = self.cast(operand, named, CastContext::Explicit);
        bound.map_err(|error| self.at(error, typed.value.span))
    }

    /// `interval '1' day`
    pub(super) fn interval(&mut self, interval: &Interval) -> Result<Operand, SqlError> {
        let unsupported = || SqlError::unsupported("this form of interval is not supported");
        let AstExpr::Value(value) = interval.value.as_ref() else {
            // The parser uses this form for the distance of a frame that begins with a quoted string.
            return match interval.leading_field {
                None => self.expr(&interval.value),
                Some(_) => Err(unsupported()),
            };
        };
        let text = text_of(&value.value).ok_or_else(unsupported)?;
        if interval.last_field.is_some()
            || interval.leading_precision.is_some()
            || interval.fractional_seconds_precision.is_some()
        {
            return Err(unsupported());
        }
        let text = match &interval.leading_field {
            None => text.to_owned(),
            Some(field) => {
                let number = text.trim();
                if number.parse::<f64>().is_err() {
                    return Err(unsupported());
                }
                format!("{number} {}", unit(field).ok_or_else(unsupported)?)
            }
        };
        let bound = self
            .parameters
            .coerce(Operand::quoted(text), SqlType::Interval, CastContext::Explicit);
        let bound = bound.map_err(|error| self.at(error, value.span))?;
        Ok(Operand::typed(bound))
    }
}

fn unit(field: &DateTimeField) -> Option<&'static str> {
    Some(match field {
        DateTimeField::Year => "year",
        DateTimeField::Month => "month",
        DateTimeField::Day => "day",
        DateTimeField::Hour => "hour",
        DateTimeField::Minute => "minute",
        DateTimeField::Second => "second",
        _ => return None,
    })
}

/// The text of a quoted constant.
pub(crate) fn text_of(value: &AstValue) -> Option<&str> {
    match value {
        AstValue::SingleQuotedString(text)
        | AstValue::EscapedStringLiteral(text)
        | AstValue::UnicodeStringLiteral(text)
        | AstValue::NationalStringLiteral(text) => Some(text),
        AstValue::DollarQuotedString(text) => Some(&text.value),
        _ => None,
    }
}

/// A number has the first type of integer, bigint and numeric that can represent it.
pub(super) fn number(digits: &str) -> Result<Operand, SqlError> {
    let constant = |value: Value, ty: SqlType| Ok(Operand::typed(Expr::constant(value, ty)));
    if let Ok(small) = digits.parse::<i32>() {
        return constant(Value::Int4(small), SqlType::Int4);
    }
    if let Ok(large) = digits.parse::<i64>() {
        return constant(Value::Int8(large), SqlType::Int8);
    }
    let ty = SqlType::Numeric(None);
    constant(parse_text(digits, &ty)?, ty)
}
