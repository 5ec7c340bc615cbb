//! How much work a function may be, and how much it may make: what a program's budget is held against.
//!
//! The numbers belong to the meaning of a program: where a replay runs out of its budget, the first run did
//! too.

use weft_types::{SqlError, SqlState, ValueRef};

use super::{Function, TEXT_BYTES_MAX};

/// Bytes of a value that registers do not hold.
pub(crate) fn bytes_of(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(text) => text.len(),
        ValueRef::Bytea(bytes) => bytes.len(),
        ValueRef::Json(text) => text.len(),
        ValueRef::Jsonb(json) => json.as_bytes().len(),
        ValueRef::Numeric(number) => number.size(),
        _ => 0,
    }
}

/// How much work the arguments are at most, in bytes looked at.
pub(super) fn work(function: Function, arguments: &[ValueRef<'_>]) -> usize {
    let sum = arguments.iter().map(bytes_of).fold(0, usize::saturating_add);
    let bytes = |number: usize| arguments.get(number).map_or(0, bytes_of);
    let more = match function {
        // Each character is looked for among those of the set.
        Function::Btrim | Function::Ltrim | Function::Rtrim | Function::Translate => {
            bytes(0).saturating_mul(bytes(1))
        }
        Function::Like => like_work(arguments),
        // Digits of one side by those of the other.
        _ if matches!(arguments.first(), Some(ValueRef::Numeric(_))) => sum.saturating_mul(sum) / 8,
        _ => 0,
    };
    sum.saturating_add(more)
}

/// Bytes that LIKE looks at: what is between two `%` is tried at each character once, and given up where
/// it does not fit.
fn like_work(arguments: &[ValueRef<'_>]) -> usize {
    let [
        ValueRef::Text(whole),
        ValueRef::Text(pattern),
        ValueRef::Text(escape),
    ] = arguments
    else {
        return 0;
    };
    let longest = match !escape.is_empty() && pattern.contains(*escape) {
        // An escaped `%` parts nothing.
        true => pattern.len(),
        false => pattern.split('%').skip(1).map(str::len).max().unwrap_or(0),
    };
    whole.len().saturating_mul(longest)
}

/// 54000 for what would be more than [`TEXT_BYTES_MAX`] longer than its arguments.
pub(super) fn check(function: Function, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
    let made = match (function, arguments) {
        (Function::Repeat, [ValueRef::Text(whole), ValueRef::Int4(times)]) => {
            usize::try_from(*times).unwrap_or(0).saturating_mul(whole.len())
        }
        (Function::Lpad | Function::Rpad, [ValueRef::Text(whole), ValueRef::Int4(wanted), _]) => {
            filled(whole, usize::try_from(*wanted).unwrap_or(0))
        }
        (Function::Replace, [ValueRef::Text(whole), ValueRef::Text(from), ValueRef::Text(to)]) => {
            replaced(whole, from, to)
        }
        _ => 0,
    };
    match made > TEXT_BYTES_MAX {
        true => Err(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "requested length too large",
        )),
        false => Ok(()),
    }
}

/// Bytes that a text is filled up with at most.
fn filled(whole: &str, wanted: usize) -> usize {
    // Characters are counted only where it matters.
    match wanted.saturating_mul(4) > TEXT_BYTES_MAX {
        true => wanted.saturating_sub(whole.chars().count()).saturating_mul(4),
        false => 0,
    }
}

/// Bytes of all that is put in place of something.
fn replaced(whole: &str, from: &str, to: &str) -> usize {
    let most = whole
        .len()
        .checked_div(from.len())
        .unwrap_or(0)
        .saturating_mul(to.len());
    match most > TEXT_BYTES_MAX {
        true => whole.matches(from).count().saturating_mul(to.len()),
        false => most,
    }
}
