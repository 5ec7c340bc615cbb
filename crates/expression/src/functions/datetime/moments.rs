//! The current time, and dates and times made from numbers.

use weft_types::calendar::{
    MICROS_PER_DAY, UNIX_EPOCH_MICROS, date_of_timestamp, days_from_civil, days_in_month,
    is_finite_timestamp, local_of_utc, utc_of_local,
};
use weft_types::{Interval, SqlError, SqlType, Value, is_date};

use super::values::{function, interval_out_of_range, out_of_range, stable};
use super::zones::numeric_zone_of;
use crate::context::Context;
use crate::functions::arguments::{Arguments, float8, int4, text};
use crate::table::{Arg, Entry, Volatility};

use Arg::Is;
use SqlType::{Date, Float8, Int4, Text, Time, Timestamp, TimestampTz};

const SPAN: SqlType = SqlType::Interval;
/// Arguments of `make_interval`, all optional from the end.
const SPAN_PARTS: &[Arg] = &[
    Is(Int4),
    Is(Int4),
    Is(Int4),
    Is(Int4),
    Is(Int4),
    Is(Int4),
    Is(Float8),
];
const MOMENT_PARTS: &[Arg] = &[Is(Int4), Is(Int4), Is(Int4), Is(Int4), Is(Int4), Is(Float8)];
const MOMENT_AND_ZONE: &[Arg] = &[
    Is(Int4),
    Is(Int4),
    Is(Int4),
    Is(Int4),
    Is(Int4),
    Is(Float8),
    Is(Text),
];

const fn span_of(count: usize) -> Entry {
    let (parts, _) = SPAN_PARTS.split_at(count);
    function("make_interval", parts, SPAN, make_interval)
}

/// The functions.
pub static MOMENTS: &[Entry] = &[
    stable("now", &[], TimestampTz, transaction_start),
    stable("transaction_timestamp", &[], TimestampTz, transaction_start),
    stable("current_timestamp", &[], TimestampTz, transaction_start),
    stable("statement_timestamp", &[], TimestampTz, |context, _| {
        Ok(Value::TimestampTz(context.session.statement_micros()))
    }),
    Entry {
        volatility: Volatility::Volatile,
        ..stable("clock_timestamp", &[], TimestampTz, |context, _| {
            Ok(Value::TimestampTz(context.session.clock_micros()))
        })
    },
    stable("current_date", &[], Date, |context, _| {
        Ok(Value::Date(date_of_timestamp(local_start(context)?)))
    }),
    stable("localtimestamp", &[], Timestamp, |context, _| {
        local_start(context).map(Value::Timestamp)
    }),
    stable("localtime", &[], Time, |context, _| {
        Ok(Value::Time(local_start(context)?.rem_euclid(MICROS_PER_DAY)))
    }),
    stable("current_time", &[], Time, |_, _| {
        Err(SqlError::unsupported("type time with time zone is not supported"))
    }),
    function("make_date", &[Is(Int4), Is(Int4), Is(Int4)], Date, make_date),
    function("make_time", &[Is(Int4), Is(Int4), Is(Float8)], Time, make_time),
    function("make_timestamp", MOMENT_PARTS, Timestamp, |_, a| {
        local_of_parts(a).map(Value::Timestamp)
    }),
    stable("make_timestamptz", MOMENT_PARTS, TimestampTz, |context, a| {
        utc_of_local(local_of_parts(a)?, &context.zone).map(Value::TimestampTz)
    }),
    stable("make_timestamptz", MOMENT_AND_ZONE, TimestampTz, |_, a| {
        let local = local_of_parts(a)?;
        utc_of_local(local, &numeric_zone_of(text(a, 6)?)?).map(Value::TimestampTz)
    }),
    span_of(0),
    span_of(1),
    span_of(2),
    span_of(3),
    span_of(4),
    span_of(5),
    span_of(6),
    span_of(7),
    function("to_timestamp", &[Is(Float8)], TimestampTz, of_unix_seconds),
];

fn transaction_start(context: &Context<'_>, _: Arguments<'_, '_>) -> Result<Value, SqlError> {
    Ok(Value::TimestampTz(context.session.transaction_micros()))
}

pub(super) fn local_start(context: &Context<'_>) -> Result<i64, SqlError> {
    local_of_utc(context.session.transaction_micros(), &context.zone)
}

/// Days since 2000-01-01; years BC are negative, and there is no year 0.
fn days_of(year: i32, month: i32, day: i32, shown: i64) -> Result<i64, SqlError> {
    let astronomical = if year < 0 {
        i64::from(year) + 1
    } else {
        i64::from(year)
    };
    let wrong = || {
        out_of_range(format!(
            "date field value out of range: {shown}-{month:02}-{day:02}"
        ))
    };
    if year == 0 {
        return Err(wrong());
    }
    let valid_month = u32::try_from(month).ok().filter(|month| (1..=12).contains(month));
    let (Some(month), Ok(day)) = (valid_month, u32::try_from(day)) else {
        return Err(wrong());
    };
    if day < 1 || day > days_in_month(astronomical, month) {
        return Err(wrong());
    }
    Ok(days_from_civil(astronomical, month, day))
}

fn make_date(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let (year, month, day) = (int4(arguments, 0)?, int4(arguments, 1)?, int4(arguments, 2)?);
    // PostgreSQL's message shows its internal year.
    let shown = i64::from(year) + i64::from(year < 0);
    i32::try_from(days_of(year, month, day, shown)?)
        .ok()
        .filter(|days| is_date(*days))
        .map(Value::Date)
        .ok_or_else(|| out_of_range(format!("date out of range: {year}-{month:02}-{day:02}")))
}

/// Seconds as C's `%02g` prints them.
fn shown_seconds(seconds: f64) -> String {
    if seconds.is_nan() {
        return "NaN".to_owned();
    }
    if seconds.is_infinite() {
        return if seconds > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let six = format!("{seconds:.5e}");
    let (mantissa, exponent) = six.split_once('e').unwrap_or((&six, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let mantissa = match mantissa.contains('.') {
            true => mantissa.trim_end_matches('0').trim_end_matches('.'),
            false => mantissa,
        };
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let rounded: f64 = six.parse().unwrap_or(seconds);
    format!("{rounded:0>2}")
}

fn time_of(hour: i32, minute: i32, seconds: f64) -> Result<i64, SqlError> {
    let micros = (seconds * 1e6).round_ties_even();
    let total = (i64::from(hour) * 60 + i64::from(minute)) * 60_000_000;
    let valid = (0..=24).contains(&hour)
        && (0..=59).contains(&minute)
        && (0.0..=60_000_000.0).contains(&micros)
        && total + micros as i64 <= MICROS_PER_DAY;
    match valid {
        true => Ok(total + micros as i64),
        false => Err(out_of_range(format!(
            "time field value out of range: {hour}:{minute:02}:{}",
            shown_seconds(seconds)
        ))),
    }
}

fn make_time(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    time_of(int4(arguments, 0)?, int4(arguments, 1)?, float8(arguments, 2)?).map(Value::Time)
}

fn local_of_parts(arguments: Arguments<'_, '_>) -> Result<i64, SqlError> {
    let (year, month, day) = (int4(arguments, 0)?, int4(arguments, 1)?, int4(arguments, 2)?);
    let (hour, minute, seconds) = (int4(arguments, 3)?, int4(arguments, 4)?, float8(arguments, 5)?);
    let days = days_of(year, month, day, i64::from(year))?;
    if !i32::try_from(days).is_ok_and(is_date) {
        return Err(out_of_range(format!(
            "date out of range: {year}-{month:02}-{day:02}"
        )));
    }
    let time = time_of(hour, minute, seconds)?;
    days.checked_mul(MICROS_PER_DAY)
        .and_then(|micros| micros.checked_add(time))
        .filter(|micros| is_finite_timestamp(*micros))
        .ok_or_else(|| {
            out_of_range(format!(
                "timestamp out of range: {year}-{month:02}-{day:02} {hour}:{minute:02}:{}",
                shown_seconds(seconds)
            ))
        })
}

fn make_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let part = |at: usize| match arguments.len() > at {
        true => int4(arguments, at),
        false => Ok(0),
    };
    let seconds = match arguments.len() > 6 {
        true => float8(arguments, 6)?,
        false => 0.0,
    };
    if !seconds.is_finite() {
        return Err(interval_out_of_range());
    }
    // PostgreSQL 15 does not check these sums for overflow.
    let micros = (seconds * 1e6).round_ties_even();
    let micros = match (i64::MIN as f64..-(i64::MIN as f64)).contains(&micros) {
        true => micros as i64,
        false => i64::MIN,
    };
    let clock = (i64::from(part(4)?) * 60 + i64::from(part(5)?)) * 60_000_000;
    let sum = |a: i32, b: i32, scale: i32| a.wrapping_mul(scale).wrapping_add(b);
    let months = sum(part(0)?, part(1)?, 12);
    let days = sum(part(2)?, part(3)?, 7);
    let micros = clock.wrapping_add(micros);
    Ok(Value::Interval(Interval { months, days, micros }))
}

fn of_unix_seconds(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let seconds = float8(arguments, 0)?;
    if seconds.is_nan() {
        return Err(out_of_range("timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Value::TimestampTz(if seconds > 0.0 {
            i64::MAX
        } else {
            i64::MIN
        }));
    }
    let micros = ((seconds + UNIX_EPOCH_MICROS as f64 / 1e6) * 1e6).round_ties_even();
    match micros.abs() < 9.3e18 && is_finite_timestamp(micros as i64) {
        true => Ok(Value::TimestampTz(micros as i64)),
        false => Err(out_of_range(format!("timestamp out of range: \"{seconds}\""))),
    }
}
