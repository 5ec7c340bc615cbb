//! The names of date and time fields: `year`, `dow`, `epoch`.

use weft_types::{SqlError, SqlType};

use super::values::invalid;

/// A field of a date or time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    IsoYear,
    Dow,
    IsoDow,
    Doy,
    Julian,
    Epoch,
    Zone,
    ZoneHour,
    ZoneMinute,
    /// A date keyword that names no field: `today`, `infinity`.
    Reserved,
}

use Part::{
    Century, Day, Decade, Dow, Doy, Epoch, Hour, IsoDow, IsoYear, Julian, Microseconds, Millennium,
    Milliseconds, Minute, Month, Quarter, Reserved, Second, Week, Year, Zone, ZoneHour, ZoneMinute,
};

/// Interval units, distinguished by their first ten letters.
#[rustfmt::skip]
const WORDS: &[(&str, Part)] = &[
    ("c", Century), ("cent", Century), ("centuries", Century), ("century", Century), ("d", Day),
    ("day", Day), ("days", Day), ("dec", Decade), ("decade", Decade), ("decades", Decade), ("decs", Decade),
    ("h", Hour), ("hour", Hour), ("hours", Hour), ("hr", Hour), ("hrs", Hour), ("m", Minute),
    ("microsecon", Microseconds), ("mil", Millennium), ("millennia", Millennium),
    ("millennium", Millennium), ("millisecon", Milliseconds), ("mils", Millennium), ("min", Minute),
    ("mins", Minute), ("minute", Minute), ("minutes", Minute), ("mon", Month), ("mons", Month),
    ("month", Month), ("months", Month), ("ms", Milliseconds), ("msec", Milliseconds),
    ("msecond", Milliseconds), ("mseconds", Milliseconds), ("msecs", Milliseconds), ("qtr", Quarter),
    ("quarter", Quarter), ("s", Second), ("sec", Second), ("second", Second), ("seconds", Second),
    ("secs", Second), ("timezone", Zone), ("timezone_h", ZoneHour), ("timezone_m", ZoneMinute),
    ("us", Microseconds), ("usec", Microseconds), ("usecond", Microseconds), ("useconds", Microseconds),
    ("usecs", Microseconds), ("w", Week), ("week", Week), ("weeks", Week), ("y", Year), ("year", Year),
    ("years", Year), ("yr", Year), ("yrs", Year),
];

/// Fields of dates.
#[rustfmt::skip]
const DATE_WORDS: &[(&str, Part)] = &[
    ("dow", Dow), ("doy", Doy), ("epoch", Epoch), ("isodow", IsoDow), ("isoyear", IsoYear), ("j", Julian),
    ("jd", Julian), ("julian", Julian), ("infinity", Reserved), ("-infinity", Reserved), ("now", Reserved),
    ("today", Reserved), ("tomorrow", Reserved), ("yesterday", Reserved), ("allballs", Reserved),
];

/// The field that a lower-case word names; with `dates`, fields of dates too.
pub(super) fn part(word: &str, dates: bool) -> Option<Part> {
    let key = word.get(..10).unwrap_or(word);
    let find = |words: &[(&str, Part)]| {
        words
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, part)| *part)
    };
    find(WORDS).or_else(|| if dates { find(DATE_WORDS) } else { None })
}

/// 22023 for a word that names no field.
pub(super) fn unknown(word: &str, ty: &SqlType) -> SqlError {
    invalid(format!(
        "unit \"{word}\" not recognized for type {}",
        ty.base_name()
    ))
}

/// 0A000 for a field that the type does not have.
pub(super) fn unsupported(word: &str, ty: &SqlType) -> SqlError {
    SqlError::unsupported(format!(
        "unit \"{word}\" not supported for type {}",
        ty.base_name()
    ))
}
