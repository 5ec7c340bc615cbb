//! The dated exemption list, `xtask/tidy-exemptions.txt`.
//!
//! One exemption a line, `#` begins a comment:
//!
//! ```text
//! until 2026-12-31 function-lines crates/sql/src/bind.rs::bind_select one arm per expression kind
//! ```
//!
//! An exemption ends on its day. It must still be needed: one that suppresses nothing is a finding, so
//! that the list never outlives its reasons. Only size rules can be suspended.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Finding;

/// Path of the list from the workspace root.
pub const LIST: &str = "xtask/tidy-exemptions.txt";
/// Rules that an exemption may suspend.
const SUSPENDABLE: [&str; 3] = ["file-lines", "function-lines", "line-width"];

/// A day of the civil calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: i64,
    month: u32,
    day: u32,
}

impl Date {
    /// The current day in UTC.
    pub fn today() -> Self {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        Self::from_days_since_1970(i64::try_from(seconds / 86_400).unwrap_or(0))
    }

    /// Howard Hinnant's `civil_from_days`, for days on or after 1970-01-01.
    fn from_days_since_1970(days: i64) -> Self {
        let shifted = days + 719_468; // days since 0000-03-01
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self {
            year,
            month: u32::try_from(month).unwrap_or(1),
            day: u32::try_from(day).unwrap_or(1),
        }
    }

    /// Reads `YYYY-MM-DD`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let year = parts.next()?.parse().ok()?;
        let month = parts.next()?.parse().ok()?;
        let day = parts.next()?.parse().ok()?;
        let valid = parts.next().is_none() && (1..=12).contains(&month) && (1..=31).contains(&day);
        valid.then_some(Self { year, month, day })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// Takes out the findings that a valid exemption covers, and adds one for every exemption that is
/// malformed, out of date or unused.
pub fn apply(list: &str, today: Date, findings: Vec<Finding>) -> Vec<Finding> {
    let mut left = findings;
    let mut own = Vec::new();
    for (at, line) in list.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut finding = |message: String| own.push(Finding::new("exemptions", LIST, at + 1, message));
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["until", date, rule, subject, _reason, ..] = words.as_slice() else {
            finding("write `until DATE RULE SUBJECT REASON`".to_owned());
            continue;
        };
        let Some(until) = Date::parse(date) else {
            finding(format!("{date:?} is not a date"));
            continue;
        };
        if !SUSPENDABLE.contains(rule) {
            finding(format!("rule {rule:?} cannot be suspended"));
        } else if until < today {
            finding(format!(
                "{subject}: the exemption ended on {until}; today is {today}"
            ));
        } else {
            let before = left.len();
            left.retain(|f| f.rule != *rule || f.subject != *subject);
            if left.len() == before {
                finding(format!(
                    "{subject} needs no exemption from {rule} any more: remove it"
                ));
            }
        }
    }
    left.extend(own);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: Date = Date {
        year: 2026,
        month: 11,
        day: 21,
    };

    fn finding() -> Vec<Finding> {
        vec![Finding::new("file-lines", "a/b.rs", 0, "too long")]
    }

    fn messages(list: &str, findings: Vec<Finding>) -> Vec<String> {
        apply(list, TODAY, findings)
            .into_iter()
            .map(|f| f.message)
            .collect()
    }

    #[test]
    fn a_valid_exemption_takes_its_finding_out() {
        assert_eq!(
            messages("until 2026-11-21 file-lines a/b.rs one table", finding()),
            [""; 0]
        );
        assert_eq!(messages("# nothing\n\n", finding()), ["too long"]);
    }

    #[test]
    fn an_exemption_out_of_date_fails_and_suppresses_nothing() {
        let found = messages("until 2026-11-20 file-lines a/b.rs one table", finding());
        assert_eq!(found.len(), 2);
        assert!(found[1].contains("ended on 2026-11-20"), "{found:?}");
    }

    #[test]
    fn an_unused_exemption_fails() {
        let found = messages("until 2027-01-01 file-lines a/b.rs one table", Vec::new());
        assert!(found[0].contains("any more"), "{found:?}");
    }

    #[test]
    fn malformed_lines_fail() {
        assert!(messages("until 2027-01-01 file-lines a/b.rs", Vec::new())[0].contains("write"));
        assert!(messages("until soon file-lines a/b.rs why", Vec::new())[0].contains("not a date"));
        assert!(messages("until 2027-01-01 floors a/b.rs why", Vec::new())[0].contains("cannot"));
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(Date::from_days_since_1970(0).to_string(), "1970-01-01");
        assert_eq!(Date::from_days_since_1970(19_782).to_string(), "2024-02-29");
        assert_eq!(Date::from_days_since_1970(20_778).to_string(), "2026-11-21");
        assert_eq!(Date::parse("2026-13-01"), None);
    }
}
