//! From a text to a plan, and from a plan to the code that runs it.

use std::sync::Arc;

use weft_sql::statement::{self, CursorPlan, Plan, PlanContext, PrepareControl, TransactionPlan};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::query::result_column;
use super::{Prepared, Session};
use crate::sink::{OutputColumn, ResultSink, Scope};

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
            TransactionPlan::Commit { .. } | TransactionPlan::Rollback { .. } | TransactionPlan::RollbackTo(_)
        )
    )
}

impl Session {
    /// The plan of one statement for the present catalog, from the cache if it is there. Inside a transaction that
    /// changed definitions nothing is cached: its catalog is nobody else's.
    pub(crate) fn plan(&mut self, sql: &str, types: &[Option<SqlType>]) -> Result<Arc<Plan>, SqlError> {
        let catalog = self.catalog();
        let shared_catalog = self.open.as_ref().is_none_or(|open| !open.txn.changes_catalog());
        if shared_catalog && let Some(plan) = self.shared.plans.get(sql, types, catalog.version()) {
            return Ok(plan);
        }
        let parsed = statement::parse_one(sql)?;
        let context = PlanContext::new(Arc::clone(&catalog), types);
        let plan = Arc::new(statement::plan(&parsed, &context)?);
        if shared_catalog {
            self.shared.plans.put(sql, types, catalog.version(), &plan);
        }
        Ok(plan)
    }

    /// Refuses what a failed transaction does not take.
    pub(crate) fn check_usable(&self, plan: &Plan) -> Result<(), SqlError> {
        if self.failed && !ends_transaction(plan) && !matches!(plan, Plan::Empty) {
            return Err(in_failed_transaction());
        }
        Ok(())
    }

    /// The columns that a plan returns; empty when it returns no rows.
    pub(crate) fn describe(&mut self, plan: &Plan) -> Result<Vec<OutputColumn>, SqlError> {
        if let Some(columns) = plan.columns() {
            return Ok(columns.iter().map(super::program::sink_column).collect());
        }
        match plan {
            Plan::Query(query) => self.describe_query(query),
            Plan::Modify(modify) => self.describe_returning(modify),
            Plan::Cursor(cursor) => match cursor.as_ref() {
                CursorPlan::Fetch { name, moves: false, .. } => self.cursor_columns(name),
                _ => Ok(Vec::new()),
            },
            Plan::Prepared(control) => match control.as_ref() {
                PrepareControl::Execute { name, .. } => Ok(self.named(name)?.columns().to_vec()),
                _ => Ok(Vec::new()),
            },
            _ => Ok(Vec::new()),
        }
    }

    fn describe_query(&mut self, query: &statement::QueryPlan) -> Result<Vec<OutputColumn>, SqlError> {
        let source = self.describe_source();
        let ast = datafusion::sql::sqlparser::ast::Statement::Query(query.query.clone());
        let types = super::query::input_types(&query.params, &query.hidden_inputs);
        let settings = self.query_settings();
        let described = self.shared.queries.describe(&query.text, &ast, source, &types, &settings)?;
        Ok(described.columns.iter().map(result_column).collect())
    }

    /// Runs a plan. `sql` is the statement's own text. `Scope::Alone`: with no transaction open, the statement is a
    /// whole transaction by itself.
    pub(crate) fn run_plan(
        &mut self,
        plan: &Arc<Plan>,
        sql: &str,
        params: &[Value],
        scope: Scope,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        self.check_usable(plan)?;
        let _ = sql;
        match plan.as_ref() {
            Plan::Empty => {
                sink.empty();
                Ok(())
            }
            Plan::Constant(plan) => self.run_constant(plan, params, sink),
            Plan::Program(plan) => self.run_program(plan, params, scope, sink),
            Plan::Query(plan) => self.run_query(plan, params, sink),
            Plan::Modify(plan) => self.run_modify(plan, params, sink),
            Plan::Ddl(plan) => self.run_ddl(plan, sink),
            Plan::Transaction(plan) => self.run_transaction(plan, sink),
            Plan::Copy(plan) => self.run_copy(plan, params, sink),
            Plan::Setting(plan) => self.run_setting(plan, sink),
            Plan::Explain(plan) => self.run_explain(plan, params, sink),
            Plan::Prepared(plan) => self.run_prepare(plan, params, sink),
            Plan::Cursor(plan) => self.run_cursor(plan, params, sink),
            Plan::Maintenance(plan) => self.run_maintenance(plan, sink),
        }
    }

    /// Runs a statement, planning it again as often as the catalog changed under it.
    pub(crate) fn run_text(
        &mut self,
        sql: &str,
        params: &[Value],
        scope: Scope,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        for _ in 0..super::PLANNING_ATTEMPTS {
            let plan = self.plan(sql, &[])?;
            match self.run_plan(&plan, sql, params, scope, sink) {
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
}
