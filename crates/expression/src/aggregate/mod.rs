//! Aggregates, with PostgreSQL's result types and precision.
//!
//! An aggregate receives its rows one at a time in an [`Accumulator`]; when several compute parts of the
//! rows, their states are merged into one. `ordered` aggregates receive their rows in the order of the call
//! (ORDER BY or WITHIN GROUP) and are not computed in parts.
//!
//! - `sums`: count, sum, avg.
//! - `extremes`: min, max; `bits`: aggregates of booleans and of bits.
//! - `spread`: variance, deviation; `regression`: aggregates of pairs of floats.
//! - `lists`: array_agg, string_agg; `json`: json_agg and the like.
//! - `percentiles`: aggregates with WITHIN GROUP.

mod bits;
mod extremes;
mod json;
mod lists;
mod percentiles;
mod regression;
mod spread;
mod sums;

use weft_types::{SqlError, SqlType, Value, ValueRef};

use crate::table::{Accumulator, AggregateEntry, Arg, Returns};

/// Aggregates, by file.
pub(crate) static FAMILIES: &[&[AggregateEntry]] = &[
    sums::ENTRIES,
    extremes::ENTRIES,
    bits::ENTRIES,
    spread::ENTRIES,
    regression::ENTRIES,
    lists::ENTRIES,
    json::ENTRIES,
    percentiles::ENTRIES,
];

type Start = fn(&[SqlType], SqlType) -> Box<dyn Accumulator>;

/// A strict aggregate that can be computed in parts.
const fn entry(
    name: &'static str,
    arguments: &'static [Arg],
    returns: SqlType,
    state: &'static [SqlType],
    start: Start,
) -> AggregateEntry {
    AggregateEntry {
        name,
        arguments,
        ordered_set: 0,
        returns: Returns::Is(returns),
        strict: true,
        ordered: false,
        state,
        start,
    }
}

/// The error of a call with arguments of other types, which binding rules out.
#[cold]
fn mismatch() -> SqlError {
    SqlError::internal("an aggregate was computed over values of other types")
}

fn first<'a, 'v>(arguments: &'a [ValueRef<'v>]) -> Result<&'a ValueRef<'v>, SqlError> {
    arguments.first().ok_or_else(mismatch)
}

fn float(arguments: &[ValueRef<'_>], number: usize) -> Result<f64, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Float8(value)) => Ok(*value),
        Some(ValueRef::Float4(value)) => Ok(f64::from(*value)),
        _ => Err(mismatch()),
    }
}

fn integer(arguments: &[ValueRef<'_>], number: usize) -> Result<i64, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Int2(value)) => Ok(i64::from(*value)),
        Some(ValueRef::Int4(value)) => Ok(i64::from(*value)),
        Some(ValueRef::Int8(value)) => Ok(*value),
        _ => Err(mismatch()),
    }
}

/// The error of an aggregate that has no partial state.
fn whole<T>() -> Result<T, SqlError> {
    Err(SqlError::internal(
        "an aggregate over rows in order was computed in parts",
    ))
}

fn bytes_of(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::Text(text) => text.len(),
            Value::Bytea(bytes) => bytes.len(),
            Value::Json(text) => text.len(),
            Value::Jsonb(json) => json.as_bytes().len(),
            Value::Numeric(number) => number.size(),
            Value::Array(array) => array.items.len() * size_of::<Value>(),
            _ => 0,
        }
}
