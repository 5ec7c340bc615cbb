//! Interval units: their names, and which of them exclude each other.

use super::interval_sum::Fault;

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
    Decade,
    Century,
    Millennium,
    /// A unit that intervals do not support: quarters, zones.
    None,
}

/// Hours, minutes, and seconds with their fractions.
pub(super) const TIME: u32 = 0b1_1111;
const SECONDS: u32 = 0b111;
/// The significant length of a keyword in PostgreSQL.
const WORD_BYTES: usize = 10;

#[rustfmt::skip]
const WORDS: &[(&str, Unit)] = &[
    ("c", Unit::Century), ("cent", Unit::Century), ("centuries", Unit::Century), ("century", Unit::Century),
    ("d", Unit::Day), ("day", Unit::Day), ("days", Unit::Day), ("dec", Unit::Decade),
    ("decade", Unit::Decade), ("decades", Unit::Decade), ("decs", Unit::Decade), ("h", Unit::Hour),
    ("hour", Unit::Hour), ("hours", Unit::Hour), ("hr", Unit::Hour), ("hrs", Unit::Hour),
    ("m", Unit::Minute), ("microsecon", Unit::Microsecond), ("mil", Unit::Millennium),
    ("millennia", Unit::Millennium), ("millennium", Unit::Millennium), ("millisecon", Unit::Millisecond),
    ("mils", Unit::Millennium), ("min", Unit::Minute), ("mins", Unit::Minute), ("minute", Unit::Minute),
    ("minutes", Unit::Minute), ("mon", Unit::Month), ("mons", Unit::Month), ("month", Unit::Month),
    ("months", Unit::Month), ("ms", Unit::Millisecond), ("msec", Unit::Millisecond),
    ("msecond", Unit::Millisecond), ("mseconds", Unit::Millisecond), ("msecs", Unit::Millisecond),
    ("qtr", Unit::None), ("quarter", Unit::None), ("s", Unit::Second), ("sec", Unit::Second),
    ("second", Unit::Second), ("seconds", Unit::Second), ("secs", Unit::Second), ("timezone", Unit::None),
    ("timezone_h", Unit::None), ("timezone_m", Unit::None), ("us", Unit::Microsecond),
    ("usec", Unit::Microsecond), ("usecond", Unit::Microsecond), ("useconds", Unit::Microsecond),
    ("usecs", Unit::Microsecond), ("w", Unit::Week), ("week", Unit::Week), ("weeks", Unit::Week),
    ("y", Unit::Year), ("year", Unit::Year), ("years", Unit::Year), ("yr", Unit::Year), ("yrs", Unit::Year),
];

/// Date keywords, which a digit may follow directly.
#[rustfmt::skip]
const DATE_WORDS: &[&str] = &[
    "ad", "allballs", "am", "apr", "april", "at", "aug", "august", "bc", "d", "dec", "december", "dow",
    "doy", "dst", "epoch", "feb", "february", "fri", "friday", "h", "infinity", "isodow", "isoyear", "j",
    "jan", "january", "jd", "jul", "julian", "july", "jun", "june", "m", "mar", "march", "may", "mm", "mon",
    "monday", "nov", "november", "now", "oct", "october", "on", "pm", "s", "sat", "saturday", "sep", "sept",
    "september", "sun", "sunday", "t", "thu", "thur", "thurs", "thursday", "today", "tomorrow", "tue",
    "tues", "tuesday", "wed", "wednesday", "weds", "y", "yesterday",
];

pub(super) fn is_date_word(word: &str) -> bool {
    DATE_WORDS.contains(&word)
}

impl Unit {
    /// The unit that a keyword names.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        let key = word.get(..WORD_BYTES).unwrap_or(word);
        WORDS
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, unit)| *unit)
    }

    /// The units that may not be given again, as bits.
    pub(super) fn given(self, has_fraction: bool) -> u32 {
        match self {
            Self::Second if has_fraction => SECONDS,
            unit => 1 << (unit as u32),
        }
    }
}

/// The fraction of a number, from its point: `.5`. A lone point is 0.
pub(super) fn fraction(text: &str) -> Result<f64, Fault> {
    match text {
        "." => Ok(0.0),
        _ => format!("0{text}").parse().map_err(|_| Fault::Syntax),
    }
}
