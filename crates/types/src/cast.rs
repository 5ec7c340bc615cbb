//! Conversions between types: implicit, on assignment, explicit.
//!
//! [`cast_context`] is PostgreSQL's `pg_cast` for the supported types: which conversions exist and in which
//! contexts they apply. [`assign`] converts as INSERT and UPDATE do, [`cast`] as `CAST` and `::` do. The
//! two differ in what is allowed and in text that is too long: an assignment rejects it, an explicit cast
//! truncates it.
//!
//! Conversions between `timestamptz` and other date and time types need a time zone; functions without one
//! use UTC.

use std::borrow::Cow;

use crate::calendar::{local_of_utc, utc_of_local};
use crate::interval::Interval;
use crate::json::Node;
use crate::range::{float_overflow, float_underflow, out_of_range};
use crate::text::{fit_text, format_text_in, parse_text_in, truncate_text};
use crate::{
    ArrayValue, Element, JsonbRef, Numeric, SqlError, SqlState, SqlType, TimeZone, Value, array, datetime,
    json,
};

/// Maximum bytes of a `name`.
const NAME_BYTES_MAX: usize = 63;

/// The contexts in which a conversion is allowed, ordered: a later one includes the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CastContext {
    /// Anywhere, also implicitly.
    Implicit,
    /// On assignment to a column, and explicitly.
    Assignment,
    /// Only with CAST or `::`.
    Explicit,
}

/// Rank among the numeric types, in the order of implicit conversion.
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

/// The context in which `from` converts to `to`; `None` if it never does. Types that differ only in
/// modifier convert implicitly.
#[must_use]
pub fn cast_context(from: &SqlType, to: &SqlType) -> Option<CastContext> {
    use CastContext::{Assignment, Explicit, Implicit};
    use SqlType::{
        Array, Bool, Date, Int2, Int4, Int8, InternalChar, Interval, Json, Jsonb, Name, Oid, Regclass, Text,
        Time, Timestamp, TimestampTz, Varchar,
    };
    if from.same_storage(to) {
        return Some(Implicit);
    }
    if let (Some(a), Some(b)) = (number_rank(from), number_rank(to)) {
        return Some(if a < b { Implicit } else { Assignment });
    }
    match (from, to) {
        (InternalChar | Name, Text) | (Text | Varchar(_), Regclass) => Some(Implicit),
        (from, Name) if from.is_text() => Some(Implicit),
        (from, InternalChar) if from.is_text() => Some(Assignment),
        // Through their text forms.
        (_, to) if to.is_text() || *to == Name => Some(Assignment),
        (from, _) if from.is_text() || *from == Name => Some(Explicit),
        (InternalChar, Int4) | (Int4, InternalChar) => Some(Explicit),
        (Int2 | Int4 | Int8, to) if to.holds_oid() => Some(Implicit),
        (from, Int4 | Int8) if from.holds_oid() => Some(Assignment),
        (Oid, to) if to.holds_oid() => Some(Implicit),
        (from, Oid) if from.holds_oid() => Some(Implicit),
        (Json, Jsonb) | (Jsonb, Json) => Some(Assignment),
        (Jsonb, to) if to.is_number() || *to == Bool => Some(Explicit),
        (Time, Interval) => Some(Implicit),
        (Timestamp | TimestampTz | Interval, Time) => Some(Assignment),
        (Array(from), Array(to)) => cast_context(&from.ty(), &to.ty()),
        (Bool, Int4) | (Int4, Bool) => Some(Explicit),
        (Date, Timestamp | TimestampTz) | (Timestamp, TimestampTz) => Some(Implicit),
        (Timestamp | TimestampTz, Date) | (TimestampTz, Timestamp) => Some(Assignment),
        _ => None,
    }
}

/// Converts a value for assignment to a column, deriving its type from its variant.
///
/// # Errors
/// As [`assign_from`].
pub fn assign(value: Value, to: &SqlType) -> Result<Value, SqlError> {
    match value.sql_type() {
        Some(from) => assign_from(value, &from, to),
        None => Ok(Value::Null),
    }
}

/// Converts a value of type `from` for assignment to a column of type `to`.
///
/// # Errors
/// 42804 if the types do not convert on assignment; 22001, 22003 and the like if the value does not fit.
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

/// Converts a value explicitly, deriving its type from its variant.
///
/// # Errors
/// As [`cast_from`].
pub fn cast(value: Value, to: &SqlType) -> Result<Value, SqlError> {
    match value.sql_type() {
        Some(from) => cast_from(value, &from, to),
        None => Ok(Value::Null),
    }
}

/// Converts a value of type `from` explicitly, with UTC as the time zone.
///
/// # Errors
/// As [`cast_in`].
pub fn cast_from(value: Value, from: &SqlType, to: &SqlType) -> Result<Value, SqlError> {
    cast_in(value, from, to, &TimeZone::UTC)
}

/// Converts a value of type `from` explicitly, in a session's time zone.
///
/// # Errors
/// 42846 if there is no such conversion; 22003, 22P02 and the like if the value has no counterpart.
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

/// `bpchar` without a length would keep trailing blanks, but texts of that type are stored without.
fn check_no_blanks(value: &Value, from: &SqlType) -> Result<(), SqlError> {
    match value {
        Value::Text(text) if text.ends_with(' ') || crate::text::padding(text, from) > 0 => Err(
            SqlError::unsupported("bpchar without a length of a text that ends in blanks is not supported"),
        ),
        _ => Ok(()),
    }
}

fn convert(
    value: Value,
    from: &SqlType,
    to: &SqlType,
    explicit: bool,
    zone: &TimeZone,
) -> Result<Value, SqlError> {
    let value = match value {
        // The text that is parsed as another type is the one that a client would see.
        Value::Text(mut text)
            if matches!(from, SqlType::Char(_)) && !to.is_text() && *to != SqlType::Name =>
        {
            let padding = crate::text::padding(&text, from);
            text.extend(std::iter::repeat_n(' ', padding));
            Value::Text(text)
        }
        Value::Jsonb(json) if to.is_number() || *to == SqlType::Bool => {
            return of_jsonb(json.as_ref(), to, zone);
        }
        other => other,
    };
    if explicit && *to == SqlType::Char(0) {
        check_no_blanks(&value, from)?;
    }
    match to {
        SqlType::Bool => to_bool(value, from),
        SqlType::Int2 | SqlType::Int4 | SqlType::Int8 => to_integer(value, from, to),
        SqlType::Float4 | SqlType::Float8 => to_float(value, from, to),
        SqlType::Numeric(_) => to_numeric(value, from, to),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => to_text(value, from, to, explicit, zone),
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => to_time(value, from, to, zone),
        SqlType::Name => to_text(value, from, to, true, zone).map(|value| match value {
            Value::Text(text) => Value::Text(fit_name(text)),
            other => other,
        }),
        SqlType::InternalChar => to_internal_char(value, from),
        SqlType::Json | SqlType::Jsonb => to_json(value, from, to),
        SqlType::Time | SqlType::Interval => to_span(value, from, to, zone),
        SqlType::Oid | SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace => {
            to_oid(value, from, to)
        }
        SqlType::Array(element) => to_array(value, from, &element.ty(), explicit, zone),
        SqlType::Bytea | SqlType::Uuid | SqlType::Record | SqlType::Void => match value {
            Value::Text(text) => parse_text_in(&text, to, zone),
            value if value.fits(to) => Ok(value),
            _ => Err(cannot_cast(from, to)),
        },
    }
}

/// Truncates text to a `name`: at most 63 bytes, whole characters.
pub(crate) fn fit_name(mut text: String) -> String {
    let end = text.floor_char_boundary(NAME_BYTES_MAX);
    text.truncate(end);
    text
}

/// The text that represents a byte of `"char"`.
///
/// # Errors
/// 0A000 for non-ASCII bytes, which are not characters.
pub(crate) fn internal_char(byte: u8) -> Result<String, SqlError> {
    match byte {
        0 => Ok(String::new()),
        1..0x80 => Ok(char::from(byte).to_string()),
        _ => Err(SqlError::unsupported(
            "bytes beyond ASCII are not supported for type \"char\"",
        )),
    }
}

fn to_internal_char(value: Value, from: &SqlType) -> Result<Value, SqlError> {
    let text = match value {
        Value::Text(text) => match text.bytes().next() {
            Some(byte) => internal_char(byte)?,
            None => String::new(),
        },
        Value::Int4(v) => match i8::try_from(v) {
            Ok(v) => internal_char(v as u8)?,
            Err(_) => return Err(out_of_range(&SqlType::InternalChar)),
        },
        _ => return Err(cannot_cast(from, &SqlType::InternalChar)),
    };
    Ok(Value::Text(text))
}

fn to_oid(value: Value, from: &SqlType, to: &SqlType) -> Result<Value, SqlError> {
    Ok(Value::Oid(match value {
        Value::Oid(v) => v,
        // Keeps the 32 bits.
        Value::Int2(v) => i32::from(v) as u32,
        Value::Int4(v) => v as u32,
        Value::Int8(v) => u32::try_from(v)
            .map_err(|_| SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "OID out of range"))?,
        Value::Text(text) => return parse_text_in(&text, to, &TimeZone::UTC),
        _ => return Err(cannot_cast(from, to)),
    }))
}

/// Converts to `time` and `interval`. An infinite timestamp has no time of day: NULL.
fn to_span(value: Value, from: &SqlType, to: &SqlType, zone: &TimeZone) -> Result<Value, SqlError> {
    let time_of = |micros: i64| match micros {
        i64::MAX | i64::MIN => Value::Null,
        micros => Value::Time(micros.rem_euclid(datetime::MICROS_PER_DAY)),
    };
    Ok(match (value, to) {
        (Value::Text(text), _) => return parse_text_in(&text, to, zone),
        (Value::Time(v), SqlType::Time) => Value::Time(v),
        (Value::Interval(v), SqlType::Interval) => Value::Interval(v),
        (Value::Time(v), SqlType::Interval) => Value::Interval(Interval::of_micros(v)),
        (Value::Interval(v), SqlType::Time) => Value::Time(v.micros.rem_euclid(datetime::MICROS_PER_DAY)),
        (Value::Timestamp(v), SqlType::Time) => time_of(v),
        (Value::TimestampTz(v), SqlType::Time) => time_of(local_of_utc(v, zone)?),
        _ => return Err(cannot_cast(from, to)),
    })
}

/// Converts to `json` and `jsonb`.
fn to_json(value: Value, from: &SqlType, to: &SqlType) -> Result<Value, SqlError> {
    match (value, to) {
        (value @ Value::Json(_), SqlType::Json) | (value @ Value::Jsonb(_), SqlType::Jsonb) => Ok(value),
        (Value::Json(text) | Value::Text(text), _) => parse_text_in(&text, to, &TimeZone::UTC),
        (Value::Jsonb(json), _) => {
            let mut text = String::new();
            json::write(json.as_ref(), &mut text)?;
            Ok(Value::Json(text))
        }
        _ => Err(cannot_cast(from, to)),
    }
}

/// The number or truth value that a `jsonb` is.
fn of_jsonb(value: JsonbRef<'_>, to: &SqlType, zone: &TimeZone) -> Result<Value, SqlError> {
    let found = match value.node() {
        Node::Bool(value) if *to == SqlType::Bool => return Ok(Value::Bool(value)),
        Node::Number(number) if *to != SqlType::Bool => {
            return convert(Value::Numeric(number), &SqlType::Numeric(None), to, true, zone);
        }
        Node::Null => "null",
        Node::Bool(_) => "boolean",
        Node::Number(_) => "numeric",
        Node::String(_) => "string",
        Node::Array(_) => "array",
        Node::Object(_) => "object",
    };
    Err(SqlError::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("cannot cast jsonb {found} to type {}", to.base_name()),
    ))
}

/// Converts item by item.
fn to_array(
    value: Value,
    from: &SqlType,
    element: &SqlType,
    explicit: bool,
    zone: &TimeZone,
) -> Result<Value, SqlError> {
    let array = match value {
        Value::Array(array) => *array,
        Value::Text(text) => {
            return array::parse_array(&text, element, zone)
                .map(Box::new)
                .map(Value::Array);
        }
        _ => {
            let to = Element::of(element).map_or(*element, SqlType::Array);
            return Err(cannot_cast(from, &to));
        }
    };
    let from = array.element;
    let items = array.items.into_iter().map(|item| match item {
        Value::Null => Ok(Value::Null),
        item => convert(item, &from, element, explicit, zone),
    });
    Ok(Value::Array(Box::new(ArrayValue {
        element: element.without_typmod(),
        dimensions: array.dimensions,
        items: items.collect::<Result<_, _>>()?,
    })))
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
        Value::Oid(v) if *to == SqlType::Int4 => i64::from(v as i32),
        Value::Oid(v) => i64::from(v),
        Value::Text(text) if *from == SqlType::InternalChar => i64::from(text.bytes().next().unwrap_or(0)),
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

/// A float rounded to an integer of the type, half to even as the processor does.
///
/// # Errors
/// 22003 if it is out of the type's range.
#[inline]
pub fn float_to_integer(value: f64, to: &SqlType) -> Result<i64, SqlError> {
    let rounded = value.round_ties_even();
    // Powers of two, which are exact, whereas 2^63 - 1 is not representable as a float.
    let limit = match to {
        SqlType::Int2 => 32_768.0,
        SqlType::Int4 => 2_147_483_648.0,
        _ => 9_223_372_036_854_775_808.0,
    };
    // NaN fails both comparisons.
    if rounded >= -limit && rounded < limit {
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

/// A `double precision` as a `real`.
///
/// # Errors
/// 22003 if the result is infinite or zero and the value is not.
#[inline]
pub fn narrow_float(value: f64) -> Result<f32, SqlError> {
    let narrow = value as f32;
    if narrow.is_infinite() && !value.is_infinite() {
        return Err(float_overflow());
    }
    if narrow == 0.0 && value != 0.0 {
        return Err(float_underflow());
    }
    Ok(narrow)
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
        // PostgreSQL converts through text here, and its message shows that.
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
        Value::Bool(v) if *to != SqlType::Name => if v { "true" } else { "false" }.to_owned(),
        other => {
            let mut text = String::new();
            format_text_in(&other.as_ref(), from, zone, &mut text)?;
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
        (Value::Date(v), TimestampTz) => {
            Value::TimestampTz(utc_of_local(datetime::timestamp_of_date(v)?, zone)?)
        }
        (Value::Timestamp(v), Date) => Value::Date(datetime::date_of_timestamp(v)),
        (Value::Timestamp(v), Timestamp) => Value::Timestamp(v),
        (Value::Timestamp(v), TimestampTz) => Value::TimestampTz(utc_of_local(v, zone)?),
        (Value::TimestampTz(v), Date) => Value::Date(datetime::date_of_timestamp(local_of_utc(v, zone)?)),
        (Value::TimestampTz(v), Timestamp) => Value::Timestamp(local_of_utc(v, zone)?),
        (Value::TimestampTz(v), TimestampTz) => Value::TimestampTz(v),
        _ => return Err(cannot_cast(from, to)),
    })
}
