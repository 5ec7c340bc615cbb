//! `to_date` and `to_timestamp` with a template: PostgreSQL's `DCH_from_char`.
//!
//! The template is processed piece by piece. A pattern consumes a number or a name of the text; a separator
//! or blank of the template consumes one separator or blank if there is one; any other character consumes
//! one character, whatever it is. Under `FX` blanks are not skipped. The fields are then combined to a date
//! and a time.

use weft_types::calendar::{
    EPOCH_JULIAN_DAY, MICROS_PER_DAY, civil_from_days, days_from_civil, days_in_month, is_finite_timestamp,
    timestamp_out_of_range, utc_of_local,
};
use weft_types::{SqlError, SqlState, SqlType, Value, is_date};

use super::format::{DAYS, MONTHS, ROMAN};
use super::format_template::{Ordinal, Step, steps};
use super::truncate::rounded;
use super::values::{function, out_of_range, stable};
use crate::functions::arguments::{Arguments, text};
use crate::table::{Arg, Entry, Volatility};

use Arg::Is;
use SqlType::{Date, Text, TimestampTz};

/// The functions.
pub static READS: &[Entry] = &[
    Entry {
        volatility: Volatility::Stable,
        ..function("to_date", &[Is(Text), Is(Text)], Date, |_, arguments| {
            to_date(arguments)
        })
    },
    stable(
        "to_timestamp",
        &[Is(Text), Is(Text)],
        TimestampTz,
        |context, a| {
            let moment = read(text(a, 0)?, text(a, 1)?)?;
            let local = days_from_civil(moment.year, moment.month, 1)
                .checked_add(moment.day - 1)
                .and_then(|days| days.checked_mul(MICROS_PER_DAY))
                .and_then(|micros| micros.checked_add(moment.micros))
                .filter(|micros| is_finite_timestamp(*micros))
                .ok_or_else(timestamp_out_of_range)?;
            let utc = match moment.offset_seconds {
                Some(offset) => local
                    .checked_sub(offset * 1_000_000)
                    .filter(|micros| is_finite_timestamp(*micros))
                    .ok_or_else(timestamp_out_of_range)?,
                None => utc_of_local(local, &context.zone)?,
            };
            Ok(Value::TimestampTz(match moment.digits {
                Some(digits) => rounded(utc, digits).unwrap_or(utc),
                None => utc,
            }))
        },
    ),
];

fn to_date(arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let whole = text(arguments, 0)?;
    let moment = read(whole, text(arguments, 1)?)?;
    let days = days_from_civil(moment.year, moment.month, 1) + moment.day - 1;
    let days = i32::try_from(days).ok();
    days.filter(|days| is_date(*days) && *days != i32::MAX && *days != i32::MIN)
        .map(Value::Date)
        .ok_or_else(|| out_of_range(format!("date out of range: \"{whole}\"")))
}

/// The date and time that a text denotes.
struct Moment {
    /// 0 is 1 BC.
    year: i64,
    month: u32,
    day: i64,
    micros: i64,
    offset_seconds: Option<i64>,
    /// Digits of a second, under `FF1` to `FF6`.
    digits: Option<i32>,
}

/// Whether dates count by months or by ISO weeks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Convention {
    Gregorian,
    IsoWeek,
}

/// The fields as they are read; 0 means not given.
#[derive(Default)]
struct Fields {
    convention: Option<Convention>,
    half_day_clock: bool,
    hour: i64,
    minute: i64,
    second: i64,
    seconds_of_day: i64,
    millis: i64,
    micros: i64,
    digits: Option<i32>,
    afternoon: i64,
    before_christ: i64,
    year: i64,
    year_digits: usize,
    century: i64,
    month: i64,
    week: i64,
    week_of_month: i64,
    day: i64,
    day_of_year: i64,
    /// Counted from Sunday, which is 1.
    weekday: i64,
    julian: i64,
    zone_sign: i64,
    zone_hours: i64,
    zone_minutes: i64,
}

fn wrong(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
}

const FILL_HINT: &str = "If your source string is not fixed-width, try using the \"FM\" modifier.";

fn is_separator(byte: u8) -> bool {
    byte.is_ascii_graphic() && !byte.is_ascii_alphanumeric()
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// A text being read.
struct Reader<'t> {
    whole: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.whole.get(self.at..).unwrap_or("")
    }

    fn first(&self) -> Option<u8> {
        self.rest().bytes().next()
    }

    fn skip_character(&mut self) {
        self.at += self.rest().chars().next().map_or(0, char::len_utf8);
    }

    fn skip_blanks(&mut self) -> i64 {
        let blanks = self.rest().bytes().take_while(|byte| is_blank(*byte)).count();
        self.at += blanks;
        blanks as i64
    }

    /// Reads a number of at most `length` characters, or of any length if nothing that follows could belong
    /// to it. Returns the number of characters consumed, leading blanks included.
    fn number(
        &mut self,
        place: Option<&mut i64>,
        length: usize,
        step: &PatternStep<'_>,
    ) -> Result<usize, SqlError> {
        let start = self.at;
        self.skip_blanks();
        let rest = self.rest();
        let mut end = length.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let copy = rest.get(..end).unwrap_or("");
        let result = if step.slurps {
            let (number, used) = leading_number(rest);
            self.at = if used == 0 { start } else { self.at + used };
            number
        } else {
            if rest.len() < length {
                let message = format!("source string too short for \"{}\" formatting field", step.word);
                let count = rest.len();
                return Err(wrong(message)
                    .detail(format!(
                        "Field requires {length} characters, but only {count} remain."
                    ))
                    .hint(FILL_HINT));
            }
            let (number, used) = leading_number(copy);
            if used > 0 && used < length {
                let message = format!("invalid value \"{copy}\" for \"{}\"", step.word);
                return Err(wrong(message)
                    .detail(format!(
                        "Field requires {length} characters, but only {used} could be parsed."
                    ))
                    .hint(FILL_HINT));
            }
            self.at += used;
            number
        };
        if self.at == start {
            let message = format!("invalid value \"{copy}\" for \"{}\"", step.word);
            return Err(wrong(message).detail("Value must be an integer."));
        }
        let Some(result) = result.and_then(|number| i32::try_from(number).ok()) else {
            let message = format!("value for \"{}\" in source string is out of range", step.word);
            let detail = format!("Value must be in the range {} to {}.", i32::MIN, i32::MAX);
            return Err(out_of_range(message).detail(detail));
        };
        if let Some(place) = place {
            set(place, i64::from(result), step.word)?;
        }
        Ok(self.at - start)
    }

    /// Reads one of `names`, ignoring case; returns its index.
    fn name(&mut self, names: &[&str], word: &str) -> Result<i64, SqlError> {
        let rest = self.rest();
        let found = names.iter().position(|name| {
            rest.get(..name.len())
                .is_some_and(|own| own.eq_ignore_ascii_case(name))
        });
        match found {
            Some(number) => {
                self.at += names.get(number).map_or(0, |name| name.len());
                Ok(number as i64)
            }
            None => {
                let shown = rest.split(|c: char| c.is_ascii() && is_blank(c as u8)).next();
                let message = format!("invalid value \"{}\" for \"{word}\"", shown.unwrap_or(""));
                Err(wrong(message)
                    .detail("The given value did not match any of the allowed values for this field."))
            }
        }
    }
}

/// C's `strtol`: the leading number, if it fits 64 bits, and its length in characters.
fn leading_number(text: &str) -> (Option<i64>, usize) {
    let blanks = text.bytes().take_while(|byte| is_blank(*byte)).count();
    let behind = text.get(blanks..).unwrap_or("");
    let sign = usize::from(behind.starts_with(['+', '-']));
    let digits = behind.bytes().skip(sign).take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return (Some(0), 0);
    }
    let number = behind.get(..sign + digits).unwrap_or("");
    (number.parse().ok(), blanks + sign + digits)
}

fn set(place: &mut i64, value: i64, word: &str) -> Result<(), SqlError> {
    if *place != 0 && *place != value {
        let message = format!("conflicting values for \"{word}\" field in formatting string");
        return Err(
            wrong(message).detail("This value contradicts a previous setting for the same field type.")
        );
    }
    *place = value;
    Ok(())
}

/// A pattern of the template.
struct PatternStep<'s> {
    word: &'s str,
    ordinal: bool,
    /// Whether a number here takes all digits.
    slurps: bool,
}

/// Whether a pattern is numeric.
fn is_number(upper: &str) -> bool {
    match upper.as_bytes() {
        [b'F', b'F', _] => true,
        [b'H', b'H', ..] | [b'S', b'S', ..] | [b'I' | b'Y' | b'W', ..] => true,
        _ => matches!(
            upper,
            "CC" | "DDD" | "DD" | "D" | "J" | "MI" | "MM" | "MS" | "Q" | "US" | "TZM"
        ),
    }
}

fn convention_of(upper: &str) -> Option<Convention> {
    match upper {
        "IDDD" | "ID" | "IW" | "IYYY" | "IYY" | "IY" | "I" => Some(Convention::IsoWeek),
        "DDD" | "DD" | "D" | "MM" | "MONTH" | "MON" | "RM" | "WW" | "W" | "Y,YYY" | "YYYY" | "YYY" | "YY"
        | "Y" => Some(Convention::Gregorian),
        _ => None,
    }
}

fn read(whole: &str, template: &str) -> Result<Moment, SqlError> {
    let steps = steps(template);
    let mut fields = Fields::default();
    let mut reader = Reader { whole, at: 0 };
    let (mut exact, mut skipped) = (false, 0_i64);
    for (number, step) in steps.iter().enumerate() {
        let Some(first) = reader.first() else {
            break;
        };
        let is_pattern = matches!(step, Step::Pattern { .. });
        let is_exact_word = matches!(step, Step::Pattern { word, .. } if word.eq_ignore_ascii_case("FX"));
        if !exact && !is_exact_word && (is_pattern || number == 0) {
            skipped += reader.skip_blanks();
        }
        let (word, fill, ordinal) = match step {
            Step::Separator if exact => {
                reader.skip_character();
                continue;
            }
            Step::Separator => {
                skipped -= 1;
                let next = reader.first().unwrap_or(first);
                if reader.first().is_some() && (is_blank(next) || is_separator(next)) {
                    reader.skip_character();
                    skipped += 1;
                }
                continue;
            }
            Step::Character(_) => {
                match !exact && skipped > 0 {
                    true => skipped -= 1,
                    false => reader.skip_character(),
                }
                continue;
            }
            Step::Pattern { word, fill, ordinal } => (*word, *fill, *ordinal != Ordinal::None),
        };
        let digits_follow = match steps.get(number + 1) {
            None => false,
            Some(Step::Pattern { word, .. }) => is_number(&word.to_ascii_uppercase()),
            Some(Step::Character(character)) => character.is_ascii_digit(),
            Some(Step::Separator) => false,
        };
        let pattern = PatternStep {
            word,
            ordinal,
            slurps: fill || ordinal || !digits_follow,
        };
        let upper = word.to_ascii_uppercase();
        if let Some(convention) = convention_of(&upper) {
            if fields.convention.is_some_and(|own| own != convention) {
                let hint = "Do not mix Gregorian and ISO week date conventions in a formatting template.";
                return Err(wrong("invalid combination of date conventions").hint(hint));
            }
            fields.convention = Some(convention);
        }
        if upper == "FX" {
            exact = true;
        } else {
            take(&mut fields, &mut reader, &upper, &pattern, skipped)?;
        }
        if !exact {
            skipped = reader.skip_blanks();
        }
    }
    fields.moment(whole)
}

/// Reads a name, or part of the zone; returns false if the pattern is numeric.
fn take_word(
    fields: &mut Fields,
    reader: &mut Reader<'_>,
    upper: &str,
    pattern: &PatternStep<'_>,
    skipped: i64,
) -> Result<bool, SqlError> {
    let word = pattern.word;
    let length = upper.len();
    match upper {
        "AM" | "PM" | "A.M." | "P.M." => {
            let names = if length == 2 {
                ["am", "pm"]
            } else {
                ["a.m.", "p.m."]
            };
            let value = reader.name(&names, word)?;
            set(&mut fields.afternoon, value, word)?;
            fields.half_day_clock = true;
        }
        "AD" | "BC" | "A.D." | "B.C." => {
            let names = if length == 2 {
                ["ad", "bc"]
            } else {
                ["a.d.", "b.c."]
            };
            let value = reader.name(&names, word)?;
            set(&mut fields.before_christ, value, word)?;
        }
        "MONTH" => {
            let value = reader.name(&MONTHS, word)?;
            set(&mut fields.month, value + 1, word)?;
        }
        "MON" => {
            let value = reader.name(&MONTHS.map(|name| name.get(..3).unwrap_or(name)), word)?;
            set(&mut fields.month, value + 1, word)?;
        }
        "RM" => {
            // The longest match wins.
            let mut names = ROMAN;
            names.reverse();
            let value = reader.name(&names, word)?;
            set(&mut fields.month, 12 - value, word)?;
        }
        "DAY" | "DY" => {
            let value = match upper {
                "DAY" => reader.name(&DAYS, word)?,
                _ => reader.name(&DAYS.map(|name| name.get(..3).unwrap_or(name)), word)?,
            };
            set(&mut fields.weekday, value, word)?;
            fields.weekday += 1;
        }
        "TZ" | "OF" => {
            let message = format!("formatting field \"{word}\" is only supported in to_char");
            return Err(SqlError::unsupported(message));
        }
        "TZH" => {
            let before = reader
                .at
                .checked_sub(1)
                .and_then(|at| reader.whole.as_bytes().get(at));
            let sign = match reader.first() {
                Some(sign @ (b'+' | b'-' | b' ')) => {
                    reader.at += 1;
                    sign
                }
                _ if skipped > 0 => before.copied().unwrap_or(b'+'),
                _ => b'+',
            };
            fields.zone_sign = if sign == b'-' { -1 } else { 1 };
            reader.number(Some(&mut fields.zone_hours), 2, pattern)?;
        }
        "TZM" => {
            if fields.zone_sign == 0 {
                fields.zone_sign = 1;
            }
            reader.number(Some(&mut fields.zone_minutes), 2, pattern)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads a pattern's value.
fn take(
    fields: &mut Fields,
    reader: &mut Reader<'_>,
    upper: &str,
    pattern: &PatternStep<'_>,
    skipped: i64,
) -> Result<(), SqlError> {
    let word = pattern.word;
    let fraction = |length: usize| 10_i64.pow(6_u32.saturating_sub(length as u32));
    let length = upper.len();
    if take_word(fields, reader, upper, pattern, skipped)? {
        return Ok(());
    }
    match upper {
        "HH" | "HH12" => {
            reader.number(Some(&mut fields.hour), 2, pattern)?;
            fields.half_day_clock = true;
        }
        "HH24" => {
            reader.number(Some(&mut fields.hour), 2, pattern)?;
        }
        "MI" => {
            reader.number(Some(&mut fields.minute), 2, pattern)?;
        }
        "SS" => {
            reader.number(Some(&mut fields.second), 2, pattern)?;
        }
        "SSSS" | "SSSSS" => {
            reader.number(Some(&mut fields.seconds_of_day), length, pattern)?;
        }
        "MS" => {
            let used = reader.number(Some(&mut fields.millis), 3, pattern)?;
            fields.millis *= match used {
                1 => 100,
                2 => 10,
                _ => 1,
            };
        }
        "US" => {
            let used = reader.number(Some(&mut fields.micros), 6, pattern)?;
            fields.micros *= fraction(used);
        }
        "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
            let digits = upper.as_bytes().get(2).copied().map_or(6, |digit| digit - b'0');
            fields.digits = Some(i32::from(digits));
            let used = reader.number(Some(&mut fields.micros), usize::from(digits), pattern)?;
            fields.micros *= fraction(used);
        }
        "MM" => {
            reader.number(Some(&mut fields.month), 2, pattern)?;
        }
        "DDD" | "IDDD" => {
            reader.number(Some(&mut fields.day_of_year), 3, pattern)?;
        }
        "DD" => {
            reader.number(Some(&mut fields.day), 2, pattern)?;
        }
        "D" => {
            reader.number(Some(&mut fields.weekday), 1, pattern)?;
        }
        "ID" => {
            reader.number(Some(&mut fields.weekday), 1, pattern)?;
            fields.weekday = match fields.weekday + 1 {
                8.. => 1,
                day => day,
            };
        }
        "WW" | "IW" => {
            reader.number(Some(&mut fields.week), 2, pattern)?;
        }
        "W" => {
            reader.number(Some(&mut fields.week_of_month), 1, pattern)?;
        }
        "Q" => {
            reader.number(None, 1, pattern)?;
        }
        "CC" => {
            reader.number(Some(&mut fields.century), 2, pattern)?;
        }
        "J" => {
            reader.number(Some(&mut fields.julian), 1, pattern)?;
        }
        "Y,YYY" => take_thousands(fields, reader, word)?,
        _ => {
            // YYYY to Y and IYYY to I.
            let used = reader.number(Some(&mut fields.year), length, pattern)?;
            if length < 4 && used < 4 {
                fields.year = near_2020(fields.year);
            }
            fields.year_digits = length;
        }
    }
    if pattern.ordinal {
        reader.skip_character();
        reader.skip_character();
    }
    Ok(())
}

/// `2,024`
fn take_thousands(fields: &mut Fields, reader: &mut Reader<'_>, word: &str) -> Result<(), SqlError> {
    let refused = || wrong("invalid input string for \"Y,YYY\"");
    let rest = reader.rest();
    let (thousands, used) = leading_number(rest);
    let behind = rest.get(used..).and_then(|behind| behind.strip_prefix(','));
    let (true, Some(behind)) = (used > 0, behind) else {
        return Err(refused());
    };
    let digits = behind.bytes().take(3).take_while(u8::is_ascii_digit).count();
    let years: i64 = behind
        .get(..digits)
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(refused)?;
    let thousands = thousands
        .and_then(|number| i32::try_from(number).ok())
        .ok_or_else(refused)?;
    set(&mut fields.year, i64::from(thousands) * 1000 + years, word)?;
    fields.year_digits = 4;
    reader.at += used + 1 + digits;
    Ok(())
}

/// Completes a year of fewer than four digits to the one nearest to 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        ..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        _ => year,
    }
}

/// The Monday of an ISO week, in days since 2000-01-01.
fn iso_week_start(year: i64, week: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    // 2000-01-01 is a Saturday.
    fourth - (fourth + 5).rem_euclid(7) + (week - 1) * 7
}

impl Fields {
    fn moment(mut self, whole: &str) -> Result<Moment, SqlError> {
        let overflow = || out_of_range(format!("date/time field value out of range: \"{whole}\""));
        let (mut hour, mut minute, mut second) = (
            self.seconds_of_day / 3600,
            self.seconds_of_day % 3600 / 60,
            self.seconds_of_day % 60,
        );
        for (place, given) in [
            (&mut hour, self.hour),
            (&mut minute, self.minute),
            (&mut second, self.second),
        ] {
            if given != 0 {
                *place = given;
            }
        }
        if self.half_day_clock {
            if !(1..=12).contains(&hour) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                let hint = "Use the 24-hour clock, or give an hour between 1 and 12.";
                return Err(wrong(message).hint(hint));
            }
            hour = hour % 12 + if self.afternoon != 0 { 12 } else { 0 };
        }
        let date = self.date()?;
        let (month, day) = match u32::try_from(date.month) {
            Ok(month @ 1..=12) if (1..=31).contains(&date.day) => (month, date.day),
            _ => return Err(overflow()),
        };
        if date.complete && day > i64::from(days_in_month(date.year, month)) {
            return Err(overflow());
        }
        let micros = self.millis * 1000 + self.micros;
        let in_range = (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..1_000_000).contains(&micros);
        if !in_range {
            return Err(overflow());
        }
        let offset_seconds = match self.zone_sign {
            0 => None,
            _ if !(0..=15).contains(&self.zone_hours) || !(0..60).contains(&self.zone_minutes) => {
                let message = format!("time zone displacement out of range: \"{whole}\"");
                return Err(SqlError::new(SqlState::INVALID_TIME_ZONE_DISPLACEMENT, message));
            }
            sign => Some(sign * (self.zone_hours * 60 + self.zone_minutes) * 60),
        };
        Ok(Moment {
            year: date.year,
            month,
            day,
            micros: ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros,
            offset_seconds,
            digits: self.digits,
        })
    }

    fn date(&mut self) -> Result<ReadDate, SqlError> {
        let mut date = ReadDate {
            year: 0,
            month: 1,
            day: 1,
            complete: false,
        };
        let (mut year_given, mut month_given, mut day_given) = (false, false, false);
        if let Some(year) = self.year_of_century() {
            (date.year, year_given) = (year, true);
        }
        let iso = self.convention == Some(Convention::IsoWeek);
        if self.julian != 0 {
            date.of_days(self.julian - EPOCH_JULIAN_DAY);
            (year_given, month_given, day_given) = (true, true, true);
        }
        if self.week != 0 {
            if iso {
                let weekday = match self.weekday {
                    0 => 0,
                    1 => 6,
                    day => day - 2,
                };
                date.of_days(iso_week_start(date.year, self.week) + weekday);
                (year_given, month_given, day_given) = (true, true, true);
            } else {
                self.day_of_year = (self.week - 1) * 7 + 1;
            }
        }
        if self.week_of_month != 0 {
            self.day = (self.week_of_month - 1) * 7 + 1;
        }
        if self.day != 0 {
            (date.day, day_given) = (self.day, true);
        }
        if self.month != 0 {
            (date.month, month_given) = (self.month, true);
        }
        if self.day_of_year != 0 && (date.month <= 1 || date.day <= 1) {
            if date.year == 0 && self.before_christ == 0 {
                return Err(wrong("cannot calculate day of year without year information"));
            }
            (month_given, day_given) = (true, true);
            if iso {
                year_given = true;
                date.of_days(iso_week_start(date.year, 1) + self.day_of_year - 1);
            } else {
                date.take_day_of_year(self.day_of_year);
            }
        }
        date.complete = year_given && month_given && day_given;
        Ok(date)
    }

    /// The year, combined from year and century.
    fn year_of_century(&self) -> Option<i64> {
        let century = match self.before_christ {
            0 => self.century,
            _ => -self.century,
        };
        Some(match (self.year, self.century) {
            (0, 0) => return None,
            (0, _) if century >= 0 => (century - 1) * 100 + 1,
            (0, _) => century * 100 + 1,
            (year, given) if given != 0 && self.year_digits <= 2 => match year % 100 {
                0 => century * 100 + i64::from(century < 0),
                year if century >= 0 => year + (century - 1) * 100,
                year => (century + 1) * 100 - year + 1,
            },
            (year, _) => {
                let year = if self.before_christ != 0 { -year } else { year };
                year + i64::from(year < 0)
            }
        })
    }
}

/// A date under construction.
struct ReadDate {
    year: i64,
    month: i64,
    day: i64,
    /// Year, month and day are given.
    complete: bool,
}

impl ReadDate {
    fn of_days(&mut self, days: i64) {
        let (year, month, day) = civil_from_days(days);
        (self.year, self.month, self.day) = (year, i64::from(month), i64::from(day));
    }

    fn take_day_of_year(&mut self, day_of_year: i64) {
        let (mut month, mut before) = (1_u32, 0);
        while month < 13 {
            let length = i64::from(days_in_month(self.year, month));
            if day_of_year <= before + length {
                break;
            }
            before += length;
            month += 1;
        }
        if self.month <= 1 {
            self.month = i64::from(month);
        }
        if self.day <= 1 {
            self.day = day_of_year - before;
        }
    }
}
