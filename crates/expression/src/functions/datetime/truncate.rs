//! `date_trunc`, `date_bin`, and the rounding of fractions of a second.

use weft_types::calendar::{MICROS_PER_DAY, is_finite_timestamp, timestamp_out_of_range, utc_of_local};
use weft_types::{Interval, SqlError, SqlType, TimeZone, Value};

use super::clock::{Shown, iso_day_of_week};
use super::units::{Part, part, unknown, unsupported};
use super::values::{
    function, interval, interval_out_of_range, is_infinite, micros, out_of_range, stable, time,
};
use super::zones::zone_of;
use crate::context::Context;
use crate::functions::arguments::{Arguments, int4, text};
use crate::table::{Arg, Entry};

use Arg::Is;
use SqlType::{Int4, Text, Time, Timestamp, TimestampTz};

const SPAN: SqlType = SqlType::Interval;

/// The functions.
pub static TRUNCATION: &[Entry] = &[
    function(
        "date_trunc",
        &[Is(Text), Is(Timestamp)],
        Timestamp,
        trunc_timestamp,
    ),
    stable(
        "date_trunc",
        &[Is(Text), Is(TimestampTz)],
        TimestampTz,
        trunc_instant,
    ),
    stable(
        "date_trunc",
        &[Is(Text), Is(TimestampTz), Is(Text)],
        TimestampTz,
        trunc_in_zone,
    ),
    function("date_trunc", &[Is(Text), Is(SPAN)], SPAN, trunc_interval),
    function(
        "date_bin",
        &[Is(SPAN), Is(Timestamp), Is(Timestamp)],
        Timestamp,
        |_, a| bin(a).map(Value::Timestamp),
    ),
    function(
        "date_bin",
        &[Is(SPAN), Is(TimestampTz), Is(TimestampTz)],
        TimestampTz,
        |_, a| bin(a).map(Value::TimestampTz),
    ),
    function(
        "timestamp_scale",
        &[Is(Timestamp), Is(Int4)],
        Timestamp,
        |_, a| scale_timestamp(a).map(Value::Timestamp),
    ),
    function(
        "timestamptz_scale",
        &[Is(TimestampTz), Is(Int4)],
        TimestampTz,
        |_, a| scale_timestamp(a).map(Value::TimestampTz),
    ),
    function("time_scale", &[Is(Time), Is(Int4)], Time, |_, a| {
        Ok(Value::Time(
            rounded(time(a, 0)?, int4(a, 1)?).unwrap_or(MICROS_PER_DAY),
        ))
    }),
    function("interval_scale", &[Is(SPAN), Is(Int4)], SPAN, scale_interval),
];

fn named(arguments: Arguments<'_, '_>, ty: &SqlType) -> Result<(String, Part), SqlError> {
    let word = text(arguments, 0)?.to_ascii_lowercase();
    match part(&word, false) {
        Some(part) => Ok((word, part)),
        None => Err(unknown(&word, ty)),
    }
}

/// Truncates to a field; `None` for fields that cannot be truncated to.
fn cut(part: Part, local: i64) -> Option<i64> {
    let mut shown = Shown::of(local);
    let since = |year: i64, length: i64| match year > 0 {
        true => (year + length - 1) / length * length - (length - 1),
        false => -((length - 1 - (year - 1)) / length) * length + 1,
    };
    match part {
        Part::Week => {
            let days = shown.days();
            return Some((days - (iso_day_of_week(days) - 1)).saturating_mul(MICROS_PER_DAY));
        }
        Part::Millennium => shown.year = since(shown.year, 1000),
        Part::Century => shown.year = since(shown.year, 100),
        Part::Decade if shown.year > 0 => shown.year = shown.year / 10 * 10,
        Part::Decade => shown.year = -((8 - (shown.year - 1)) / 10) * 10,
        Part::Quarter => shown.month = 3 * ((shown.month - 1) / 3) + 1,
        Part::Year | Part::Month | Part::Day | Part::Hour | Part::Minute => {}
        Part::Second | Part::Milliseconds | Part::Microseconds => {}
        _ => return None,
    }
    let level = match part {
        Part::Microseconds => 0,
        Part::Milliseconds => 1,
        Part::Second => 2,
        Part::Minute => 3,
        Part::Hour => 4,
        Part::Day => 5,
        Part::Month | Part::Quarter => 6,
        _ => 7,
    };
    if level == 1 {
        shown.micros = shown.micros / 1000 * 1000;
    }
    if level >= 2 {
        shown.micros = 0;
    }
    if level >= 3 {
        shown.second = 0;
    }
    if level >= 4 {
        shown.minute = 0;
    }
    if level >= 5 {
        shown.hour = 0;
    }
    if level >= 6 {
        shown.day = 1;
    }
    if level >= 7 {
        shown.month = 1;
    }
    Some(shown.local())
}

fn trunc_timestamp(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let local = micros(arguments, 1)?;
    if is_infinite(local) {
        return Ok(Value::Timestamp(local));
    }
    let (word, part) = named(arguments, &Timestamp)?;
    let cut = cut(part, local).ok_or_else(|| unsupported(&word, &Timestamp))?;
    match is_finite_timestamp(cut) {
        true => Ok(Value::Timestamp(cut)),
        false => Err(timestamp_out_of_range()),
    }
}

fn trunc_instant(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    trunc_at(arguments, &context.zone)
}

fn trunc_in_zone(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let utc = micros(arguments, 1)?;
    if is_infinite(utc) {
        return Ok(Value::TimestampTz(utc));
    }
    trunc_at(arguments, &zone_of(text(arguments, 2)?)?)
}

fn trunc_at(arguments: Arguments<'_, '_>, zone: &TimeZone) -> Result<Value, SqlError> {
    let utc = micros(arguments, 1)?;
    if is_infinite(utc) {
        return Ok(Value::TimestampTz(utc));
    }
    let (word, part) = named(arguments, &TimestampTz)?;
    let offset = i64::from(zone.offset_at(utc)) * 1_000_000;
    let local = utc.checked_add(offset).ok_or_else(timestamp_out_of_range)?;
    let cut = cut(part, local).ok_or_else(|| unsupported(&word, &TimestampTz))?;
    // Truncation within an hour keeps the offset; a day begins with its own.
    let within_hour = matches!(
        part,
        Part::Hour | Part::Minute | Part::Second | Part::Milliseconds | Part::Microseconds
    );
    let begin = match within_hour {
        true => cut - offset,
        false => utc_of_local(cut, zone)?,
    };
    match is_finite_timestamp(begin) {
        true => Ok(Value::TimestampTz(begin)),
        false => Err(timestamp_out_of_range()),
    }
}

fn trunc_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let (word, part) = named(arguments, &SPAN)?;
    let span = interval(arguments, 1)?;
    let months = |unit: i32| Interval {
        months: span.months / unit * unit,
        ..Interval::default()
    };
    let micros = |unit: i64| Interval {
        micros: span.micros / unit * unit,
        ..span
    };
    Ok(Value::Interval(match part {
        Part::Millennium => months(12_000),
        Part::Century => months(1200),
        Part::Decade => months(120),
        Part::Year => months(12),
        Part::Quarter => months(3),
        Part::Month => months(1),
        Part::Day => Interval { micros: 0, ..span },
        Part::Hour => micros(3_600_000_000),
        Part::Minute => micros(60_000_000),
        Part::Second => micros(1_000_000),
        Part::Milliseconds => micros(1000),
        Part::Microseconds => span,
        Part::Week => {
            return Err(unsupported(&word, &SPAN).detail("Months usually have fractional weeks."));
        }
        _ => return Err(unsupported(&word, &SPAN)),
    }))
}

/// The start of the stride that contains a timestamp, counting strides from an origin.
fn bin(arguments: Arguments<'_, '_>) -> Result<i64, SqlError> {
    let stride = interval(arguments, 0)?;
    let (at, origin) = (micros(arguments, 1)?, micros(arguments, 2)?);
    if is_infinite(at) {
        return Ok(at);
    }
    if is_infinite(origin) {
        return Err(out_of_range("origin out of range"));
    }
    if stride.months != 0 {
        return Err(SqlError::unsupported(
            "timestamps cannot be binned into intervals containing months or years",
        ));
    }
    let micros = i64::from(stride.days)
        .checked_mul(MICROS_PER_DAY)
        .and_then(|days| days.checked_add(stride.micros))
        .ok_or_else(interval_out_of_range)?;
    if micros <= 0 {
        return Err(out_of_range("stride must be greater than zero"));
    }
    let distance = at.checked_sub(origin).ok_or_else(interval_out_of_range)?;
    at.checked_sub(distance.rem_euclid(micros))
        .filter(|begin| is_finite_timestamp(*begin))
        .ok_or_else(timestamp_out_of_range)
}

/// Rounds microseconds to `digits` decimal places of a second, half away from zero.
pub(super) fn rounded(micros: i64, digits: i32) -> Option<i64> {
    let unit = 10_i64.pow(6 - digits.clamp(0, 6) as u32);
    let up = micros.unsigned_abs().checked_add(unit as u64 / 2)?;
    let cut = i64::try_from(up / unit as u64 * unit as u64).ok()?;
    Some(if micros < 0 { -cut } else { cut })
}

fn scale_timestamp(arguments: Arguments<'_, '_>) -> Result<i64, SqlError> {
    let at = micros(arguments, 0)?;
    if is_infinite(at) {
        return Ok(at);
    }
    rounded(at, int4(arguments, 1)?)
        .filter(|micros| is_finite_timestamp(*micros))
        .ok_or_else(timestamp_out_of_range)
}

fn scale_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let span = interval(arguments, 0)?;
    let micros = rounded(span.micros, int4(arguments, 1)?).ok_or_else(interval_out_of_range)?;
    Ok(Value::Interval(Interval { micros, ..span }))
}
