//! From a text to a plan, and from a plan to the code that runs it.

use std::sync::Arc;

use weft_sql::statement::control::{ControlStatement, CursorPlan, PrepareControl};
use weft_sql::statement::{self, CopyPlan, Message, ParsedAst, Plan, PlanContext, TransactionPlan};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::{CheckedPlan, Prepared, Session, VersionedPlan};
use crate::sink::{OutputColumn, PipelinePosition, ResultSink};

/// Plans of more bytes count in the memory of statements that are being read until they have run.
const PLAN_BYTES: usize = 1 << 20;

/// The error of a statement inside a failed transaction.
fn in_failed_transaction() -> SqlError {
    SqlError::new(
        SqlState::IN_FAILED_SQL_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

fn ends_transaction(plan: &Plan) -> bool {
    matches!(
        plan,
        Plan::Transaction(
            TransactionPlan::Commit { .. }
                | TransactionPlan::Rollback { .. }
                | TransactionPlan::RollbackTo(_)
                | TransactionPlan::Prepare(_)
        )
    )
}

/// Whether a failed transaction accepts this text: only an empty one, or the end of the transaction. That
/// it is several statements is found by [`plan_single`].
fn check_ends_transaction(sql: &str) -> Result<(), SqlError> {
    match statement::message(sql)? {
        Message::One(only) => match &only.ast {
            ParsedAst::Control(ControlStatement::Transaction(plan))
                if ends_transaction(&Plan::Transaction(plan.clone())) =>
            {
                Ok(())
            }
            _ => Err(in_failed_transaction()),
        },
        Message::Empty | Message::Several => Ok(()),
    }
}

/// Plans a text of at most one statement, semicolons around it allowed.
fn plan_single(sql: &str, context: &PlanContext<'_>) -> Result<Plan, SqlError> {
    match statement::message(sql)? {
        Message::Empty => Ok(Plan::Empty),
        Message::One(only) => {
            let text = sql.get(only.range.clone()).unwrap_or(sql);
            statement::plan(&only.ast, &PlanContext { text, ..*context })
                .map_err(|error| statement::parse::shift_position(error, sql, only.range.start))
        }
        Message::Several => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "cannot insert multiple commands into a prepared statement",
        )),
    }
}

impl Session {
    /// The plan of one statement for the current catalog, from the cache if it is there. Inside a transaction
    /// that changed definitions nothing is cached: nobody else has its catalog.
    pub(crate) fn plan(&mut self, sql: &str, types: &[Option<SqlType>]) -> Result<VersionedPlan, SqlError> {
        if self.failed {
            // Before names are looked up: in a failed transaction this error comes first.
            check_ends_transaction(sql)?;
        }
        let catalog = self.catalog();
        let version = catalog.version();
        let private_era = self.private_era();
        let shared_catalog = private_era.is_none();
        if shared_catalog && let Some(plan) = self.shared.plans.get(sql, types, version, self.settings.zone) {
            return Ok(VersionedPlan {
                plan,
                version,
                private_era,
                memory: None,
            });
        }
        let plan = Arc::new(CheckedPlan::new(plan_single(
            sql,
            &PlanContext {
                catalog: &catalog,
                param_types: types,
                text: sql,
                zone: self.settings.zone,
            },
        )?));
        let memory = match plan.bytes() {
            // A guess from the text's length, of which literals may be a large part.
            bytes if bytes > PLAN_BYTES => {
                let bytes = bytes.min(statement::reading_bytes(sql)?);
                Some(Arc::new(statement::reserve(bytes)?))
            }
            _ => None,
        };
        // The text of a statement on accounts may contain a password.
        if shared_catalog && !matches!(plan.plan(), Plan::Account(_)) {
            self.shared
                .plans
                .put(sql, types, version, self.settings.zone, &plan);
        }
        Ok(VersionedPlan {
            plan,
            version,
            private_era,
            memory,
        })
    }

    /// The era of the definitions that only the open transaction sees; `None` while it sees the public ones.
    fn private_era(&self) -> Option<u64> {
        self.open
            .as_ref()
            .filter(|open| open.txn.changes_catalog())
            .map(|_| self.era)
    }

    /// True if a plan was made for the definitions that the session sees now. The version alone is not
    /// enough: versions of rolled back transactions are reused.
    pub(crate) fn is_current(&self, planned: &VersionedPlan) -> bool {
        planned.private_era == self.private_era() && planned.version == self.catalog_version()
    }

    /// Refuses a plan made for other definitions, if running it would not detect that.
    fn check_current(&self, planned: &VersionedPlan) -> Result<(), SqlError> {
        let needs_check = match planned.plan.plan() {
            // The engine compares versions; it does not know of definitions that were never committed.
            Plan::Program(_) => self.open.is_some() || planned.private_era.is_some(),
            Plan::Query(_) | Plan::Modify(_) | Plan::Ddl(_) | Plan::Copy(_) => true,
            Plan::Explain(_) | Plan::Cursor(_) | Plan::Maintenance(_) | Plan::Constant(_) => true,
            Plan::Empty | Plan::Transaction(_) | Plan::Setting(_) | Plan::Prepared(_) | Plan::Account(_) => {
                false
            }
        };
        if needs_check && !self.is_current(planned) {
            Err(weft_txn::stale_program())
        } else {
            Ok(())
        }
    }

    /// Refuses a plan that writes in a read-only transaction (25006).
    pub(crate) fn check_writable(&self, plan: &Plan) -> Result<(), SqlError> {
        let reads_only = match &self.open {
            Some(open) => open.txn.is_read_only(),
            None => self.settings.default_read_only,
        };
        if !reads_only {
            return Ok(());
        }
        let what = match plan {
            Plan::Program(plan) if !plan.program.read_only => {
                let writes = |tag: &statement::Tag| *tag != statement::Tag::Select;
                plan.statements
                    .iter()
                    .map(|shape| shape.tag)
                    .find(writes)
                    .map_or("a program", |tag| tag.verb())
            }
            Plan::Program(plan) if super::program::locks_only(plan) => "SELECT FOR UPDATE",
            Plan::Modify(plan) => plan.tag().verb(),
            Plan::Ddl(plan) => plan.tag,
            Plan::Account(statement) => statement.tag(),
            Plan::Copy(copy) if matches!(copy.as_ref(), CopyPlan::From { .. }) => "COPY FROM",
            Plan::Query(query) if query.locks_rows() => "SELECT FOR UPDATE",
            _ => return Ok(()),
        };
        let message = format!("cannot execute {what} in a read-only transaction");
        Err(SqlError::new(SqlState("25006"), message))
    }

    /// Refuses what a failed transaction does not accept.
    pub(crate) fn check_usable(&self, plan: &Plan) -> Result<(), SqlError> {
        if self.failed && !ends_transaction(plan) && !matches!(plan, Plan::Empty) {
            return Err(in_failed_transaction());
        }
        Ok(())
    }

    /// The parameter types of a plan and the columns that it returns; no columns when it returns no rows.
    pub(crate) fn describe(&mut self, plan: &Plan) -> Result<(Vec<SqlType>, Vec<OutputColumn>), SqlError> {
        if let (Some(params), Some(columns)) = (plan.params(), plan.columns()) {
            return Ok((
                params.to_vec(),
                columns.iter().map(super::program::sink_column).collect(),
            ));
        }
        match plan {
            Plan::Explain(plan) => {
                let columns = plan.columns.iter().map(super::program::sink_column).collect();
                Ok((self.describe(&plan.inner)?.0, columns))
            }
            Plan::Cursor(cursor) => match cursor.as_ref() {
                CursorPlan::Fetch {
                    name, moves: false, ..
                } => Ok((Vec::new(), self.cursor_columns(name)?)),
                CursorPlan::Declare { plan, .. } => Ok((self.describe(plan)?.0, Vec::new())),
                _ => Ok(Default::default()),
            },
            Plan::Prepared(control) => match control.as_ref() {
                PrepareControl::Execute { name, .. } => {
                    Ok((Vec::new(), self.named(name)?.columns().to_vec()))
                }
                _ => Ok(Default::default()),
            },
            _ => Ok(Default::default()),
        }
    }

    /// Runs a plan. [`PipelinePosition::Alone`]: if no transaction is open, the statement is a transaction by
    /// itself.
    pub(crate) fn run_plan(
        &mut self,
        planned: &VersionedPlan,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        self.check_usable(&planned.plan)?;
        self.check_current(planned)?;
        self.check_writable(&planned.plan)?;
        self.check_rights(&planned.plan)?;
        match planned.plan.plan() {
            Plan::Empty => {
                sink.empty();
                Ok(())
            }
            Plan::Constant(plan) => self.run_constant(plan, params, sink),
            Plan::Program(plan) => self.run_program(plan, params, position, sink),
            Plan::Query(plan) => self.run_query(plan, params, sink),
            Plan::Modify(plan) => self.run_modify(plan, planned, params, sink),
            Plan::Ddl(plan) => self.run_ddl(plan, planned.version, position, sink),
            Plan::Account(statement) => self.run_account(statement, position, sink),
            Plan::Transaction(plan) => self.run_transaction(plan, position, sink),
            Plan::Copy(plan) => self.run_copy(plan, planned, params, sink),
            Plan::Setting(plan) => self.run_setting(plan, position, sink),
            Plan::Explain(plan) => self.run_explain(plan, planned, params, sink),
            Plan::Prepared(plan) => self.run_prepare(plan, params, position, sink),
            Plan::Cursor(plan) => self.run_cursor(plan, planned, params, sink),
            Plan::Maintenance(plan) => self.run_maintenance(plan, sink),
        }
    }

    /// Runs a statement and plans it again whenever the catalog changed in the meantime.
    pub(crate) fn run_text(
        &mut self,
        sql: &str,
        params: &[Value],
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        for _ in 0..super::PLANNING_ATTEMPTS {
            let planned = self.plan(sql, &[])?;
            match self.run_plan(&planned, params, position, sink) {
                Err(error) if weft_txn::is_stale(&error) => {}
                result => return result,
            }
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "the catalog changed too often under this statement",
        ))
    }
}

impl Prepared {
    /// The statement's text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The types that the client declared for parameters; those of others are inferred.
    pub fn declared_types(&self) -> &[Option<SqlType>] {
        &self.param_types
    }
}
