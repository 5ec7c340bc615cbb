//! Splitting the text of a date or timestamp into fields and interpreting each.
//!
//! ```text
//! number  2024  20240131  101112            year, month or day, whichever is missing; compact date or time
//! date    2024-01-31  1/31/2024  31-Jan-2024   three parts with one delimiter
//! time    10:11  10:11:12.5                 time of day
//! zone    +05:30  -0800                     offset after a date
//! word    jan  pm  bc  z  america/new_york  by its meaning; weekdays and words like "at" are ignored
//! ```

use super::{MICROS_PER_DAY, MICROS_PER_SECOND, days_from_civil};
use crate::TimeZone;
use crate::calendar::EPOCH_JULIAN_DAY;

/// The meaning of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    Infinity,
    MinusInfinity,
    /// 1970-01-01 00:00 UTC.
    Epoch,
    At {
        /// Days since 2000-01-01, not checked against the range of a type.
        days: i64,
        /// Microseconds since midnight; at most slightly more than a day (24:00, leap seconds).
        time_micros: i64,
        zone: Option<TimeZone>,
    },
}

/// Why a text is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Syntax,
    /// A field beyond its range.
    Field,
    /// A month or day out of range: the order may not be month, day, year.
    MonthOrDay,
    /// An offset beyond 16 hours.
    Displacement,
    /// A name of the shape of a zone that does not exist.
    Zone(String),
    /// A keyword that depends on the clock.
    Clock(String),
}

/// Maximum length of a text that is parsed (PostgreSQL's `MAXDATELEN` is 128).
const TEXT_BYTES_MAX: usize = 128;
/// Largest hour of an offset.
const OFFSET_HOURS_MAX: i64 = 15;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];

#[derive(Default)]
struct Known {
    year: Option<Year>,
    month: Option<u32>,
    day: Option<u32>,
    time_micros: Option<i64>,
    zone: Option<TimeZone>,
    afternoon: Option<bool>,
    before_christ: bool,
    special: Option<Moment>,
    /// After `J`: the following number is a Julian day.
    julian: bool,
    /// The day of the year, instead of month and day.
    day_of_year: Option<u32>,
    /// A time of day is parsed: the date may be missing.
    time_only: bool,
}

#[derive(Clone, Copy)]
struct Year {
    number: i64,
    /// Written with one or two digits: 69 and below are 20xx.
    short: bool,
}

/// Parses a date with or without time and zone.
pub(super) fn parse(text: &str) -> Result<Moment, Fault> {
    take_fields(text, Known::default())?.finish()
}

/// Parses a time of day, with or without date and zone: microseconds since midnight.
pub(super) fn parse_time(text: &str) -> Result<i64, Fault> {
    let known = Known {
        time_only: true,
        ..Known::default()
    };
    let known = take_fields(text, known)?;
    let has_date = known.year.is_some() || known.month.is_some() || known.day.is_some();
    if has_date {
        if known.time_micros.is_none() {
            return Err(Fault::Syntax);
        }
        return match known.finish()? {
            Moment::At { time_micros, .. } => Ok(time_micros),
            _ => Err(Fault::Syntax),
        };
    }
    if known.special.is_some() {
        return Err(Fault::Syntax);
    }
    let micros = known.time_micros.ok_or(Fault::Syntax)?;
    let micros = known.in_afternoon(micros)?;
    // Without a date, a zone's offset is ambiguous.
    match known.zone {
        Some(TimeZone::Named(_)) => Err(Fault::Syntax),
        _ => Ok(micros),
    }
}

fn take_fields(text: &str, mut known: Known) -> Result<Known, Fault> {
    if text.len() > TEXT_BYTES_MAX || !text.is_ascii() {
        return Err(Fault::Syntax);
    }
    let lower = text.to_ascii_lowercase();
    let mut rest = lower.as_str();
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || crate::text::is_space(c));
        let Some(first) = rest.chars().next() else {
            break;
        };
        let len = match first {
            '0'..='9' => numeric_len(rest),
            'a'..='z' => word_len(rest),
            '+' | '-' => signed_len(rest),
            _ => return Err(Fault::Syntax),
        };
        let (field, tail) = rest.split_at_checked(len.max(1)).ok_or(Fault::Syntax)?;
        known.take(field)?;
        rest = tail;
    }
    Ok(known)
}

fn run(text: &str, belongs: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| belongs(*byte)).count()
}

/// A field that starts with a digit: number, time or date.
fn numeric_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = run(text, |byte| byte.is_ascii_digit());
    match bytes.get(digits) {
        Some(b':') => run(text, |byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.')),
        Some(delimiter @ (b'-' | b'/' | b'.')) => {
            let second = digits + 1;
            match bytes.get(second) {
                Some(byte) if byte.is_ascii_digit() => {
                    run(text, |byte| byte.is_ascii_digit() || byte == *delimiter)
                }
                Some(byte) if byte.is_ascii_alphabetic() => {
                    run(text, |byte| byte.is_ascii_alphanumeric() || byte == *delimiter)
                }
                _ => second,
            }
        }
        _ => digits,
    }
}

/// A word: a name, a zone like `america/new_york` or `etc/gmt+5`, or a date like `jan-08-1999`.
fn word_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let letters = run(text, |byte| byte.is_ascii_alphabetic());
    let name = text.get(..letters).unwrap_or("");
    match bytes.get(letters) {
        Some(delimiter @ (b'-' | b'/' | b'.')) if month_of(name).is_some() => {
            run(text, |byte| byte.is_ascii_alphanumeric() || byte == *delimiter)
        }
        Some(b'/' | b'_') => run(text, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+')
        }),
        _ => letters,
    }
}

/// A field that starts with a sign: an offset, or a signed word (`-infinity`).
fn signed_len(text: &str) -> usize {
    let rest = text.get(1..).unwrap_or("");
    if rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
        1 + run(rest, |byte| byte.is_ascii_alphabetic())
    } else {
        1 + run(rest, |byte| byte.is_ascii_digit() || byte == b':')
    }
}

fn month_of(word: &str) -> Option<u32> {
    let known = |month: &str| {
        month == word || month.get(..3) == Some(word) || (word == "sept" && month.starts_with("sept"))
    };
    MONTHS
        .iter()
        .position(|month| known(month))
        .map(|at| at as u32 + 1)
}

fn is_weekday(word: &str) -> bool {
    WEEKDAYS
        .iter()
        .any(|day| word.len() >= 3 && (day == &word || day.get(..3) == Some(word)))
        || matches!(word, "tues" | "wednes" | "weds" | "thur" | "thurs")
}

fn number(text: &str) -> Result<i64, Fault> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::Syntax);
    }
    text.parse().map_err(|_| Fault::Field)
}

/// A number that is checked against a range later.
fn small(text: &str) -> Result<u32, Fault> {
    u32::try_from(number(text)?).map_err(|_| Fault::Field)
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), Fault> {
    match place {
        Some(_) => Err(Fault::Syntax),
        None => {
            *place = Some(value);
            Ok(())
        }
    }
}

impl Known {
    fn take(&mut self, field: &str) -> Result<(), Fault> {
        let first = field.bytes().next().unwrap_or(0);
        let second = field.as_bytes().get(1).copied().unwrap_or(0);
        let has = |wanted: &[u8]| field.bytes().any(|byte| wanted.contains(&byte));
        match first {
            b'+' | b'-' if second.is_ascii_alphabetic() => self.take_infinity(field),
            b'+' | b'-' => {
                if self.day.is_none() && !(self.time_only && self.time_micros.is_some()) {
                    return Err(Fault::Syntax);
                }
                set(&mut self.zone, TimeZone::Fixed(offset(field)?))
            }
            b'0'..=b'9' if has(b":") => {
                let micros = time_of_day(field)?;
                set(&mut self.time_micros, micros)
            }
            b'0'..=b'9' if self.is_run_together_time(field) => {
                let (whole, _) = field.split_at_checked(6).ok_or(Fault::Syntax)?;
                let part = |from: usize| number(whole.get(from..from + 2).unwrap_or(""));
                let fraction = fraction_micros(field.get(7..).unwrap_or(""))?;
                let micros = clock(part(0)?, part(2)?, part(4)?, fraction)?;
                set(&mut self.time_micros, micros)
            }
            b'0'..=b'9' if has(b"-/.") => self.take_date(field),
            b'0'..=b'9' => self.take_number(field),
            _ => self.take_word(field),
        }
    }

    /// Whether a field is a time such as `101112.5`.
    fn is_run_together_time(&self, field: &str) -> bool {
        let date_known = self.year.is_some() && self.month.is_some() && self.day.is_some();
        (date_known || self.time_only)
            && field.find('.') == Some(6)
            && field
                .bytes()
                .enumerate()
                .all(|(at, byte)| at == 6 || byte.is_ascii_digit())
    }

    fn take_infinity(&mut self, field: &str) -> Result<(), Fault> {
        match field {
            "-infinity" => set(&mut self.special, Moment::MinusInfinity),
            _ => Err(Fault::Syntax),
        }
    }

    fn take_word(&mut self, word: &str) -> Result<(), Fault> {
        if let Some(month) = month_of(word) {
            return set(&mut self.month, month);
        }
        match word {
            "infinity" => return set(&mut self.special, Moment::Infinity),
            "epoch" => return set(&mut self.special, Moment::Epoch),
            "now" | "today" | "tomorrow" | "yesterday" => return Err(Fault::Clock(word.to_owned())),
            "am" => return set(&mut self.afternoon, false),
            "pm" => return set(&mut self.afternoon, true),
            "bc" => {
                self.before_christ = true;
                return Ok(());
            }
            "ad" | "at" | "on" => return Ok(()),
            "j" | "jd" | "julian" => {
                self.julian = true;
                return Ok(());
            }
            // The T of ISO 8601, between date and time.
            "t" if (self.day.is_some() || self.time_only) && self.time_micros.is_none() => return Ok(()),
            "allballs" => {
                set(&mut self.zone, TimeZone::UTC)?;
                return set(&mut self.time_micros, 0);
            }
            _ if is_weekday(word) => return Ok(()),
            _ => {}
        }
        let looks_like_date = word.split(['-', '/', '.']).count() == 3
            && word
                .split(['-', '/', '.'])
                .next()
                .is_some_and(|part| month_of(part).is_some());
        if looks_like_date {
            return self.take_date(word);
        }
        match TimeZone::from_name(word) {
            Some(zone) => set(&mut self.zone, zone),
            None if word.contains(['/', '_']) => Err(Fault::Zone(word.to_owned())),
            None => Err(Fault::Syntax),
        }
    }

    /// Three parts with a delimiter. A part with three or more digits is the year; otherwise the order is
    /// month, day, year unless the month is spelled out.
    fn take_date(&mut self, field: &str) -> Result<(), Fault> {
        if self.year.is_some() || self.month.is_some() || self.day.is_some() {
            return Err(Fault::Syntax);
        }
        let mut parts = field.split(['-', '/', '.']);
        if let Some((year, day)) = field.split_once(['-', '/', '.'])
            && year.len() >= 3
            && day.len() == 3
            && let (Ok(number), Ok(day @ 1..=366)) = (number(year), small(day))
        {
            self.year = Some(Year { number, short: false });
            (self.month, self.day, self.day_of_year) = (Some(1), Some(1), Some(day));
            return Ok(());
        }
        let (Some(a), Some(b), Some(c), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Fault::Syntax);
        };
        let (year, month, day) = match (month_of(a), month_of(b)) {
            (Some(month), _) => (c, month, small(b)?),
            (None, Some(month)) if a.len() >= 3 => (a, month, small(c)?),
            (None, Some(month)) => (c, month, small(a)?),
            (None, None) if a.len() >= 3 => (a, small(b)?, small(c)?),
            (None, None) => (c, small(a)?, small(b)?),
        };
        self.year = Some(Year {
            number: number(year)?,
            short: year.len() <= 2,
        });
        self.month = Some(month);
        self.day = Some(day);
        Ok(())
    }

    fn take_number(&mut self, field: &str) -> Result<(), Fault> {
        let part = |from: usize, to: usize| small(field.get(from..to).unwrap_or(""));
        let date_known = self.year.is_some() && self.month.is_some() && self.day.is_some();
        let nothing_known = self.year.is_none() && self.month.is_none() && self.day.is_none();
        if std::mem::take(&mut self.julian) {
            if !nothing_known {
                return Err(Fault::Syntax);
            }
            let (year, month, day) = super::civil_from_days(number(field)?.min(1 << 40) - EPOCH_JULIAN_DAY);
            self.before_christ = year <= 0;
            let number = if year <= 0 { 1 - year } else { year };
            self.year = Some(Year { number, short: false });
            (self.month, self.day) = (Some(month), Some(day));
            return Ok(());
        }
        match field.len() {
            // 101112 or 1011 after a date.
            4 | 6 if (date_known || (self.time_only && nothing_known)) && self.time_micros.is_none() => {
                let seconds = if field.len() == 6 { part(4, 6)? } else { 0 };
                let micros = clock(
                    i64::from(part(0, 2)?),
                    i64::from(part(2, 4)?),
                    i64::from(seconds),
                    0,
                )?;
                set(&mut self.time_micros, micros)
            }
            6 | 8 if nothing_known => {
                let split = field.len() - 4;
                self.year = Some(Year {
                    number: i64::from(part(0, split)?),
                    short: split == 2,
                });
                self.month = Some(part(split, split + 2)?);
                self.day = Some(part(split + 2, split + 4)?);
                Ok(())
            }
            // With a spelled-out month: 8 Jan 1999, 1999 Jan 8.
            1 | 2 if self.day.is_none() => set(&mut self.day, small(field)?),
            _ if self.year.is_none() && (self.month.is_some() || field.len() >= 3) => {
                let year = Year {
                    number: number(field)?,
                    short: field.len() <= 2,
                };
                set(&mut self.year, year)
            }
            _ => Err(Fault::Syntax),
        }
    }

    fn finish(self) -> Result<Moment, Fault> {
        if self.julian {
            return Err(Fault::Syntax);
        }
        if let Some(special) = self.special {
            let alone = self.year.is_none() && self.month.is_none() && self.day.is_none();
            return if alone { Ok(special) } else { Err(Fault::Syntax) };
        }
        let (Some(year), Some(month), Some(day)) = (self.year, self.month, self.day) else {
            return Err(Fault::Syntax);
        };
        let year = match year.number {
            number if self.before_christ && number > 0 => 1 - number,
            number if year.short && number < 70 => number + 2000,
            number if year.short && number < 100 => number + 1900,
            0 => return Err(Fault::Field),
            _ if self.before_christ => return Err(Fault::Field),
            number => number,
        };
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(Fault::MonthOrDay);
        }
        if day > days_in_month(year, month) {
            return Err(Fault::Field);
        }
        // Beyond the range of every type, but within that of the arithmetic.
        if year.abs() > 10_000_000 {
            return Err(Fault::Field);
        }
        let time_micros = match (self.time_micros, self.afternoon) {
            (None, Some(_)) => return Err(Fault::Syntax),
            (micros, _) => self.in_afternoon(micros.unwrap_or(0))?,
        };
        Ok(Moment::At {
            days: match self.day_of_year {
                Some(number) => days_from_civil(year, 1, 1) + i64::from(number) - 1,
                None => days_from_civil(year, month, day),
            },
            time_micros,
            zone: self.zone,
        })
    }
}

impl Known {
    /// A time adjusted for AM or PM.
    fn in_afternoon(&self, micros: i64) -> Result<i64, Fault> {
        let Some(afternoon) = self.afternoon else {
            return Ok(micros);
        };
        let hour = micros / (3600 * MICROS_PER_SECOND);
        match (afternoon, hour) {
            (_, 13..) => Err(Fault::Field),
            (true, ..=11) => Ok(micros + MICROS_PER_DAY / 2),
            (false, 12) => Ok(micros - MICROS_PER_DAY / 2),
            _ => Ok(micros),
        }
    }
}

/// Days of a month; year 0 is 1 BC.
#[must_use]
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Microseconds since midnight. A second of 60 carries into the next minute, 24:00:00 into the next day.
fn clock(hour: i64, minute: i64, second: i64, micros: i64) -> Result<i64, Fault> {
    let beyond = hour == 24 && (minute > 0 || second > 0 || micros > 0);
    let second_beyond = second > 60 || second == 60 && micros > 0;
    if hour > 24 || minute > 59 || second_beyond || beyond {
        return Err(Fault::Field);
    }
    Ok((hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros)
}

/// `hh:mm`, `hh:mm:ss`, `hh:mm:ss.ffffff`, and `mm:ss.ffffff`.
fn time_of_day(field: &str) -> Result<i64, Fault> {
    let (whole, fraction) = match field.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (field, ""),
    };
    let mut parts = whole.split(':');
    let (Some(hour), Some(minute), third, None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Fault::Syntax);
    };
    let (first, second, micros) = (number(hour)?, number(minute)?, fraction_micros(fraction)?);
    match third {
        Some(third) => clock(first, second, number(third)?, micros),
        None if field.contains('.') => clock(0, first, second, micros),
        None => clock(first, second, 0, 0),
    }
}

/// Decimal places of a second, rounded to microseconds (half to even, like C's `rint`).
fn fraction_micros(digits: &str) -> Result<i64, Fault> {
    if digits.is_empty() {
        return Ok(0);
    }
    number(digits.get(..digits.len().min(18)).unwrap_or(""))?;
    let fraction: f64 = format!("0.{digits}").parse().map_err(|_| Fault::Syntax)?;
    Ok((fraction * 1e6).round_ties_even() as i64)
}

/// `+hh`, `+hhmm`, `+hh:mm`, `+hh:mm:ss` in seconds east.
pub(super) fn offset(field: &str) -> Result<i32, Fault> {
    let (sign, digits) = field.split_at_checked(1).ok_or(Fault::Syntax)?;
    let mut parts = digits.split(':');
    let first = parts.next().unwrap_or("");
    let (hours, minutes, seconds) = match (first.len(), parts.next(), parts.next(), parts.next()) {
        (1 | 2, None, None, None) => (number(first)?, 0, 0),
        (3 | 4, None, None, None) => {
            let (hours, minutes) = first.split_at_checked(first.len() - 2).ok_or(Fault::Syntax)?;
            (number(hours)?, number(minutes)?, 0)
        }
        (1 | 2, Some(minutes), None, None) => (number(first)?, number(minutes)?, 0),
        (1 | 2, Some(minutes), Some(seconds), None) => (number(first)?, number(minutes)?, number(seconds)?),
        _ => return Err(Fault::Syntax),
    };
    if hours > OFFSET_HOURS_MAX || minutes > 59 || seconds > 59 {
        return Err(Fault::Displacement);
    }
    let total = (hours * 3600 + minutes * 60 + seconds) as i32;
    Ok(if sign == "-" { -total } else { total })
}
