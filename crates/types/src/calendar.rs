//! The calendar: days, months and years, time zones, and the ranges of dates and timestamps.
//!
//! For functions of dates and times; units are those of [`Value`](crate::Value).

use crate::{SqlError, SqlState, TimeZone};

pub use crate::datetime::{
    MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, date_of_timestamp, days_from_civil, days_in_month,
    is_finite_timestamp, timestamp_of_date,
};

/// The Julian day of 2000-01-01: days since 4714-11-24 BC.
pub const EPOCH_JULIAN_DAY: i64 = 2_451_545;
/// 1970-01-01 00:00 in microseconds since 2000-01-01 00:00.
pub const UNIX_EPOCH_MICROS: i64 = -crate::datetime::EPOCH_UNIX_SECONDS * MICROS_PER_SECOND;

/// 22008 "timestamp out of range".
#[must_use]
pub fn timestamp_out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

/// The instant of a local time in a zone; infinity stays.
///
/// # Errors
/// 22008 beyond the range of timestamps.
pub fn utc_of_local(local_micros: i64, zone: &TimeZone) -> Result<i64, SqlError> {
    shift(local_micros, -i64::from(zone.offset_at_local(local_micros)))
}

/// The local time in a zone at an instant; infinity stays.
///
/// # Errors
/// 22008 beyond the range of timestamps.
pub fn local_of_utc(utc_micros: i64, zone: &TimeZone) -> Result<i64, SqlError> {
    shift(utc_micros, i64::from(zone.offset_at(utc_micros)))
}

fn shift(micros: i64, seconds: i64) -> Result<i64, SqlError> {
    if micros == i64::MAX || micros == i64::MIN {
        return Ok(micros);
    }
    micros
        .checked_add(seconds * MICROS_PER_SECOND)
        .filter(|micros| is_finite_timestamp(*micros))
        .ok_or_else(timestamp_out_of_range)
}
