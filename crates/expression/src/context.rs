//! What an expression sees beside its arguments.

use std::any::Any;

use weft_types::{SqlError, TimeZone, Value};

/// What a session contributes to the values of its statements. Times are microseconds since 2000-01-01 UTC.
pub trait Session: Send + Sync {
    /// `now()`: start of the transaction.
    fn transaction_micros(&self) -> i64;
    /// `statement_timestamp()`
    fn statement_micros(&self) -> i64;
    /// `clock_timestamp()`
    fn clock_micros(&self) -> i64;
    /// `current_user`
    fn user(&self) -> &str;
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
    /// A random word.
    fn random_u64(&self) -> u64;
    /// For functions of crates above: the session as what it is.
    fn as_any(&self) -> &dyn Any;
}

/// What an expression is computed in.
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
    /// What immutable functions are computed in where there is no session: in programs, on replay.
    pub const PURE: Context<'static> = Context {
        parameters: &[],
        zone: TimeZone::UTC,
        session: &NoSession,
    };
}

/// No session. Sequences are refused; there is no clock and no setting. Only immutable entries are computed
/// with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSession;

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
