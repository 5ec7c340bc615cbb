//! Intervals: months, days and microseconds, which have no fixed ratio.
//!
//! A month has 28 to 31 days and a day 23 to 25 hours, so the three are kept apart. Only in
//! comparisons does a month count as 30 days and a day as 24 hours.

use crate::datetime::MICROS_PER_DAY;
use crate::text::{push_i64, push_two};

const DAYS_PER_MONTH: i128 = 30;
const MONTHS_PER_YEAR: i32 = 12;
const MICROS_PER_SECOND: u64 = 1_000_000;

/// A span of time. Each field has its own sign.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interval {
    /// Months; a year is twelve of them.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds, including hours, minutes and seconds.
    pub micros: i64,
}

impl Interval {
    /// So many microseconds.
    #[must_use]
    pub const fn of_micros(micros: i64) -> Self {
        Self {
            months: 0,
            days: 0,
            micros,
        }
    }

    /// Total microseconds, with months of 30 days and days of 24 hours: the basis of comparison.
    #[must_use]
    pub fn span(&self) -> i128 {
        let days = i128::from(self.months) * DAYS_PER_MONTH + i128::from(self.days);
        days * i128::from(MICROS_PER_DAY) + i128::from(self.micros)
    }

    /// An interval of that span, with as few months as possible.
    #[must_use]
    pub fn of_span(span: i128) -> Option<Self> {
        let day = i128::from(MICROS_PER_DAY);
        let (days, micros) = (span / day, (span % day) as i64);
        if let Ok(days) = i32::try_from(days) {
            return Some(Self {
                months: 0,
                days,
                micros,
            });
        }
        let months = i32::try_from(days / DAYS_PER_MONTH);
        match months {
            Ok(months) => Some(Self {
                months,
                days: (days % DAYS_PER_MONTH) as i32,
                micros,
            }),
            // The days that exceed the maximum of months.
            Err(_) => {
                let months = if days < 0 { i32::MIN } else { i32::MAX };
                let rest = days - i128::from(months) * DAYS_PER_MONTH;
                match i32::try_from(rest) {
                    Ok(days) => Some(Self { months, days, micros }),
                    Err(_) => Self::of_extreme(span),
                }
            }
        }
    }

    /// An interval whose months and days are at their limits.
    fn of_extreme(span: i128) -> Option<Self> {
        let (months, days) = if span < 0 {
            (i32::MIN, i32::MIN)
        } else {
            (i32::MAX, i32::MAX)
        };
        let whole = i128::from(months) * DAYS_PER_MONTH + i128::from(days);
        let micros = i64::try_from(span - whole * i128::from(MICROS_PER_DAY)).ok()?;
        Some(Self { months, days, micros })
    }

    /// The 16 bytes in a row: microseconds, days, months, little endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let bits = u128::from(self.micros as u64)
            | u128::from(self.days as u32) << 64
            | u128::from(self.months as u32) << 96;
        bits.to_le_bytes()
    }

    /// Inverse of [`Interval::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let bits = u128::from_le_bytes(bytes);
        Self {
            months: (bits >> 96) as i32,
            days: (bits >> 64) as i32,
            micros: bits as i64,
        }
    }

    /// Appends its text: "1 year 2 mons 3 days 04:05:06.789".
    pub fn format(&self, out: &mut String) {
        let start = out.len();
        let mut before_negative = false;
        let parts = [
            (self.months / MONTHS_PER_YEAR, "year"),
            (self.months % MONTHS_PER_YEAR, "mon"),
            (self.days, "day"),
        ];
        for (count, unit) in parts {
            if count == 0 {
                continue;
            }
            if out.len() > start {
                out.push(' ');
            }
            if before_negative && count > 0 {
                out.push('+');
            }
            push_i64(i64::from(count), out);
            out.push(' ');
            out.push_str(unit);
            if count != 1 {
                out.push('s');
            }
            before_negative = count < 0;
        }
        if self.micros == 0 && out.len() > start {
            return;
        }
        if out.len() > start {
            out.push(' ');
        }
        if self.micros < 0 {
            out.push('-');
        } else if before_negative {
            out.push('+');
        }
        let micros = self.micros.unsigned_abs();
        let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
        push_two((seconds / 3600) as u32, out);
        out.push(':');
        push_two((seconds / 60 % 60) as u32, out);
        out.push(':');
        push_two((seconds % 60) as u32, out);
        crate::datetime::push_fraction(fraction as u32, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_postgresql() {
        let text = |months, days, micros| {
            let mut text = String::new();
            Interval { months, days, micros }.format(&mut text);
            text
        };
        assert_eq!(text(0, 0, 0), "00:00:00");
        assert_eq!(text(14, 3, 14_706_789_000), "1 year 2 mons 3 days 04:05:06.789");
        assert_eq!(text(-1, 1, 0), "-1 mons +1 day");
        assert_eq!(text(-25, 3, -1), "-2 years -1 mons +3 days -00:00:00.000001");
        assert_eq!(text(0, -1, 3_600_000_000), "-1 days +01:00:00");
        assert_eq!(text(0, 0, i64::MIN), "-2562047788:00:54.775808");
    }

    #[test]
    fn bytes_and_spans_read_back() {
        for (months, days, micros) in [
            (0, 0, 0),
            (-1, 2, -3),
            (i32::MAX, i32::MAX, i64::MAX),
            (i32::MIN, i32::MIN, i64::MIN),
            (i32::MIN, i32::MAX, i64::MIN),
            (i32::MAX, 31, 5),
        ] {
            let interval = Interval { months, days, micros };
            assert_eq!(Interval::from_bytes(interval.to_bytes()), interval);
            let other = Interval::of_span(interval.span()).map(|other| other.span());
            assert_eq!(other, Some(interval.span()), "{interval:?}");
        }
    }
}
