//! Text form of intervals: `1 year 2 days 03:04:05`, `1-2`, `@ 5 minutes ago`, `P1Y2M3DT4H5M6S`.
//!
//! As in PostgreSQL's `datetime.c`, the text is split into fields, which are processed from last to first,
//! so that a unit is known before its number. Other text is parsed as ISO 8601.

use super::interval_iso;
use super::interval_sum::{Fault, Sum};
use super::interval_units::{self as units, Unit};
use crate::interval::Interval;
use crate::text::is_space;
use crate::{SqlError, SqlState};

/// Maximum length of a text that is parsed: PostgreSQL's working buffer.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum number of fields: PostgreSQL's `MAXDATEFIELDS`.
const FIELDS_MAX: usize = 25;

/// The shape of a field.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Number,
    Date,
    Time,
    Signed,
    Word,
}

/// Parses an `interval`. A number without unit is in `rightmost`; `hh:mm` is minutes and seconds if
/// `minute_to_second`.
pub(crate) fn parse(text: &str, rightmost: Unit, minute_to_second: bool) -> Result<Interval, SqlError> {
    let sum = match by_fields(text, rightmost, minute_to_second) {
        Err(Fault::Syntax) => interval_iso::parse(text),
        other => other,
    };
    match sum {
        Ok(sum) => sum
            .interval()
            .ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")),
        Err(Fault::Overflow) => Err(SqlError::new(
            SqlState::INTERVAL_FIELD_OVERFLOW,
            format!("interval field value out of range: \"{text}\""),
        )),
        Err(Fault::Syntax) => Err(SqlError::new(
            SqlState::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for type interval: \"{text}\""),
        )),
    }
}

fn by_fields(text: &str, rightmost: Unit, minute_to_second: bool) -> Result<Sum, Fault> {
    let fields = cut(text)?;
    let mut sum = Sum::default();
    let mut unit: Option<Unit> = None;
    let mut negate = false;
    // Units that already have a value, as bits.
    let mut seen = 0_u32;
    for (field, shape) in fields.iter().rev() {
        let given = match shape {
            Shape::Time => {
                sum.set_time(field, minute_to_second)?;
                unit = Some(Unit::Day);
                units::TIME
            }
            Shape::Signed if field.contains(':') && time_of(&mut sum, field, minute_to_second)? => {
                unit = Some(Unit::Day);
                units::TIME
            }
            Shape::Signed | Shape::Date | Shape::Number => {
                let (given, next) = number(&mut sum, field, unit.unwrap_or(rightmost))?;
                unit = Some(next);
                given
            }
            Shape::Word => match field.as_str() {
                "ago" => {
                    negate = true;
                    // PostgreSQL treats a number that directly follows as one without a known unit.
                    unit = Some(Unit::None);
                    0
                }
                word => {
                    unit = Some(Unit::of_word(word).ok_or(Fault::Syntax)?);
                    0
                }
            },
        };
        if seen & given != 0 {
            return Err(Fault::Syntax);
        }
        seen |= given;
    }
    if seen == 0 {
        return Err(Fault::Syntax);
    }
    if negate {
        sum = sum.negated().ok_or(Fault::Overflow)?;
    }
    Ok(sum)
}

/// A signed `hh:mm[:ss]`; false if the field has another form.
fn time_of(sum: &mut Sum, field: &str, minute_to_second: bool) -> Result<bool, Fault> {
    let mut time = sum.clone();
    if time
        .set_time(field.get(1..).unwrap_or(""), minute_to_second)
        .is_err()
    {
        return Ok(false);
    }
    if field.starts_with('-') {
        time.micros = time.micros.checked_neg().ok_or(Fault::Overflow)?;
    }
    *sum = time;
    Ok(true)
}

/// Adds a number in a unit: `5`, `-1.5`, `.5`, or years and months as `1-2`. Returns the units that now
/// have a value and the unit of a preceding number.
fn number(sum: &mut Sum, field: &str, unit: Unit) -> Result<(u32, Unit), Fault> {
    let negative = field.starts_with('-');
    let (mut whole, rest) = leading_integer(field)?;
    let (mut unit, mut fraction) = (unit, 0.0);
    if let Some(months) = rest.strip_prefix('-') {
        if months.is_empty() || !months.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Fault::Syntax);
        }
        let months: i64 = months.parse().map_err(|_| Fault::Overflow)?;
        if months >= 12 {
            return Err(Fault::Overflow);
        }
        unit = Unit::Month;
        let months = if negative { -months } else { months };
        whole = whole
            .checked_mul(12)
            .and_then(|whole| whole.checked_add(months))
            .ok_or(Fault::Overflow)?;
    } else if rest.starts_with('.') {
        fraction = units::fraction(rest)?;
        if negative {
            fraction = -fraction;
        }
    } else if !rest.is_empty() {
        return Err(Fault::Syntax);
    }
    sum.add(whole, fraction, unit)?;
    let next = if unit == Unit::Hour { Unit::Day } else { unit };
    Ok((unit.given(fraction != 0.0), next))
}

/// C's `strtol`: sign and digits; no digits before a point mean 0.
fn leading_integer(field: &str) -> Result<(i64, &str), Fault> {
    let sign = usize::from(field.starts_with(['-', '+']));
    let tail = field.get(sign..).unwrap_or("");
    let blank = tail.len() - tail.trim_start_matches(is_space).len();
    let digits = tail.bytes().skip(blank).take_while(u8::is_ascii_digit).count();
    let (number, rest) = tail.split_at_checked(blank + digits).ok_or(Fault::Syntax)?;
    if digits == 0 {
        return Ok((0, rest));
    }
    let number = number.trim_start_matches(is_space);
    let signed = if field.starts_with('-') {
        format!("-{number}")
    } else {
        number.to_owned()
    };
    Ok((signed.parse().map_err(|_| Fault::Overflow)?, rest))
}

/// Splits the text into fields, in lower case.
fn cut(text: &str) -> Result<Vec<(String, Shape)>, Fault> {
    if text.len() > TEXT_BYTES_MAX || !text.is_ascii() {
        return Err(Fault::Syntax);
    }
    let lower = text.to_ascii_lowercase();
    let mut rest = lower.as_str();
    let mut fields = Vec::new();
    loop {
        rest = rest.trim_start_matches(is_space);
        let Some(first) = rest.bytes().next() else {
            return Ok(fields);
        };
        let (len, shape) = match first {
            b'0'..=b'9' => number_len(rest),
            b'.' => (1 + run(rest, 1, |byte| byte.is_ascii_digit()), Shape::Number),
            b'a'..=b'z' => word_len(rest),
            b'+' | b'-' => {
                let behind = rest.get(1..).unwrap_or("").trim_start_matches(is_space);
                let blanks = rest.len() - 1 - behind.len();
                let len = match behind.bytes().next() {
                    Some(b'0'..=b'9') => run(behind, 0, |byte| {
                        byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b'-')
                    }),
                    // A signed word is never a unit.
                    _ => return Err(Fault::Syntax),
                };
                let number = behind.get(..len).unwrap_or("");
                fields.push((format!("{}{number}", char::from(first)), Shape::Signed));
                rest = rest.get(1 + blanks + len..).unwrap_or("");
                continue;
            }
            byte if byte.is_ascii_punctuation() => {
                rest = rest.get(1..).unwrap_or("");
                continue;
            }
            _ => return Err(Fault::Syntax),
        };
        let (field, tail) = rest.split_at_checked(len).ok_or(Fault::Syntax)?;
        fields.push((field.to_owned(), shape));
        if fields.len() > FIELDS_MAX {
            return Err(Fault::Syntax);
        }
        rest = tail;
    }
}

fn run(text: &str, from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    text.bytes().skip(from).take_while(|byte| belongs(*byte)).count()
}

fn number_len(text: &str) -> (usize, Shape) {
    let bytes = text.as_bytes();
    let digits = run(text, 0, |byte| byte.is_ascii_digit());
    match bytes.get(digits) {
        Some(b':') => {
            let len = run(text, 0, |byte| {
                byte.is_ascii_digit() || matches!(byte, b':' | b'.')
            });
            (len, Shape::Time)
        }
        Some(delimiter @ (b'-' | b'/' | b'.')) => {
            let behind = digits + 1;
            if !bytes.get(behind).is_some_and(u8::is_ascii_digit) {
                let tail = run(text, behind, |byte| {
                    byte.is_ascii_alphanumeric() || byte == *delimiter
                });
                return (behind + tail, Shape::Date);
            }
            let len = behind + run(text, behind, |byte| byte.is_ascii_digit());
            if bytes.get(len) == Some(delimiter) {
                let tail = run(text, len, |byte| byte.is_ascii_digit() || byte == *delimiter);
                return (len + tail, Shape::Date);
            }
            (
                len,
                if *delimiter == b'.' {
                    Shape::Number
                } else {
                    Shape::Date
                },
            )
        }
        _ => (digits, Shape::Number),
    }
}

fn word_len(text: &str) -> (usize, Shape) {
    let letters = run(text, 0, |byte| byte.is_ascii_alphabetic());
    // Something like a date or a zone name is not a unit.
    let date = || {
        run(text, 0, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'/' | b'_' | b'.' | b':')
        })
    };
    match text.as_bytes().get(letters) {
        Some(b'-' | b'/' | b'.' | b'+') => (date(), Shape::Date),
        Some(b'0'..=b'9') if !units::is_date_word(text.get(..letters).unwrap_or("")) => (date(), Shape::Date),
        _ => (letters, Shape::Word),
    }
}
