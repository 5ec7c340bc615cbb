//! The offset of a window frame: `RANGE offset PRECEDING`.
//!
//! `frame_offset(offset, key, is_end)` is the offset, if it is valid. PostgreSQL checks it when it
//! compares rows by it, so that a negative one is not an error where the key is NULL.

use weft_types::{SqlError, SqlState, ValueRef};

use super::shape::{Arguments, Computed, define};
use crate::context::Context;
use crate::table::{Arg, Entry, Returns};
use weft_types::SqlType::Bool;

/// The entries.
pub static ENTRIES: &[Entry] = &[define(
    "frame_offset",
    &[Arg::AnyElement, Arg::Any, Arg::Is(Bool)],
    Returns::Element,
    frame_offset,
)
.with_nulls()];

const INVALID_SIZE: SqlState = SqlState("22013");

fn frame_offset(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let [distance, key, is_end] = arguments else {
        return Err(SqlError::internal("frame_offset takes three arguments"));
    };
    let refused = match distance {
        ValueRef::Null => {
            let end = match is_end {
                ValueRef::Bool(true) => "ending",
                _ => "starting",
            };
            return Err(SqlError::new(
                SqlState::NULL_VALUE_NOT_ALLOWED,
                format!("frame {end} offset must not be null"),
            ));
        }
        ValueRef::Float8(distance) => distance.is_nan() || *distance < 0.0,
        ValueRef::Float4(distance) => distance.is_nan() || *distance < 0.0,
        ValueRef::Numeric(distance) => distance.is_nan() || distance.is_negative(),
        ValueRef::Interval(distance) => distance.span() < 0,
        ValueRef::Int2(distance) => *distance < 0,
        ValueRef::Int4(distance) => *distance < 0,
        ValueRef::Int8(distance) => *distance < 0,
        _ => return Err(SqlError::internal("a frame's distance is of another type")),
    };
    match refused && !key.is_null() {
        true => Err(SqlError::new(
            INVALID_SIZE,
            "invalid preceding or following size in window function",
        )),
        false => Ok(distance.to_value()),
    }
}
