//! Arguments of date and time types, and entries over them.

use weft_types::{Interval, SqlError, SqlState, SqlType, ValueRef};

use crate::functions::arguments::{Arguments, mismatch};
use crate::table::{Arg, Compute, Entry, Kernel, Kind, Returns, Volatility};

macro_rules! readers {
    ($($name:ident -> $ty:ty: $variant:ident;)+) => {
        $(pub(super) fn $name(arguments: Arguments<'_, '_>, number: usize) -> Result<$ty, SqlError> {
            match arguments.get(number) {
                Some(ValueRef::$variant(value)) => Ok(*value),
                _ => Err(mismatch()),
            }
        })+
    };
}

readers! {
    date -> i32: Date;
    time -> i64: Time;
    interval -> Interval: Interval;
}

/// A `timestamp` or `timestamptz`.
pub(super) fn micros(arguments: Arguments<'_, '_>, number: usize) -> Result<i64, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Timestamp(value) | ValueRef::TimestampTz(value)) => Ok(*value),
        _ => Err(mismatch()),
    }
}

/// 22008.
pub(super) fn out_of_range(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
}

/// 22008 "interval out of range".
pub(super) fn interval_out_of_range() -> SqlError {
    out_of_range("interval out of range")
}

/// 22023.
pub(super) fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

pub(super) const fn is_infinite(micros: i64) -> bool {
    micros == i64::MAX || micros == i64::MIN
}

/// A strict function, immutable unless stated otherwise.
pub(super) const fn function(
    name: &'static str,
    arguments: &'static [Arg],
    returns: SqlType,
    compute: Compute,
) -> Entry {
    Entry {
        name,
        kind: Kind::Function,
        arguments,
        variadic: false,
        returns: Returns::Is(returns),
        volatility: Volatility::Immutable,
        strict: true,
        fallible: true,
        kernel: Kernel::Values(compute),
    }
}

/// The same, but dependent on the session's zone or clock.
pub(super) const fn stable(
    name: &'static str,
    arguments: &'static [Arg],
    returns: SqlType,
    compute: Compute,
) -> Entry {
    Entry {
        volatility: Volatility::Stable,
        ..function(name, arguments, returns, compute)
    }
}

/// An infix operator.
pub(super) const fn infix(
    name: &'static str,
    arguments: &'static [Arg],
    returns: SqlType,
    compute: Compute,
) -> Entry {
    Entry {
        kind: Kind::Infix,
        ..function(name, arguments, returns, compute)
    }
}

/// Swaps the first two arguments.
pub(super) fn swapped<'v>(arguments: Arguments<'_, 'v>) -> Result<[ValueRef<'v>; 2], SqlError> {
    match arguments {
        [first, second] => Ok([second.clone(), first.clone()]),
        _ => Err(mismatch()),
    }
}
