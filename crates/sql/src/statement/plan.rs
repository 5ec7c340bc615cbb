//! The interface from planning to the session: one [`Plan`] per statement.
//!
//! A plan holds no rows and no parameter values; it is immutable, may be cached under (statement text,
//! parameter types, catalog version) and shared between sessions. Six forms access tables or return rows:
//!
//! ```text
//!   Constant   one row computed only from parameters and the session: SELECT 1, SELECT now()
//!   Program    a point statement, or several: runs in the sequencer or against a session's overlay
//!   Query      any other SELECT, VALUES or TABLE: run by the query engine
//!   Modify     any other INSERT, UPDATE, DELETE: rows computed by the query engine, then applied
//!   Ddl        catalog operations
//!   Copy       COPY .. FROM STDIN, COPY .. TO STDOUT
//! ```
//!
//! **Inputs.** A program runs on one row of *inputs*: first the parameters `$1..$n` with the types in
//! `params`, then the [`HiddenInput`]s, computed once per execution from the parameters and the session.
//! Hidden inputs hold everything that varies (clock, sequences, random numbers) and everything that does not
//! depend on rows, so that a program's effect depends only on its inputs. [`ProgramPlan::bind`] computes
//! the row.

use std::sync::Arc;

use sqlparser::ast::NonBlock;
use weft_base::TableId;
use weft_program::Program;
use weft_store::{CatalogOp, Privileges, SequenceId};
use weft_types::{RowLayout, SqlType};

use super::accounts::AccountStatement;
use super::control::{CursorPlan, PrepareControl, SettingPlan, TableLockMode, TransactionPlan};
use super::copy::CopyPlan;
use super::finish::Finish;
use super::rights::Need;
use super::scalar::Scalar;
use weft_binder::LockedRows;
use weft_binder::relation::{Modify, ModifyKind, Output, Query};

/// Approximate bytes of an instruction, including the verifier's and the executors' data for it.
const INSTRUCTION_BYTES: usize = 96;
/// Approximate bytes of a small expression.
const SCALAR_BYTES: usize = 256;

/// Approximate bytes of relations and expressions per byte of text.
const BOUND_BYTES: usize = 64;

/// Approximate bytes of a bound statement: binding makes a few nodes of every word.
pub(crate) fn bound_bytes(text: &str) -> usize {
    text.len().saturating_mul(BOUND_BYTES)
}

/// One planned statement.
#[derive(Clone, Debug)]
pub enum Plan {
    /// An empty statement or text: answered by EmptyQueryResponse if it is the whole message.
    Empty,
    /// One row computed from the inputs only.
    Constant(Arc<ConstantPlan>),
    /// Point statements compiled to a program.
    Program(Arc<ProgramPlan>),
    /// A query for the query engine.
    Query(Arc<QueryPlan>),
    /// INSERT, UPDATE or DELETE whose rows the query engine computes.
    Modify(Arc<ModifyPlan>),
    /// Catalog changes.
    Ddl(Arc<DdlPlan>),
    /// BEGIN, COMMIT, SAVEPOINT ...
    Transaction(TransactionPlan),
    /// COPY.
    Copy(Arc<CopyPlan>),
    /// SET, SHOW, RESET, DISCARD.
    Setting(SettingPlan),
    /// EXPLAIN of another plan. [`super::explain::explain_program`] renders a program.
    Explain(Arc<ExplainPlan>),
    /// PREPARE, EXECUTE, DEALLOCATE.
    Prepared(Arc<PrepareControl>),
    /// DECLARE, FETCH, MOVE, CLOSE.
    Cursor(Arc<CursorPlan>),
    /// Roles, privileges, owners. Its operations depend on who executes it ([`super::accounts::operations`]),
    /// and its text may contain a password: it is never cached.
    Account(Arc<AccountStatement>),
    /// Accepted, without effect on the state of the database.
    Maintenance(MaintenancePlan),
}

impl Plan {
    /// Types of the parameters `$1..$n`; `None` where the session determines them.
    pub fn params(&self) -> Option<&[SqlType]> {
        match self {
            Plan::Constant(plan) => Some(&plan.params),
            Plan::Program(plan) => Some(&plan.params),
            Plan::Query(plan) => Some(&plan.query.parameters),
            Plan::Modify(plan) => Some(&plan.modify.rows.parameters),
            Plan::Explain(plan) => plan.inner.params(),
            Plan::Cursor(plan) => plan.params(),
            _ => Some(&[]),
        }
    }

    /// Approximate size of the plan in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Plan>()
            + match self {
                Plan::Program(plan) => plan.bytes(),
                Plan::Query(plan) => plan.bytes,
                Plan::Modify(plan) => plan.bytes,
                Plan::Explain(plan) => plan.inner.bytes(),
                Plan::Constant(plan) => plan.row.len() * SCALAR_BYTES,
                Plan::Cursor(plan) => match plan.as_ref() {
                    CursorPlan::Declare { plan, .. } => plan.bytes(),
                    CursorPlan::Fetch { .. } | CursorPlan::Close(_) => 1 << 10,
                },
                Plan::Copy(plan) => match plan.as_ref() {
                    CopyPlan::To { plan, .. } => plan.bytes(),
                    CopyPlan::From { .. } => 1 << 10,
                },
                _ => 1 << 10,
            }
    }

    /// Columns of the result; `None` for forms whose columns the session determines (FETCH, EXECUTE). An
    /// empty slice means that the statement returns no rows.
    pub fn columns(&self) -> Option<&[OutputColumn]> {
        match self {
            Plan::Constant(plan) => Some(&plan.columns),
            Plan::Program(plan) => Some(plan.columns()),
            Plan::Query(plan) => Some(&plan.columns),
            Plan::Modify(plan) => Some(&plan.columns),
            Plan::Explain(plan) => Some(&plan.columns),
            Plan::Setting(plan) => Some(plan.columns()),
            Plan::Prepared(_) => None,
            Plan::Cursor(plan) if matches!(plan.as_ref(), CursorPlan::Fetch { .. }) => None,
            _ => Some(&[]),
        }
    }

    /// Whether the statement changes neither rows nor the catalog (it may still be a FOR UPDATE query,
    /// which locks).
    pub fn is_read_only(&self) -> bool {
        match self {
            Plan::Program(plan) => plan.program.read_only,
            Plan::Constant(plan) => !plan.row.iter().any(Scalar::moves_sequence),
            Plan::Query(plan) => !plan.query.moves_sequence && !plan.query.takes_advisory_locks,
            Plan::Modify(_) | Plan::Ddl(_) | Plan::Account(_) => false,
            Plan::Copy(plan) => !plan.is_from(),
            _ => true,
        }
    }
}

/// One column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// The name, by PostgreSQL's rules ([`super::column_name`]).
    pub name: String,
    /// Type, modifiers included.
    pub ty: SqlType,
    /// The table column of which the value is a plain copy: its table and attribute number, from 1.
    pub table: Option<(TableId, i16)>,
}

impl OutputColumn {
    /// A column of a bound query.
    pub fn of(output: &Output) -> Self {
        OutputColumn {
            name: output.name.clone(),
            ty: output.ty,
            table: output.origin,
        }
    }

    /// A computed column.
    pub fn computed(name: impl Into<String>, ty: SqlType) -> Self {
        OutputColumn {
            name: name.into(),
            ty,
            table: None,
        }
    }
}

/// The kind of statement, as in the command tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// `SELECT n`
    Select,
    /// `INSERT 0 n`
    Insert,
    /// `UPDATE n`
    Update,
    /// `DELETE n`
    Delete,
    /// `CALL`, without a count.
    Call,
    /// `DO`, without a count.
    Do,
}

impl Tag {
    /// The tag's word or words before the row count.
    pub fn verb(self) -> &'static str {
        match self {
            Tag::Select => "SELECT",
            Tag::Insert => "INSERT 0",
            Tag::Update => "UPDATE",
            Tag::Delete => "DELETE",
            Tag::Call => "CALL",
            Tag::Do => "DO",
        }
    }
}

/// A value computed once per execution and appended to the parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenInput {
    /// Type of the computed value.
    pub ty: SqlType,
    /// The expression. It may refer to parameters and to earlier hidden inputs.
    pub value: Scalar,
}

/// One row that needs no table.
#[derive(Clone, Debug)]
pub struct ConstantPlan {
    /// Types of `$1..$n`.
    pub params: Vec<SqlType>,
    /// One per column of the row, over the parameters.
    pub row: Vec<Scalar>,
    /// Columns, as many as `row`.
    pub columns: Vec<OutputColumn>,
}

/// One statement inside a program: its tag and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementShape {
    /// Command tag.
    pub tag: Tag,
    /// Columns of its rows; empty if it returns none.
    pub columns: Vec<OutputColumn>,
    /// The finishing step that turns the program's rows into the statement's.
    pub finish: Option<Arc<Finish>>,
}

/// Point statements compiled to a program.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    /// The compiled program; its inputs are `params` followed by `hidden_inputs`.
    pub program: Arc<Program>,
    /// Layout of the input row.
    pub input_layout: Arc<RowLayout>,
    /// Types of `$1..$n`. For several statements: their parameters in sequence.
    pub params: Vec<SqlType>,
    /// Inputs computed at bind.
    pub hidden_inputs: Vec<HiddenInput>,
    /// One per statement of the program, in order; usually one.
    pub statements: Vec<StatementShape>,
    /// For a range read: the same statement for the query engine, executed instead if
    /// [`ProgramPlan::prefers_fallback`] says so or the program ran out of its instruction budget (54001).
    pub fallback: Option<Arc<QueryPlan>>,
    /// The inputs that bound an integer range from below and above.
    pub range_inputs: Option<(u16, u16)>,
    /// The keys that each multi-row ON CONFLICT DO UPDATE may affect only once.
    pub once: Vec<AffectedOnce>,
    /// What it does to which tables, for checking privileges.
    pub needs: Vec<Need>,
    /// For CALL: the procedure, and how the program's first inputs are computed from the parameters.
    pub procedure: Option<Arc<CallPlan>>,
}

/// Keys of an INSERT's rows, which must be distinct: otherwise its DO UPDATE would affect one row twice.
#[derive(Clone, Debug)]
pub struct AffectedOnce {
    /// The values of the arbiter's columns, row by row, over the parameters.
    pub keys: Vec<Vec<Scalar>>,
}

/// What a CALL has in addition to a point statement.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// The procedure's name.
    pub name: String,
    /// Types of its input parameters: the program's first inputs.
    pub inputs: Vec<SqlType>,
    /// Their names.
    pub input_names: Vec<String>,
    /// Their values, over the parameters of the CALL; `None` where the parameters are the inputs.
    pub arguments: Option<Vec<Scalar>>,
    /// What EXPLAIN shows in addition to the instructions.
    pub listing: super::explain::Listing,
}

impl ProgramPlan {
    fn bytes(&self) -> usize {
        let program = &self.program;
        let instructions = program.instrs.len() * INSTRUCTION_BYTES;
        let inputs = (program.inputs.len() + self.hidden_inputs.len()) * SCALAR_BYTES;
        let accesses = (program.accesses.len() + program.consts.len()) * SCALAR_BYTES;
        let fallback = self.fallback.as_ref().map_or(0, |plan| plan.bytes);
        instructions + inputs + accesses + fallback
    }

    /// Columns of the first statement.
    pub fn columns(&self) -> &[OutputColumn] {
        self.statements
            .first()
            .map_or(&[], |statement| &statement.columns)
    }

    /// Tag of the first statement.
    pub fn tag(&self) -> Tag {
        self.statements
            .first()
            .map_or(Tag::Select, |statement| statement.tag)
    }
}

/// The strength of the lock on the rows that a query returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowLockStrength {
    /// `FOR SHARE`, `FOR KEY SHARE`
    Share,
    /// `FOR UPDATE`, `FOR NO KEY UPDATE`
    Update,
}

/// What to do about a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLockWait {
    /// Wait for it.
    Wait,
    /// Fail with 55P03.
    NoWait,
    /// Skip the row.
    SkipLocked,
}

/// A row locking clause: `FOR UPDATE` and the like.
#[derive(Clone, Debug)]
pub struct RowLocks {
    /// Mode.
    pub strength: RowLockStrength,
    /// Waiting policy.
    pub wait: RowLockWait,
    /// The query that finds the rows: handle and stored bytes of each table, in the order of `tables`.
    pub rows: Arc<Query>,
    /// With SKIP LOCKED and LIMIT: the same without the limit.
    pub unlimited: Option<Arc<Query>>,
    /// Tables whose rows are locked.
    pub tables: Vec<TableId>,
}

impl RowLocks {
    pub(crate) fn of(locked: &LockedRows) -> RowLocks {
        RowLocks {
            strength: match locked.for_update {
                true => RowLockStrength::Update,
                false => RowLockStrength::Share,
            },
            wait: match locked.nonblock {
                None => RowLockWait::Wait,
                Some(NonBlock::Nowait) => RowLockWait::NoWait,
                Some(NonBlock::SkipLocked) => RowLockWait::SkipLocked,
            },
            rows: Arc::clone(&locked.rows),
            unlimited: locked.unlimited.clone(),
            tables: locked.tables.iter().map(|table| table.id).collect(),
        }
    }

    /// Those of a query's steps, with their numbers.
    pub(crate) fn of_steps(query: &Query) -> Vec<(usize, RowLocks)> {
        let steps = query.steps.iter();
        steps
            .map(|step| (step.number, RowLocks::of(&step.locked)))
            .collect()
    }
}

/// A query for the query engine.
#[derive(Clone, Debug)]
pub struct QueryPlan {
    /// The bound query.
    pub query: Arc<Query>,
    /// Its columns.
    pub columns: Vec<OutputColumn>,
    /// FOR UPDATE or FOR SHARE.
    pub row_locks: Option<RowLocks>,
    /// The subqueries with FOR UPDATE or FOR SHARE, by the numbers under which `query` names their rows.
    pub steps: Vec<(usize, RowLocks)>,
    /// Approximate size in bytes.
    pub bytes: usize,
}

impl QueryPlan {
    /// Whether it locks rows, itself or in a subquery.
    pub fn locks_rows(&self) -> bool {
        self.row_locks.is_some() || !self.steps.is_empty()
    }

    pub(crate) fn new(query: Query, row_locks: Option<RowLocks>, text: &str) -> QueryPlan {
        QueryPlan {
            columns: query.output.iter().map(OutputColumn::of).collect(),
            steps: RowLocks::of_steps(&query),
            query: Arc::new(query),
            row_locks,
            bytes: bound_bytes(text),
        }
    }
}

/// INSERT, UPDATE or DELETE whose rows the query engine computes.
#[derive(Clone, Debug)]
pub struct ModifyPlan {
    /// The bound statement.
    pub modify: Arc<Modify>,
    /// Columns of RETURNING; empty without.
    pub columns: Vec<OutputColumn>,
    /// Whether it reads columns of the table that it changes, which needs SELECT.
    pub reads_target: bool,
    /// The subqueries with FOR UPDATE or FOR SHARE, as those of a query.
    pub steps: Vec<(usize, RowLocks)>,
    /// Approximate size in bytes.
    pub bytes: usize,
}

impl ModifyPlan {
    /// The command tag.
    pub fn tag(&self) -> Tag {
        match self.modify.kind {
            ModifyKind::Insert => Tag::Insert,
            ModifyKind::Update => Tag::Update,
            ModifyKind::Delete => Tag::Delete,
        }
    }
}

/// Catalog operations, in order.
#[derive(Clone, Debug)]
pub struct DdlPlan {
    /// Command tag, e.g. `CREATE TABLE`.
    pub tag: &'static str,
    /// Applied together, each checked against the catalog after the previous ones. Empty: nothing to do.
    pub ops: Vec<CatalogOp>,
    /// The words of a statement that is refused inside a transaction block (25001).
    pub outside_block: Option<&'static str>,
    /// The rows of a table that the operations empty, as they are to be afterwards.
    pub rewrite: Option<Arc<Rewrite>>,
    /// The INSERT that fills the new table in the same transaction; the command tag then counts its rows.
    pub fill: Option<String>,
    /// Notices for the client, e.g. `relation "t" already exists, skipping` (SQLSTATE 42P07 or 00000).
    pub notices: Vec<weft_types::SqlError>,
}

/// Rows that are written again because their table is laid out anew.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// The table.
    pub table: TableId,
    /// What would insert them into a table of the new form.
    pub rows: ModifyPlan,
    /// The sequences from which each row has the next value.
    pub numbered: Vec<SequenceId>,
}

/// EXPLAIN.
#[derive(Clone, Debug)]
pub struct ExplainPlan {
    /// The plan to explain.
    pub inner: Plan,
    /// Whether ANALYZE was given: execute it as well.
    pub analyze: bool,
    /// Whether VERBOSE was given.
    pub verbose: bool,
    /// Whether DEVICE was given: say whether the program fits a device.
    pub device: bool,
    /// The only column, `QUERY PLAN`.
    pub columns: Vec<OutputColumn>,
}

/// Statements that are accepted for compatibility.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaintenancePlan {
    /// `VACUUM [ANALYZE] [table]`, without effect: garbage is collected between batches. The tables exist.
    Vacuum(Vec<TableId>),
    /// `ANALYZE [table]`
    Analyze(Vec<TableId>),
    /// `CHECKPOINT`
    Checkpoint,
    /// Nothing to do: UNLISTEN, where nobody listens; the command tag.
    Ignored(&'static str),
    /// `LOCK TABLE`
    LockTable {
        /// Tables to lock.
        tables: Vec<TableId>,
        /// Mode.
        mode: TableLockMode,
        /// NOWAIT: locks that are not free are refused.
        no_wait: bool,
        /// Privileges of which one is needed for the mode.
        privileges: Privileges,
    },
}
