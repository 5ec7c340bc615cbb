//! INSERT, UPDATE and DELETE in general form, and SELECT ... FOR UPDATE.
//!
//! The query engine computes which rows change and how, over the statement's view. Then the rows are locked;
//! a row that another transaction changed before its lock was granted is evaluated again in its current
//! state, and skipped if it no longer qualifies (READ COMMITTED), or ends the transaction (REPEATABLE READ).
//! Finally the changes go into the transaction's overlay. Statements see the state before themselves: the
//! view is frozen while they run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weft_base::RowId;
use weft_binder::relation::{Modify, ModifyKind};
use weft_lock::LockMode;
use weft_query::{Environment, Evaluation, NewRow, QuerySettings, RowChange, RowStream, StepRows};
use weft_sql::statement::{ModifyPlan, RowLockStrength, RowLockWait, RowLocks};
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState, Value};

use super::query::push_stream;
use super::statement_session::StatementSession;
use super::{Session, VersionedPlan};
use crate::sink::{CommandTag, ResultSink};

/// Rows that are locked and written at a time.
pub(super) const CHUNK_ROWS: usize = 1024;

/// How often rows to lock are searched again after waiting for locks.
pub(super) const LOCKING_ROUNDS: usize = 64;

/// What a statement's expressions are evaluated with.
pub(super) struct ModifyContext<'a> {
    pub(super) params: &'a [Value],
    pub(super) settings: QuerySettings,
    pub(super) environment: Arc<dyn Environment>,
    /// The rows of the statement's steps.
    pub(super) steps: StepRows,
}

impl ModifyContext<'_> {
    pub(super) fn evaluation(&self) -> Evaluation<'_> {
        Evaluation {
            parameters: self.params,
            settings: &self.settings,
            environment: &self.environment,
            steps: &self.steps,
        }
    }
}

impl Session {
    pub(crate) fn run_modify(
        &mut self,
        plan: &ModifyPlan,
        planned: &VersionedPlan,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        self.keep_definition(plan.modify.table.id, planned)?;
        self.shared.query_statements.fetch_add(1, Relaxed);
        let session = self.statement_session();
        let done = self.modify_in(plan, params, &session, sink);
        let ended = self.end_statement_session(&session);
        let count = done?;
        ended?;
        let observed = self.transaction().txn.observed();
        self.gate.raise(observed);
        sink.complete(&CommandTag::counted(plan.tag().verb(), count));
        Ok(())
    }

    fn modify_in(
        &mut self,
        plan: &ModifyPlan,
        params: &[Value],
        session: &Arc<StatementSession>,
        sink: &mut dyn ResultSink,
    ) -> Result<u64, SqlError> {
        let steps = self.run_steps(&plan.steps, params, session)?;
        let settings = self.query_settings(session).locking();
        let bound = ModifyContext {
            params,
            environment: self.environment(&settings),
            settings,
            steps,
        };
        self.modify_rows(plan, &bound, sink)
    }

    /// Runs the steps of a statement, which lock rows; returns their rows.
    pub(super) fn run_steps(
        &mut self,
        steps: &[(usize, RowLocks)],
        params: &[Value],
        session: &Arc<StatementSession>,
    ) -> Result<StepRows, SqlError> {
        if self.is_of_ranks {
            refuse_steps(steps)?;
        }
        let mut rows = BTreeMap::new();
        for (number, locks) in steps {
            let stream = self.locked_rows(&locks.rows.tables, locks, params, session)?;
            rows.insert(*number, stream.values()?);
        }
        Ok(Arc::new(rows))
    }

    /// Writes the rows and pushes those of RETURNING; returns how many were written.
    fn modify_rows(
        &mut self,
        plan: &ModifyPlan,
        bound: &ModifyContext<'_>,
        sink: &mut dyn ResultSink,
    ) -> Result<u64, SqlError> {
        let modify = &plan.modify;
        let written = match modify.kind {
            ModifyKind::Insert => self.insert_rows(modify, bound)?,
            ModifyKind::Update | ModifyKind::Delete => self.change_rows(modify, bound)?,
        };
        self.transaction().txn.end_statement()?;
        if modify.returning.is_some() {
            let source = self.read_source(&[])?;
            let shared = Arc::clone(&self.shared);
            let stream = shared
                .queries
                .returning(modify, source, &written.rows, &bound.evaluation())?;
            let columns = self.named_columns(&plan.columns);
            push_stream(stream, &columns, sink)?;
        }
        Ok(written.count)
    }

    /// Locks the table's definition until the transaction ends: a transaction that changes it must have the
    /// table alone.
    pub(crate) fn keep_definition(
        &mut self,
        table: weft_base::TableId,
        planned: &VersionedPlan,
    ) -> Result<(), SqlError> {
        let open = self.transaction();
        open.txn.lock_table(table, LockMode::IX)?;
        open.txn.check_definitions()?;
        if self.is_current(planned) {
            Ok(())
        } else {
            Err(weft_txn::stale_program())
        }
    }

    fn insert_rows(&mut self, modify: &Modify, bound: &ModifyContext<'_>) -> Result<Written, SqlError> {
        let source = self.read_source(&modify.rows.tables)?;
        let shared = Arc::clone(&self.shared);
        let mut written = Written::new(modify.returning.is_some());
        let mut rows: Vec<NewRow> = Vec::new();
        shared
            .queries
            .new_rows(modify, Arc::clone(&source), &bound.evaluation(), |row| {
                rows.push(row);
                Ok(())
            })?;
        if let Some(conflict) = &modify.conflict {
            return self.insert_or_resolve(modify, conflict, &rows, &source, bound);
        }
        let mut chunk: Vec<Vec<u8>> = Vec::with_capacity(CHUNK_ROWS.min(rows.len()));
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            chunk.clear();
            for row in rows.by_ref().take(CHUNK_ROWS) {
                if written.keeps {
                    written.rows.push(row.clone());
                }
                chunk.push(row.row);
            }
            self.transaction().txn.insert(&modify.table, &chunk)?;
            written.count += chunk.len() as u64;
            self.check_cancelled()?;
        }
        Ok(written)
    }

    fn change_rows(&mut self, modify: &Modify, bound: &ModifyContext<'_>) -> Result<Written, SqlError> {
        let source = self.read_source(&modify.rows.tables)?;
        let shared = Arc::clone(&self.shared);
        let mut changes: Vec<RowChange> = Vec::new();
        shared
            .queries
            .changes(modify, source, &bound.evaluation(), |change| {
                changes.push(change);
                Ok(())
            })?;
        let mut written = Written::new(modify.returning.is_some());
        let mut pace = Pace::default();
        for chunk in changes.chunks(CHUNK_ROWS) {
            let rows = chunk.iter().map(|change| (change.handle, change.old.as_slice()));
            let txn = &mut self.transaction().txn;
            txn.lock_rows(&modify.table, rows, true)?;
            if modify.kind == ModifyKind::Delete {
                let rows = chunk.iter().map(|change| change.old.as_slice());
                txn.lock_referenced_keys(&modify.table, rows)?;
            }
            for change in chunk {
                pace.step(64)?;
                self.change_row(modify, bound, change, &mut written)?;
            }
        }
        Ok(written)
    }

    /// Applies one change to a locked row.
    fn change_row(
        &mut self,
        modify: &Modify,
        bound: &ModifyContext<'_>,
        change: &RowChange,
        written: &mut Written,
    ) -> Result<(), SqlError> {
        let def = &modify.table;
        let Some(current) = self.transaction().txn.current(def, change.handle, &change.old)? else {
            return Ok(());
        };
        let again;
        let change = if current == change.old {
            change
        } else {
            let source = self.read_source(&[])?;
            let shared = Arc::clone(&self.shared);
            let (handle, row) = (change.handle, current.clone());
            match shared
                .queries
                .reevaluate(modify, source, handle, row, &bound.evaluation())?
            {
                None => return Ok(()),
                Some(change) => {
                    again = change;
                    &again
                }
            }
        };
        let txn = &mut self.transaction().txn;
        match &change.new {
            Some(new) => txn.update(def, change.handle, &current, new)?,
            None => txn.delete(def, change.handle, &current)?,
        }
        written.count += 1;
        if written.keeps {
            written.rows.push(NewRow {
                row: change.new.clone().unwrap_or(current),
                carried: change.carried.clone(),
            });
        }
        Ok(())
    }

    /// The locked rows of a SELECT ... FOR UPDATE or FOR SHARE. Usually nobody has changed them before the
    /// locks were granted; otherwise the query runs again.
    pub(crate) fn locked_rows(
        &mut self,
        tables: &[weft_base::TableId],
        row_locks: &RowLocks,
        params: &[Value],
        session: &Arc<StatementSession>,
    ) -> Result<RowStream, SqlError> {
        let wait = match row_locks.wait {
            RowLockWait::Wait => true,
            RowLockWait::NoWait => false,
            RowLockWait::SkipLocked => return self.unlocked_rows(tables, row_locks, params, session),
        };
        let write = row_locks.strength == RowLockStrength::Update;
        let settings = self.query_settings(session).locking();
        let bound = ModifyContext {
            params,
            environment: self.environment(&settings),
            settings,
            steps: StepRows::default(),
        };
        self.transaction();
        let mut locked: std::collections::HashSet<(weft_base::TableId, RowId)> = Default::default();
        for _ in 0..LOCKING_ROUNDS {
            let source = self.read_source(tables)?;
            let shared = Arc::clone(&self.shared);
            let mut rows: Vec<(weft_base::TableId, RowId, Vec<u8>)> = Vec::new();
            let mut seen: std::collections::HashSet<(weft_base::TableId, RowId)> = Default::default();
            let answer = shared.queries.rows_to_lock(
                &row_locks.rows,
                &row_locks.tables,
                (source, None),
                &bound.evaluation(),
                |line| {
                    for (table, row, bytes) in line {
                        let named = (*table, *row);
                        if !locked.contains(&named) && seen.insert(named) {
                            rows.push((*table, *row, bytes.to_vec()));
                        }
                    }
                },
            )?;
            for table in &row_locks.tables {
                let catalog = self.catalog();
                let Some(def) = catalog.table_by_id(*table) else {
                    continue;
                };
                let of_table = rows.iter().filter(|(of, _, _)| of == table);
                let images = of_table.map(|(_, row_id, image)| (*row_id, image.as_slice()));
                let txn = &mut self.transaction().txn;
                txn.set_no_wait(!wait);
                let result = txn.lock_rows(def, images, write);
                txn.set_no_wait(false);
                result?;
            }
            let mut changed = false;
            for (table, row_id, image) in rows {
                let catalog = self.catalog();
                if let Some(def) = catalog.table_by_id(table) {
                    // Under REPEATABLE READ a row changed since the snapshot is an error.
                    let current = self.transaction().txn.current(def, row_id, &image)?;
                    changed |= current.is_none_or(|current| current != image);
                }
                locked.insert((table, row_id));
            }
            if !changed {
                return Ok(answer);
            }
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "rows to lock kept changing",
        ))
    }
}

/// In a cluster a subquery would lock the rows of one rank only.
pub(super) fn refuse_steps(steps: &[(usize, RowLocks)]) -> Result<(), SqlError> {
    match steps.is_empty() {
        true => Ok(()),
        false => Err(SqlError::unsupported(
            "FOR UPDATE in a subquery is not supported in a cluster",
        )),
    }
}

/// The result of a modifying statement.
pub(super) struct Written {
    pub(super) count: u64,
    pub(super) keeps: bool,
    /// For RETURNING: the new rows, or the deleted ones.
    pub(super) rows: Vec<NewRow>,
}

impl Written {
    pub(super) fn new(keeps: bool) -> Written {
        Written {
            count: 0,
            keeps,
            rows: Vec::new(),
        }
    }
}
