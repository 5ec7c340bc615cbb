//! The session as seen by functions on the catalog.

use std::any::Any;
use std::sync::Arc;

use weft_expression::{AdvisoryCall, AdvisoryKey, Context, Session};
use weft_store::{Catalog, RoleId, SequenceId, SequenceState};
use weft_types::SqlError;

/// A session together with the catalog that its statement reads. Callers that evaluate expressions
/// with functions of this crate pass it as the session; the functions find it by
/// [`Session::as_any`].
pub struct SessionView {
    /// The catalog of the statement.
    pub catalog: Arc<Catalog>,
    /// The session itself.
    pub session: Arc<dyn Session>,
    /// All settings and their values, for `pg_settings`.
    pub settings: Vec<(String, String)>,
    /// `current_user`, whose privileges count.
    pub role: RoleId,
    /// Lists the prepared transactions, for `pg_prepared_xacts`.
    pub prepared: Box<dyn Fn() -> Vec<PreparedTransaction> + Send + Sync>,
    /// How far a sequence has come of which values were reserved ahead; otherwise the catalog tells.
    pub sequence_state: Box<dyn Fn(SequenceId) -> Option<SequenceState> + Send + Sync>,
    /// Lists the clients' connections, for `pg_stat_ssl`.
    pub clients: Box<dyn Fn() -> Vec<ClientConnection> + Send + Sync>,
    /// Lists the advisory locks that sessions hold and wait for, for `pg_locks`.
    pub advisory_locks: Box<dyn Fn() -> Vec<AdvisoryLock> + Send + Sync>,
}

/// An advisory lock that a session holds or waits for.
#[derive(Debug, Clone)]
pub struct AdvisoryLock {
    /// The number of the session.
    pub pid: u32,
    /// What it is on.
    pub key: AdvisoryKey,
    /// In shared mode, else exclusive.
    pub shared: bool,
    /// Since when the session waits for it, in microseconds since 2000; `None` if it holds it.
    pub waits_since: Option<i64>,
}

/// A client's connection.
#[derive(Debug, Clone)]
pub struct ClientConnection {
    /// The number of its session.
    pub pid: u32,
    /// The role that logged in.
    pub role: RoleId,
    /// None: it is not encrypted.
    pub encryption: Option<Encryption>,
}

/// How a connection is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// Length of the cipher's key, in bits.
    pub bits: i32,
}

/// A transaction that was prepared for a two-phase commit.
#[derive(Debug, Clone)]
pub struct PreparedTransaction {
    /// Its number.
    pub transaction: u64,
    /// The name that it was given.
    pub name: String,
    /// When, in microseconds since 2000.
    pub prepared_micros: i64,
    /// By whom.
    pub owner: String,
}

impl SessionView {
    /// The view, if the session is one.
    #[must_use]
    pub fn of(session: &dyn Session) -> Option<&SessionView> {
        session.as_any().downcast_ref()
    }

    /// The catalog of an expression's context.
    pub(crate) fn catalog_of<'a>(context: &Context<'a>) -> Result<&'a Catalog, SqlError> {
        match SessionView::of(context.session) {
            Some(view) => Ok(&view.catalog),
            None => Err(SqlError::internal("a function of the catalog without a catalog")),
        }
    }
}

impl Session for SessionView {
    fn transaction_micros(&self) -> i64 {
        self.session.transaction_micros()
    }

    fn statement_micros(&self) -> i64 {
        self.session.statement_micros()
    }

    fn clock_micros(&self) -> i64 {
        self.session.clock_micros()
    }

    fn user(&self) -> &str {
        self.session.user()
    }

    fn session_user(&self) -> &str {
        self.session.session_user()
    }

    fn database(&self) -> &str {
        self.session.database()
    }

    fn backend_pid(&self) -> i32 {
        self.session.backend_pid()
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.session.setting(name)
    }

    fn next_value(&self, sequence: &str) -> Result<i64, SqlError> {
        self.session.next_value(sequence)
    }

    fn current_value(&self, sequence: &str) -> Result<i64, SqlError> {
        self.session.current_value(sequence)
    }

    fn set_value(&self, sequence: &str, value: i64, called: bool) -> Result<i64, SqlError> {
        self.session.set_value(sequence, value, called)
    }

    fn last_value(&self) -> Result<i64, SqlError> {
        self.session.last_value()
    }

    fn set_setting(&self, name: &str, value: Option<&str>, local: bool) -> Result<String, SqlError> {
        self.session.set_setting(name, value, local)
    }

    fn advisory(&self, call: AdvisoryCall) -> Result<bool, SqlError> {
        self.session.advisory(call)
    }

    fn unlock_all_advisory(&self) {
        self.session.unlock_all_advisory();
    }

    fn random_u64(&self) -> u64 {
        self.session.random_u64()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
