//! `extract` and `date_part`: one field of a date or time, exact or as a float.

use weft_types::calendar::{EPOCH_JULIAN_DAY, MICROS_PER_DAY, UNIX_EPOCH_MICROS, local_of_utc};
use weft_types::{Interval, Numeric, SqlError, SqlType, Value};

use super::clock::{Shown, day_of_week, day_of_year, iso_day_of_week, iso_week};
use super::units::{Part, part, unknown, unsupported};
use super::values::{date, function, interval, is_infinite, micros, stable, time};
use crate::context::Context;
use crate::functions::arguments::{Arguments, text};
use crate::table::{Arg, Entry};

use Arg::Is;
use SqlType::{Date, Float8, Text, Time, Timestamp, TimestampTz};

const SPAN: SqlType = SqlType::Interval;
const NUMERIC: SqlType = SqlType::Numeric(None);

/// The entries of `extract` and `date_part`.
pub static FIELDS: &[Entry] = &[
    function("extract", &[Is(Text), Is(Date)], NUMERIC, |_, a| {
        exact(of_date(a)?)
    }),
    function("extract", &[Is(Text), Is(Time)], NUMERIC, |_, a| {
        exact(of_time(a)?)
    }),
    function("extract", &[Is(Text), Is(Timestamp)], NUMERIC, |_, a| {
        exact(of_timestamp(a)?)
    }),
    stable("extract", &[Is(Text), Is(TimestampTz)], NUMERIC, |c, a| {
        exact(of_instant(c, a)?)
    }),
    function("extract", &[Is(Text), Is(SPAN)], NUMERIC, |_, a| {
        exact(of_interval(a)?)
    }),
    function("date_part", &[Is(Text), Is(Date)], Float8, date_part_of_date),
    function("date_part", &[Is(Text), Is(Time)], Float8, |_, a| {
        float(of_time(a)?)
    }),
    function("date_part", &[Is(Text), Is(Timestamp)], Float8, |_, a| {
        float(of_timestamp(a)?)
    }),
    stable("date_part", &[Is(Text), Is(TimestampTz)], Float8, |c, a| {
        float(of_instant(c, a)?)
    }),
    function("date_part", &[Is(Text), Is(SPAN)], Float8, |_, a| {
        float(of_interval(a)?)
    }),
];

/// The value of a field.
enum Found {
    Whole(i64),
    /// Seconds and microseconds, in seconds.
    Seconds(i64, i64),
    /// The same, in milliseconds.
    Milliseconds(i64, i64),
    /// Microseconds, in seconds: an epoch.
    Epoch(i128),
    /// The epoch of an interval.
    Span(Interval),
    /// Julian day and microseconds of the day.
    Julian(i64, i64),
    /// A monotonic field of infinity: whether it is negative.
    Infinite(bool),
    /// A cyclic field of infinity.
    Nothing,
}

fn scaled(mantissa: i128, scale: u16) -> Result<Value, SqlError> {
    let number = Numeric::from_i128(mantissa, scale);
    number
        .map(Value::Numeric)
        .ok_or_else(crate::functions::arguments::mismatch)
}

fn exact(found: Found) -> Result<Value, SqlError> {
    match found {
        Found::Whole(v) => Ok(Value::Numeric(Numeric::from(v))),
        Found::Seconds(seconds, micros) => scaled(i128::from(seconds * 1_000_000 + micros), 6),
        Found::Milliseconds(seconds, micros) => scaled(i128::from(seconds * 1_000_000 + micros), 3),
        Found::Epoch(micros) => scaled(micros, 6),
        Found::Span(span) => {
            // A year has 365.25 days here, so that all terms are multiplied by four.
            let quarters = 1461 * i128::from(span.months / 12)
                + 120 * i128::from(span.months % 12)
                + 4 * i128::from(span.days);
            scaled(quarters * 21_600 * 1_000_000 + i128::from(span.micros), 6)
        }
        Found::Julian(day, micros) => {
            let part = Numeric::from(micros).div(&Numeric::from(MICROS_PER_DAY))?;
            Numeric::from(day).add(&part).map(Value::Numeric)
        }
        Found::Infinite(negative) => Err(SqlError::unsupported(format!(
            "numeric {}infinity is not supported",
            if negative { "-" } else { "" }
        ))),
        Found::Nothing => Ok(Value::Null),
    }
}

fn float(found: Found) -> Result<Value, SqlError> {
    Ok(Value::Float8(match found {
        Found::Whole(v) => v as f64,
        Found::Seconds(seconds, micros) => seconds as f64 + micros as f64 / 1e6,
        Found::Milliseconds(seconds, micros) => seconds as f64 * 1e3 + micros as f64 / 1e3,
        Found::Epoch(micros) => micros as f64 / 1e6,
        Found::Span(span) => {
            let mut seconds = span.micros as f64 / 1e6;
            seconds += 365.25 * 86_400.0 * f64::from(span.months / 12);
            seconds += 30.0 * 86_400.0 * f64::from(span.months % 12);
            seconds + 86_400.0 * f64::from(span.days)
        }
        Found::Julian(day, micros) => {
            let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
            day as f64 + (seconds as f64 + micros as f64 / 1e6) / 86_400.0
        }
        Found::Infinite(true) => f64::NEG_INFINITY,
        Found::Infinite(false) => f64::INFINITY,
        Found::Nothing => return Ok(Value::Null),
    }))
}

fn named(arguments: Arguments<'_, '_>, ty: &SqlType) -> Result<(String, Part), SqlError> {
    let word = text(arguments, 0)?.to_ascii_lowercase();
    match part(&word, true) {
        Some(part) => Ok((word, part)),
        None => Err(unknown(&word, ty)),
    }
}

/// A field of infinity.
fn of_infinity(part: Part, negative: bool, word: &str, ty: &SqlType) -> Result<Found, SqlError> {
    match part {
        Part::Year | Part::Decade | Part::Century | Part::Millennium => Ok(Found::Infinite(negative)),
        Part::Julian | Part::IsoYear | Part::Epoch => Ok(Found::Infinite(negative)),
        Part::Reserved => Err(unsupported(word, ty)),
        _ => Ok(Found::Nothing),
    }
}

/// The year in a calendar without a year 0.
fn counted(year: i64) -> i64 {
    if year > 0 { year } else { year - 1 }
}

/// A field of a date.
fn calendar_part(part: Part, shown: &Shown) -> Option<i64> {
    let (year, days) = (shown.year, shown.days());
    let since = |length: i64| match year > 0 {
        true => (year + length - 1) / length,
        false => -((length - 1 - (year - 1)) / length),
    };
    Some(match part {
        Part::Day => i64::from(shown.day),
        Part::Month => i64::from(shown.month),
        Part::Quarter => i64::from((shown.month - 1) / 3 + 1),
        Part::Week => iso_week(days).1,
        Part::Year => counted(year),
        Part::Decade if year >= 0 => year / 10,
        Part::Decade => -((8 - (year - 1)) / 10),
        Part::Century => since(100),
        Part::Millennium => since(1000),
        Part::IsoYear => counted(iso_week(days).0),
        Part::Dow => day_of_week(days),
        Part::IsoDow => iso_day_of_week(days),
        Part::Doy => day_of_year(shown),
        _ => return None,
    })
}

fn clock_part(part: Part, shown: &Shown) -> Option<Found> {
    Some(match part {
        Part::Microseconds => Found::Whole(shown.second * 1_000_000 + shown.micros),
        Part::Milliseconds => Found::Milliseconds(shown.second, shown.micros),
        Part::Second => Found::Seconds(shown.second, shown.micros),
        Part::Minute => Found::Whole(shown.minute),
        Part::Hour => Found::Whole(shown.hour),
        _ => return None,
    })
}

/// A field of local date and time, except zone and epoch.
fn shown_part(part: Part, local: i64) -> Option<Found> {
    let shown = Shown::of(local);
    match part {
        Part::Julian => Some(Found::Julian(shown.days() + EPOCH_JULIAN_DAY, shown.time())),
        _ => clock_part(part, &shown).or_else(|| calendar_part(part, &shown).map(Found::Whole)),
    }
}

fn of_timestamp(arguments: Arguments<'_, '_>) -> Result<Found, SqlError> {
    let (word, part) = named(arguments, &Timestamp)?;
    timestamp_part(&word, part, micros(arguments, 1)?)
}

fn timestamp_part(word: &str, part: Part, local: i64) -> Result<Found, SqlError> {
    if is_infinite(local) {
        return of_infinity(part, local < 0, word, &Timestamp);
    }
    match part {
        Part::Epoch => Ok(Found::Epoch(i128::from(local) - i128::from(UNIX_EPOCH_MICROS))),
        _ => shown_part(part, local).ok_or_else(|| unsupported(word, &Timestamp)),
    }
}

fn of_instant(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Found, SqlError> {
    let (word, part) = named(arguments, &TimestampTz)?;
    let utc = micros(arguments, 1)?;
    if is_infinite(utc) {
        return of_infinity(part, utc < 0, &word, &TimestampTz);
    }
    let offset = i64::from(context.zone.offset_at(utc));
    Ok(match part {
        Part::Epoch => Found::Epoch(i128::from(utc) - i128::from(UNIX_EPOCH_MICROS)),
        Part::Zone => Found::Whole(offset),
        Part::ZoneHour => Found::Whole(offset / 3600),
        Part::ZoneMinute => Found::Whole(offset / 60 % 60),
        _ => {
            let local = local_of_utc(utc, &context.zone)?;
            shown_part(part, local).ok_or_else(|| unsupported(&word, &TimestampTz))?
        }
    })
}

fn of_date(arguments: Arguments<'_, '_>) -> Result<Found, SqlError> {
    let (word, part) = named(arguments, &Date)?;
    let days = date(arguments, 1)?;
    let clock = matches!(
        part,
        Part::Microseconds | Part::Milliseconds | Part::Second | Part::Minute | Part::Hour
    );
    let zone = matches!(part, Part::Zone | Part::ZoneHour | Part::ZoneMinute);
    if clock || zone || part == Part::Reserved {
        return Err(unsupported(&word, &Date));
    }
    if matches!(days, i32::MAX | i32::MIN) {
        return of_infinity(part, days < 0, &word, &Date);
    }
    let days = i64::from(days);
    Ok(Found::Whole(match part {
        Part::Julian => days + EPOCH_JULIAN_DAY,
        Part::Epoch => days * 86_400 - UNIX_EPOCH_MICROS / 1_000_000,
        _ => {
            let (year, month, day) = weft_types::calendar::civil_from_days(days);
            let shown = Shown {
                year,
                month,
                day,
                hour: 0,
                minute: 0,
                second: 0,
                micros: 0,
            };
            calendar_part(part, &shown).ok_or_else(|| unsupported(&word, &Date))?
        }
    }))
}

/// Computed through a timestamp, as PostgreSQL defines it.
fn date_part_of_date(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let (word, part) = named(arguments, &Timestamp)?;
    let local = weft_types::calendar::timestamp_of_date(date(arguments, 1)?)?;
    float(timestamp_part(&word, part, local)?)
}

fn of_time(arguments: Arguments<'_, '_>) -> Result<Found, SqlError> {
    let (word, part) = named(arguments, &Time)?;
    if part == Part::Reserved {
        return Err(unknown(&word, &Time));
    }
    let micros = time(arguments, 1)?;
    let seconds = micros / 1_000_000;
    let shown = Shown {
        hour: seconds / 3600,
        minute: seconds / 60 % 60,
        second: seconds % 60,
        micros: micros % 1_000_000,
        ..Shown::of(0)
    };
    match part {
        Part::Epoch => Ok(Found::Epoch(i128::from(micros))),
        _ => clock_part(part, &shown).ok_or_else(|| unsupported(&word, &Time)),
    }
}

fn of_interval(arguments: Arguments<'_, '_>) -> Result<Found, SqlError> {
    let (word, part) = named(arguments, &SPAN)?;
    let span = interval(arguments, 1)?;
    let (years, months) = (i64::from(span.months / 12), i64::from(span.months % 12));
    let (seconds, micros) = (span.micros / 1_000_000, span.micros % 1_000_000);
    Ok(match part {
        Part::Microseconds => Found::Whole(seconds % 60 * 1_000_000 + micros),
        Part::Milliseconds => Found::Milliseconds(seconds % 60, micros),
        Part::Second => Found::Seconds(seconds % 60, micros),
        Part::Minute => Found::Whole(seconds / 60 % 60),
        Part::Hour => Found::Whole(seconds / 3600),
        Part::Day => Found::Whole(i64::from(span.days)),
        Part::Month => Found::Whole(months),
        Part::Quarter => Found::Whole(months / 3 + 1),
        Part::Year => Found::Whole(years),
        Part::Decade => Found::Whole(years / 10),
        Part::Century => Found::Whole(years / 100),
        Part::Millennium => Found::Whole(years / 1000),
        Part::Epoch => Found::Span(span),
        Part::Reserved => return Err(unknown(&word, &SPAN)),
        _ => return Err(unsupported(&word, &SPAN)),
    })
}
