//! Ages, justified intervals, overlaps and series.

use std::cmp::Ordering;

use weft_types::calendar::{MICROS_PER_DAY, days_in_month, local_of_utc, utc_of_local};
use weft_types::{Interval, SqlError, SqlType, Value, ValueRef, compare_ref};

use super::arithmetic::{plus, plus_in};
use super::clock::Shown;
use super::moments::local_start;
use super::values::{
    date, function, interval, interval_out_of_range, invalid, is_infinite, micros, out_of_range, stable,
};
use crate::context::Context;
use crate::functions::arguments::{Arguments, mismatch};
use crate::table::{Arg, Entry, Returns, SetEntry};

use Arg::Is;
use SqlType::{Bool, Date, Time, Timestamp, TimestampTz};

const SPAN: SqlType = SqlType::Interval;
const DAYS_PER_MONTH: i32 = 30;

/// The functions.
pub static SPANS: &[Entry] = &[
    function("age", &[Is(Timestamp), Is(Timestamp)], SPAN, |_, a| {
        let (one, other) = (micros(a, 0)?, micros(a, 1)?);
        age(one, other, one < other)
    }),
    // Immutable in PostgreSQL, although the result depends on the time zone.
    function("age", &[Is(TimestampTz), Is(TimestampTz)], SPAN, |context, a| {
        let (one, other) = (micros(a, 0)?, micros(a, 1)?);
        let local = |utc| local_of_utc(utc, &context.zone);
        age(local(one)?, local(other)?, one < other)
    }),
    stable("age", &[Is(Timestamp)], SPAN, |context, a| {
        let (today, other) = (midnight(context)?, micros(a, 0)?);
        age(today, other, today < other)
    }),
    stable("age", &[Is(TimestampTz)], SPAN, |context, a| {
        let (today, other) = (midnight(context)?, micros(a, 0)?);
        let earlier = utc_of_local(today, &context.zone)? < other;
        age(today, local_of_utc(other, &context.zone)?, earlier)
    }),
    function("justify_days", &[Is(SPAN)], SPAN, |_, a| {
        done(justify_days(interval(a, 0)?))
    }),
    function("justify_hours", &[Is(SPAN)], SPAN, |_, a| {
        done(justify_hours(interval(a, 0)?))
    }),
    function("justify_interval", &[Is(SPAN)], SPAN, |_, a| {
        done(justify_interval(interval(a, 0)?))
    }),
    function("isfinite", &[Is(Date)], Bool, |_, a| {
        Ok(Value::Bool(!matches!(date(a, 0)?, i32::MAX | i32::MIN)))
    }),
    function("isfinite", &[Is(Timestamp)], Bool, |_, a| {
        Ok(Value::Bool(!is_infinite(micros(a, 0)?)))
    }),
    function("isfinite", &[Is(TimestampTz)], Bool, |_, a| {
        Ok(Value::Bool(!is_infinite(micros(a, 0)?)))
    }),
    function("isfinite", &[Is(SPAN)], Bool, |_, _| Ok(Value::Bool(true))),
    overlap(&[Is(Timestamp), Is(Timestamp), Is(Timestamp), Is(Timestamp)]),
    overlap(&[Is(Timestamp), Is(Timestamp), Is(Timestamp), Is(SPAN)]),
    overlap(&[Is(Timestamp), Is(SPAN), Is(Timestamp), Is(Timestamp)]),
    overlap(&[Is(Timestamp), Is(SPAN), Is(Timestamp), Is(SPAN)]),
    overlap(&[Is(TimestampTz), Is(TimestampTz), Is(TimestampTz), Is(TimestampTz)]),
    zoned_overlap(&[Is(TimestampTz), Is(TimestampTz), Is(TimestampTz), Is(SPAN)]),
    zoned_overlap(&[Is(TimestampTz), Is(SPAN), Is(TimestampTz), Is(TimestampTz)]),
    zoned_overlap(&[Is(TimestampTz), Is(SPAN), Is(TimestampTz), Is(SPAN)]),
    overlap(&[Is(Time), Is(Time), Is(Time), Is(Time)]),
    overlap(&[Is(Time), Is(Time), Is(Time), Is(SPAN)]),
    overlap(&[Is(Time), Is(SPAN), Is(Time), Is(Time)]),
    overlap(&[Is(Time), Is(SPAN), Is(Time), Is(SPAN)]),
];

const fn overlap(arguments: &'static [Arg]) -> Entry {
    Entry {
        strict: false,
        ..function("overlaps", arguments, Bool, overlaps)
    }
}

/// A period's end is computed in the session's zone.
const fn zoned_overlap(arguments: &'static [Arg]) -> Entry {
    Entry {
        strict: false,
        ..stable("overlaps", arguments, Bool, overlaps)
    }
}

/// The set-returning functions.
pub static SERIES: &[SetEntry] = &[
    SetEntry {
        name: "generate_series",
        arguments: &[Is(Timestamp), Is(Timestamp), Is(SPAN)],
        columns: &[("generate_series", Returns::Is(Timestamp))],
        strict: true,
        compute: |context, arguments, emit| series(context, arguments, emit, false),
    },
    SetEntry {
        name: "generate_series",
        arguments: &[Is(TimestampTz), Is(TimestampTz), Is(SPAN)],
        columns: &[("generate_series", Returns::Is(TimestampTz))],
        strict: true,
        compute: |context, arguments, emit| series(context, arguments, emit, true),
    },
];

fn midnight(context: &Context<'_>) -> Result<i64, SqlError> {
    let local = local_start(context)?;
    Ok(local - local.rem_euclid(MICROS_PER_DAY))
}

fn done(span: Option<Interval>) -> Result<Value, SqlError> {
    span.map(Value::Interval).ok_or_else(interval_out_of_range)
}

/// The difference in calendar years, months and days. The signs are inverted if `earlier`: the first
/// instant is the earlier one.
fn age(one: i64, other: i64, earlier: bool) -> Result<Value, SqlError> {
    // PostgreSQL 15 decomposes infinity like the number that represents it; -infinity is out of its range.
    if one == i64::MIN || other == i64::MIN {
        return Err(out_of_range("timestamp out of range"));
    }
    let (a, b) = (Shown::of(one), Shown::of(other));
    let sign = if earlier { -1 } else { 1 };
    let mut micros = sign * (a.time() - b.time());
    let mut days = sign * (i64::from(a.day) - i64::from(b.day));
    let mut months = sign * ((a.year - b.year) * 12 + i64::from(a.month) - i64::from(b.month));
    if micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    }
    let borrowed = if earlier { &a } else { &b };
    while days < 0 {
        days += i64::from(days_in_month(borrowed.year, borrowed.month));
        months -= 1;
    }
    let months = i32::try_from(sign * months).map_err(|_| interval_out_of_range())?;
    Ok(Value::Interval(Interval {
        months,
        days: (sign * days) as i32,
        micros: sign * micros,
    }))
}

fn justify_days(span: Interval) -> Option<Interval> {
    let mut months = span.months.checked_add(span.days / DAYS_PER_MONTH)?;
    let mut days = span.days % DAYS_PER_MONTH;
    if months > 0 && days < 0 {
        days += DAYS_PER_MONTH;
        months -= 1;
    } else if months < 0 && days > 0 {
        days -= DAYS_PER_MONTH;
        months += 1;
    }
    Some(Interval { months, days, ..span })
}

fn justify_hours(span: Interval) -> Option<Interval> {
    let mut days = span.days.checked_add((span.micros / MICROS_PER_DAY) as i32)?;
    let mut micros = span.micros % MICROS_PER_DAY;
    if days > 0 && micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    } else if days < 0 && micros > 0 {
        micros -= MICROS_PER_DAY;
        days += 1;
    }
    Some(Interval { days, micros, ..span })
}

fn justify_interval(span: Interval) -> Option<Interval> {
    let mut months = i64::from(span.months);
    let mut days = i64::from(span.days) + span.micros / MICROS_PER_DAY;
    let mut micros = span.micros % MICROS_PER_DAY;
    let month = i64::from(DAYS_PER_MONTH);
    months += days / month;
    days %= month;
    if months > 0 && (days < 0 || (days == 0 && micros < 0)) {
        days += month;
        months -= 1;
    } else if months < 0 && (days > 0 || (days == 0 && micros > 0)) {
        days -= month;
        months += 1;
    }
    if days > 0 && micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    } else if days < 0 && micros > 0 {
        micros -= MICROS_PER_DAY;
        days += 1;
    }
    Some(Interval {
        months: i32::try_from(months).ok()?,
        days: i32::try_from(days).ok()?,
        micros,
    })
}

/// The end of a period that is given by its start and its end or length.
fn end_of(context: &Context<'_>, start: &ValueRef<'_>, end: &ValueRef<'_>) -> Result<Value, SqlError> {
    Ok(match (start, end) {
        (ValueRef::Timestamp(at), ValueRef::Interval(span)) => Value::Timestamp(plus(*at, *span)?),
        (ValueRef::TimestampTz(at), ValueRef::Interval(span)) => {
            Value::TimestampTz(plus_in(*at, *span, &context.zone)?)
        }
        (ValueRef::Time(at), ValueRef::Interval(span)) => {
            let span = span.micros.rem_euclid(MICROS_PER_DAY);
            Value::Time((at + span).rem_euclid(MICROS_PER_DAY))
        }
        (ValueRef::Null, ValueRef::Interval(_)) => Value::Null,
        (_, end) => end.to_value(),
    })
}

/// SQL's OVERLAPS, which may be decidable even if one end of a period is unknown.
fn overlaps(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let [first, first_end, second, second_end] = arguments else {
        return Err(mismatch());
    };
    let ends = (
        end_of(context, first, first_end)?,
        end_of(context, second, second_end)?,
    );
    let greater = |a: &ValueRef<'_>, b: &ValueRef<'_>| compare_ref(a, b) == Some(Ordering::Greater);
    // The earlier of start and end first; an unknown one last.
    let ordered = |start: &ValueRef<'_>, end: &ValueRef<'_>| match start.is_null() || greater(start, end) {
        true => (end.to_value(), start.to_value()),
        false => (start.to_value(), end.to_value()),
    };
    let (first, first_end) = ordered(first, &ends.0.as_ref());
    let (second, second_end) = ordered(second, &ends.1.as_ref());
    if first.is_null() || second.is_null() {
        return Ok(Value::Null);
    }
    let less = |a: &Value, b: &Value| compare_ref(&a.as_ref(), &b.as_ref()) == Some(Ordering::Less);
    // Whether the later period begins before the earlier one has ended.
    let meets = |late: &Value, early_end: &Value, late_end: &Value| {
        if early_end.is_null() {
            return Value::Null;
        }
        if less(late, early_end) {
            return Value::Bool(true);
        }
        // It does not; the answer is false unless the later period's end is unknown.
        match late_end.is_null() {
            true => Value::Null,
            false => Value::Bool(false),
        }
    };
    Ok(match compare_ref(&first.as_ref(), &second.as_ref()) {
        Some(Ordering::Greater) => meets(&first, &second_end, &first_end),
        Some(Ordering::Less) => meets(&second, &first_end, &second_end),
        // Both begin at the same time: they overlap, unless both ends are unknown.
        _ if first_end.is_null() || second_end.is_null() => Value::Null,
        _ => Value::Bool(true),
    })
}

fn series(
    context: &Context<'_>,
    arguments: Arguments<'_, '_>,
    emit: &mut dyn FnMut(Vec<Value>) -> Result<(), SqlError>,
    zoned: bool,
) -> Result<(), SqlError> {
    let (mut at, end, step) = (
        micros(arguments, 0)?,
        micros(arguments, 1)?,
        interval(arguments, 2)?,
    );
    let sign = step.span().signum();
    if sign == 0 {
        return Err(invalid("step size cannot equal zero"));
    }
    while if sign > 0 { at <= end } else { at >= end } {
        let value = match zoned {
            true => Value::TimestampTz(at),
            false => Value::Timestamp(at),
        };
        emit(vec![value])?;
        at = match zoned {
            true => plus_in(at, step, &context.zone)?,
            false => plus(at, step)?,
        };
    }
    Ok(())
}
