//! The functions that take and give back advisory locks. The session has the locks.

use weft_types::{SqlError, SqlType, Value, ValueRef};

use super::arguments::{Arguments, mismatch};
use super::shape::{INT4, INT8, TO_BOOL, define};
use crate::context::{AdvisoryCall, AdvisoryKey, AdvisoryStep, Context};
use crate::table::{Arg, Compute, Entry, Returns, Volatility};

const TO_VOID: Returns = Returns::Is(SqlType::Void);

const fn entry(name: &'static str, arguments: &'static [Arg], returns: Returns, compute: Compute) -> Entry {
    Entry {
        volatility: Volatility::Volatile,
        ..define(name, arguments, returns, compute)
    }
}

/// Each function takes one number of 64 bits or two of 32.
macro_rules! entries {
    ($($name:literal -> $returns:ident: $step:ident, shared $shared:literal, xact $xact:literal;)+) => {
        /// The entries.
        pub(super) static ENTRIES: &[Entry] = &[
            entry(UNLOCK_ALL, &[], TO_VOID, unlock_all),
            $(
                entry($name, &[INT8], $returns, |context, arguments| {
                    call(context, arguments, AdvisoryStep::$step, $shared, $xact)
                }),
                entry($name, &[INT4, INT4], $returns, |context, arguments| {
                    call(context, arguments, AdvisoryStep::$step, $shared, $xact)
                }),
            )+
        ];
    };
}

entries! {
    "pg_advisory_lock" -> TO_VOID: Lock, shared false, xact false;
    "pg_advisory_lock_shared" -> TO_VOID: Lock, shared true, xact false;
    "pg_advisory_xact_lock" -> TO_VOID: Lock, shared false, xact true;
    "pg_advisory_xact_lock_shared" -> TO_VOID: Lock, shared true, xact true;
    "pg_try_advisory_lock" -> TO_BOOL: TryLock, shared false, xact false;
    "pg_try_advisory_lock_shared" -> TO_BOOL: TryLock, shared true, xact false;
    "pg_try_advisory_xact_lock" -> TO_BOOL: TryLock, shared false, xact true;
    "pg_try_advisory_xact_lock_shared" -> TO_BOOL: TryLock, shared true, xact true;
    "pg_advisory_unlock" -> TO_BOOL: Unlock, shared false, xact false;
    "pg_advisory_unlock_shared" -> TO_BOOL: Unlock, shared true, xact false;
}

const UNLOCK_ALL: &str = "pg_advisory_unlock_all";

/// Whether a function is one of these whose calls count: all but `pg_advisory_unlock_all`.
#[must_use]
pub fn is_advisory(entry: &Entry) -> bool {
    let is_any = entry.name.starts_with("pg_advisory_") || entry.name.starts_with("pg_try_advisory_");
    is_any && entry.name != UNLOCK_ALL
}

fn void() -> Value {
    Value::Text(String::new())
}

fn unlock_all(context: &Context<'_>, _: Arguments<'_, '_>) -> Result<Value, SqlError> {
    context.session.unlock_all_advisory();
    Ok(void())
}

fn call(
    context: &Context<'_>,
    arguments: Arguments<'_, '_>,
    step: AdvisoryStep,
    shared: bool,
    transaction: bool,
) -> Result<Value, SqlError> {
    let key = match arguments {
        [ValueRef::Int8(number)] => AdvisoryKey::Single(*number),
        [ValueRef::Int4(first), ValueRef::Int4(second)] => AdvisoryKey::Pair(*first, *second),
        _ => return Err(mismatch()),
    };
    let done = context.session.advisory(AdvisoryCall {
        step,
        key,
        shared,
        transaction,
    })?;
    Ok(match step {
        AdvisoryStep::Lock => void(),
        AdvisoryStep::TryLock | AdvisoryStep::Unlock => Value::Bool(done),
    })
}
