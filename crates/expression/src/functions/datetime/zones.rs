//! `AT TIME ZONE`: between what clocks show and instants.

use weft_types::calendar::{is_finite_timestamp, local_of_utc, timestamp_out_of_range, utc_of_local};
use weft_types::{Interval, SqlError, SqlType, TimeZone, Value};

use super::values::{function, interval, invalid, is_infinite, micros};
use crate::functions::arguments::{Arguments, text};
use crate::table::{Arg, Entry};

use Arg::Is;
use SqlType::{Text, Timestamp, TimestampTz};

const SPAN: SqlType = SqlType::Interval;

/// The functions.
pub static ZONES: &[Entry] = &[
    function("timezone", &[Is(Text), Is(Timestamp)], TimestampTz, |_, a| {
        to_instant(a, || zone_of(text(a, 0)?))
    }),
    function("timezone", &[Is(Text), Is(TimestampTz)], Timestamp, |_, a| {
        to_local(a, || zone_of(text(a, 0)?))
    }),
    function("timezone", &[Is(SPAN), Is(Timestamp)], TimestampTz, |_, a| {
        to_instant(a, || fixed_zone(interval(a, 0)?))
    }),
    function("timezone", &[Is(SPAN), Is(TimestampTz)], Timestamp, |_, a| {
        to_local(a, || fixed_zone(interval(a, 0)?))
    }),
];

/// A zone by name, abbreviation or POSIX rule.
pub(super) fn zone_of(name: &str) -> Result<TimeZone, SqlError> {
    TimeZone::from_name(name)
        .or_else(|| posix(name))
        .ok_or_else(|| invalid(format!("time zone \"{name}\" not recognized")))
}

/// `XYZ+3`, `<+03>-3`, `+3`: an offset west of Greenwich behind an optional name, which may be anything.
fn posix(name: &str) -> Option<TimeZone> {
    let offset = match name.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?.1,
        None => {
            let digit_or_sign = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | ',');
            name.get(name.find(digit_or_sign)?..)?
        }
    };
    let (sign, digits) = match offset.as_bytes().first()? {
        b'-' => (1, offset.get(1..)?),
        b'+' => (-1, offset.get(1..)?),
        _ => (-1, offset),
    };
    let mut seconds = 0;
    let mut unit = 3600;
    for (at, part) in digits.split(':').enumerate() {
        let most = if at == 0 { 167 } else { 59 };
        if part.is_empty() || part.len() > 3 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number: i32 = part.parse().ok().filter(|number| *number <= most && at < 3)?;
        seconds += number * unit;
        unit /= 60;
    }
    Some(TimeZone::Fixed(sign * seconds))
}

fn fixed_zone(span: Interval) -> Result<TimeZone, SqlError> {
    if span.months != 0 || span.days != 0 {
        let mut shown = String::new();
        span.format(&mut shown);
        return Err(invalid(format!(
            "interval time zone \"{shown}\" must not include months or days"
        )));
    }
    let seconds = i32::try_from(span.micros / 1_000_000).map_err(|_| timestamp_out_of_range())?;
    Ok(TimeZone::Fixed(seconds))
}

/// A zone that is only looked at where it matters: infinity is the same in all.
type Zone<'a> = &'a dyn Fn() -> Result<TimeZone, SqlError>;

fn to_instant(
    arguments: Arguments<'_, '_>,
    zone: impl Fn() -> Result<TimeZone, SqlError>,
) -> Result<Value, SqlError> {
    shifted(micros(arguments, 1)?, &zone, utc_of_local).map(Value::TimestampTz)
}

fn to_local(
    arguments: Arguments<'_, '_>,
    zone: impl Fn() -> Result<TimeZone, SqlError>,
) -> Result<Value, SqlError> {
    shifted(micros(arguments, 1)?, &zone, local_of_utc).map(Value::Timestamp)
}

fn shifted(
    micros: i64,
    zone: Zone<'_>,
    shift: fn(i64, &TimeZone) -> Result<i64, SqlError>,
) -> Result<i64, SqlError> {
    if is_infinite(micros) {
        return Ok(micros);
    }
    let shifted = shift(micros, &zone()?)?;
    match is_finite_timestamp(shifted) {
        true => Ok(shifted),
        false => Err(timestamp_out_of_range()),
    }
}
