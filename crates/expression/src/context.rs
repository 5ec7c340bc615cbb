//! The inputs of an expression besides its arguments.

use std::any::Any;

use weft_types::{SqlError, TimeZone, Value};

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
