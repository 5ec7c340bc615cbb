//! INSERT, UPDATE and DELETE in general form, and SELECT ... FOR UPDATE.
//!
//! The query engine computes which rows change and how, over the statement's view. Then the rows are locked;
//! a row that somebody changed before its lock was granted is evaluated again as it is now, and left alone if
//! it no longer qualifies (READ COMMITTED), or ends the transaction (REPEATABLE READ). Last, the
//! transaction's overlay takes the changes. Statements see the state before themselves: the view is frozen
//! while they run.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weft_base::RowId;
use weft_lock::LockMode;
use weft_sql::query::{Evaluation, ModifyKind, ModifyQuery, QuerySettings, RowChange};
use weft_sql::statement::{ModifyPlan, PlannedDefaults, QueryPlan, RowLockStrength, RowLockWait};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::query::push_stream;
use super::{Planned, Session};
use crate::sink::{CommandTag, ResultSink};

/// Rows that are locked and written at a time.
const CHUNK_ROWS: usize = 1024;

/// How often rows to lock are looked for again after waiting for locks.
const LOCKING_ROUNDS: usize = 64;

/// What a statement is evaluated with.
struct Bound<'a> {
    params: &'a [Value],
    types: &'a [Option<SqlType>],
    settings: QuerySettings,
}

impl Bound<'_> {
    fn evaluation(&self) -> Evaluation<'_> {
        Evaluation {
            params: self.params,
            param_types: self.types,
            settings: &self.settings,
        }
    }
}

impl Session {
    pub(crate) fn run_modify(
        &mut self,
        plan: &ModifyPlan,
        planned: &Planned,
        params: &[Value],
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        let query = &plan.query;
        self.keep_definition(query.table.id, planned)?;
        self.shared.query_statements.fetch_add(1, Relaxed);
        let bound = Bound {
            params,
            types: &plan.param_types,
            settings: self.query_settings(),
        };
        let written = match query.kind {
            ModifyKind::Insert => self.insert_rows(plan, &bound)?,
            ModifyKind::Update | ModifyKind::Delete => self.change_rows(plan, &bound)?,
        };
        let count = written.count;
        if query.has_returning() {
            let source = self.read_source(&[])?;
            let shared = Arc::clone(&self.shared);
            let stream = shared
                .queries
                .returning(query, source, written.rows, &bound.evaluation())?;
            push_stream(stream, sink)?;
        }
        let observed = self.transaction().txn.observed();
        self.gate.raise(observed);
        sink.complete(&CommandTag::counted(plan.tag().verb(), count));
        Ok(())
    }

    /// Makes sure that the table stays as the plan knows it until the transaction ends: whoever changes its
    /// definition must have it alone.
    pub(crate) fn keep_definition(
        &mut self,
        table: weft_base::TableId,
        planned: &Planned,
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

    fn insert_rows(&mut self, plan: &ModifyPlan, bound: &Bound<'_>) -> Result<Written, SqlError> {
        let query = &plan.query;
        let source = self.read_source(&plan.tables)?;
        let shared = Arc::clone(&self.shared);
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let mut values = PlannedDefaults {
            defaults: &plan.defaults,
            source: self,
        };
        shared
            .queries
            .new_rows(query, source, &bound.evaluation(), &mut values, |row| {
                rows.push(row);
                Ok(())
            })?;
        let mut written = Written::new(query.has_returning());
        for chunk in rows.chunks(CHUNK_ROWS) {
            let ids = self.transaction().txn.insert(&query.table, chunk)?;
            written.count += chunk.len() as u64;
            if written.keeps {
                written.rows.extend(ids.into_iter().zip(chunk.iter().cloned()));
            }
        }
        Ok(written)
    }

    fn change_rows(&mut self, plan: &ModifyPlan, bound: &Bound<'_>) -> Result<Written, SqlError> {
        let query = &plan.query;
        let source = self.read_source(&plan.tables)?;
        let shared = Arc::clone(&self.shared);
        let mut changes: Vec<RowChange> = Vec::new();
        shared
            .queries
            .changes(query, source, &bound.evaluation(), |change| {
                changes.push(change);
                Ok(())
            })?;
        let mut written = Written::new(query.has_returning());
        for chunk in changes.chunks(CHUNK_ROWS) {
            let rows = chunk.iter().map(|change| (change.handle, change.old.as_slice()));
            self.transaction().txn.lock_rows(&query.table, rows, true)?;
            for change in chunk {
                self.change_row(query, bound, change, &mut written)?;
            }
        }
        Ok(written)
    }

    /// Makes one change to a row that is locked now.
    fn change_row(
        &mut self,
        query: &ModifyQuery,
        bound: &Bound<'_>,
        change: &RowChange,
        written: &mut Written,
    ) -> Result<(), SqlError> {
        let def = &query.table;
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
                .reevaluate(query, source, handle, row, &bound.evaluation())?
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
            written
                .rows
                .push((change.handle, change.new.clone().unwrap_or(current)));
        }
        Ok(())
    }

    /// Locks the rows that a SELECT ... FOR UPDATE or FOR SHARE returns, looking again until no further row
    /// appears.
    pub(crate) fn lock_selected_rows(&mut self, plan: &QueryPlan, params: &[Value]) -> Result<(), SqlError> {
        let Some(row_locks) = &plan.row_locks else {
            return Ok(());
        };
        let wait = match row_locks.wait {
            RowLockWait::Wait => true,
            RowLockWait::NoWait => false,
            RowLockWait::SkipLocked => return Err(SqlError::unsupported("SKIP LOCKED is not supported")),
        };
        let write = row_locks.strength == RowLockStrength::Update;
        let bound = Bound {
            params,
            types: &plan.param_types,
            settings: self.query_settings(),
        };
        self.transaction();
        let mut locked: std::collections::HashSet<(weft_base::TableId, RowId)> = Default::default();
        for _ in 0..LOCKING_ROUNDS {
            let source = self.read_source(&plan.tables)?;
            let shared = Arc::clone(&self.shared);
            let mut rows = shared
                .queries
                .rows_to_lock(&plan.statement, source, &bound.evaluation())?;
            rows.retain(|(table, row_id, _)| {
                row_locks.tables.contains(table) && !locked.contains(&(*table, *row_id))
            });
            if rows.is_empty() {
                return Ok(());
            }
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
            for (table, row_id, image) in rows {
                let catalog = self.catalog();
                if let Some(def) = catalog.table_by_id(table) {
                    // Under REPEATABLE READ a row changed since the snapshot is an error.
                    self.transaction().txn.current(def, row_id, &image)?;
                }
                locked.insert((table, row_id));
            }
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "rows to lock kept changing",
        ))
    }
}

/// What a statement wrote.
struct Written {
    count: u64,
    keeps: bool,
    /// For RETURNING: the new rows, or the rows that went.
    rows: Vec<(RowId, Vec<u8>)>,
}

impl Written {
    fn new(keeps: bool) -> Written {
        Written {
            count: 0,
            keeps,
            rows: Vec::new(),
        }
    }
}
