//! What a statement concerns, for a layer above that keeps tables on several ranks.
//!
//! A statement is planned as always, for this rank's definitions, which all ranks share. Of a program the
//! declared accesses say which rows it reads and writes, with their keys; of other plans the relations say
//! which tables. Nothing is executed here, except that a program's inputs are computed: they can be taken to
//! another rank, which then runs exactly the program with the values that this session has (its clock, its
//! random numbers).

use std::sync::Arc;

use weft_base::TableId;
use weft_binder::relation::{Modify, ModifyKind, Query, Relation};
use weft_program::{Access, AccessKind, KeyPart, Program, ProgramHash};
use weft_sql::statement::control::{CursorPlan, PrepareControl};
use weft_sql::statement::{CopyPlan, MaintenancePlan, Plan, ProgramPlan, QueryPlan, Tag, TransactionPlan};
use weft_store::CatalogOp;
use weft_types::{SqlError, Value, assign};

use super::{PLANNING_ATTEMPTS, Prepared, Session, VersionedPlan};

/// A program's name and its bound inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundProgram {
    /// Names the program: another session that plans the same statement for the same definitions has it too.
    pub hash: ProgramHash,
    /// The row of inputs.
    pub inputs: Vec<u8>,
}

/// Which rows of a table a program accesses, as far as their place is concerned.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyRange {
    /// Rows whose first key column has this value, of the column's type.
    First(Value),
    /// Rows with any key.
    Any,
    /// No row: a part of the key is NULL.
    Nothing,
}

/// One access of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct TableUse {
    /// The table.
    pub table: TableId,
    /// Which of its rows.
    pub keys: KeyRange,
    /// It changes or locks them.
    pub writes: bool,
    /// It adds a row.
    pub inserts: bool,
}

/// The kind of a statement that changes rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
}

/// A statement for the query engine that changes rows of one table.
#[derive(Clone, Debug)]
pub struct ModifyUse {
    /// The kind.
    pub change: Change,
    /// The table.
    pub table: TableId,
    /// UPDATE: positions of the columns that are assigned.
    pub columns: Vec<usize>,
    /// The other tables that it reads. The table itself, too, if it is read more than once, or by an INSERT.
    pub reads: Vec<TableId>,
    /// The rows to change follow from each row by itself: no subquery, limit, aggregate or volatile function.
    pub is_plain: bool,
    /// INSERT ... ON CONFLICT.
    pub resolves_conflicts: bool,
    /// RETURNING.
    pub returns_rows: bool,
}

/// The step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStep {
    /// BEGIN.
    Begin,
    /// COMMIT.
    Commit {
        /// AND CHAIN.
        chain: bool,
    },
    /// ROLLBACK.
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// SAVEPOINT, RELEASE, ROLLBACK TO.
    Savepoint,
    /// SET TRANSACTION and the like.
    Mode,
    /// PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED.
    Prepare,
}

/// What a statement concerns.
#[derive(Clone, Debug)]
pub enum Footprint {
    /// Only the session.
    Session,
    /// Its transaction.
    Transaction(TransactionStep),
    /// A program.
    Program {
        /// Its accesses.
        uses: Vec<TableUse>,
        /// Its inputs.
        bound: BoundProgram,
        /// Nothing of it is written or locked.
        is_read_only: bool,
        /// The kind of its only statement, if that changes rows.
        change: Option<Change>,
    },
    /// A query.
    Query {
        /// The tables that it reads.
        tables: Vec<TableId>,
        /// FOR UPDATE and the like.
        locks_rows: bool,
        /// It draws from a sequence.
        moves_sequence: bool,
        /// It takes or gives back advisory locks.
        takes_advisory_locks: bool,
    },
    /// A change by the query engine.
    Modify(ModifyUse),
    /// Definitions.
    Definition {
        /// The command tag.
        tag: &'static str,
        /// A sequence is among them.
        makes_sequence: bool,
    },
    /// COPY FROM.
    CopyIn(TableId),
    /// Whatever else touches tables: what it is.
    Other {
        /// Its name.
        what: &'static str,
        /// The tables.
        tables: Vec<TableId>,
        /// It may write.
        writes: bool,
    },
}

impl Session {
    /// What a prepared statement would concern if it ran now.
    ///
    /// # Errors
    ///
    /// It cannot be planned any more, or its inputs cannot be computed.
    pub fn footprint(&mut self, prepared: &Arc<Prepared>, params: &[Value]) -> Result<Footprint, SqlError> {
        let planned = self.current_plan(prepared)?;
        self.footprint_of(&planned.plan, params)
    }

    /// The plan of a prepared statement for the definitions that the session sees now.
    pub(crate) fn current_plan(&mut self, prepared: &Arc<Prepared>) -> Result<VersionedPlan, SqlError> {
        let mut planned = prepared.planned.read().clone();
        for _ in 0..PLANNING_ATTEMPTS {
            if self.failed || self.is_current(&planned) {
                break;
            }
            planned = self.plan_again(prepared)?;
        }
        self.check_rights(&planned.plan)?;
        Ok(planned)
    }

    fn footprint_of(&mut self, plan: &Plan, params: &[Value]) -> Result<Footprint, SqlError> {
        Ok(match plan {
            Plan::Empty | Plan::Setting(_) | Plan::Constant(_) => Footprint::Session,
            Plan::Program(plan) => self.program_footprint(plan, params)?,
            Plan::Query(plan) => query_footprint(plan),
            Plan::Modify(plan) => Footprint::Modify(modify_use(&plan.modify)),
            Plan::Ddl(plan) => Footprint::Definition {
                tag: plan.tag,
                makes_sequence: plan
                    .ops
                    .iter()
                    .any(|op| matches!(op, CatalogOp::CreateSequence(_))),
            },
            Plan::Account(statement) => {
                let message = format!("{} in a cluster is not supported", statement.tag());
                return Err(SqlError::unsupported(message));
            }
            Plan::Transaction(plan) => Footprint::Transaction(step(plan)),
            Plan::Copy(plan) => match plan.as_ref() {
                CopyPlan::From { table, .. } => Footprint::CopyIn(table.id),
                CopyPlan::To { plan, .. } => other("COPY TO", plan),
            },
            Plan::Explain(plan) if plan.analyze => other("EXPLAIN ANALYZE", &plan.inner),
            Plan::Explain(_) => Footprint::Session,
            Plan::Prepared(control) => match control.as_ref() {
                PrepareControl::Execute { name, .. } => {
                    let prepared = self.named(name)?;
                    let planned = self.current_plan(&prepared)?;
                    other("EXECUTE", &planned.plan)
                }
                _ => Footprint::Session,
            },
            Plan::Cursor(plan) => match plan.as_ref() {
                CursorPlan::Declare { plan, .. } => other("DECLARE CURSOR", plan),
                CursorPlan::Fetch { .. } | CursorPlan::Close(_) => Footprint::Session,
            },
            Plan::Maintenance(plan) => match plan {
                MaintenancePlan::LockTable { tables, .. } => Footprint::Other {
                    what: "LOCK TABLE",
                    tables: tables.clone(),
                    writes: true,
                },
                _ => Footprint::Session,
            },
        })
    }

    fn program_footprint(&mut self, plan: &ProgramPlan, params: &[Value]) -> Result<Footprint, SqlError> {
        let inputs = plan.bind(params, self)?;
        let program = &plan.program;
        let uses = program
            .accesses
            .iter()
            // The row with the value is accessed as well.
            .filter(|access| !matches!(access.kind, AccessKind::WriteValue(_)))
            .map(|access| table_use(program, access, &inputs))
            .collect();
        let change = match plan.statements.as_slice() {
            [only] => match only.tag {
                Tag::Insert => Some(Change::Insert),
                Tag::Update => Some(Change::Update),
                Tag::Delete => Some(Change::Delete),
                Tag::Select | Tag::Call | Tag::Do => None,
            },
            _ => None,
        };
        let is_read_only = program.read_only && !super::program::locks_only(plan);
        Ok(Footprint::Program {
            uses,
            bound: BoundProgram {
                hash: program.hash(),
                inputs,
            },
            is_read_only,
            change,
        })
    }
}

fn table_use(program: &Program, access: &Access, inputs: &[u8]) -> TableUse {
    let keys = match access.kind {
        AccessKind::ReadTable | AccessKind::WriteTable => KeyRange::Any,
        AccessKind::ReadRange | AccessKind::WriteRange => {
            let low = first_value(program, access.table, &access.key, inputs);
            let high = access.hi.as_deref().unwrap_or_default();
            match (low, first_value(program, access.table, high, inputs)) {
                (Some(Value::Null), _) | (_, Some(Value::Null)) => KeyRange::Any,
                (Some(low), Some(high)) if low == high => KeyRange::First(low),
                _ => KeyRange::Any,
            }
        }
        _ => match first_value(program, access.table, &access.key, inputs) {
            Some(Value::Null) => KeyRange::Nothing,
            Some(value) => KeyRange::First(value),
            None => KeyRange::Any,
        },
    };
    TableUse {
        table: access.table,
        keys,
        writes: access.kind.is_write(),
        inserts: access.kind == AccessKind::InsertRow,
    }
}

/// The value of the first column of a key, of the column's type. `None`: the key says nothing of it.
fn first_value(program: &Program, table: TableId, key: &[KeyPart], inputs: &[u8]) -> Option<Value> {
    let shape = program.tables.iter().find(|shape| shape.id == table)?;
    let column = *shape.primary_index()?.columns.first()?;
    let value = match *key.first()? {
        KeyPart::Input(number) => program.input_layout().value(inputs, usize::from(number)),
        KeyPart::Const(number) => program.consts.get(usize::from(number))?.value.clone(),
    };
    assign(value, shape.columns.get(column)?).ok()
}

fn query_footprint(plan: &QueryPlan) -> Footprint {
    Footprint::Query {
        tables: plan.query.tables.clone(),
        locks_rows: plan.locks_rows(),
        moves_sequence: plan.query.moves_sequence,
        takes_advisory_locks: plan.query.takes_advisory_locks,
    }
}

fn modify_use(modify: &Modify) -> ModifyUse {
    let change = match modify.kind {
        ModifyKind::Insert => Change::Insert,
        ModifyKind::Update => Change::Update,
        ModifyKind::Delete => Change::Delete,
    };
    let (mut reads, mut targets, mut is_plain) = (Vec::new(), 0, !modify.rows.is_volatile);
    modify.rows.for_each_relation(|relation| match relation {
        Relation::Scan(scan) if scan.table.id == modify.table.id => targets += 1,
        Relation::Scan(scan) => {
            reads.push(scan.table.id);
            is_plain = false;
        }
        Relation::One | Relation::Project { .. } | Relation::Filter { .. } => {}
        _ => is_plain = false,
    });
    if targets > usize::from(change != Change::Insert) {
        reads.push(modify.table.id);
        is_plain = false;
    }
    ModifyUse {
        change,
        table: modify.table.id,
        columns: modify.columns.clone(),
        reads,
        is_plain,
        resolves_conflicts: modify.conflict.is_some(),
        returns_rows: modify.returning.is_some(),
    }
}

fn other(what: &'static str, plan: &Plan) -> Footprint {
    let of_query = |query: &Query| query.tables.clone();
    let (tables, writes) = match plan {
        Plan::Program(plan) => (
            plan.program.accesses.iter().map(|access| access.table).collect(),
            plan.program.accesses.iter().any(|access| access.kind.is_write()),
        ),
        Plan::Query(plan) => (of_query(&plan.query), plan.locks_rows()),
        Plan::Modify(plan) => {
            let mut tables = of_query(&plan.modify.rows);
            tables.push(plan.modify.table.id);
            (tables, true)
        }
        Plan::Constant(_) | Plan::Setting(_) | Plan::Empty => return Footprint::Session,
        // Definitions, transactions, COPY inside EXECUTE and the like: whatever they concern.
        _ => {
            return Footprint::Other {
                what,
                tables: Vec::new(),
                writes: true,
            };
        }
    };
    Footprint::Other { what, tables, writes }
}

fn step(plan: &TransactionPlan) -> TransactionStep {
    match plan {
        TransactionPlan::Begin { .. } => TransactionStep::Begin,
        TransactionPlan::Commit { chain } => TransactionStep::Commit { chain: *chain },
        TransactionPlan::Rollback { chain } => TransactionStep::Rollback { chain: *chain },
        TransactionPlan::Savepoint(_) | TransactionPlan::Release(_) | TransactionPlan::RollbackTo(_) => {
            TransactionStep::Savepoint
        }
        TransactionPlan::Prepare(_)
        | TransactionPlan::CommitPrepared(_)
        | TransactionPlan::RollbackPrepared(_) => TransactionStep::Prepare,
        TransactionPlan::SetTransaction(_)
        | TransactionPlan::SetSessionCharacteristics(_)
        | TransactionPlan::SetConstraints { .. } => TransactionStep::Mode,
    }
}
