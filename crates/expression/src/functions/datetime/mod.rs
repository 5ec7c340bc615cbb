//! Functions and operators of dates and times (PostgreSQL, 9.9).
//!
//! ```text
//!   arithmetic  + - * / over dates, times, timestamps, intervals and numbers
//!   fields      extract, date_part
//!   truncate    date_trunc, date_bin, rounding to decimal places of a second
//!   moments     now and the like, make_date and the like
//!   spans       age, justify_*, isfinite, overlaps, generate_series
//!   format      to_char
//!   read        to_date, to_timestamp of a text with a template
//!   zones       AT TIME ZONE
//! ```

mod arithmetic;
mod clock;
mod fields;
mod format;
mod format_template;
mod moments;
mod read;
mod spans;
mod truncate;
mod units;
mod values;
mod zones;

use crate::table::SetEntry;

pub use arithmetic::{ARITHMETIC, compared_date, midnight_compared};
pub use fields::FIELDS;
pub use format::FORMATS;
pub use moments::MOMENTS;
pub use read::READS;
pub use spans::SPANS;
pub use truncate::TRUNCATION;
pub use zones::ZONES;

/// The set-returning functions.
pub static SETS: &[SetEntry] = spans::SERIES;
