//! SQL comparison of values.
//!
//! Integers compare regardless of width, floats likewise, with NaN greatest and equal to itself; mixed
//! integers, decimals and floats follow PostgreSQL's promotion (a float makes it a float comparison). Text
//! is ordered by bytes (collation "C"). Dates and timestamps compare as points in time, with UTC as the
//! time zone. Intervals compare with months of 30 days and days of 24 hours; arrays and records item by
//! item; a `jsonb` as [`json::compare`] says, a `json` not at all.

use std::cmp::Ordering;

use crate::{Numeric, SqlType, Value, ValueRef, json};

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// SQL's order; `None` if one is NULL or the types are not comparable.
#[must_use]
pub fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    if let (Value::Numeric(a), Value::Numeric(b)) = (a, b) {
        return Some(a.compare(b));
    }
    compare_ref(&a.as_ref(), &b.as_ref())
}

/// SQL's order; `None` if one is NULL or the types are not comparable.
#[must_use]
pub fn compare_ref(a: &ValueRef<'_>, b: &ValueRef<'_>) -> Option<Ordering> {
    match (a, b) {
        (ValueRef::Bool(a), ValueRef::Bool(b)) => Some(a.cmp(b)),
        (ValueRef::Text(a), ValueRef::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (ValueRef::Bytea(a), ValueRef::Bytea(b)) => Some(a.cmp(b)),
        (ValueRef::Uuid(a), ValueRef::Uuid(b)) => Some(a.cmp(b)),
        (ValueRef::Jsonb(a), ValueRef::Jsonb(b)) => Some(json::compare(*a, *b)),
        (ValueRef::Date(a), ValueRef::Date(b)) => Some(a.cmp(b)),
        (ValueRef::Time(a), ValueRef::Time(b)) => Some(a.cmp(b)),
        (ValueRef::Interval(a), ValueRef::Interval(b)) => Some(a.span().cmp(&b.span())),
        (ValueRef::Oid(a), ValueRef::Oid(b)) => Some(a.cmp(b)),
        (ValueRef::Array(a), ValueRef::Array(b)) => a.compare(b),
        (ValueRef::Record(a), ValueRef::Record(b)) => compare_records(a, b),
        _ => match (integer(a), integer(b)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => compare_numbers(a, b).or_else(|| Some(instant(a)?.cmp(&instant(b)?))),
        },
    }
}

/// Order of the items of arrays and records: NULL equals NULL and is greater than every value.
pub(crate) fn compare_items(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Null, Value::Null) => Some(Ordering::Equal),
        (Value::Null, _) => Some(Ordering::Greater),
        (_, Value::Null) => Some(Ordering::Less),
        _ => compare(a, b),
    }
}

/// Field by field; records of different lengths are not comparable.
fn compare_records(a: &[(SqlType, Value)], b: &[(SqlType, Value)]) -> Option<Ordering> {
    for ((_, a), (_, b)) in a.iter().zip(b) {
        match compare_items(a, b)? {
            Ordering::Equal => {}
            unequal => return Some(unequal),
        }
    }
    (a.len() == b.len()).then_some(Ordering::Equal)
}

/// Order of floats: NaN is greatest and equal to itself, -0 equals 0.
#[inline]
#[must_use]
pub fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn compare_numbers(a: &ValueRef<'_>, b: &ValueRef<'_>) -> Option<Ordering> {
    if is_float(a) || is_float(b) {
        return Some(compare_floats(float(a)?, float(b)?));
    }
    Some(decimal(a)?.compare(&decimal(b)?))
}

fn integer(v: &ValueRef<'_>) -> Option<i64> {
    match v {
        ValueRef::Int2(v) => Some(i64::from(*v)),
        ValueRef::Int4(v) => Some(i64::from(*v)),
        ValueRef::Int8(v) => Some(*v),
        _ => None,
    }
}

fn is_float(v: &ValueRef<'_>) -> bool {
    matches!(v, ValueRef::Float4(_) | ValueRef::Float8(_))
}

fn float(v: &ValueRef<'_>) -> Option<f64> {
    match v {
        ValueRef::Float4(v) => Some(f64::from(*v)),
        ValueRef::Float8(v) => Some(*v),
        ValueRef::Numeric(v) => Some(v.to_f64()),
        other => integer(other).map(|v| v as f64),
    }
}

fn decimal(v: &ValueRef<'_>) -> Option<Numeric> {
    match v {
        ValueRef::Numeric(v) => Some(v.clone()),
        other => integer(other).map(Numeric::from),
    }
}

/// Microseconds since 2000-01-01 00:00 UTC.
fn instant(v: &ValueRef<'_>) -> Option<i128> {
    match v {
        ValueRef::Timestamp(v) | ValueRef::TimestampTz(v) => Some(i128::from(*v)),
        ValueRef::Date(i32::MAX) => Some(i128::from(i64::MAX)),
        ValueRef::Date(i32::MIN) => Some(i128::from(i64::MIN)),
        ValueRef::Date(v) => Some(i128::from(*v) * i128::from(MICROS_PER_DAY)),
        _ => None,
    }
}
