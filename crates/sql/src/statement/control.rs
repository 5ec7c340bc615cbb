//! Statements about the session: transactions, settings, prepared statements, cursors, maintenance.
//!
//! They are short and regular, clients send them often, and sqlparser parses several of them for another
//! dialect (COPY, SET, DEALLOCATE ALL, BEGIN with modes). So [`super::control_parse`] parses them into
//! their final form, which is defined here; table names are resolved at planning.

use std::sync::Arc;

use weft_store::Privileges;
use weft_types::SqlType;

use super::accounts::AccountStatement;
use super::copy::CopyStatement;
use super::ddl::comment::CommentStatement;
use super::ddl::extension::ExtensionStatement;
use super::ddl::identity::IdentityStatement;
use super::ddl::sequence::SequenceStatement;
use super::ddl::table_as::TableAsStatement;
use super::ddl::view::ViewStatement;
use super::parse::ParsedAst;
use super::plan::{OutputColumn, Plan};
pub use super::procedure::{DoStatement, ProcedureStatement};
use super::scalar::Scalar;

/// A statement of this module, with unresolved names.
#[derive(Clone, Debug)]
pub enum ControlStatement {
    /// BEGIN and other transaction control.
    Transaction(TransactionPlan),
    /// SET, SHOW, RESET, DISCARD.
    Setting(SettingPlan),
    /// EXPLAIN of a statement.
    Explain {
        /// The statement to explain.
        inner: Box<ParsedAst>,
        /// ANALYZE: execute it as well.
        analyze: bool,
        /// VERBOSE.
        verbose: bool,
        /// DEVICE: say whether the program fits a device.
        device: bool,
    },
    /// COPY.
    Copy(CopyStatement),
    /// PREPARE name (types) AS text.
    Prepare {
        /// Statement name.
        name: String,
        /// Declared parameter types, as written.
        types: Vec<String>,
        /// The statement's text.
        sql: String,
    },
    /// EXECUTE name (arguments as text).
    Execute {
        /// Statement name.
        name: String,
        /// One text per argument.
        arguments: Vec<String>,
    },
    /// DEALLOCATE name, or ALL as `None`.
    Deallocate(Option<String>),
    /// DECLARE name CURSOR FOR query.
    DeclareCursor {
        /// Cursor name.
        name: String,
        /// WITH HOLD.
        hold: bool,
        /// The query.
        query: Box<ParsedAst>,
    },
    /// FETCH or MOVE.
    Fetch {
        /// Cursor name.
        name: String,
        /// Which rows.
        direction: FetchDirection,
        /// MOVE: rows are skipped, not returned.
        moves: bool,
    },
    /// CLOSE name, or ALL as `None`.
    CloseCursor(Option<String>),
    /// VACUUM or ANALYZE of the tables named.
    Maintain {
        /// VACUUM rather than ANALYZE.
        vacuum: bool,
        /// Qualified names.
        tables: Vec<Vec<String>>,
    },
    /// CHECKPOINT
    Checkpoint,
    /// LOCK TABLE
    LockTable {
        /// Qualified names.
        tables: Vec<Vec<String>>,
        /// Mode.
        mode: TableLockMode,
        /// NOWAIT
        no_wait: bool,
        /// Privileges of which one is needed for the mode.
        privileges: Privileges,
    },
    /// Roles, privileges, owners.
    Account(Arc<AccountStatement>),
    /// Definitions of objects, as far as they are read here.
    Definition(Box<DefinitionStatement>),
    /// Accepted and ignored; the command tag.
    Ignored(&'static str),
}

/// What a LOCK TABLE keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLockMode {
    /// ACCESS SHARE, ROW SHARE: from changing the definition.
    Access,
    /// ROW EXCLUSIVE: from locking the table in a mode that excludes writers.
    Rows,
    /// SHARE: from writing.
    Share,
    /// The others: from any use but a snapshot's.
    Exclusive,
}

/// A statement that defines objects, with unresolved names.
#[derive(Clone, Debug)]
pub enum DefinitionStatement {
    /// CREATE SEQUENCE or ALTER SEQUENCE.
    Sequence(SequenceStatement),
    /// COMMENT ON.
    Comment(CommentStatement),
    /// ALTER TABLE of a column's identity.
    Identity(IdentityStatement),
    /// CREATE EXTENSION or DROP EXTENSION.
    Extension(ExtensionStatement),
    /// CREATE PROCEDURE or DROP PROCEDURE.
    Procedure(ProcedureStatement),
    /// DO
    Do(DoStatement),
    /// CREATE TABLE ... AS
    TableAs(TableAsStatement),
    /// CREATE VIEW, ALTER VIEW or DROP VIEW.
    View(ViewStatement),
}

impl ControlStatement {
    /// COMMIT, PREPARE TRANSACTION or ROLLBACK, with or without savepoint.
    pub fn ends_transaction(&self) -> bool {
        matches!(
            self,
            ControlStatement::Transaction(
                TransactionPlan::Commit { .. }
                    | TransactionPlan::Rollback { .. }
                    | TransactionPlan::RollbackTo(_)
                    | TransactionPlan::Prepare(_)
            )
        )
    }
}

/// Transaction control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionPlan {
    /// BEGIN, START TRANSACTION. `start` selects the command tag.
    Begin {
        /// The modes given.
        modes: TransactionModes,
        /// Spelled START TRANSACTION.
        start: bool,
    },
    /// COMMIT, END.
    Commit {
        /// AND CHAIN
        chain: bool,
    },
    /// ROLLBACK, ABORT.
    Rollback {
        /// AND CHAIN
        chain: bool,
    },
    /// SAVEPOINT name
    Savepoint(String),
    /// RELEASE name
    Release(String),
    /// ROLLBACK TO name
    RollbackTo(String),
    /// PREPARE TRANSACTION name
    Prepare(String),
    /// COMMIT PREPARED name
    CommitPrepared(String),
    /// ROLLBACK PREPARED name
    RollbackPrepared(String),
    /// SET TRANSACTION modes
    SetTransaction(TransactionModes),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION modes
    SetSessionCharacteristics(TransactionModes),
    /// SET CONSTRAINTS
    SetConstraints {
        /// The names given; `None` for ALL.
        names: Option<Vec<String>>,
        /// DEFERRED rather than IMMEDIATE.
        deferred: bool,
    },
}

impl TransactionPlan {
    /// Command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            TransactionPlan::Begin { start: false, .. } => "BEGIN",
            TransactionPlan::Begin { start: true, .. } => "START TRANSACTION",
            TransactionPlan::Commit { .. } => "COMMIT",
            TransactionPlan::Rollback { .. } | TransactionPlan::RollbackTo(_) => "ROLLBACK",
            TransactionPlan::Savepoint(_) => "SAVEPOINT",
            TransactionPlan::Release(_) => "RELEASE",
            TransactionPlan::Prepare(_) => "PREPARE TRANSACTION",
            TransactionPlan::CommitPrepared(_) => "COMMIT PREPARED",
            TransactionPlan::RollbackPrepared(_) => "ROLLBACK PREPARED",
            TransactionPlan::SetTransaction(_) | TransactionPlan::SetSessionCharacteristics(_) => "SET",
            TransactionPlan::SetConstraints { .. } => "SET CONSTRAINTS",
        }
    }
}

/// Modes of a transaction; `None` if not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// ISOLATION LEVEL
    pub isolation: Option<IsolationLevel>,
    /// READ ONLY, READ WRITE
    pub read_only: Option<bool>,
    /// DEFERRABLE, NOT DEFERRABLE
    pub deferrable: Option<bool>,
}

/// SQL isolation levels. READ UNCOMMITTED behaves as READ COMMITTED, as in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Reported as requested, treated as READ COMMITTED.
    ReadUncommitted,
    /// A new snapshot for each statement.
    ReadCommitted,
    /// One snapshot for the whole transaction.
    RepeatableRead,
    /// Equivalent to a serial order.
    Serializable,
}

impl IsolationLevel {
    /// As SHOW transaction_isolation prints it.
    pub fn name(self) -> &'static str {
        match self {
            IsolationLevel::ReadUncommitted => "read uncommitted",
            IsolationLevel::ReadCommitted => "read committed",
            IsolationLevel::RepeatableRead => "repeatable read",
            IsolationLevel::Serializable => "serializable",
        }
    }

    /// Parses a setting's value.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::ReadUncommitted,
            Self::ReadCommitted,
            Self::RepeatableRead,
            Self::Serializable,
        ]
        .into_iter()
        .find(|level| level.name().eq_ignore_ascii_case(text.trim()))
    }
}

/// Settings.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingPlan {
    /// SET name TO value
    Set {
        /// Lower case.
        name: String,
        /// `None` for DEFAULT. Lists are joined by `, `.
        value: Option<String>,
        /// SET LOCAL: until the transaction ends.
        local: bool,
    },
    /// RESET name
    Reset(String),
    /// RESET ALL
    ResetAll,
    /// SHOW name
    Show {
        /// Lower case.
        name: String,
        /// The only column.
        columns: Vec<OutputColumn>,
    },
    /// SHOW ALL
    ShowAll {
        /// name, setting, description.
        columns: Vec<OutputColumn>,
    },
    /// DISCARD
    Discard(DiscardScope),
}

impl SettingPlan {
    /// Columns of the result; empty for all but SHOW.
    pub fn columns(&self) -> &[OutputColumn] {
        match self {
            SettingPlan::Show { columns, .. } | SettingPlan::ShowAll { columns } => columns,
            _ => &[],
        }
    }

    /// Command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            SettingPlan::Set { .. } => "SET",
            SettingPlan::Reset(_) | SettingPlan::ResetAll => "RESET",
            SettingPlan::Show { .. } | SettingPlan::ShowAll { .. } => "SHOW",
            SettingPlan::Discard(DiscardScope::All) => "DISCARD ALL",
            SettingPlan::Discard(DiscardScope::Plans) => "DISCARD PLANS",
            SettingPlan::Discard(DiscardScope::Sequences) => "DISCARD SEQUENCES",
            SettingPlan::Discard(DiscardScope::Temporary) => "DISCARD TEMP",
        }
    }
}

/// What DISCARD discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardScope {
    /// Everything.
    All,
    /// Cached plans.
    Plans,
    /// Cached sequence state.
    Sequences,
    /// Temporary tables, which do not exist.
    Temporary,
}

/// SQL-level prepared statements.
#[derive(Clone, Debug)]
pub enum PrepareControl {
    /// PREPARE
    Prepare {
        /// Name.
        name: String,
        /// Declared types, one per parameter from `$1`.
        types: Vec<SqlType>,
        /// Text of the statement.
        sql: String,
    },
    /// EXECUTE
    Execute {
        /// Name.
        name: String,
        /// Arguments, to be cast to the parameter types as on assignment.
        arguments: Vec<(Scalar, Option<SqlType>)>,
    },
    /// DEALLOCATE; `None` is ALL.
    Deallocate(Option<String>),
}

/// SQL-level cursors.
#[derive(Clone, Debug)]
pub enum CursorPlan {
    /// DECLARE
    Declare {
        /// Name.
        name: String,
        /// WITH HOLD: survives the transaction.
        hold: bool,
        /// The plan of its query.
        plan: Plan,
    },
    /// FETCH, MOVE
    Fetch {
        /// Name.
        name: String,
        /// Which rows.
        direction: FetchDirection,
        /// MOVE.
        moves: bool,
    },
    /// CLOSE; `None` is ALL.
    Close(Option<String>),
}

impl CursorPlan {
    /// Parameters of a declared query.
    pub fn params(&self) -> Option<&[SqlType]> {
        match self {
            CursorPlan::Declare { plan, .. } => plan.params(),
            _ => Some(&[]),
        }
    }
}

/// The rows that FETCH returns; counts are relative to the cursor's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchDirection {
    /// The next `n` rows; backward if negative.
    Forward(i64),
    /// All remaining rows.
    ForwardAll,
    /// All previous rows.
    BackwardAll,
    /// Row number `n` from the start, negative from the end.
    Absolute(i64),
    /// The row `n` positions further on.
    Relative(i64),
}
