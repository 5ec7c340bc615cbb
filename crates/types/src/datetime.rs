//! Text form of dates and timestamps, as PostgreSQL 15 reads and writes it with `DateStyle = ISO, MDY`.
//!
//! Values count from 2000-01-01 in the proleptic Gregorian calendar: days (`i32`) or microseconds (`i64`).
//! The smallest and largest integers are -infinity and infinity. Finite dates run from 4714-11-24 BC to
//! 5874897-12-31, finite timestamps to 294276-12-31.
//!
//! Parsing has two steps as in PostgreSQL's `datetime.c`: split the text into fields, then interpret each
//! field by its shape and by the fields before it. Values that depend on the clock (`now`, `today`) are
//! rejected: a value is a function of its text.

mod fields;
pub(crate) mod interval;
mod interval_iso;
mod interval_sum;
#[cfg(test)]
mod interval_tests;
mod interval_units;

use crate::interval::Interval;
use crate::text::{push_i64, push_two};
use crate::{OffsetFault, SqlError, SqlState, SqlType, TimeZone};
pub use fields::days_in_month;
use fields::{Fault, Moment};

/// Seconds east of Greenwich: `+hh`, `+hhmm`, `+hh:mm`, `+hh:mm:ss`.
pub(crate) fn offset_east(text: &str) -> Result<i32, OffsetFault> {
    fields::offset(text).map_err(|fault| match fault {
        Fault::Displacement => OffsetFault::OutOfRange,
        _ => OffsetFault::Syntax,
    })
}

pub(crate) use interval_units::Unit;

/// 2000-01-01 00:00 UTC in seconds since 1970.
pub(crate) const EPOCH_UNIX_SECONDS: i64 = 946_684_800;
/// Microseconds per second.
pub const MICROS_PER_SECOND: i64 = 1_000_000;
/// Microseconds per day.
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// 1970-01-01 in days since 2000-01-01.
const UNIX_EPOCH_DAYS: i32 = -10_957;
/// 4714-11-24 BC, Julian day 0.
const DATE_MIN: i64 = -2_451_545;
/// 5874897-12-31.
const DATE_MAX: i64 = 2_145_031_948;
/// First microsecond of 4714-11-24 BC.
const TIMESTAMP_MIN: i64 = DATE_MIN * MICROS_PER_DAY;
/// First microsecond of the year 294277.
const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;
/// Days from 0000-03-01 to 2000-01-01.
const DAYS_FROM_MARCH_0: i64 = 730_425;

/// A date in days since 2000-01-01; year 0 is 1 BC.
#[must_use]
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Years begin in March here, so that the leap day is the last of a year.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = i64::from((153 * month + 2) / 5 + day - 1);
    era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - DAYS_FROM_MARCH_0
}

/// Year (0 is 1 BC), month and day of a day since 2000-01-01.
#[must_use]
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + DAYS_FROM_MARCH_0;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month + 2) / 5 + 1) as u32;
    let (year, month) = (era * 400 + year, month as u32);
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}

pub(crate) fn date_out_of_range(text: &str) -> SqlError {
    SqlError::new(
        SqlState::DATETIME_FIELD_OVERFLOW,
        format!("date out of range: \"{text}\""),
    )
}

fn timestamp_out_of_range(text: &str) -> SqlError {
    SqlError::new(
        SqlState::DATETIME_FIELD_OVERFLOW,
        format!("timestamp out of range: \"{text}\""),
    )
}

/// PostgreSQL's message for a fault found while parsing `text` as a value of `ty`.
fn error_of(fault: Fault, text: &str, ty: &SqlType) -> SqlError {
    let type_name = match ty {
        SqlType::Timestamp => "timestamp",
        SqlType::Time => "time",
        ty => ty.base_name(),
    };
    match fault {
        Fault::Syntax => SqlError::new(
            SqlState::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for type {type_name}: \"{text}\""),
        ),
        Fault::Field | Fault::MonthOrDay => {
            let error = SqlError::new(
                SqlState::DATETIME_FIELD_OVERFLOW,
                format!("date/time field value out of range: \"{text}\""),
            );
            if fault == Fault::MonthOrDay {
                error.hint("Perhaps you need a different \"datestyle\" setting.")
            } else {
                error
            }
        }
        Fault::Displacement => SqlError::new(
            SqlState::INVALID_TIME_ZONE_DISPLACEMENT,
            format!("time zone displacement out of range: \"{text}\""),
        ),
        Fault::Zone(name) => SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("time zone \"{name}\" not recognized"),
        ),
        Fault::Clock(word) => SqlError::unsupported(format!("date/time value \"{word}\" is not supported"))
            .hint("Use CURRENT_DATE, LOCALTIMESTAMP or now()."),
    }
}

/// Parses a `date`; a time or zone after it is checked and ignored.
pub(crate) fn parse_date(text: &str) -> Result<i32, SqlError> {
    let parsed = fields::parse(text).map_err(|fault| error_of(fault, text, &SqlType::Date))?;
    match parsed {
        Moment::Infinity => Ok(i32::MAX),
        Moment::MinusInfinity => Ok(i32::MIN),
        Moment::Epoch => Ok(UNIX_EPOCH_DAYS),
        Moment::At { days, .. } if (DATE_MIN..=DATE_MAX).contains(&days) => Ok(days as i32),
        Moment::At { .. } => Err(date_out_of_range(text)),
    }
}

/// Parses a `timestamp`; a zone is checked and ignored.
pub(crate) fn parse_timestamp(text: &str) -> Result<i64, SqlError> {
    parse_instant(text, &SqlType::Timestamp, None)
}

/// Parses a `timestamptz`; without a zone it is in `zone`.
pub(crate) fn parse_timestamptz(text: &str, zone: &TimeZone) -> Result<i64, SqlError> {
    parse_instant(text, &SqlType::TimestampTz, Some(zone))
}

/// Parses a `time`; a date or zone is checked and ignored.
pub(crate) fn parse_time(text: &str) -> Result<i64, SqlError> {
    fields::parse_time(text).map_err(|fault| error_of(fault, text, &SqlType::Time))
}

/// Parses an `interval`.
pub(crate) fn parse_interval(text: &str) -> Result<Interval, SqlError> {
    interval::parse(text, Unit::Second, false)
}

fn parse_instant(text: &str, ty: &SqlType, session: Option<&TimeZone>) -> Result<i64, SqlError> {
    let parsed = fields::parse(text).map_err(|fault| error_of(fault, text, ty))?;
    let (days, time_micros, own) = match parsed {
        Moment::Infinity => return Ok(i64::MAX),
        Moment::MinusInfinity => return Ok(i64::MIN),
        Moment::Epoch => return Ok(i64::from(UNIX_EPOCH_DAYS) * MICROS_PER_DAY),
        Moment::At {
            days,
            time_micros,
            zone,
        } => (days, time_micros, zone),
    };
    let local = days
        .checked_mul(MICROS_PER_DAY)
        .and_then(|micros| micros.checked_add(time_micros));
    let local = local.ok_or_else(|| timestamp_out_of_range(text))?;
    let offset = match session {
        Some(session) => own.as_ref().unwrap_or(session).offset_at_local(local),
        None => 0,
    };
    let micros = local.checked_sub(i64::from(offset) * MICROS_PER_SECOND);
    micros
        .filter(|micros| is_finite_timestamp(*micros))
        .ok_or_else(|| timestamp_out_of_range(text))
}

/// Whether a number is a finite timestamp.
#[must_use]
pub fn is_finite_timestamp(micros: i64) -> bool {
    (TIMESTAMP_MIN..TIMESTAMP_END).contains(&micros)
}

/// Whether a number is a valid `timestamp`, including the infinities.
pub(crate) fn is_timestamp(micros: i64) -> bool {
    is_finite_timestamp(micros) || micros == i64::MIN || micros == i64::MAX
}

/// Whether a number of days since 2000-01-01 is a valid `date`, including the infinities.
#[must_use]
pub fn is_date(days: i32) -> bool {
    (DATE_MIN..=DATE_MAX).contains(&i64::from(days)) || days == i32::MIN || days == i32::MAX
}

/// Midnight of a date.
///
/// # Errors
/// 22008 beyond the range of timestamps.
pub fn timestamp_of_date(days: i32) -> Result<i64, SqlError> {
    match days {
        i32::MAX => Ok(i64::MAX),
        i32::MIN => Ok(i64::MIN),
        days => i64::from(days)
            .checked_mul(MICROS_PER_DAY)
            .filter(|micros| is_finite_timestamp(*micros))
            .ok_or_else(|| {
                SqlError::new(
                    SqlState::DATETIME_FIELD_OVERFLOW,
                    "date out of range for timestamp",
                )
            }),
    }
}

/// The date of a timestamp.
#[must_use]
pub fn date_of_timestamp(micros: i64) -> i32 {
    match micros {
        i64::MAX => i32::MAX,
        i64::MIN => i32::MIN,
        micros => micros.div_euclid(MICROS_PER_DAY) as i32,
    }
}

/// Appends a `date`.
pub(crate) fn format_date(days: i32, out: &mut String) {
    match days {
        i32::MAX => return out.push_str("infinity"),
        i32::MIN => return out.push_str("-infinity"),
        _ => {}
    }
    let year = push_date(i64::from(days), out);
    push_era(year, out);
}

/// Appends a `timestamp`.
pub(crate) fn format_timestamp(micros: i64, out: &mut String) {
    if push_infinity(micros, out) {
        return;
    }
    let year = push_date(micros.div_euclid(MICROS_PER_DAY), out);
    out.push(' ');
    push_time(micros.rem_euclid(MICROS_PER_DAY), out);
    push_era(year, out);
}

/// Appends a `timestamptz` in a zone's local time.
pub(crate) fn format_timestamptz(micros: i64, zone: &TimeZone, out: &mut String) {
    if push_infinity(micros, out) {
        return;
    }
    let offset = zone.offset_at(micros);
    let local = micros.saturating_add(i64::from(offset) * MICROS_PER_SECOND);
    let year = push_date(local.div_euclid(MICROS_PER_DAY), out);
    out.push(' ');
    push_time(local.rem_euclid(MICROS_PER_DAY), out);
    push_offset(offset, out);
    push_era(year, out);
}

fn push_infinity(micros: i64, out: &mut String) -> bool {
    match micros {
        i64::MAX => out.push_str("infinity"),
        i64::MIN => out.push_str("-infinity"),
        _ => return false,
    }
    true
}

/// Appends year, month and day; returns the year (0 is 1 BC), for [`push_era`].
fn push_date(days: i64, out: &mut String) -> i64 {
    let (year, month, day) = civil_from_days(days);
    let shown = if year > 0 { year } else { 1 - year };
    if shown < 10_000 {
        push_two((shown / 100) as u32, out);
        push_two((shown % 100) as u32, out);
    } else {
        push_i64(shown, out);
    }
    out.push('-');
    push_two(month, out);
    out.push('-');
    push_two(day, out);
    year
}

fn push_era(year: i64, out: &mut String) {
    if year <= 0 {
        out.push_str(" BC");
    }
}

/// Appends a time of day.
pub(crate) fn push_time(micros: i64, out: &mut String) {
    let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
    push_two((seconds / 3600) as u32, out);
    out.push(':');
    push_two((seconds / 60 % 60) as u32, out);
    out.push(':');
    push_two((seconds % 60) as u32, out);
    push_fraction(fraction as u32, out);
}

/// Appends the point and the digits of a fraction of a second, without trailing zeros.
pub(crate) fn push_fraction(micros: u32, out: &mut String) {
    if micros == 0 {
        return;
    }
    out.push('.');
    let (mut rest, mut unit) = (micros, 100_000);
    while rest != 0 {
        out.push(char::from(b'0' + (rest / unit) as u8));
        rest %= unit;
        unit /= 10;
    }
}

fn push_offset(seconds: i32, out: &mut String) {
    out.push(if seconds < 0 { '-' } else { '+' });
    let seconds = seconds.unsigned_abs();
    push_two(seconds / 3600, out);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    if minutes != 0 || rest != 0 {
        out.push(':');
        push_two(minutes, out);
    }
    if rest != 0 {
        out.push(':');
        push_two(rest, out);
    }
}
