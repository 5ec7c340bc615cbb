//! `to_char` of timestamps and intervals.

use weft_types::calendar::{EPOCH_JULIAN_DAY, local_of_utc};
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::clock::{Shown, day_of_week, day_of_year, iso_week, iso_year_start, julian_day};
use super::format_template::{Ordinal, Piece, cut};
use super::values::{interval, is_infinite, micros, stable};
use crate::functions::arguments::{Arguments, text};
use crate::table::{Arg, Entry};

use Arg::Is;
use SqlType::{Text, Timestamp, TimestampTz};

const SPAN: SqlType = SqlType::Interval;
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
pub(super) const ROMAN: [&str; 12] = [
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
];

/// `to_char`.
pub static FORMATS: &[Entry] = &[
    stable("to_char", &[Is(Timestamp), Is(Text)], Text, |_, a| {
        let local = micros(a, 0)?;
        shown(is_infinite(local), a, || Ok(Moment::of(local)))
    }),
    stable("to_char", &[Is(TimestampTz), Is(Text)], Text, |context, a| {
        let utc = micros(a, 0)?;
        shown(is_infinite(utc), a, || {
            Ok(Moment {
                zone: Some((context.zone.offset_at(utc), context.zone.abbreviation_at(utc))),
                ..Moment::of(local_of_utc(utc, &context.zone)?)
            })
        })
    }),
    stable("to_char", &[Is(SPAN), Is(Text)], Text, |_, a| {
        let span = interval(a, 0)?;
        let seconds = span.micros / 1_000_000;
        shown(false, a, || {
            Ok(Moment {
                year: i64::from(span.months / 12),
                month: i64::from(span.months % 12),
                day: i64::from(span.days),
                hour: seconds / 3600,
                minute: seconds / 60 % 60,
                second: seconds % 60,
                micros: span.micros % 1_000_000,
                // PostgreSQL counts an interval's days this way.
                day_of_year: i64::from(span.months) * 30 + i64::from(span.days),
                date: None,
                zone: None,
            })
        })
    }),
];

/// The fields that a template formats.
struct Moment {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    day_of_year: i64,
    /// Days since 2000-01-01; `None` for an interval.
    date: Option<i64>,
    zone: Option<(i32, String)>,
}

impl Moment {
    fn of(local: i64) -> Self {
        let shown = Shown::of(local);
        Self {
            year: shown.year,
            month: i64::from(shown.month),
            day: i64::from(shown.day),
            hour: shown.hour,
            minute: shown.minute,
            second: shown.second,
            micros: shown.micros,
            day_of_year: day_of_year(&shown),
            date: Some(shown.days()),
            zone: None,
        }
    }
}

/// A day's Julian number and its number within its ISO year.
struct DayNumber {
    julian: i64,
    iso_year: i64,
    iso_week: i64,
    day_of_iso_year: i64,
}

impl DayNumber {
    fn of(moment: &Moment) -> Self {
        match moment.date {
            Some(days) => {
                let (iso_year, iso_week) = iso_week(days);
                DayNumber {
                    julian: days + EPOCH_JULIAN_DAY,
                    iso_year,
                    iso_week,
                    day_of_iso_year: days - iso_year_start(iso_year) + 1,
                }
            }
            None => DayNumber::of_span(moment.year, moment.month, moment.day),
        }
    }

    /// PostgreSQL 15 computes these for an interval as if its years, months and days were a date,
    /// whatever their values.
    fn of_span(year: i64, month: i64, day: i64) -> Self {
        let julian = julian_day(year, month, day);
        let first = |year: i64| {
            let fourth = julian_day(year, 1, 4);
            fourth - fourth.rem_euclid(7)
        };
        let iso_year = match julian {
            _ if julian < first(year) => year - 1,
            _ if julian >= first(year + 1) => year + 1,
            _ => year,
        };
        let start = first(iso_year);
        DayNumber {
            julian,
            iso_year,
            iso_week: (julian - start) / 7 + 1,
            day_of_iso_year: julian - start + 1,
        }
    }
}

fn shown(
    infinite: bool,
    arguments: Arguments<'_, '_>,
    moment: impl FnOnce() -> Result<Moment, SqlError>,
) -> Result<Value, SqlError> {
    let template = text(arguments, 1)?;
    if template.is_empty() || infinite {
        return Ok(Value::Null);
    }
    let moment = moment()?;
    let mut out = String::new();
    let mut pace = Pace::default();
    for piece in cut(template)? {
        pace.step(16)?;
        match piece {
            Piece::Text(text) => out.push_str(&text),
            Piece::Pattern {
                word,
                fill,
                translated,
                ordinal,
            } => {
                let start = out.len();
                let is_number = push_pattern(&moment, word, fill, translated, &mut out)?;
                if is_number {
                    push_ordinal(ordinal, start, &mut out);
                }
            }
        }
    }
    Ok(Value::Text(out))
}

fn not_of_intervals() -> SqlError {
    SqlError::new(
        SqlState::INVALID_DATETIME_FORMAT,
        "invalid format specification for an interval value",
    )
    .hint("Intervals are not tied to specific calendar dates.")
}

/// Appends a pattern's value; returns whether it is a number, which can take an ordinal suffix.
fn push_pattern(
    moment: &Moment,
    word: &str,
    fill: bool,
    translated: bool,
    out: &mut String,
) -> Result<bool, SqlError> {
    let date = || moment.date.ok_or_else(not_of_intervals);
    let numbered = || DayNumber::of(moment);
    let mut number = |value: i64, width: usize| {
        // C's %0*d, one column wider for a sign.
        let width = match (fill, value < 0) {
            (true, _) => 0,
            (false, negative) => width + usize::from(negative),
        };
        fixed(value, width, out)
    };
    let year = match moment.date {
        Some(_) if moment.year <= 0 => 1 - moment.year,
        _ => moment.year,
    };
    let iso_year = || match numbered().iso_year {
        year if moment.date.is_some() && year <= 0 => 1 - year,
        year => year,
    };
    // One column wider for the sign of the calendar year, which may differ from the ISO year's.
    let iso_width = |width: usize| if fill { 0 } else { width + usize::from(year < 0) };
    match word.to_ascii_uppercase().as_str() {
        "HH" | "HH12" => number(
            match moment.hour % 12 {
                0 => 12,
                hour => hour,
            },
            2,
        ),
        "HH24" => number(moment.hour, 2),
        "MI" => number(moment.minute, 2),
        "SS" => number(moment.second, 2),
        "SSSS" | "SSSSS" => number((moment.hour * 60 + moment.minute) * 60 + moment.second, 0),
        "MS" | "FF3" => fixed(moment.micros / 1000, 3, out),
        "US" | "FF6" => fixed(moment.micros, 6, out),
        "FF1" => fixed(moment.micros / 100_000, 1, out),
        "FF2" => fixed(moment.micros / 10_000, 2, out),
        "FF4" => fixed(moment.micros / 100, 4, out),
        "FF5" => fixed(moment.micros / 10, 5, out),
        "Y,YYY" => {
            out.push_str(&format!("{},{:03}", year / 1000, year % 1000));
            Ok(true)
        }
        "YYYY" => number(year, 4),
        "YYY" => number(year % 1000, 3),
        "YY" => number(year % 100, 2),
        "Y" => number(year % 10, 1),
        "IYYY" => fixed(iso_year(), iso_width(4), out),
        "IYY" => fixed(iso_year() % 1000, iso_width(3), out),
        "IY" => fixed(iso_year() % 100, iso_width(2), out),
        "I" => fixed(iso_year() % 10, iso_width(1), out),
        "MM" => number(moment.month, 2),
        "DDD" => fixed(moment.day_of_year, if fill { 0 } else { 3 }, out),
        "IDDD" => fixed(numbered().day_of_iso_year, if fill { 0 } else { 3 }, out),
        "DD" => fixed(moment.day, if fill { 0 } else { 2 }, out),
        "D" => number(day_of_week(date()?) + 1, 0),
        "ID" => number((day_of_week(date()?) + 6) % 7 + 1, 0),
        "WW" => fixed((moment.day_of_year - 1) / 7 + 1, if fill { 0 } else { 2 }, out),
        "IW" => fixed(numbered().iso_week, if fill { 0 } else { 2 }, out),
        "W" => number((moment.day - 1) / 7 + 1, 0),
        "Q" if moment.month == 0 => Ok(false),
        "Q" => number((moment.month - 1) / 3 + 1, 0),
        "CC" => number(
            match (moment.date, moment.year) {
                (None, year) => year / 100,
                (_, year) if year > 0 => (year - 1) / 100 + 1,
                (_, year) => year / 100 - 1,
            },
            2,
        ),
        "J" => fixed(numbered().julian, 0, out),
        _ => push_name(moment, word, fill, translated, out).map(|()| false),
    }
}

fn fixed(value: i64, width: usize, out: &mut String) -> Result<bool, SqlError> {
    out.push_str(&format!("{value:0width$}"));
    Ok(true)
}

/// Appends a pattern that is not numeric.
fn push_name(
    moment: &Moment,
    word: &str,
    fill: bool,
    translated: bool,
    out: &mut String,
) -> Result<(), SqlError> {
    let upper = word.to_ascii_uppercase();
    let cased = |name: &str| match word {
        _ if word == upper => name.to_ascii_uppercase(),
        _ if word.starts_with(|c: char| c.is_ascii_uppercase()) => name.to_owned(),
        _ => name.to_ascii_lowercase(),
    };
    let half = |before: &str, after: &str| {
        let name = if moment.hour % 24 >= 12 { after } else { before };
        cased(name)
    };
    let name_at = |names: &[&'static str], at: i64| {
        let at = usize::try_from(at).ok()?;
        names.get(at).copied()
    };
    let padded = |name: String, width: usize| match fill {
        true => name,
        false => format!("{name:width$}"),
    };
    let text = match upper.as_str() {
        "FX" => return Ok(()),
        "AM" | "PM" => half("AM", "PM"),
        "A.M." | "P.M." => half("A.M.", "P.M."),
        "RM" => {
            // A whole number of years shows December, or January if negative.
            let at = match (moment.month, moment.year) {
                (0, 0) => return Ok(()),
                (0, 1..) => 11,
                (0, _) => 0,
                (month, _) if month > 0 => month - 1,
                (month, _) => month.rem_euclid(12),
            };
            padded(cased(name_at(&ROMAN, at).unwrap_or("")), 4)
        }
        _ if moment.date.is_none() => return Err(not_of_intervals()),
        "AD" | "BC" => cased(if moment.year <= 0 { "BC" } else { "AD" }),
        "A.D." | "B.C." => cased(if moment.year <= 0 { "B.C." } else { "A.D." }),
        "MONTH" => {
            let name = cased(name_at(&MONTHS, moment.month - 1).unwrap_or(""));
            padded(name, if translated { 0 } else { 9 })
        }
        "MON" => cased(
            name_at(&MONTHS, moment.month - 1)
                .and_then(|name| name.get(..3))
                .unwrap_or(""),
        ),
        "DAY" | "DY" => {
            let name = name_at(&DAYS, day_of_week(moment.date.unwrap_or(0))).unwrap_or("");
            match upper.as_str() {
                "DAY" => padded(cased(name), if translated { 0 } else { 9 }),
                _ => cased(name.get(..3).unwrap_or("")),
            }
        }
        _ => zone_text(moment, &upper, word == upper, fill),
    };
    out.push_str(&text);
    Ok(())
}

/// `TZ`, `TZH`, `TZM`, `OF`; a timestamp without time zone has an offset of 0 and no name.
fn zone_text(moment: &Moment, upper: &str, is_upper: bool, fill: bool) -> String {
    let (offset, name) = match &moment.zone {
        Some((offset, name)) => (*offset, name.as_str()),
        None => (0, ""),
    };
    let sign = if offset < 0 { '-' } else { '+' };
    let (hours, minutes) = (offset.abs() / 3600, offset.abs() / 60 % 60);
    match upper {
        "TZ" if is_upper => name.to_owned(),
        "TZ" => name.to_ascii_lowercase(),
        "TZH" => format!("{sign}{hours:02}"),
        "TZM" => format!("{minutes:02}"),
        _ => {
            let width = if fill { 0 } else { 2 };
            match minutes {
                0 => format!("{sign}{hours:0width$}"),
                _ => format!("{sign}{hours:0width$}:{minutes:02}"),
            }
        }
    }
}

/// Appends the ordinal suffix of the number that begins at `start`.
fn push_ordinal(ordinal: Ordinal, start: usize, out: &mut String) {
    let digits = out.get(start..).unwrap_or("").as_bytes();
    let ending = match digits {
        [.., b'1', _] => "th",
        [.., b'1'] => "st",
        [.., b'2'] => "nd",
        [.., b'3'] => "rd",
        _ => "th",
    };
    match ordinal {
        Ordinal::None => {}
        Ordinal::Upper => out.push_str(&ending.to_ascii_uppercase()),
        Ordinal::Lower => out.push_str(ending),
    }
}
