//! The sum of the fields of an interval's text.

use super::interval_units::{Unit, fraction};
use crate::interval::Interval;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Why a text is not an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Syntax,
    Overflow,
}

/// Years, months, days and microseconds so far.
#[derive(Clone, Default, Debug)]
pub(super) struct Sum {
    years: i32,
    months: i32,
    days: i32,
    pub(super) micros: i64,
}

impl Sum {
    /// The interval; `None` if it has too many months.
    pub(super) fn interval(&self) -> Option<Interval> {
        let months = i64::from(self.years) * 12 + i64::from(self.months);
        Some(Interval {
            months: i32::try_from(months).ok()?,
            days: self.days,
            micros: self.micros,
        })
    }

    pub(super) fn negated(&self) -> Option<Self> {
        Some(Self {
            years: self.years.checked_neg()?,
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }

    /// Adds a number of units; a fraction carries into smaller units.
    pub(super) fn add(&mut self, whole: i64, part: f64, unit: Unit) -> Result<(), Fault> {
        let added = match unit {
            Unit::Microsecond => self.add_time(whole, part, 1),
            Unit::Millisecond => self.add_time(whole, part, 1000),
            Unit::Second => self.add_time(whole, part, SECOND),
            Unit::Minute => self.add_time(whole, part, MINUTE),
            Unit::Hour => self.add_time(whole, part, HOUR),
            Unit::Day => self.add_days(whole, 1).and_then(|()| self.add_part(part, DAY)),
            Unit::Week => self.add_days(whole, 7).and_then(|()| self.add_part_days(part, 7)),
            Unit::Month => self.add_months(whole).and_then(|()| self.add_part_days(part, 30)),
            Unit::Year => self.add_years(whole, part, 1),
            Unit::Decade => self.add_years(whole, part, 10),
            Unit::Century => self.add_years(whole, part, 100),
            Unit::Millennium => self.add_years(whole, part, 1000),
            Unit::None => return Err(Fault::Syntax),
        };
        added.ok_or(Fault::Overflow)
    }

    fn add_time(&mut self, whole: i64, part: f64, scale: i64) -> Option<()> {
        self.micros = whole.checked_mul(scale)?.checked_add(self.micros)?;
        self.add_part(part, scale)
    }

    /// Adds a fraction below 1 of `scale` microseconds, rounded.
    pub(super) fn add_part(&mut self, part: f64, scale: i64) -> Option<()> {
        let exact = part * scale as f64;
        let mut micros = exact as i64;
        let rest = exact - micros as f64;
        if rest > 0.5 {
            micros += 1;
        } else if rest < -0.5 {
            micros -= 1;
        }
        self.micros = self.micros.checked_add(micros)?;
        Some(())
    }

    fn add_part_days(&mut self, part: f64, scale: i32) -> Option<()> {
        let exact = part * f64::from(scale);
        let days = exact as i32;
        self.days = self.days.checked_add(days)?;
        self.add_part(exact - f64::from(days), DAY)
    }

    fn add_days(&mut self, whole: i64, scale: i32) -> Option<()> {
        let days = i32::try_from(whole).ok()?.checked_mul(scale)?;
        self.days = self.days.checked_add(days)?;
        Some(())
    }

    fn add_months(&mut self, whole: i64) -> Option<()> {
        self.months = self.months.checked_add(i32::try_from(whole).ok()?)?;
        Some(())
    }

    fn add_years(&mut self, whole: i64, part: f64, scale: i32) -> Option<()> {
        let years = i32::try_from(whole).ok()?.checked_mul(scale)?;
        self.years = self.years.checked_add(years)?;
        let months = (part * f64::from(scale) * 12.0).round_ties_even() as i32;
        self.months = self.months.checked_add(months)?;
        Some(())
    }

    /// Adds the eight digits of ISO 8601's basic format: years, months and days.
    pub(super) fn add_basic_date(&mut self, whole: i64, part: f64) -> Result<(), Fault> {
        self.add(whole / 10_000, 0.0, Unit::Year)?;
        self.add(whole / 100 % 100, 0.0, Unit::Month)?;
        self.add(whole % 100, part, Unit::Day)
    }

    /// Adds its six digits of hours, minutes and seconds.
    pub(super) fn add_basic_time(&mut self, whole: i64, part: f64) -> Result<(), Fault> {
        self.add(whole / 10_000, 0.0, Unit::Hour)?;
        self.add(whole / 100 % 100, 0.0, Unit::Minute)?;
        self.add(whole % 100, 0.0, Unit::Second)?;
        self.add_part(part, 1).ok_or(Fault::Overflow)
    }

    /// Replaces the microseconds so far by `hh:mm`, `hh:mm:ss`, `hh:mm:ss.f`, or `mm:ss.f`.
    pub(super) fn set_time(&mut self, field: &str, minute_to_second: bool) -> Result<(), Fault> {
        let (whole, point) = match field.find('.') {
            Some(at) => field.split_at_checked(at).ok_or(Fault::Syntax)?,
            None => (field, ""),
        };
        let mut parts = whole.split(':');
        let (Some(first), Some(second), third, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Fault::Syntax);
        };
        let number = |text: &str| match text {
            "" => Ok(0),
            _ if !text.bytes().all(|byte| byte.is_ascii_digit()) => Err(Fault::Syntax),
            _ => text.parse::<i64>().map_err(|_| Fault::Overflow),
        };
        let (first, second) = (number(first)?, number(second)?);
        let (hours, minutes, seconds) = match third {
            Some(third) => (first, second, number(third)?),
            None if !point.is_empty() || minute_to_second => (0, first, second),
            None => (first, second, 0),
        };
        let part = match point {
            "" => 0.0,
            point => fraction(point)?,
        };
        let micros = (part * 1e6).round_ties_even() as i64;
        if minutes > 59 || seconds > 60 || micros > SECOND {
            return Err(Fault::Overflow);
        }
        let rest = minutes * MINUTE + seconds * SECOND + micros;
        let total = hours.checked_mul(HOUR).and_then(|hours| hours.checked_add(rest));
        self.micros = total.ok_or(Fault::Overflow)?;
        Ok(())
    }
}
