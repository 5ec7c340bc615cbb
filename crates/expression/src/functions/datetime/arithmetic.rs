//! `+ - * /` over dates, times, timestamps, intervals and numbers.
//!
//! Months and days are added in local time, so that a timestamp with time zone is converted through the
//! session's time zone; microseconds are added to the instant.

use weft_types::calendar::{
    MICROS_PER_DAY, civil_from_days, days_from_civil, days_in_month, is_finite_timestamp, local_of_utc,
    timestamp_of_date, timestamp_out_of_range, utc_of_local,
};
use weft_types::{Interval, SqlError, SqlType, TimeZone, Value, is_date};

use super::values::{
    date, function, infix, interval, interval_out_of_range, is_infinite, micros, out_of_range, stable,
    swapped, time,
};
use crate::context::Context;
use crate::functions::arguments::{Arguments, float8, int4};
use crate::table::{Arg, Entry, Kind, Volatility};

use Arg::Is;
use SqlType::{Date, Float8, Int4, Time, Timestamp, TimestampTz};

const SPAN: SqlType = SqlType::Interval;
const DAYS_PER_MONTH: f64 = 30.0;
const SECONDS_PER_DAY: f64 = 86_400.0;
const MICROS_PER_SECOND: f64 = 1e6;

/// The operators.
pub static ARITHMETIC: &[Entry] = &[
    infix("+", &[Is(Date), Is(Int4)], Date, date_plus_days),
    infix("+", &[Is(Int4), Is(Date)], Date, days_plus_date),
    infix("-", &[Is(Date), Is(Int4)], Date, date_minus_days),
    infix("-", &[Is(Date), Is(Date)], Int4, date_minus_date),
    infix("+", &[Is(Date), Is(SPAN)], Timestamp, date_plus_interval),
    infix("+", &[Is(SPAN), Is(Date)], Timestamp, interval_plus_date),
    infix("-", &[Is(Date), Is(SPAN)], Timestamp, date_minus_interval),
    infix("+", &[Is(Date), Is(Time)], Timestamp, date_plus_time),
    infix("+", &[Is(Time), Is(Date)], Timestamp, time_plus_date),
    infix(
        "+",
        &[Is(Timestamp), Is(SPAN)],
        Timestamp,
        timestamp_plus_interval,
    ),
    infix(
        "+",
        &[Is(SPAN), Is(Timestamp)],
        Timestamp,
        interval_plus_timestamp,
    ),
    infix(
        "-",
        &[Is(Timestamp), Is(SPAN)],
        Timestamp,
        timestamp_minus_interval,
    ),
    infix("-", &[Is(Timestamp), Is(Timestamp)], SPAN, difference),
    zoned("+", &[Is(TimestampTz), Is(SPAN)], instant_plus_interval),
    zoned("+", &[Is(SPAN), Is(TimestampTz)], interval_plus_instant),
    zoned("-", &[Is(TimestampTz), Is(SPAN)], instant_minus_interval),
    infix("-", &[Is(TimestampTz), Is(TimestampTz)], SPAN, difference),
    infix("+", &[Is(Time), Is(SPAN)], Time, time_plus_interval),
    infix("+", &[Is(SPAN), Is(Time)], Time, interval_plus_time),
    infix("-", &[Is(Time), Is(SPAN)], Time, time_minus_interval),
    infix("-", &[Is(Time), Is(Time)], SPAN, time_minus_time),
    infix("+", &[Is(SPAN), Is(SPAN)], SPAN, interval_plus_interval),
    infix("-", &[Is(SPAN), Is(SPAN)], SPAN, interval_minus_interval),
    infix("*", &[Is(SPAN), Is(Float8)], SPAN, interval_times),
    infix("*", &[Is(Float8), Is(SPAN)], SPAN, times_interval),
    infix("/", &[Is(SPAN), Is(Float8)], SPAN, interval_over),
    Entry {
        kind: Kind::Prefix,
        ..function("-", &[Is(SPAN)], SPAN, minus_interval)
    },
];

/// Midnight of a date, for comparison with a timestamp. Outside the range of timestamps it sorts before or
/// after every finite one without being infinite.
static COMPARED_DATES: &[Entry] = &[
    Entry {
        fallible: false,
        ..function("compared_date", &[Is(Date)], Timestamp, |_, arguments| {
            Ok(Value::Timestamp(midnight_of(date(arguments, 0)?, Ok)))
        })
    },
    Entry {
        fallible: false,
        ..stable("compared_date", &[Is(Date)], TimestampTz, |context, arguments| {
            let utc = |local| utc_of_local(local, &context.zone);
            Ok(Value::TimestampTz(midnight_of(date(arguments, 0)?, utc)))
        })
    },
];

/// The conversion of a date for comparison with a type; `None` if the type is not a timestamp.
#[must_use]
pub fn compared_date(ty: &SqlType) -> Option<&'static Entry> {
    let ty = crate::table::Returns::Is(*ty);
    COMPARED_DATES.iter().find(|entry| entry.returns == ty)
}

/// The midnight as which a date is compared with timestamps without time zone. Dates beyond these are before
/// or after all finite ones.
#[must_use]
pub fn midnight_compared(date: i32) -> i64 {
    midnight_of(date, Ok)
}

fn midnight_of(date: i32, utc: impl FnOnce(i64) -> Result<i64, SqlError>) -> i64 {
    let beyond = if date < 0 { i64::MIN + 1 } else { i64::MAX - 1 };
    match timestamp_of_date(date) {
        Ok(local) if is_infinite(local) => local,
        Ok(local) => utc(local).unwrap_or(beyond),
        Err(_) => beyond,
    }
}

const fn zoned(name: &'static str, arguments: &'static [Arg], compute: crate::table::Compute) -> Entry {
    Entry {
        kind: Kind::Infix,
        volatility: Volatility::Stable,
        ..stable(name, arguments, TimestampTz, compute)
    }
}

/// The date `more` days after another.
fn later_date(days: i32, more: i64) -> Result<Value, SqlError> {
    if matches!(days, i32::MAX | i32::MIN) {
        return Ok(Value::Date(days));
    }
    i32::try_from(i64::from(days) + more)
        .ok()
        .filter(|days| !matches!(*days, i32::MAX | i32::MIN) && is_date(*days))
        .map(Value::Date)
        .ok_or_else(|| out_of_range("date out of range"))
}

fn date_plus_days(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    later_date(date(arguments, 0)?, i64::from(int4(arguments, 1)?))
}

fn days_plus_date(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    date_plus_days(context, &swapped(arguments)?)
}

fn date_minus_days(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    later_date(date(arguments, 0)?, -i64::from(int4(arguments, 1)?))
}

fn date_minus_date(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let (a, b) = (date(arguments, 0)?, date(arguments, 1)?);
    if [a, b].iter().any(|days| matches!(*days, i32::MAX | i32::MIN)) {
        return Err(out_of_range("cannot subtract infinite dates"));
    }
    Ok(Value::Int4(a.wrapping_sub(b)))
}

/// The negated interval; fields without a negative wrap around, as in PostgreSQL.
fn opposite(span: Interval) -> Interval {
    Interval {
        months: span.months.wrapping_neg(),
        days: span.days.wrapping_neg(),
        micros: span.micros.wrapping_neg(),
    }
}

/// Adds months, clamping the day to the length of the month, then days; ignores the microseconds.
fn plus_months_and_days(local: i64, span: Interval) -> Result<i64, SqlError> {
    let (mut days, time) = (local.div_euclid(MICROS_PER_DAY), local.rem_euclid(MICROS_PER_DAY));
    let checked = |days: i64| {
        days.checked_mul(MICROS_PER_DAY)
            .and_then(|micros| micros.checked_add(time))
            .filter(|micros| is_finite_timestamp(*micros))
            .ok_or_else(timestamp_out_of_range)
    };
    if span.months != 0 {
        let (year, month, day) = civil_from_days(days);
        let months = year * 12 + i64::from(month) - 1 + i64::from(span.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        days = days_from_civil(year, month, day.min(days_in_month(year, month)));
        checked(days)?;
    }
    checked(days + i64::from(span.days))
}

/// Adds an interval to a timestamp without time zone; infinity stays.
pub(super) fn plus(local: i64, span: Interval) -> Result<i64, SqlError> {
    if is_infinite(local) {
        return Ok(local);
    }
    plus_months_and_days(local, span)?
        .checked_add(span.micros)
        .filter(|micros| is_finite_timestamp(*micros))
        .ok_or_else(timestamp_out_of_range)
}

/// Adds an interval to an instant, months and days in a zone's local time; infinity stays.
pub(super) fn plus_in(utc: i64, span: Interval, zone: &TimeZone) -> Result<i64, SqlError> {
    if is_infinite(utc) {
        return Ok(utc);
    }
    let mut utc = utc;
    // Months and days are each added in local time and converted back.
    if span.months != 0 {
        let months = Interval {
            days: 0,
            micros: 0,
            ..span
        };
        utc = utc_of_local(plus_months_and_days(local_of_utc(utc, zone)?, months)?, zone)?;
    }
    if span.days != 0 {
        let days = Interval {
            months: 0,
            micros: 0,
            ..span
        };
        utc = utc_of_local(plus_months_and_days(local_of_utc(utc, zone)?, days)?, zone)?;
    }
    utc.checked_add(span.micros)
        .filter(|micros| is_finite_timestamp(*micros))
        .ok_or_else(timestamp_out_of_range)
}

fn date_plus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    plus(timestamp_of_date(date(arguments, 0)?)?, interval(arguments, 1)?).map(Value::Timestamp)
}

fn interval_plus_date(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    date_plus_interval(context, &swapped(arguments)?)
}

fn date_minus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let local = timestamp_of_date(date(arguments, 0)?)?;
    plus(local, opposite(interval(arguments, 1)?)).map(Value::Timestamp)
}

fn date_plus_time(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let local = timestamp_of_date(date(arguments, 0)?)?;
    plus(local, Interval::of_micros(time(arguments, 1)?)).map(Value::Timestamp)
}

fn time_plus_date(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    date_plus_time(context, &swapped(arguments)?)
}

fn timestamp_plus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    plus(micros(arguments, 0)?, interval(arguments, 1)?).map(Value::Timestamp)
}

fn interval_plus_timestamp(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    timestamp_plus_interval(context, &swapped(arguments)?)
}

fn timestamp_minus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    plus(micros(arguments, 0)?, opposite(interval(arguments, 1)?)).map(Value::Timestamp)
}

fn instant_plus_interval(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    plus_in(micros(arguments, 0)?, interval(arguments, 1)?, &context.zone).map(Value::TimestampTz)
}

fn interval_plus_instant(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    instant_plus_interval(context, &swapped(arguments)?)
}

fn instant_minus_interval(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let span = opposite(interval(arguments, 1)?);
    plus_in(micros(arguments, 0)?, span, &context.zone).map(Value::TimestampTz)
}

/// Days and microseconds between two timestamps.
fn difference(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let (a, b) = (micros(arguments, 0)?, micros(arguments, 1)?);
    if is_infinite(a) || is_infinite(b) {
        return Err(out_of_range("cannot subtract infinite timestamps"));
    }
    let micros = a.checked_sub(b).ok_or_else(interval_out_of_range)?;
    Ok(Value::Interval(Interval {
        months: 0,
        days: (micros / MICROS_PER_DAY) as i32,
        micros: micros % MICROS_PER_DAY,
    }))
}

fn time_plus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    // PostgreSQL 15 does not check this sum for overflow; nor the one below.
    let sum = time(arguments, 0)?.wrapping_add(interval(arguments, 1)?.micros);
    Ok(Value::Time(sum.rem_euclid(MICROS_PER_DAY)))
}

fn interval_plus_time(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    time_plus_interval(context, &swapped(arguments)?)
}

fn time_minus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let difference = time(arguments, 0)?.wrapping_sub(interval(arguments, 1)?.micros);
    Ok(Value::Time(difference.rem_euclid(MICROS_PER_DAY)))
}

fn time_minus_time(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let micros = time(arguments, 0)? - time(arguments, 1)?;
    Ok(Value::Interval(Interval::of_micros(micros)))
}

fn field_by_field(a: Interval, b: Interval, subtract: bool) -> Option<Interval> {
    Some(if subtract {
        Interval {
            months: a.months.checked_sub(b.months)?,
            days: a.days.checked_sub(b.days)?,
            micros: a.micros.checked_sub(b.micros)?,
        }
    } else {
        Interval {
            months: a.months.checked_add(b.months)?,
            days: a.days.checked_add(b.days)?,
            micros: a.micros.checked_add(b.micros)?,
        }
    })
}

fn interval_plus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let sum = field_by_field(interval(arguments, 0)?, interval(arguments, 1)?, false);
    sum.map(Value::Interval).ok_or_else(interval_out_of_range)
}

fn interval_minus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let rest = field_by_field(interval(arguments, 0)?, interval(arguments, 1)?, true);
    rest.map(Value::Interval).ok_or_else(interval_out_of_range)
}

fn minus_interval(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let negative = field_by_field(Interval::default(), interval(arguments, 0)?, true);
    negative.map(Value::Interval).ok_or_else(interval_out_of_range)
}

/// Rounds seconds to microseconds: PostgreSQL's `TSROUND`.
fn to_micros(seconds: f64) -> f64 {
    (seconds * MICROS_PER_SECOND).round_ties_even() / MICROS_PER_SECOND
}

fn whole(value: f64) -> Option<i32> {
    (value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX)).then_some(value as i32)
}

/// Scales each field, carrying the fractions of months and days to days and microseconds.
fn scaled(span: Interval, scale: impl Fn(f64) -> f64) -> Option<Interval> {
    let (months, days) = (scale(f64::from(span.months)), scale(f64::from(span.days)));
    let (whole_months, whole_days) = (whole(months)?, whole(days)?);
    let more_days = to_micros((months - f64::from(whole_months)) * DAYS_PER_MONTH);
    let part = days - f64::from(whole_days) + more_days - more_days.trunc();
    let mut seconds = to_micros(part * SECONDS_PER_DAY);
    let mut total_days = whole_days;
    if seconds.abs() >= SECONDS_PER_DAY {
        let carried = (seconds / SECONDS_PER_DAY).trunc();
        total_days = total_days.checked_add(carried as i32)?;
        seconds -= carried * SECONDS_PER_DAY;
    }
    let micros = (scale(span.micros as f64) + seconds * MICROS_PER_SECOND).round_ties_even();
    let fits = micros >= i64::MIN as f64 && micros < -(i64::MIN as f64);
    fits.then_some(Interval {
        months: whole_months,
        days: total_days.checked_add(whole(more_days.trunc())?)?,
        micros: micros as i64,
    })
}

fn interval_times(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let (span, factor) = (interval(arguments, 0)?, float8(arguments, 1)?);
    let product = scaled(span, |field| field * factor);
    product.map(Value::Interval).ok_or_else(interval_out_of_range)
}

fn times_interval(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    interval_times(context, &swapped(arguments)?)
}

fn interval_over(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let (span, divisor) = (interval(arguments, 0)?, float8(arguments, 1)?);
    if divisor == 0.0 {
        return Err(weft_types::range::division_by_zero());
    }
    let quotient = scaled(span, |field| field / divisor);
    quotient.map(Value::Interval).ok_or_else(interval_out_of_range)
}

#[cfg(test)]
mod tests {
    use weft_types::{TimeZone, format_text, parse_text};

    use super::*;

    fn micros_of(text: &str) -> i64 {
        match parse_text(text, &TimestampTz) {
            Ok(Value::TimestampTz(micros)) => micros,
            _ => 0,
        }
    }

    fn span_of(text: &str) -> Interval {
        match parse_text(text, &SPAN) {
            Ok(Value::Interval(span)) => span,
            _ => Interval::default(),
        }
    }

    fn shown(value: &Value, ty: &SqlType) -> String {
        let mut out = String::new();
        format_text(value, ty, &mut out);
        out
    }

    #[test]
    fn months_end_where_the_month_ends() {
        let later = plus(micros_of("2024-01-31 05:00"), span_of("1 month")).map(Value::Timestamp);
        let later = later.map(|value| shown(&value, &Timestamp));
        assert_eq!(later.as_deref(), Ok("2024-02-29 05:00:00"));
        assert!(plus(micros_of("294276-12-31"), span_of("1 day")).is_err());
        assert_eq!(plus(i64::MAX, span_of("-1 day")), Ok(i64::MAX));
    }

    #[test]
    fn days_are_those_of_the_clocks() {
        let Some(zone) = TimeZone::from_name("Europe/Zurich") else {
            return;
        };
        // The night on which daylight saving time begins has 23 hours.
        let before = micros_of("2024-03-30 12:00+01");
        assert_eq!(
            plus_in(before, span_of("1 day"), &zone),
            Ok(micros_of("2024-03-31 12:00+02"))
        );
        assert_eq!(
            plus_in(before, span_of("24:00"), &zone),
            Ok(micros_of("2024-03-31 13:00+02"))
        );
    }

    #[test]
    fn products_and_quotients_cascade() {
        let times = |text, factor: f64| {
            let product = scaled(span_of(text), |field| field * factor).unwrap_or_default();
            shown(&Value::Interval(product), &SPAN)
        };
        assert_eq!(times("1 mon 1 day 01:00", 1.5), "1 mon 16 days 13:30:00");
        assert_eq!(times("1 year", 0.1), "1 mon 6 days");
        assert_eq!(times("1 mon", 1.0 / 3.0), "10 days");
    }
}
