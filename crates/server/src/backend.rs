//! What the wire needs of a database: a door between the protocol and whatever stands behind it.
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

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use weft_types::{RowLayout, SqlError, SqlType, Value};

/// A database that can be served: opens one session for each connection.
pub trait Backend: Send + Sync + 'static {
    /// The state of one connection.
    type Session: BackendSession;

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
    /// What the client will know the session by: `pg_backend_pid()`.
    pub pid: u32,
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

    /// Runs a prepared statement to its end. `params` has the types of [`PreparedStatement::params`], in
    /// order.
    fn execute(
        &mut self,
        prepared: &Arc<Self::Prepared>,
        params: &[Value],
        scope: Scope,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError>;

    /// The end of a pipeline (Sync): commits the implicit transaction if one is open; an explicit one stays.
    fn sync(&mut self) -> Result<(), SqlError>;

    /// The pipeline failed outside of the session, or in it (called after every error of the extended
    /// protocol): rolls back an implicit transaction, makes an explicit one [`TxnStatus::Failed`].
    fn fail(&mut self);

    /// Where the session stands, for ReadyForQuery.
    fn status(&self) -> TxnStatus;

    /// Sets a run-time parameter from the startup packet. Unknown names and bad values are errors.
    fn set_startup(&mut self, name: &str, value: &str) -> Result<(), SqlError>;

    /// The present value of a run-time parameter that PostgreSQL reports to clients (ParameterStatus), if
    /// the session knows it; names are PostgreSQL's spelling ("DateStyle", "server_version").
    fn setting(&self, name: &str) -> Option<String>;

    /// Changes whenever a value that [`Self::setting`] tells may have changed.
    fn settings_version(&self) -> u64;

    /// Stops the statement that the session is running, from another thread.
    fn cancel_handle(&self) -> Arc<dyn CancelHandle>;

    /// What to wait for before a reply may leave.
    fn durability_gate(&self) -> Arc<dyn DurabilityGate>;

    /// How long the client may now stay silent before it is sent away; it depends on [`Self::status`]. The
    /// server asks before it waits for the next message.
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

/// One column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// Its name, as PostgreSQL would give it.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// The type to announce in place of `ty`'s own where the two differ on the client's side only: a
    /// catalog column of type `oid` or `name`. Its values are encoded as `ty`, so the binary forms must
    /// agree.
    pub type_oid: Option<u32>,
    /// The table's oid and the column's number in it, from 1, if it is a plain column of a table.
    pub table: Option<(u32, i16)>,
}

impl OutputColumn {
    /// A column that belongs to no table.
    pub fn new(name: impl Into<String>, ty: SqlType) -> Self {
        OutputColumn {
            name: name.into(),
            ty,
            type_oid: None,
            table: None,
        }
    }

    /// The type oid that a client is told.
    pub fn oid(&self) -> u32 {
        self.type_oid.unwrap_or_else(|| self.ty.oid())
    }
}

/// A row as the store keeps it.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    /// How `bytes` are laid out; its types are those of the result's columns.
    pub layout: &'a RowLayout,
    /// The encoded row.
    pub bytes: &'a [u8],
}

/// Whether an execution is known to be a pipeline's only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing ran since the last Sync, and the next message is a Sync: outside of an explicit transaction
    /// the statement is a whole transaction by itself, and may be executed in one shot.
    Alone,
    /// Other statements may belong to the same implicit transaction.
    Pipelined,
}

/// Where a session stands between messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// Outside of an explicit transaction.
    Idle,
    /// Inside an explicit transaction.
    InTransaction,
    /// Inside an explicit transaction that has failed; only its end is accepted.
    Failed,
}

/// What a finished statement says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTag {
    /// "SELECT", "INSERT", "CREATE TABLE" ...
    pub verb: Cow<'static, str>,
    /// Rows returned or affected; absent for statements that do not count ("BEGIN").
    pub rows: Option<u64>,
}

impl CommandTag {
    /// A tag without a count.
    pub fn plain(verb: impl Into<Cow<'static, str>>) -> Self {
        CommandTag {
            verb: verb.into(),
            rows: None,
        }
    }

    /// A tag with a count.
    pub fn counted(verb: impl Into<Cow<'static, str>>, rows: u64) -> Self {
        CommandTag {
            verb: verb.into(),
            rows: Some(rows),
        }
    }
}

/// How loud a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeLevel {
    /// WARNING: a client should show it.
    Warning,
    /// NOTICE: helpful.
    Notice,
    /// INFO: asked for.
    Info,
}

impl NoticeLevel {
    /// PostgreSQL's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            NoticeLevel::Warning => "WARNING",
            NoticeLevel::Notice => "NOTICE",
            NoticeLevel::Info => "INFO",
        }
    }
}

/// How the data of a COPY travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyHeader {
    /// Whether the whole stream is PostgreSQL's binary format.
    pub binary: bool,
    /// How many columns a line has.
    pub column_count: u16,
}

/// Where the results of statements go, in order: for each statement either `empty`, or `columns` and rows
/// (if it returns any), or a copy, and then `complete`.
pub trait ResultSink {
    /// The shape of the rows that follow; called once by each statement that returns rows, before the first.
    fn columns(&mut self, columns: &[OutputColumn]);
    /// One row. `Break`: stop, nobody listens.
    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()>;
    /// The statement is done.
    fn complete(&mut self, tag: &CommandTag);
    /// The statement was empty; takes the place of `complete`.
    fn empty(&mut self);
    /// Something worth telling that is not an error.
    fn notice(&mut self, level: NoticeLevel, notice: &SqlError);
    /// COPY FROM STDIN: asks the client for its data and gives every piece to `take`, in order, cut
    /// anywhere. Returns when the client is done. An error of `take` ends the copy and is returned; so are
    /// the client's failure (57014) and a broken connection.
    fn copy_in(
        &mut self,
        header: CopyHeader,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError>;
    /// COPY TO STDOUT begins.
    fn copy_out(&mut self, header: CopyHeader);
    /// A piece of it: in text format one line with its newline. `Break`: stop, nobody listens.
    fn copy_data(&mut self, data: &[u8]) -> ControlFlow<()>;
    /// The copy is complete; `complete` follows.
    fn copy_done(&mut self);
    /// DEALLOCATE of a statement that was prepared over the protocol, or of all (`None`; DISCARD ALL too).
    /// True if there was one of that name.
    fn deallocate(&mut self, name: Option<&str>) -> bool;
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
}
