//! Functions and operators of json and jsonb.
//!
//! Those of `jsonb` read its binary form in place. Those of `json` read its text; they give parts of it as
//! they are written there.
//!
//! - `read`: members, paths, containment, types. `text`: the parts of a `json`.
//! - `change`: concatenation, deletion, jsonb_set and the like.
//! - `build`: json and jsonb of other values. `sets`: functions that return rows.

mod build;
mod change;
mod read;
mod sets;
mod text;

use weft_types::{ArrayValue, JsonbRef, SqlError, SqlType, Value, ValueRef};

use super::arguments::mismatch;
use super::shape::{Arguments, Computed};
use crate::table::{Arg, Returns};

pub(crate) use build::{check_key, json_of};

/// Functions and operators, by file.
pub static READERS: &[crate::table::Entry] = read::ENTRIES;
/// Functions and operators that make a changed value.
pub static CHANGES: &[crate::table::Entry] = change::ENTRIES;
/// Functions that make json of other values.
pub static CONSTRUCTORS: &[crate::table::Entry] = build::ENTRIES;
/// Set-returning functions.
pub static SETS: &[crate::table::SetEntry] = sets::ENTRIES;

const JSON: Arg = Arg::Is(SqlType::Json);
const JSONB: Arg = Arg::Is(SqlType::Jsonb);
const TO_JSON: Returns = Returns::Is(SqlType::Json);
const TO_JSONB: Returns = Returns::Is(SqlType::Jsonb);

fn json<'a>(arguments: Arguments<'a, '_>, at: usize) -> Result<&'a str, SqlError> {
    match arguments.get(at) {
        Some(ValueRef::Json(text)) => Ok(text),
        _ => Err(mismatch()),
    }
}

fn jsonb<'a>(arguments: Arguments<'_, 'a>, at: usize) -> Result<JsonbRef<'a>, SqlError> {
    match arguments.get(at) {
        Some(ValueRef::Jsonb(value)) => Ok(*value),
        _ => Err(mismatch()),
    }
}

fn array<'a>(arguments: Arguments<'a, '_>, at: usize) -> Result<&'a ArrayValue, SqlError> {
    match arguments.get(at) {
        Some(ValueRef::Array(array)) => Ok(array),
        _ => Err(mismatch()),
    }
}

/// A part of a `jsonb`, or NULL.
fn part(found: Option<JsonbRef<'_>>) -> Computed {
    Ok(found.map_or(Value::Null, |value| Value::Jsonb(value.to_jsonb())))
}
