//! Functions of the session, of sequences, and of any value.

use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef, interrupt};

use super::arguments::{self, Arguments};
use crate::context::Context;
use crate::table::{Arg, Compute, Entry, Kernel, Kind, Returns, Volatility};

use Arg::{Any, Is};
use SqlType::{Bool, Float8, Int4, Int8, Name, Text, Uuid};
use Volatility::{Stable, Volatile};

const fn entry(
    name: &'static str,
    arguments: &'static [Arg],
    returns: SqlType,
    volatility: Volatility,
    compute: Compute,
) -> Entry {
    Entry {
        name,
        kind: Kind::Function,
        arguments,
        variadic: false,
        returns: Returns::Is(returns),
        volatility,
        strict: true,
        fallible: true,
        kernel: Kernel::Values(compute),
    }
}

const fn counting(name: &'static str, compute: Compute) -> Entry {
    Entry {
        variadic: true,
        strict: false,
        fallible: false,
        ..entry(name, &[Any], Int4, Volatility::Immutable, compute)
    }
}

fn session_user(context: &Context<'_>, _: Arguments<'_, '_>) -> Result<Value, SqlError> {
    Ok(Value::Text(context.session.session_user().to_owned()))
}

fn user(context: &Context<'_>, _: Arguments<'_, '_>) -> Result<Value, SqlError> {
    Ok(Value::from(context.session.user()))
}

fn database(context: &Context<'_>, _: Arguments<'_, '_>) -> Result<Value, SqlError> {
    Ok(Value::from(context.session.database()))
}

fn random(context: &Context<'_>, _: Arguments<'_, '_>) -> Result<Value, SqlError> {
    // 53 bits: every value is a multiple of 2^-53 below 1.
    let bits = context.session.random_u64() >> 11;
    Ok(Value::Float8(bits as f64 / (1_u64 << 53) as f64))
}

fn random_uuid(context: &Context<'_>, _: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let (high, low) = (context.session.random_u64(), context.session.random_u64());
    let mut bytes = [0; 16];
    for (to, from) in bytes
        .iter_mut()
        .zip(high.to_be_bytes().into_iter().chain(low.to_be_bytes()))
    {
        *to = from;
    }
    // Version 4, variant of RFC 4122.
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Ok(Value::Uuid(bytes))
}

fn sleep(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    const STEP_MICROS: i64 = 10_000;
    let seconds = arguments::float8(arguments, 0)?;
    let start = context.session.clock_micros();
    let micros = (seconds * 1e6).clamp(0.0, i64::MAX as f64) as i64;
    let end = start.saturating_add(micros);
    loop {
        interrupt::check()?;
        let left = end.saturating_sub(context.session.clock_micros());
        if left <= 0 {
            return Ok(Value::Text(String::new()));
        }
        let step = left.min(STEP_MICROS).unsigned_abs();
        std::thread::sleep(std::time::Duration::from_micros(step));
    }
}

fn next_value(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let value = context.session.next_value(arguments::text(arguments, 0)?)?;
    Ok(Value::Int8(value))
}

fn current_value(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let value = context.session.current_value(arguments::text(arguments, 0)?)?;
    Ok(Value::Int8(value))
}

fn set_value(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let called = match arguments.get(2) {
        Some(ValueRef::Bool(called)) => *called,
        _ => true,
    };
    let (sequence, value) = (arguments::text(arguments, 0)?, arguments::int8(arguments, 1)?);
    Ok(Value::Int8(context.session.set_value(sequence, value, called)?))
}

fn last_value(context: &Context<'_>, _: Arguments<'_, '_>) -> Result<Value, SqlError> {
    Ok(Value::Int8(context.session.last_value()?))
}

fn setting(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let name = arguments::text(arguments, 0)?;
    if let Some(value) = context.session.setting(name) {
        return Ok(Value::Text(value));
    }
    if let Some(ValueRef::Bool(true)) = arguments.get(1) {
        return Ok(Value::Null);
    }
    Err(SqlError::new(
        SqlState::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    ))
}

fn count(arguments: Arguments<'_, '_>, nulls: bool) -> Result<Value, SqlError> {
    let found = arguments.iter().filter(|value| value.is_null() == nulls).count();
    let found = i32::try_from(found).map_err(|_| weft_types::range::out_of_range(&SqlType::Int4))?;
    Ok(Value::Int4(found))
}

/// `set_config`: a NULL value resets, as in PostgreSQL; a NULL for the other arguments is false.
fn set_config(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Result<Value, SqlError> {
    let text = |at: usize| match arguments.get(at) {
        Some(ValueRef::Text(text)) => Some(*text),
        _ => None,
    };
    let Some(name) = text(0) else {
        let message = "SET requires parameter name";
        return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
    };
    let local = matches!(arguments.get(2), Some(ValueRef::Bool(true)));
    context.session.set_setting(name, text(1), local).map(Value::Text)
}

/// The functions.
pub static ENTRIES: &[Entry] = &[
    entry("current_user", &[], Name, Stable, user),
    entry("session_user", &[], Name, Stable, session_user),
    entry("user", &[], Name, Stable, user),
    entry("current_role", &[], Name, Stable, user),
    entry("current_database", &[], Name, Stable, database),
    entry("current_catalog", &[], Name, Stable, database),
    entry("current_setting", &[Is(Text)], Text, Stable, setting),
    entry("current_setting", &[Is(Text), Is(Bool)], Text, Stable, setting),
    Entry {
        strict: false,
        ..entry(
            "set_config",
            &[Is(Text), Is(Text), Is(Bool)],
            Text,
            Volatile,
            set_config,
        )
    },
    entry("pg_backend_pid", &[], Int4, Stable, |context, _| {
        Ok(Value::Int4(context.session.backend_pid()))
    }),
    entry("random", &[], Float8, Volatile, random),
    entry("gen_random_uuid", &[], Uuid, Volatile, random_uuid),
    entry("pg_sleep", &[Is(Float8)], Text, Volatile, sleep),
    entry("nextval", &[Is(Text)], Int8, Volatile, next_value),
    entry("currval", &[Is(Text)], Int8, Volatile, current_value),
    entry("setval", &[Is(Text), Is(Int8)], Int8, Volatile, set_value),
    entry(
        "setval",
        &[Is(Text), Is(Int8), Is(Bool)],
        Int8,
        Volatile,
        set_value,
    ),
    entry("lastval", &[], Int8, Volatile, last_value),
    counting("num_nulls", |_, arguments| count(arguments, true)),
    counting("num_nonnulls", |_, arguments| count(arguments, false)),
];
