//! The text form of values, exactly as PostgreSQL 15 reads and writes it.
//!
//! Settings are PostgreSQL's defaults: `DateStyle = ISO, MDY`, `bytea_output = hex`, `extra_float_digits =
//! 1`. Formatting appends to the caller's buffer without further allocation (except for a `numeric` beyond
//! 64 bits). The time zone only matters for `timestamptz`: the plain functions use UTC, the `_in` functions
//! a session's zone.

use std::borrow::Cow;

use crate::{
    Numeric, SqlError, SqlState, SqlType, TimeZone, Value, ValueRef, array, cast, datetime, float, hex,
    interrupt, json,
};

/// Parses the text form of a value of the type, with UTC as the time zone.
///
/// # Errors
/// 22P02, 22003, 22001, 22007 and the like, with PostgreSQL's messages; 0A000 for unsupported values
/// (`now`, infinite `numeric`).
pub fn parse_text(text: &str, ty: &SqlType) -> Result<Value, SqlError> {
    parse_text_in(text, ty, &TimeZone::UTC)
}

/// Parses the text form of a value of the type; a `timestamptz` without zone is in `zone`.
///
/// # Errors
/// See [`parse_text`].
pub fn parse_text_in(text: &str, ty: &SqlType, zone: &TimeZone) -> Result<Value, SqlError> {
    Ok(match ty {
        SqlType::Bool => Value::Bool(parse_bool(text)?),
        SqlType::Int2 => {
            Value::Int2(parse_integer(text, ty, i64::from(i16::MIN), i64::from(i16::MAX))? as i16)
        }
        SqlType::Int4 => {
            Value::Int4(parse_integer(text, ty, i64::from(i32::MIN), i64::from(i32::MAX))? as i32)
        }
        SqlType::Int8 => Value::Int8(parse_integer(text, ty, i64::MIN, i64::MAX)?),
        SqlType::Float4 => Value::Float4(float::parse_f32(text)?),
        SqlType::Float8 => Value::Float8(float::parse_f64(text)?),
        SqlType::Numeric(spec) => {
            let number = Numeric::parse(text)?;
            Value::Numeric(match spec {
                Some(spec) => number.apply_spec(*spec)?,
                None => number,
            })
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            check_no_nul(text)?;
            Value::Text(fit_text(Cow::Borrowed(text), ty)?.into_owned())
        }
        SqlType::Bytea => Value::Bytea(hex::parse_bytea(text)?),
        SqlType::Date => Value::Date(datetime::parse_date(text)?),
        SqlType::Timestamp => Value::Timestamp(datetime::parse_timestamp(text)?),
        SqlType::TimestampTz => Value::TimestampTz(datetime::parse_timestamptz(text, zone)?),
        SqlType::Uuid => Value::Uuid(hex::parse_uuid(text)?),
        SqlType::Json => {
            check_no_nul(text)?;
            json::check(text)?;
            Value::Json(text.to_owned())
        }
        SqlType::Jsonb => {
            check_no_nul(text)?;
            Value::Jsonb(json::parse_jsonb(text)?)
        }
        SqlType::Time => Value::Time(datetime::parse_time(text)?),
        SqlType::Interval => Value::Interval(datetime::parse_interval(text)?),
        SqlType::Oid => Value::Oid(parse_oid(text)?),
        SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace => {
            Value::Oid(parse_named_oid(text, ty)?)
        }
        SqlType::Name => {
            check_no_nul(text)?;
            Value::Text(cast::fit_name(text.to_owned()))
        }
        SqlType::InternalChar => Value::Text(match text.bytes().next() {
            None => String::new(),
            Some(byte) => cast::internal_char(byte)?,
        }),
        SqlType::Array(element) if element.is_vector() => array::parse_vector(text, &element.ty())?,
        SqlType::Array(element) => Value::Array(Box::new(array::parse_array(text, &element.ty(), zone)?)),
        SqlType::Record => {
            return Err(SqlError::unsupported(
                "input of anonymous composite types is not implemented",
            ));
        }
        SqlType::Void => Value::Text(String::new()),
    })
}

/// Like C's `strtoul`: a negative number counts down from 2^32.
fn parse_oid(text: &str) -> Result<u32, SqlError> {
    let wide = parse_integer(text, &SqlType::Oid, i64::MIN, i64::MAX)?;
    match u32::try_from(wide) {
        Ok(oid) => Ok(oid),
        Err(_) => match i32::try_from(wide) {
            Ok(negative) => Ok(negative as u32),
            Err(_) => Err(value_out_of_range(text, &SqlType::Oid)),
        },
    }
}

/// The oid of an object given as a number, or `-` for none. Names need the catalog: they are rejected here,
/// and resolved where it is available.
fn parse_named_oid(text: &str, ty: &SqlType) -> Result<u32, SqlError> {
    if text == "-" {
        return Ok(0);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_oid(text);
    }
    Err(SqlError::unsupported(format!(
        "conversion of a name to {} is not supported here",
        ty.base_name()
    )))
}

/// Appends the text form of a value of the type, in UTC, without cancellation; nothing for NULL.
pub fn format_text(value: &Value, ty: &SqlType, out: &mut String) {
    format_text_ref(&value.as_ref(), ty, out);
}

/// Appends the text form of a value of the type, in UTC, without cancellation; nothing for NULL.
pub fn format_text_ref(value: &ValueRef<'_>, ty: &SqlType, out: &mut String) {
    // Cancellation is the only possible error.
    let _ = interrupt::masked(|| format_text_in(value, ty, &TimeZone::UTC, out));
}

/// Appends the text form of a value of the type; a `timestamptz` is shown in `zone`. Nothing for NULL.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn format_text_in(
    value: &ValueRef<'_>,
    ty: &SqlType,
    zone: &TimeZone,
    out: &mut String,
) -> Result<(), SqlError> {
    match value {
        ValueRef::Null => {}
        ValueRef::Bool(v) => out.push(if *v { 't' } else { 'f' }),
        ValueRef::Int2(v) => push_i64(i64::from(*v), out),
        ValueRef::Int4(v) => push_i64(i64::from(*v), out),
        ValueRef::Int8(v) => push_i64(*v, out),
        ValueRef::Float4(v) => float::format_f32(*v, out),
        ValueRef::Float8(v) => float::format_f64(*v, out),
        ValueRef::Numeric(v) => v.format(out)?,
        ValueRef::Text(v) => {
            out.push_str(v);
            out.extend(std::iter::repeat_n(' ', padding(v, ty)));
        }
        ValueRef::Bytea(v) => hex::format_bytea(v, out)?,
        ValueRef::Date(v) => datetime::format_date(*v, out),
        ValueRef::Timestamp(v) => datetime::format_timestamp(*v, out),
        ValueRef::TimestampTz(v) => datetime::format_timestamptz(*v, zone, out),
        ValueRef::Uuid(v) => hex::format_uuid(v, out),
        ValueRef::Json(v) => out.push_str(v),
        ValueRef::Jsonb(v) => json::write(*v, out)?,
        ValueRef::Time(v) => datetime::push_time(*v, out),
        ValueRef::Interval(v) => v.format(out),
        ValueRef::Oid(v) => format_oid(*v, ty, out),
        ValueRef::Array(v) if matches!(ty, SqlType::Array(element) if element.is_vector()) => {
            array::format_vector(v, out);
        }
        ValueRef::Array(v) => array::format_array(v, zone, out)?,
        ValueRef::Record(v) => array::format_record(v, zone, out)?,
    }
    Ok(())
}

/// The pseudo-type of untyped constants.
const UNKNOWN: u32 = 705;

/// An oid; `regtype` shows the type's name. `regclass` and `regproc` show the number: their names are in
/// the catalog, which is not available here.
fn format_oid(oid: u32, ty: &SqlType, out: &mut String) {
    match (ty, oid) {
        (SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace, 0) => out.push('-'),
        (SqlType::Regtype, _) => match SqlType::from_oid(oid) {
            Some(named) if named.oid() == oid => out.push_str(named.base_name()),
            _ if oid == UNKNOWN => out.push_str("unknown"),
            _ => push_i64(i64::from(oid), out),
        },
        _ => push_i64(i64::from(oid), out),
    }
}

/// The number of blanks that pad a `char(n)`; 0 for other types.
pub(crate) fn padding(text: &str, ty: &SqlType) -> usize {
    match ty {
        SqlType::Char(n) => (*n as usize).saturating_sub(text.chars().count()),
        _ => 0,
    }
}

/// C's `isspace`.
pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

/// 22P02 with PostgreSQL's message.
pub(crate) fn invalid_syntax(text: &str, ty: &SqlType) -> SqlError {
    SqlError::new(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type {}: \"{text}\"", ty.base_name()),
    )
}

pub(crate) fn check_no_nul(text: &str) -> Result<(), SqlError> {
    if text.as_bytes().contains(&0) {
        return Err(SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    Ok(())
}

/// Fits text to a column of the type: blanks beyond `varchar(n)` and all trailing blanks of `char(n)` are
/// dropped.
///
/// # Errors
/// 22001 if anything other than blanks would be lost.
pub(crate) fn fit_text<'t>(text: Cow<'t, str>, ty: &SqlType) -> Result<Cow<'t, str>, SqlError> {
    let limit = match ty {
        SqlType::Char(0) => usize::MAX,
        SqlType::Varchar(Some(n)) | SqlType::Char(n) => *n as usize,
        _ => return Ok(text),
    };
    // The number of bytes bounds that of characters: short text needs no counting.
    let cut = if text.len() <= limit {
        None
    } else {
        text.char_indices().nth(limit).map(|(at, _)| at)
    };
    let keep = match cut {
        Some(at) if text.bytes().skip(at).any(|byte| byte != b' ') => {
            return Err(SqlError::new(
                SqlState::STRING_DATA_RIGHT_TRUNCATION,
                format!("value too long for type {}", ty.name()),
            ));
        }
        Some(at) => at,
        None => text.len(),
    };
    Ok(cut_text(text, keep, ty))
}

/// Truncates text to the length of the type without an error, as an explicit cast does.
pub(crate) fn truncate_text<'t>(text: Cow<'t, str>, ty: &SqlType) -> Cow<'t, str> {
    let limit = match ty {
        SqlType::Char(0) => usize::MAX,
        SqlType::Varchar(Some(n)) | SqlType::Char(n) => *n as usize,
        _ => return text,
    };
    let keep = if text.len() <= limit {
        None
    } else {
        text.char_indices().nth(limit).map(|(at, _)| at)
    };
    let keep = keep.unwrap_or(text.len());
    cut_text(text, keep, ty)
}

fn cut_text<'t>(text: Cow<'t, str>, keep: usize, ty: &SqlType) -> Cow<'t, str> {
    let kept = text.get(..keep).unwrap_or(&text);
    let kept = if matches!(ty, SqlType::Char(_)) {
        kept.trim_end_matches(' ')
    } else {
        kept
    };
    let len = kept.len();
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(..len).unwrap_or(text)),
        Cow::Owned(mut text) => {
            text.truncate(len);
            Cow::Owned(text)
        }
    }
}

/// `t`, `true`, `yes`, `on`, `1`, their opposites, and unambiguous prefixes; any case, surrounding blanks.
fn parse_bool(text: &str) -> Result<bool, SqlError> {
    let word = text.trim_matches(is_space).as_bytes();
    let is = |whole: &str, shortest: usize| {
        word.len() >= shortest
            && whole
                .as_bytes()
                .get(..word.len())
                .is_some_and(|prefix| word.eq_ignore_ascii_case(prefix))
    };
    if is("true", 1) || is("yes", 1) || is("on", 2) || is("1", 1) {
        Ok(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || is("0", 1) {
        Ok(false)
    } else {
        Err(invalid_syntax(text, &SqlType::Bool))
    }
}

/// Sign and decimal digits, with surrounding blanks.
fn parse_integer(text: &str, ty: &SqlType, min: i64, max: i64) -> Result<i64, SqlError> {
    let trimmed = text.trim_start_matches(is_space).as_bytes();
    let (negative, mut rest) = match trimmed {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if !rest.first().is_some_and(u8::is_ascii_digit) {
        return Err(invalid_syntax(text, ty));
    }
    // Accumulates negatively, because the negative range is larger.
    let mut value = 0_i64;
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        let next = value
            .checked_mul(10)
            .and_then(|value| value.checked_sub(i64::from(digit - b'0')));
        value = next
            .filter(|value| *value >= min)
            .ok_or_else(|| value_out_of_range(text, ty))?;
        rest = tail;
    }
    let value = if negative {
        Some(value)
    } else {
        value.checked_neg().filter(|value| *value <= max)
    };
    let value = value.ok_or_else(|| value_out_of_range(text, ty))?;
    if rest.iter().all(|byte| is_space(char::from(*byte))) {
        Ok(value)
    } else {
        Err(invalid_syntax(text, ty))
    }
}

fn value_out_of_range(text: &str, ty: &SqlType) -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value \"{text}\" is out of range for type {}", ty.base_name()),
    )
}

/// Appends an integer.
pub fn push_i64(value: i64, out: &mut String) {
    if value < 0 {
        out.push('-');
    }
    let mut buffer = [0; 20];
    out.push_str(decimal_digits(value.unsigned_abs(), &mut buffer));
}

/// "00" to "99".
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + i as u8 / 10, b'0' + i as u8 % 10];
        i += 1;
    }
    pairs
};

/// The decimal digits of a number, at the end of the buffer.
pub(crate) fn decimal_digits(mut rest: u64, buffer: &mut [u8; 20]) -> &str {
    let mut start = buffer.len();
    while rest >= 100 {
        start -= 2;
        let pair = PAIRS[(rest % 100) as usize];
        buffer[start] = pair[0];
        buffer[start + 1] = pair[1];
        rest /= 100;
    }
    if rest >= 10 {
        start -= 2;
        let pair = PAIRS[rest as usize];
        buffer[start] = pair[0];
        buffer[start + 1] = pair[1];
    } else {
        start -= 1;
        buffer[start] = b'0' + rest as u8;
    }
    std::str::from_utf8(buffer.get(start..).unwrap_or(&[])).unwrap_or("")
}

/// Appends a number padded with zeros to two digits.
pub(crate) fn push_two(value: u32, out: &mut String) {
    if value >= 100 {
        return push_i64(i64::from(value), out);
    }
    let pair = PAIRS[value as usize];
    out.push(char::from(pair[0]));
    out.push(char::from(pair[1]));
}
