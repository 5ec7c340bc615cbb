//! The inputs of an expression besides its arguments.

use std::any::Any;

use weft_types::{SqlError, TimeZone, Value};

/// What an advisory lock is on. The two kinds of keys never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvisoryKey {
    /// One number of 64 bits.
    Single(i64),
    /// Two numbers of 32 bits.
    Pair(i32, i32),
}

/// What is done with an advisory lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvisoryStep {
    /// It is taken, after a wait if need be.
    Lock,
    /// It is taken if that needs no wait.
    TryLock,
    /// It is given back.
    Unlock,
}

/// One call of a function on advisory locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisoryCall {
    /// What is done.
    pub step: AdvisoryStep,
    /// With which lock.
    pub key: AdvisoryKey,
    /// In shared mode, else exclusive.
    pub shared: bool,
    /// For the transaction, else for the session.
    pub transaction: bool,
}

/// What a session contributes to its statements' values. Times are microseconds since 2000-01-01 UTC.
pub trait Session: Send + Sync {
    /// `now()`: start of the transaction.
    fn transaction_micros(&self) -> i64;
    /// `statement_timestamp()`
    fn statement_micros(&self) -> i64;
    /// `clock_timestamp()`
    fn clock_micros(&self) -> i64;
    /// `current_user`
    fn user(&self) -> &str;

    /// `session_user`.
    fn session_user(&self) -> &str {
        self.user()
    }
    /// `current_database()`
    fn database(&self) -> &str;
    /// `pg_backend_pid()`
    fn backend_pid(&self) -> i32;
    /// A setting's value; `None` if there is no such setting.
    fn setting(&self, name: &str) -> Option<String>;
    /// `nextval('name')`
    fn next_value(&self, sequence: &str) -> Result<i64, SqlError>;
    /// `currval('name')`
    fn current_value(&self, sequence: &str) -> Result<i64, SqlError>;
    /// `setval('name', value, called)`
    fn set_value(&self, sequence: &str, value: i64, called: bool) -> Result<i64, SqlError>;
    /// `lastval()`
    fn last_value(&self) -> Result<i64, SqlError>;
    /// `set_config(name, value, is_local)`: returns the new value; `None` resets.
    ///
    /// # Errors
    /// Those of SET; 0A000 where there is no session whose settings could change.
    fn set_setting(&self, name: &str, value: Option<&str>, local: bool) -> Result<String, SqlError> {
        let _ = (name, value, local);
        Err(SqlError::unsupported("set_config is not supported here"))
    }
    /// Takes or gives back an advisory lock; whether that was done.
    ///
    /// # Errors
    /// 0A000 where the statement's calls are not counted: in all but queries.
    fn advisory(&self, call: AdvisoryCall) -> Result<bool, SqlError> {
        let _ = call;
        Err(advisory_unsupported())
    }
    /// `pg_advisory_unlock_all()`
    fn unlock_all_advisory(&self) {}
    /// A random 64-bit word.
    fn random_u64(&self) -> u64;
    /// The concrete session, for functions of crates above.
    fn as_any(&self) -> &dyn Any;
}

/// The context in which an expression is evaluated.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Values of `$1`, `$2`, ...
    pub parameters: &'a [Value],
    /// The session's zone.
    pub zone: TimeZone,
    /// The session.
    pub session: &'a dyn Session,
}

impl Context<'static> {
    /// The context of immutable functions where there is no session: in programs and on replay.
    pub const PURE: Context<'static> = Context {
        parameters: &[],
        zone: TimeZone::UTC,
        session: &NoSession,
    };
}

/// No session: sequence functions fail, and there is no clock and no setting. Only immutable entries may be
/// evaluated with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSession;

/// 0A000: an advisory lock in a statement other than a plain SELECT.
#[must_use]
pub fn advisory_unsupported() -> SqlError {
    SqlError::unsupported(
        "advisory locks are supported only in SELECT without FOR UPDATE, outside of cursors",
    )
}

fn refused() -> SqlError {
    SqlError::internal("an expression asked for a session where there is none")
}

impl Session for NoSession {
    fn transaction_micros(&self) -> i64 {
        0
    }
    fn statement_micros(&self) -> i64 {
        0
    }
    fn clock_micros(&self) -> i64 {
        0
    }
    fn user(&self) -> &str {
        ""
    }
    fn database(&self) -> &str {
        ""
    }
    fn backend_pid(&self) -> i32 {
        0
    }
    fn setting(&self, _: &str) -> Option<String> {
        None
    }
    fn next_value(&self, _: &str) -> Result<i64, SqlError> {
        Err(refused())
    }
    fn current_value(&self, _: &str) -> Result<i64, SqlError> {
        Err(refused())
    }
    fn set_value(&self, _: &str, _: i64, _: bool) -> Result<i64, SqlError> {
        Err(refused())
    }
    fn last_value(&self) -> Result<i64, SqlError> {
        Err(refused())
    }
    fn random_u64(&self) -> u64 {
        0
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
