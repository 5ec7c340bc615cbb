//! Time zones: offsets from UTC, fixed or from the IANA database.
//!
//! Signs are those of ISO 8601: positive is east of Greenwich. The IANA database is compiled in
//! (`chrono-tz`), so that a replay on another machine uses the same rules.

mod abbreviations;

use std::str::FromStr;

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone as _};
use chrono_tz::{OffsetName, Tz};

use crate::datetime::{
    EPOCH_UNIX_SECONDS, MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil, days_in_month,
};

/// The last year that is looked up directly; later years follow the same rules, but the compiled database
/// ends at some point.
const RULES_YEAR_MAX: i64 = 2087;
/// Period after which calendars repeat: leap or not, beginning on any day of the week.
const CALENDAR_YEARS: i64 = 28;

/// A session's time zone, or the zone in a timestamp's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeZone {
    /// Seconds east of UTC.
    Fixed(i32),
    /// A zone in the IANA database.
    Named(Tz),
}

/// Why a text is not an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetFault {
    /// It has another format.
    Syntax,
    /// 16 hours or more.
    OutOfRange,
}

impl TimeZone {
    /// Coordinated universal time.
    pub const UTC: Self = Self::Fixed(0);

    /// A zone by name or abbreviation, any case: "UTC", "Europe/Zurich", "PST".
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        if let Some((_, seconds)) = abbreviations::FIXED.iter().find(|(known, _)| *known == lower) {
            return Some(Self::Fixed(*seconds));
        }
        let zone = abbreviations::ZONES.iter().find(|(known, _)| *known == lower);
        let name = zone.map_or(name, |(_, zone)| zone);
        if let Ok(zone) = Tz::from_str(name) {
            return Some(Self::Named(zone));
        }
        chrono_tz::TZ_VARIANTS
            .iter()
            .find(|zone| zone.name().eq_ignore_ascii_case(name))
            .map(|zone| Self::Named(*zone))
    }

    /// A fixed offset east of Greenwich: `+5`, `-0530`, `+05:30:15`.
    ///
    /// # Errors
    /// Why it is not an offset.
    pub fn from_offset(text: &str) -> Result<Self, OffsetFault> {
        crate::datetime::offset_east(text).map(Self::Fixed)
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

    /// The abbreviation of the zone's time at an instant: "CEST", or the offset if it has none.
    #[must_use]
    pub fn abbreviation_at(&self, utc_micros: i64) -> String {
        let named = match self {
            Self::Fixed(0) => return "UTC".to_owned(),
            Self::Fixed(_) => None,
            Self::Named(zone) => naive(utc_micros).and_then(|instant| {
                let offset = zone.offset_from_utc_datetime(&instant);
                offset.abbreviation().map(str::to_owned)
            }),
        };
        named.unwrap_or_else(|| {
            let seconds = self.offset_at(utc_micros);
            let sign = if seconds < 0 { '-' } else { '+' };
            let (hours, minutes) = (seconds.abs() / 3600, seconds.abs() / 60 % 60);
            match minutes {
                0 => format!("{sign}{hours:02}"),
                _ => format!("{sign}{hours:02}:{minutes:02}"),
            }
        })
    }

    /// Seconds east of UTC at a local time (microseconds since 2000-01-01 00:00). Of two instants with that
    /// local time the later one (standard time) is meant; skipped local times use the offset before the
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

/// The same time in a year with the same calendar that the database covers.
fn in_known_year(micros: i64) -> i64 {
    let (year, _, _) = civil_from_days(micros.div_euclid(MICROS_PER_DAY));
    if year <= RULES_YEAR_MAX {
        return micros;
    }
    let start = days_from_civil(year, 1, 1);
    let same_calendar = |other: &i64| {
        (start - days_from_civil(*other, 1, 1)) % 7 == 0 && days_in_month(*other, 2) == days_in_month(year, 2)
    };
    let known = (RULES_YEAR_MAX - CALENDAR_YEARS + 1..=RULES_YEAR_MAX).find(same_calendar);
    known.map_or(micros, |known| {
        micros - (start - days_from_civil(known, 1, 1)) * MICROS_PER_DAY
    })
}

/// `None` beyond the years covered by the IANA rules; UTC is used there.
fn naive(micros: i64) -> Option<NaiveDateTime> {
    let micros = in_known_year(micros);
    let seconds = micros
        .div_euclid(MICROS_PER_SECOND)
        .checked_add(EPOCH_UNIX_SECONDS)?;
    DateTime::from_timestamp(seconds, 0).map(|instant| instant.naive_utc())
}
