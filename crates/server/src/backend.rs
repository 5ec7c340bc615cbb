//! What the wire protocol needs of a database: the interface between the protocol and the engine behind it.
//!
//! The server is written against these traits alone. [`Backend`] opens sessions; a [`BackendSession`]
//! prepares and executes statements and pushes what comes of them into a [`ResultSink`]; the sink of this
//! crate turns that into messages. In production the backend is the embedded database; in this crate's
//! tests it is a small fake, so that the protocol is tested without an engine.
//!
//! ```text
//!   socket -> connection loop -> BackendSession::execute(.., sink)
//!                                        |  columns, row*, complete | copy_in, copy_out, notice
//!   socket <- reply buffer   <- ResultSink
//!                 ^ before anything leaves: DurabilityGate::wait
//! ```
//!
//! # Contract
//!
//! 1. A session is used by one thread at a time; only its [`CancelHandle`] and [`DurabilityGate`] are shared.
//! 2. An error is returned, never pushed into the sink; what was pushed before it stays sent, as in
//!    PostgreSQL.
//! 3. Before a row or a completion reaches the sink, the session has raised its gate to the batch that the
//!    row or the completion observed. The server waits at the gate before a byte of it leaves the process,
//!    once per write and not once per statement: a pipeline of 700 commits costs one wait.
//! 4. Transactions are the session's: it opens the implicit ones, and ends them at [`BackendSession::sync`]
//!    or at the end of a simple-query message. Portals and protocol-level statements are the server's.
//! 5. When the sink answers `Break`, nobody reads the result any more: the session stops the statement and
//!    returns an error of its choice, which is discarded.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

pub use weft::BlockRole;
pub use weft::sink::{
    CommandTag, CopyHeader, NoticeLevel, OidNames, OutputColumn, PipelinePosition, ResultSink, RowRef,
    SharedZone, TxnStatus,
};
pub use weft::{Account, Encryption, RoleAccount};
use weft_base::Budget;
use weft_types::{SqlError, SqlType, Value};

/// A database that can be served: opens one session for each connection.
pub trait Backend: Send + Sync + 'static {
    /// The state of one connection.
    type Session: BackendSession;

    /// What is known of a user who wants to log in. A backend without accounts lets everybody in.
    fn account(&self, user: &str) -> Account {
        let _ = user;
        Account::Open
    }

    /// Whether every client must prove that it knows a password. A backend without accounts asks for none.
    fn demands_passwords(&self) -> bool {
        false
    }

    /// Says before the first session whether the server offers TLS, for `SHOW ssl`.
    fn set_serves_tls(&self, serves_tls: bool) {
        let _ = serves_tls;
    }

    /// Opens a session for a client that has been let in. An error refuses the connection with that error.
    fn open_session(&self, start: &SessionStart) -> Result<Self::Session, SqlError>;
}

/// Who a session is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStart {
    /// The user name of the startup packet, never empty.
    pub user: String,
    /// The database that the client asked for.
    pub database: String,
    /// The session's number as the client sees it: `pg_backend_pid()`.
    pub pid: u32,
    /// The role that logged in; None where there are no accounts.
    pub role: Option<u32>,
    /// How the connection is encrypted.
    pub encryption: Option<Encryption>,
}

/// How far a statement ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// To its end.
    ToEnd,
    /// It is waiting without occupying a thread, and has pushed no results.
    Parked,
}

/// One session of a database. Dropping it rolls back what is open.
pub trait BackendSession: Send {
    /// A prepared statement; it may outlive catalog changes, which the session notices at execution.
    type Prepared: PreparedStatement;

    /// Parses and plans one statement. `param_types` holds a type for each parameter that the client
    /// declared; missing ones, and those beyond its end, are inferred. An empty statement is allowed.
    fn prepare(
        &mut self,
        sql: &str,
        param_types: &[Option<SqlType>],
    ) -> Result<Arc<Self::Prepared>, SqlError>;

    /// Runs one simple-query message: any number of statements, one implicit transaction around them as
    /// PostgreSQL has it. The message ends at its first error.
    fn execute_simple(&mut self, sql: &str, sink: &mut dyn ResultSink) -> Result<(), SqlError>;

    /// Describes the statement again if its result depends on the session (FETCH); `None` for all others.
    fn described_anew(
        &mut self,
        prepared: &Arc<Self::Prepared>,
    ) -> Result<Option<Arc<Self::Prepared>>, SqlError> {
        let _ = prepared;
        Ok(None)
    }

    /// Columns of a cursor that was declared in SQL; `None` if there is none of that name.
    fn cursor_columns(&self, name: &str) -> Option<Vec<OutputColumn>> {
        let _ = name;
        None
    }

    /// Runs a prepared statement to its end. `params` has the types of [`PreparedStatement::params`], in
    /// order.
    fn execute(
        &mut self,
        prepared: &Arc<Self::Prepared>,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError>;

    /// As [`Self::execute`], but instead of waiting for another session it may return [`Ran::Parked`] without
    /// having pushed anything. The caller repeats the call with the same arguments once `waker` is called, or
    /// at any time before, and the statement continues. Until then the session must not be asked for anything
    /// else, but it may be dropped. A backend that always blocks can ignore this.
    fn execute_or_park(
        &mut self,
        prepared: &Arc<Self::Prepared>,
        params: &[Value],
        position: PipelinePosition,
        waker: &Waker,
        sink: &mut dyn ResultSink,
    ) -> Result<Ran, SqlError> {
        let _ = waker;
        self.execute(prepared, params, position, sink)
            .map(|()| Ran::ToEnd)
    }

    /// What part a statement can have in a transaction that arrives whole and runs as one program; none for a
    /// backend that has no programs.
    fn block_role(&self, prepared: &Arc<Self::Prepared>) -> BlockRole {
        let _ = prepared;
        BlockRole::Outside
    }

    /// Runs statements with the role `Inside` as one program, as if between BEGIN and COMMIT. False: nothing
    /// has happened; execute them one by one. An error is that of the first statement: the transaction is
    /// open and failed.
    fn run_block(&mut self, steps: &[(&Arc<Self::Prepared>, &[Value])]) -> Result<bool, SqlError> {
        let _ = steps;
        Ok(false)
    }

    /// Pushes what one of the statements gave that [`Self::run_block`] ran last.
    fn push_block(&mut self, step: usize, sink: &mut dyn ResultSink) -> Result<(), SqlError> {
        let _ = (step, sink);
        Err(SqlError::internal(
            "there is no transaction that ran as one program",
        ))
    }

    /// The end of a pipeline (Sync): commits an open implicit transaction; an explicit one stays open.
    fn sync(&mut self) -> Result<(), SqlError>;

    /// The pipeline failed, outside of the session or in it (called after every error of the extended
    /// protocol): rolls back an implicit transaction and marks an explicit one [`TxnStatus::Failed`].
    fn fail(&mut self);

    /// Takes out of an error what the session's role may not see.
    fn hide_rows(&self, error: &mut SqlError);

    /// The memory budget for what the session holds from one statement to the next; rows of suspended portals
    /// count too.
    fn memory(&self) -> &Arc<Budget>;

    /// Where the session stands, for ReadyForQuery.
    fn status(&self) -> TxnStatus;

    /// Sets a run-time parameter from the startup packet. Unknown names and bad values are errors.
    fn set_startup(&mut self, name: &str, value: &str) -> Result<(), SqlError>;

    /// The present value of a run-time parameter that PostgreSQL reports to clients (ParameterStatus), if
    /// the session knows it; names are PostgreSQL's spelling ("DateStyle", "server_version").
    fn setting(&self, name: &str) -> Option<String>;

    /// Changes whenever a value that [`Self::setting`] returns may have changed.
    fn settings_version(&self) -> u64;

    /// The session's current time zone, in which values are read and shown.
    fn zone(&self) -> SharedZone {
        SharedZone::default()
    }

    /// Stops the statement that the session is running, from another thread.
    fn cancel_handle(&self) -> Arc<dyn CancelHandle>;

    /// What a reply has to wait for before it may be sent.
    fn durability_gate(&self) -> Arc<dyn DurabilityGate>;

    /// How long the client may stay silent before it is disconnected, given [`Self::status`]. The server asks
    /// before it waits for the next message.
    fn idle_limit(&self) -> Option<Duration> {
        None
    }
}

/// What a client may know of a prepared statement before it runs.
pub trait PreparedStatement: Send + Sync {
    /// The types of its parameters, in order.
    fn params(&self) -> &[SqlType];
    /// The columns it returns; empty when it returns no rows.
    fn columns(&self) -> &[OutputColumn];
}

/// Interrupts a session from outside.
pub trait CancelHandle: Send + Sync {
    /// Makes the statement that is running now fail with 57014; does nothing if none is.
    fn cancel(&self);
}

/// Holds replies back until what they tell is durable.
pub trait DurabilityGate: Send + Sync {
    /// Returns when every batch that the session has observed so far is durable, at once if it already is
    /// or if the session chose not to wait. An error means that it never will be: the reply must not be
    /// sent.
    fn wait(&self) -> Result<(), SqlError>;

    /// Whether [`Self::wait`] would return at once.
    fn is_open(&self) -> bool;
}
