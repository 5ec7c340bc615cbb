//! Time zones: offsets from UTC, fixed or from the IANA database.
//!
//! Signs are those of ISO 8601: positive is east of Greenwich. The IANA database is compiled in
//! (`chrono-tz`), so that a replay on another machine sees the same rules.

use std::str::FromStr;

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone as _};
use chrono_tz::Tz;

use crate::datetime::{EPOCH_UNIX_SECONDS, MICROS_PER_SECOND};

/// A session's time zone, or the zone of a timestamp's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeZone {
    /// So many seconds east of UTC.
    Fixed(i32),
    /// A zone of the IANA database.
    Named(Tz),
}

/// Abbreviations of PostgreSQL's default set, in half hours east.
#[rustfmt::skip]
const ABBREVIATIONS: &[(&str, i32)] = &[
    ("acdt", 21), ("acst", 19), ("adt", -6), ("aedt", 22), ("aest", 20), ("akdt", -16), ("akst", -18),
    ("art", -6), ("ast", -8), ("awst", 16), ("bst", 2), ("cdt", -10), ("cest", 4), ("cet", 2), ("cst", -12),
    ("edt", -8), ("eest", 6), ("eet", 4), ("est", -10), ("gmt", 0), ("hkt", 16), ("hst", -20), ("ist", 4),
    ("jst", 18), ("kst", 18), ("mdt", -12), ("mst", -14), ("ndt", -5), ("nst", -7), ("nzdt", 26),
    ("nzst", 24), ("pdt", -14), ("pkt", 10), ("pst", -16), ("ut", 0), ("utc", 0), ("wat", 2),
    ("wet", 0), ("z", 0), ("zulu", 0),
];

impl TimeZone {
    /// Coordinated universal time.
    pub const UTC: Self = Self::Fixed(0);

    /// A zone by name or abbreviation, any case: "UTC", "Europe/Zurich", "PST".
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        if let Some((_, halves)) = ABBREVIATIONS
            .iter()
            .find(|(abbreviation, _)| *abbreviation == lower)
        {
            return Some(Self::Fixed(halves * 1800));
        }
        if let Ok(zone) = Tz::from_str(name) {
            return Some(Self::Named(zone));
        }
        chrono_tz::TZ_VARIANTS
            .iter()
            .find(|zone| zone.name().eq_ignore_ascii_case(name))
            .map(|zone| Self::Named(*zone))
    }

    /// Seconds east of UTC at an instant (microseconds since 2000-01-01 00:00 UTC).
    #[must_use]
    pub fn offset_at(&self, utc_micros: i64) -> i32 {
        match self {
            Self::Fixed(seconds) => *seconds,
            Self::Named(zone) => match naive(utc_micros) {
                Some(instant) => zone.offset_from_utc_datetime(&instant).fix().local_minus_utc(),
                None => 0,
            },
        }
    }

    /// Seconds east of UTC when the clocks of the zone show this (microseconds since 2000-01-01 00:00). Of
    /// two instants the later one (standard time) is meant; times that the clocks skip count as before the
    /// skip.
    #[must_use]
    pub fn offset_at_local(&self, local_micros: i64) -> i32 {
        let zone = match self {
            Self::Fixed(seconds) => return *seconds,
            Self::Named(zone) => zone,
        };
        let Some(local) = naive(local_micros) else {
            return 0;
        };
        let before_skip = || {
            let earlier = local.checked_sub_signed(TimeDelta::hours(3)).unwrap_or(local);
            zone.offset_from_local_datetime(&earlier).earliest()
        };
        let offset = match zone.offset_from_local_datetime(&local) {
            MappedLocalTime::Single(offset) => Some(offset),
            MappedLocalTime::Ambiguous(_, later) => Some(later),
            MappedLocalTime::None => before_skip(),
        };
        offset.map_or(0, |offset| offset.fix().local_minus_utc())
    }
}

/// `None` beyond the years that the IANA rules are computed for; UTC is used there.
fn naive(micros: i64) -> Option<NaiveDateTime> {
    let seconds = micros
        .div_euclid(MICROS_PER_SECOND)
        .checked_add(EPOCH_UNIX_SECONDS)?;
    DateTime::from_timestamp(seconds, 0).map(|instant| instant.naive_utc())
}
