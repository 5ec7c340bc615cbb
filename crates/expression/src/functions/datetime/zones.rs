//! `AT TIME ZONE`: conversion between local time and instants.

use weft_types::calendar::{is_finite_timestamp, local_of_utc, timestamp_out_of_range, utc_of_local};
use weft_types::{Interval, OffsetFault, SqlError, SqlType, TimeZone, Value};

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
    match TimeZone::from_name(name) {
        Some(zone) => Ok(zone),
        None => posix(name)?.ok_or_else(|| invalid(format!("time zone \"{name}\" not recognized"))),
    }
}

/// The zone of `make_timestamptz`: a numeric offset is signed and counts east of Greenwich.
pub(super) fn numeric_zone_of(name: &str) -> Result<TimeZone, SqlError> {
    match name.as_bytes().first() {
        Some(b'0'..=b'9') => {
            let error = invalid(format!(
                "invalid input syntax for type numeric time zone: \"{name}\""
            ));
            Err(error.hint("Numeric time zones must have \"-\" or \"+\" as first character."))
        }
        Some(b'+' | b'-') => match TimeZone::from_offset(name) {
            Ok(zone) => Ok(zone),
            Err(OffsetFault::OutOfRange) => {
                Err(invalid(format!("numeric time zone \"{name}\" out of range")))
            }
            Err(OffsetFault::Syntax) => Err(invalid(format!("time zone \"{name}\" not recognized"))),
        },
        _ => zone_of(name),
    }
}

/// `XYZ+3`, `<+03>-3`, `+3`: an offset west of Greenwich after an optional, arbitrary name.
fn posix(name: &str) -> Result<Option<TimeZone>, SqlError> {
    let offset = match name.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>').map(|(_, offset)| offset),
        None => {
            let digit_or_sign = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | ',');
            name.find(digit_or_sign).and_then(|at| name.get(at..))
        }
    };
    let Some(offset) = offset else { return Ok(None) };
    let (sign, digits) = match offset.as_bytes().first() {
        Some(b'-') => (1, offset.get(1..).unwrap_or("")),
        Some(b'+') => (-1, offset.get(1..).unwrap_or("")),
        _ => (-1, offset),
    };
    let end = digits
        .find(|c: char| !c.is_ascii_digit() && c != ':')
        .unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    let (mut seconds, mut unit) = (0, 3600);
    for (at, part) in digits.split(':').enumerate() {
        let most = if at == 0 { 167 } else { 59 };
        if part.is_empty() || part.len() > 3 {
            return Ok(None);
        }
        let Some(number) = part
            .parse::<i32>()
            .ok()
            .filter(|number| *number <= most && at < 3)
        else {
            return Ok(None);
        };
        seconds += number * unit;
        unit /= 60;
    }
    match rest.chars().next() {
        None => Ok(Some(TimeZone::Fixed(sign * seconds))),
        Some(',') => Ok(None),
        // `EST5EDT` and the like; those that are zone names were already found.
        Some(_) => Err(SqlError::unsupported(
            "POSIX time zones with daylight saving time are not supported",
        )),
    }
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

/// A zone that is resolved only if needed: infinity is the same in every zone.
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
