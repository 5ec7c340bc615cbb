//! Conversions between types: implicit, on assignment, explicit.
//!
//! [`cast_context`] is PostgreSQL's `pg_cast` for the types there are: which conversions exist and where they
//! happen unasked. [`assign`] does what INSERT and UPDATE do with a value, [`cast`] what `CAST` and `::` do.
//! The two differ in what is allowed and in text that is too long: an assignment refuses it, an explicit cast
//! cuts it.
//!
//! Conversions between `timestamptz` and the other times take a zone; the plain functions take UTC.

use std::borrow::Cow;

use crate::text::{fit_text, format_text_in, parse_text_in, truncate_text};
use crate::{Numeric, SqlError, SqlState, SqlType, TimeZone, Value, datetime};

/// In which contexts a conversion is allowed. Ordered: whoever allows the later allows the earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CastContext {
    /// Anywhere, also unasked.
    Implicit,
    /// On assignment to a column, and explicitly.
    Assignment,
    /// Only by CAST or `::`.
    Explicit,
}

/// Place among the numeric types, in the order in which they convert implicitly.
fn number_rank(ty: &SqlType) -> Option<u8> {
    Some(match ty {
        SqlType::Int2 => 0,
        SqlType::Int4 => 1,
        SqlType::Int8 => 2,
        SqlType::Numeric(_) => 3,
        SqlType::Float4 => 4,
        SqlType::Float8 => 5,
        _ => return None,
    })
}

/// From where on `from` converts to `to`; `None` when it never does. Types that differ in modifier alone
/// convert implicitly.
#[must_use]
pub fn cast_context(from: &SqlType, to: &SqlType) -> Option<CastContext> {
    use CastContext::{Assignment, Explicit, Implicit};
    use SqlType::{Bool, Date, Int4, Timestamp, TimestampTz};
    if from.same_storage(to) {
        return Some(Implicit);
    }
    if let (Some(a), Some(b)) = (number_rank(from), number_rank(to)) {
        return Some(if a < b { Implicit } else { Assignment });
    }
    match (from, to) {
        (_, to) if to.is_text() => Some(Assignment),
        (from, _) if from.is_text() => Some(Explicit),
        (Bool, Int4) | (Int4, Bool) => Some(Explicit),
        (Date, Timestamp | TimestampTz) | (Timestamp, TimestampTz) => Some(Implicit),
        (Timestamp | TimestampTz, Date) | (TimestampTz, Timestamp) => Some(Assignment),
        _ => None,
    }
}

/// Converts a value for a column, its type being told from its form.
///
/// # Errors
/// As [`assign_from`].
pub fn assign(value: Value, to: &SqlType) -> Result<Value, SqlError> {
    match value.sql_type() {
        Some(from) => assign_from(value, &from, to),
        None => Ok(Value::Null),
    }
}

/// Converts a value of type `from` for a column of type `to`.
///
/// # Errors
/// 42804 when the types do not convert on assignment; 22001, 22003 and the like when the value does not fit.
pub fn assign_from(value: Value, from: &SqlType, to: &SqlType) -> Result<Value, SqlError> {
    if value.is_null() {
        return Ok(value);
    }
    match cast_context(from, to) {
        Some(context) if context <= CastContext::Assignment => {
            convert(value, from, to, false, &TimeZone::UTC)
        }
        _ => Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "column is of type {} but expression is of type {}",
                to.base_name(),
                from.base_name()
            ),
        )
        .hint("You will need to rewrite or cast the expression.")),
    }
}

/// Converts a value explicitly, its type being told from its form.
///
/// # Errors
/// As [`cast_from`].
pub fn cast(value: Value, to: &SqlType) -> Result<Value, SqlError> {
    match value.sql_type() {
        Some(from) => cast_from(value, &from, to),
        None => Ok(Value::Null),
    }
}

/// Converts a value of type `from` explicitly, UTC being the time zone.
///
/// # Errors
/// As [`cast_in`].
pub fn cast_from(value: Value, from: &SqlType, to: &SqlType) -> Result<Value, SqlError> {
    cast_in(value, from, to, &TimeZone::UTC)
}

/// Converts a value of type `from` explicitly, in a session's time zone.
///
/// # Errors
/// 42846 when there is no such conversion; 22003, 22P02 and the like when the value has no counterpart.
pub fn cast_in(value: Value, from: &SqlType, to: &SqlType, zone: &TimeZone) -> Result<Value, SqlError> {
    if value.is_null() {
        return Ok(value);
    }
    match cast_context(from, to) {
        Some(_) => convert(value, from, to, true, zone),
        None => Err(cannot_cast(from, to)),
    }
}

fn cannot_cast(from: &SqlType, to: &SqlType) -> SqlError {
    SqlError::new(
        SqlState::CANNOT_COERCE,
        format!("cannot cast type {} to {}", from.base_name(), to.base_name()),
    )
}

/// 22003 "integer out of range" and its like.
pub(crate) fn out_of_range(ty: &SqlType) -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("{} out of range", ty.base_name()),
    )
}

fn convert(
    value: Value,
    from: &SqlType,
    to: &SqlType,
    explicit: bool,
    zone: &TimeZone,
) -> Result<Value, SqlError> {
    let value = match value {
        // What is read as another type is the text that a client would see.
        Value::Text(mut text) if matches!(from, SqlType::Char(_)) && !to.is_text() => {
            let padding = crate::text::padding(&text, from);
            text.extend(std::iter::repeat_n(' ', padding));
            Value::Text(text)
        }
        other => other,
    };
    match to {
        SqlType::Bool => to_bool(value, from),
        SqlType::Int2 | SqlType::Int4 | SqlType::Int8 => to_integer(value, from, to),
        SqlType::Float4 | SqlType::Float8 => to_float(value, from, to),
        SqlType::Numeric(_) => to_numeric(value, from, to),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => to_text(value, from, to, explicit, zone),
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => to_time(value, from, to, zone),
        SqlType::Bytea | SqlType::Uuid => match value {
            Value::Text(text) => parse_text_in(&text, to, zone),
            value if value.fits(to) => Ok(value),
            _ => Err(cannot_cast(from, to)),
        },
    }
}

fn to_bool(value: Value, from: &SqlType) -> Result<Value, SqlError> {
    match value {
        Value::Bool(_) => Ok(value),
        Value::Int4(v) => Ok(Value::Bool(v != 0)),
        Value::Text(text) => parse_text_in(&text, &SqlType::Bool, &TimeZone::UTC),
        _ => Err(cannot_cast(from, &SqlType::Bool)),
    }
}

fn to_integer(value: Value, from: &SqlType, to: &SqlType) -> Result<Value, SqlError> {
    let wide = match value {
        Value::Int2(v) => i64::from(v),
        Value::Int4(v) => i64::from(v),
        Value::Int8(v) => v,
        Value::Bool(v) => i64::from(v),
        Value::Float4(v) => float_to_integer(f64::from(v), to)?,
        Value::Float8(v) => float_to_integer(v, to)?,
        Value::Numeric(v) => v.to_integer(to)?,
        Value::Text(text) => return parse_text_in(&text, to, &TimeZone::UTC),
        _ => return Err(cannot_cast(from, to)),
    };
    let narrow = match to {
        SqlType::Int2 => i16::try_from(wide).map(Value::Int2),
        SqlType::Int4 => i32::try_from(wide).map(Value::Int4),
        _ => Ok(Value::Int8(wide)),
    };
    narrow.map_err(|_| out_of_range(to))
}

/// Rounds half to even, as the processor does.
fn float_to_integer(value: f64, to: &SqlType) -> Result<i64, SqlError> {
    let rounded = value.round_ties_even();
    // 2^63 is a float, 2^63 - 1 is not. NaN fails both comparisons.
    if rounded >= i64::MIN as f64 && rounded < -(i64::MIN as f64) {
        Ok(rounded as i64)
    } else {
        Err(out_of_range(to))
    }
}

fn to_float(value: Value, from: &SqlType, to: &SqlType) -> Result<Value, SqlError> {
    let single = *to == SqlType::Float4;
    match value {
        Value::Int2(v) => Ok(if single {
            Value::Float4(f32::from(v))
        } else {
            Value::Float8(f64::from(v))
        }),
        Value::Int4(v) => Ok(if single {
            Value::Float4(v as f32)
        } else {
            Value::Float8(f64::from(v))
        }),
        Value::Int8(v) => Ok(if single {
            Value::Float4(v as f32)
        } else {
            Value::Float8(v as f64)
        }),
        Value::Float4(v) => Ok(if single {
            Value::Float4(v)
        } else {
            Value::Float8(f64::from(v))
        }),
        Value::Float8(v) if single => narrow_float(v).map(Value::Float4),
        Value::Float8(v) => Ok(Value::Float8(v)),
        Value::Numeric(v) => numeric_to_float(&v, to),
        Value::Text(text) => parse_text_in(&text, to, &TimeZone::UTC),
        _ => Err(cannot_cast(from, to)),
    }
}

fn narrow_float(value: f64) -> Result<f32, SqlError> {
    let narrow = value as f32;
    let what = match () {
        () if narrow.is_infinite() && !value.is_infinite() => "overflow",
        () if narrow == 0.0 && value != 0.0 => "underflow",
        () => return Ok(narrow),
    };
    Err(SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value out of range: {what}"),
    ))
}

fn numeric_to_float(value: &Numeric, to: &SqlType) -> Result<Value, SqlError> {
    let float = if *to == SqlType::Float4 {
        Value::Float4(value.to_f32())
    } else {
        Value::Float8(value.to_f64())
    };
    let beyond = match float {
        Value::Float4(v) => v.is_infinite() || (v == 0.0 && !value.is_zero()),
        Value::Float8(v) => v.is_infinite() || (v == 0.0 && !value.is_zero()),
        _ => false,
    };
    if beyond {
        // PostgreSQL goes through text here, and says so.
        return Err(SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("\"{value}\" is out of range for type {}", to.base_name()),
        ));
    }
    Ok(float)
}

fn to_numeric(value: Value, from: &SqlType, to: &SqlType) -> Result<Value, SqlError> {
    let number = match value {
        Value::Numeric(v) => v,
        Value::Int2(v) => Numeric::from(v),
        Value::Int4(v) => Numeric::from(v),
        Value::Int8(v) => Numeric::from(v),
        Value::Float4(v) => Numeric::from_f32(v)?,
        Value::Float8(v) => Numeric::from_f64(v)?,
        Value::Text(text) => return parse_text_in(&text, to, &TimeZone::UTC),
        _ => return Err(cannot_cast(from, to)),
    };
    match to {
        SqlType::Numeric(Some(spec)) => number.apply_spec(*spec).map(Value::Numeric),
        _ => Ok(Value::Numeric(number)),
    }
}

fn to_text(
    value: Value,
    from: &SqlType,
    to: &SqlType,
    explicit: bool,
    zone: &TimeZone,
) -> Result<Value, SqlError> {
    let text = match value {
        Value::Text(text) => text,
        // Unlike its text form, a boolean's cast to text spells it out.
        Value::Bool(v) => if v { "true" } else { "false" }.to_owned(),
        other => {
            let mut text = String::new();
            format_text_in(&other.as_ref(), from, zone, &mut text);
            text
        }
    };
    let text = Cow::Owned(text);
    let text = if explicit {
        truncate_text(text, to)
    } else {
        fit_text(text, to)?
    };
    Ok(Value::Text(text.into_owned()))
}

fn to_time(value: Value, from: &SqlType, to: &SqlType, zone: &TimeZone) -> Result<Value, SqlError> {
    use SqlType::{Date, Timestamp, TimestampTz};
    Ok(match (value, to) {
        (Value::Text(text), _) => return parse_text_in(&text, to, zone),
        (Value::Date(v), Date) => Value::Date(v),
        (Value::Date(v), Timestamp) => Value::Timestamp(datetime::timestamp_of_date(v)?),
        (Value::Date(v), TimestampTz) => Value::TimestampTz(to_utc(datetime::timestamp_of_date(v)?, zone)?),
        (Value::Timestamp(v), Date) => Value::Date(datetime::date_of_timestamp(v)),
        (Value::Timestamp(v), Timestamp) => Value::Timestamp(v),
        (Value::Timestamp(v), TimestampTz) => Value::TimestampTz(to_utc(v, zone)?),
        (Value::TimestampTz(v), Date) => Value::Date(datetime::date_of_timestamp(to_local(v, zone)?)),
        (Value::TimestampTz(v), Timestamp) => Value::Timestamp(to_local(v, zone)?),
        (Value::TimestampTz(v), TimestampTz) => Value::TimestampTz(v),
        _ => return Err(cannot_cast(from, to)),
    })
}

/// The instant at which the clocks of a zone show this.
fn to_utc(local_micros: i64, zone: &TimeZone) -> Result<i64, SqlError> {
    shift(local_micros, -i64::from(zone.offset_at_local(local_micros)))
}

/// What the clocks of a zone show at an instant.
fn to_local(utc_micros: i64, zone: &TimeZone) -> Result<i64, SqlError> {
    shift(utc_micros, i64::from(zone.offset_at(utc_micros)))
}

fn shift(micros: i64, seconds: i64) -> Result<i64, SqlError> {
    if micros == i64::MAX || micros == i64::MIN {
        return Ok(micros);
    }
    let shifted = micros.checked_add(seconds * datetime::MICROS_PER_SECOND);
    shifted
        .filter(|micros| datetime::is_finite_timestamp(*micros))
        .ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))
}
