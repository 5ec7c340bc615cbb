//! Parts of a statement or transaction that several ranks execute together.
//!
//! A transaction of several ranks has a branch on each: a session there, with an open transaction of the same
//! isolation level and clock. What belongs together is known by the layer above; here is what it asks of one
//! rank's session.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Waker;
use std::time::Duration;

use weft_base::{CatalogVersion, TableId};
use weft_lock::LockMode;
use weft_sql::statement::{self, Message, ModifyPlan, Plan, PlanContext, QueryPlan};
use weft_store::Catalog;
use weft_txn::Isolation;
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::query::push_stream;
use super::{BoundProgram, Prepared, Session};
use crate::sink::{CommandTag, PipelinePosition, ResultSink};
use crate::spread::{RankView, SpreadSource, TableView};

/// What all branches of a transaction have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchStart {
    /// The isolation level.
    pub isolation: Isolation,
    /// READ ONLY.
    pub is_read_only: bool,
    /// `now()`, microseconds since 1970.
    pub began_micros: i64,
    /// The longest wait for a lock; zero: no bound of the branches' own.
    pub lock_wait_max: Duration,
}

/// The error for a program that this rank plans differently: its definitions are others.
fn other_program() -> SqlError {
    SqlError::new(
        SqlState::SERIALIZATION_FAILURE,
        "the definitions of this rank are not those that the statement was planned for",
    )
}

impl Session {
    /// How long this session waits for a lock.
    pub(crate) fn lock_timeout(&self) -> Duration {
        match (self.settings.lock_timeout, self.lock_wait_max) {
            (own, Duration::ZERO) => own,
            (Duration::ZERO, max) => max,
            (own, max) => own.min(max),
        }
    }

    /// Bounds all waits for locks, whatever `lock_timeout` says; zero removes the bound.
    pub fn set_lock_wait_max(&mut self, max: Duration) {
        self.lock_wait_max = max;
        self.apply_settings();
    }

    /// Has EXPLAIN show what other ranks do.
    pub fn explain_ranks(&mut self) {
        self.is_of_ranks = true;
    }

    /// Whether waits for locks end earlier than the session's own `lock_timeout` says.
    pub fn bounds_lock_waits(&self) -> bool {
        self.lock_timeout() != self.settings.lock_timeout
    }

    /// What a branch of this session's transaction must begin with; opens one if none is open.
    pub fn branch_start(&mut self) -> BranchStart {
        let lock_wait_max = self.lock_wait_max;
        let open = self.transaction();
        BranchStart {
            isolation: open.txn.isolation(),
            is_read_only: open.txn.is_read_only(),
            began_micros: open.began_micros,
            lock_wait_max,
        }
    }

    /// Opens the branch of a transaction: an explicit transaction of this session.
    ///
    /// # Errors
    ///
    /// A transaction is open.
    pub fn begin_branch(&mut self, start: &BranchStart) -> Result<(), SqlError> {
        if self.open.is_some() {
            return Err(SqlError::internal("the branch of a transaction is open already"));
        }
        self.begin_statement();
        self.set_lock_wait_max(start.lock_wait_max);
        let open = self.transaction();
        open.explicit = true;
        open.began_micros = start.began_micros;
        open.txn.set_mode(start.isolation, start.is_read_only)
    }

    /// Whether a transaction is open, be it implicit.
    pub fn has_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the open transaction has changed anything.
    pub fn has_writes(&self) -> bool {
        let changes = |open: &super::OpenTransaction| open.txn.has_writes() || open.txn.changes_catalog();
        self.open.as_ref().is_some_and(changes)
    }

    /// The isolation level of the open transaction, or of the next one.
    pub fn isolation(&self) -> Isolation {
        let own = self.settings.default_isolation;
        self.open.as_ref().map_or(own, |open| open.txn.isolation())
    }

    /// The definitions that the session sees.
    pub fn definitions(&self) -> Arc<Catalog> {
        self.catalog()
    }

    /// The statements of a simple message, one by one. An empty message has none.
    ///
    /// # Errors
    ///
    /// A text that cannot be split.
    pub fn statements_of(sql: &str) -> Result<Vec<&str>, SqlError> {
        Ok(match statement::message(sql)? {
            Message::Empty => Vec::new(),
            Message::One(only) => vec![sql.get(only.range).unwrap_or(sql)],
            Message::Several => statement::split(sql)
                .map(|range| range.map(|range| sql.get(range).unwrap_or_default()))
                .collect::<Result<_, _>>()?,
        })
    }

    /// As [`Session::execute`], with inputs that were bound before, here or by another session; with a
    /// `waker` as [`Session::execute_or_park`], which continues it.
    ///
    /// # Errors
    ///
    /// Those of [`Session::execute`]; 40001 if this session plans another program.
    pub fn execute_bound(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        bound: &BoundProgram,
        waker: Option<&Waker>,
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        self.begin_statement();
        self.waker = waker.cloned();
        let result = self.interruptible(|session| {
            let planned = session.current_plan(prepared)?;
            let Plan::Program(plan) = planned.plan.plan() else {
                return Err(other_program());
            };
            if plan.program.hash() != bound.hash {
                return Err(other_program());
            }
            session.parked = Some((Arc::clone(&plan.program), bound.inputs.clone()));
            match session.run_plan(&planned, params, position, sink) {
                Err(error) if weft_txn::is_stale(&error) => Err(other_program()),
                result => result,
            }
        });
        self.waker = None;
        if matches!(&result, Err(error) if weft_txn::is_parked(error)) {
            return result;
        }
        self.parked = None;
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// What a statement over these tables sees of this rank's rows: the open transaction's view, or the
    /// newest boundary. Under SERIALIZABLE the tables are locked first.
    ///
    /// # Errors
    ///
    /// Those of locking.
    pub fn table_view(&mut self, tables: &[TableId]) -> Result<TableView, SqlError> {
        self.begin_statement();
        let view = self.interruptible(|session| session.read_source(tables).map(TableView));
        if view.is_err() {
            self.fail();
        }
        view
    }

    /// Runs a query over this rank's view and the parts of other ranks.
    ///
    /// # Errors
    ///
    /// Those of the query and of the parts.
    pub fn execute_over(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        local: &TableView,
        parts: Vec<Arc<dyn RankView>>,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        self.begin_statement();
        let result = self.interruptible(|session| {
            let plan = session.general_query(prepared)?;
            super::modify::refuse_steps(&plan.steps)?;
            let statement = session.statement_session();
            let columns = session.named_columns(&plan.columns);
            let settings = session.query_settings(&statement);
            let environment = session.environment(&settings);
            let source = Arc::new(SpreadSource {
                local: Arc::clone(&local.0),
                parts,
                lookups: AtomicUsize::new(0),
            });
            let queries = &session.shared.queries;
            let stream = queries.run(&plan.query, source, params, &settings, &environment);
            let pushed = stream.and_then(|stream| push_stream(stream, &columns, sink));
            session.end_statement_session(&statement)?;
            sink.complete(&CommandTag::counted("SELECT", pushed?));
            Ok(())
        });
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// Computes the rows that an INSERT adds, over this rank's view and the parts of other ranks, and inserts
    /// none of them.
    ///
    /// # Errors
    ///
    /// Those of the query and of the parts.
    pub fn rows_to_insert(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Value],
        local: &TableView,
        parts: Vec<Arc<dyn RankView>>,
    ) -> Result<Vec<Vec<u8>>, SqlError> {
        self.begin_statement();
        let result = self.interruptible(|session| {
            let plan = session.general_modify(prepared)?;
            super::modify::refuse_steps(&plan.steps)?;
            let statement = session.statement_session();
            let settings = session.query_settings(&statement).locking();
            let bound = super::modify::ModifyContext {
                params,
                environment: session.environment(&settings),
                settings,
                steps: weft_query::StepRows::default(),
            };
            let source = Arc::new(SpreadSource {
                local: Arc::clone(&local.0),
                parts,
                lookups: AtomicUsize::new(0),
            });
            let mut rows = Vec::new();
            let shared = Arc::clone(&session.shared);
            let each = |row: weft_query::NewRow| {
                rows.push(row.row);
                Ok(())
            };
            let computed = shared
                .queries
                .new_rows(&plan.modify, source, &bound.evaluation(), each);
            session.end_statement_session(&statement)?;
            computed.map(|()| rows)
        });
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// Inserts rows that were computed before, for definitions of this version.
    ///
    /// # Errors
    ///
    /// 40001 if definitions have changed; those of inserting.
    pub fn insert_computed(
        &mut self,
        table: TableId,
        version: CatalogVersion,
        rows: &[Vec<u8>],
    ) -> Result<(), SqlError> {
        self.begin_statement();
        let result = self.interruptible(|session| {
            let open = session.transaction();
            open.txn.lock_table(table, LockMode::IX)?;
            open.txn.check_definitions()?;
            let catalog = open.txn.catalog();
            if catalog.version() != version {
                return Err(other_program());
            }
            let def = catalog.table_by_id(table).ok_or_else(other_program)?;
            for row in rows {
                def.layout.validate(row).map_err(|_| {
                    SqlError::new(SqlState::DATA_CORRUPTED, "a row from another rank is damaged")
                })?;
            }
            for chunk in rows.chunks(super::modify::CHUNK_ROWS) {
                session.transaction().txn.insert(def, chunk)?;
                session.check_cancelled()?;
            }
            let observed = session.transaction().txn.observed();
            session.gate.raise(observed);
            Ok(())
        });
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// The plan of a query for the query engine.
    fn general_query(&mut self, prepared: &Arc<Prepared>) -> Result<Arc<QueryPlan>, SqlError> {
        let planned = self.current_plan(prepared)?;
        match planned.plan.plan() {
            Plan::Query(plan) => return Ok(Arc::clone(plan)),
            Plan::Program(plan) => {
                if let Some(fallback) = &plan.fallback {
                    return Ok(Arc::clone(fallback));
                }
            }
            _ => return Err(SqlError::internal("a statement that is no query has no rows")),
        }
        let (catalog, types) = (self.catalog(), parameter_types(prepared));
        let context = self.context_of(prepared, &catalog, &types);
        statement::query_plan(&prepared.sql, &context).map(Arc::new)
    }

    /// The plan of an INSERT for the query engine.
    fn general_modify(&mut self, prepared: &Arc<Prepared>) -> Result<Arc<ModifyPlan>, SqlError> {
        let planned = self.current_plan(prepared)?;
        if let Plan::Modify(plan) = planned.plan.plan() {
            return Ok(Arc::clone(plan));
        }
        let (catalog, types) = (self.catalog(), parameter_types(prepared));
        let context = self.context_of(prepared, &catalog, &types);
        statement::modify_plan(&prepared.sql, &context).map(Arc::new)
    }

    fn context_of<'a>(
        &self,
        prepared: &'a Prepared,
        catalog: &'a Catalog,
        types: &'a [Option<SqlType>],
    ) -> PlanContext<'a> {
        PlanContext {
            param_types: types,
            zone: self.settings.zone,
            ..PlanContext::new(catalog, &prepared.sql)
        }
    }
}

fn parameter_types(prepared: &Prepared) -> Vec<Option<SqlType>> {
    prepared.params.iter().copied().map(Some).collect()
}
