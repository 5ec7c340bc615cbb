//! A timestamp broken into fields, and ISO weeks.

use weft_types::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil};

/// The fields of calendar and clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    /// 0 is 1 BC.
    pub(super) year: i64,
    pub(super) month: u32,
    pub(super) day: u32,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) micros: i64,
}

impl Shown {
    pub(super) fn of(local: i64) -> Self {
        let (year, month, day) = civil_from_days(local.div_euclid(MICROS_PER_DAY));
        let time = local.rem_euclid(MICROS_PER_DAY);
        let seconds = time / MICROS_PER_SECOND;
        Self {
            year,
            month,
            day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: time % MICROS_PER_SECOND,
        }
    }

    /// Days since 2000-01-01.
    pub(super) fn days(&self) -> i64 {
        days_from_civil(self.year, self.month, self.day)
    }

    /// Microseconds since midnight.
    pub(super) fn time(&self) -> i64 {
        ((self.hour * 60 + self.minute) * 60 + self.second) * MICROS_PER_SECOND + self.micros
    }

    /// Microseconds since 2000-01-01.
    pub(super) fn local(&self) -> i64 {
        self.days()
            .saturating_mul(MICROS_PER_DAY)
            .saturating_add(self.time())
    }
}

/// 0 is Sunday.
pub(super) fn day_of_week(days: i64) -> i64 {
    // 2000-01-01 was a Saturday.
    (days + 6).rem_euclid(7)
}

/// 1 is Monday, 7 Sunday.
pub(super) fn iso_day_of_week(days: i64) -> i64 {
    (days + 5).rem_euclid(7) + 1
}

/// PostgreSQL's Julian day of any year, month and day, even an interval's; its divisions truncate
/// toward 0.
pub(super) fn julian_day(year: i64, month: i64, day: i64) -> i64 {
    let (month, year) = match month > 2 {
        true => (month + 1, year + 4800),
        false => (month + 13, year + 4799),
    };
    let century = year / 100;
    year * 365 - 32167 + year / 4 - century + century / 4 + 7834 * month / 256 + day
}

/// The day of the year, from 1.
pub(super) fn day_of_year(shown: &Shown) -> i64 {
    shown.days() - days_from_civil(shown.year, 1, 1) + 1
}

/// The Monday on which an ISO year begins: the one of the week with January 4.
pub(super) fn iso_year_start(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    fourth - (iso_day_of_week(fourth) - 1)
}

/// ISO year (0 is 1 BC) and week of a day.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let (mut year, _, _) = civil_from_days(days);
    if days < iso_year_start(year) {
        year -= 1;
    } else if days >= iso_year_start(year + 1) {
        year += 1;
    }
    (year, (days - iso_year_start(year)) / 7 + 1)
}
