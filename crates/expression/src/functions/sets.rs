//! Set-returning functions: series and the items of arrays.

use std::cmp::Ordering;

use weft_types::{Element, Numeric, SqlError, SqlState, SqlType, Value, ValueRef};

use super::arguments::{self, Arguments, mismatch};
use crate::context::Context;
use crate::table::{Arg, ComputeSet, Returns, SetEntry};

use Arg::Is;
use SqlType::{Int4, Int8};

const NUMERIC: SqlType = SqlType::Numeric(None);

type Emit<'e> = &'e mut dyn FnMut(Vec<Value>) -> Result<(), SqlError>;

const fn entry(
    name: &'static str,
    arguments: &'static [Arg],
    columns: &'static [(&'static str, Returns)],
    compute: ComputeSet,
) -> SetEntry {
    SetEntry {
        name,
        arguments,
        columns,
        strict: true,
        compute,
    }
}

/// The set-returning functions.
pub static SETS: &[SetEntry] = &[
    entry("generate_series", &[Is(Int4), Is(Int4)], OF_INT4, int4_series),
    entry(
        "generate_series",
        &[Is(Int4), Is(Int4), Is(Int4)],
        OF_INT4,
        int4_series,
    ),
    entry("generate_series", &[Is(Int8), Is(Int8)], OF_INT8, int8_series),
    entry(
        "generate_series",
        &[Is(Int8), Is(Int8), Is(Int8)],
        OF_INT8,
        int8_series,
    ),
    entry(
        "generate_series",
        &[Is(NUMERIC), Is(NUMERIC)],
        OF_NUMERIC,
        numeric_series,
    ),
    entry(
        "generate_series",
        &[Is(NUMERIC), Is(NUMERIC), Is(NUMERIC)],
        OF_NUMERIC,
        numeric_series,
    ),
    entry(
        "pg_options_to_table",
        &[Is(SqlType::Array(Element::Text))],
        &[
            ("option_name", Returns::Is(SqlType::Text)),
            ("option_value", Returns::Is(SqlType::Text)),
        ],
        options,
    ),
    entry(
        "unnest",
        &[Arg::AnyArray],
        &[("unnest", Returns::Element)],
        unnest,
    ),
    entry(
        "generate_subscripts",
        &[Arg::AnyArray, Is(Int4)],
        SUBSCRIPTS,
        subscripts,
    ),
    entry(
        "generate_subscripts",
        &[Arg::AnyArray, Is(Int4), Is(SqlType::Bool)],
        SUBSCRIPTS,
        subscripts,
    ),
];

const OF_INT4: &[(&str, Returns)] = &[("generate_series", Returns::Is(Int4))];
const OF_INT8: &[(&str, Returns)] = &[("generate_series", Returns::Is(Int8))];
const OF_NUMERIC: &[(&str, Returns)] = &[("generate_series", Returns::Is(NUMERIC))];
const SUBSCRIPTS: &[(&str, Returns)] = &[("generate_subscripts", Returns::Is(Int4))];

fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Every value from `start` to `stop` by `step`; overflow ends the series.
fn series(
    start: i64,
    stop: i64,
    step: i64,
    mut emit: impl FnMut(i64) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    if step == 0 {
        return Err(invalid("step size cannot equal zero"));
    }
    let mut value = start;
    while if step > 0 { value <= stop } else { value >= stop } {
        emit(value)?;
        match value.checked_add(step) {
            Some(next) => value = next,
            None => break,
        }
    }
    Ok(())
}

fn int4_series(_: &Context<'_>, arguments: Arguments<'_, '_>, emit: Emit<'_>) -> Result<(), SqlError> {
    let step = match arguments.len() {
        2 => 1,
        _ => arguments::int4(arguments, 2)?,
    };
    let (start, stop) = (arguments::int4(arguments, 0)?, arguments::int4(arguments, 1)?);
    // All values between two `integer`s are `integer`s.
    series(i64::from(start), i64::from(stop), i64::from(step), |value| {
        emit(vec![Value::Int4(value as i32)])
    })
}

fn int8_series(_: &Context<'_>, arguments: Arguments<'_, '_>, emit: Emit<'_>) -> Result<(), SqlError> {
    let step = match arguments.len() {
        2 => 1,
        _ => arguments::int8(arguments, 2)?,
    };
    let (start, stop) = (arguments::int8(arguments, 0)?, arguments::int8(arguments, 1)?);
    series(start, stop, step, |value| emit(vec![Value::Int8(value)]))
}

fn numeric_series(_: &Context<'_>, arguments: Arguments<'_, '_>, emit: Emit<'_>) -> Result<(), SqlError> {
    let one = Numeric::from(1);
    let (start, stop) = (
        arguments::numeric(arguments, 0)?,
        arguments::numeric(arguments, 1)?,
    );
    let step = match arguments.len() {
        2 => &one,
        _ => arguments::numeric(arguments, 2)?,
    };
    for (value, what) in [(start, "start value"), (stop, "stop value"), (step, "step size")] {
        if value.is_nan() {
            return Err(invalid(&format!("{what} cannot be NaN")));
        }
    }
    if step.is_zero() {
        return Err(invalid("step size cannot equal zero"));
    }
    let beyond = if step.is_negative() {
        Ordering::Less
    } else {
        Ordering::Greater
    };
    let mut value = start.clone();
    while value.compare(stop) != beyond {
        emit(vec![Value::Numeric(value.clone())])?;
        value = value.add(step)?;
    }
    Ok(())
}

fn unnest(_: &Context<'_>, arguments: Arguments<'_, '_>, emit: Emit<'_>) -> Result<(), SqlError> {
    let [ValueRef::Array(array)] = arguments else {
        return Err(mismatch());
    };
    array.items.iter().try_for_each(|item| emit(vec![item.clone()]))
}

/// `{a=1,b}` as rows of a name and a value.
fn options(_: &Context<'_>, arguments: Arguments<'_, '_>, emit: Emit<'_>) -> Result<(), SqlError> {
    let [ValueRef::Array(array)] = arguments else {
        return Err(mismatch());
    };
    array.items.iter().try_for_each(|item| {
        let Value::Text(option) = item else {
            return Err(mismatch());
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Value::Text(value.to_owned())),
            None => (option.as_str(), Value::Null),
        };
        emit(vec![Value::Text(name.to_owned()), value])
    })
}

fn subscripts(_: &Context<'_>, arguments: Arguments<'_, '_>, emit: Emit<'_>) -> Result<(), SqlError> {
    let Some(ValueRef::Array(array)) = arguments.first() else {
        return Err(mismatch());
    };
    let number = arguments::int4(arguments, 1)?;
    let reverse = matches!(arguments.get(2), Some(ValueRef::Bool(true)));
    let place = number
        .checked_sub(1)
        .and_then(|place| usize::try_from(place).ok());
    let Some((length, lower)) = place.and_then(|place| array.dimensions.get(place)) else {
        return Ok(());
    };
    let (first, last) = (i64::from(*lower), i64::from(*lower) + i64::from(*length) - 1);
    let (start, stop, step) = if reverse {
        (last, first, -1)
    } else {
        (first, last, 1)
    };
    series(start, stop, step, |value| emit(vec![Value::Int4(value as i32)]))
}
