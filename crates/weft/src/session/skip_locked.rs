//! SELECT ... FOR UPDATE SKIP LOCKED: the rows that no other transaction has locked.
//!
//! The query runs, and its rows are locked without waiting. Those that others hold are left out of the
//! locked tables ([`WithoutRows`]), and the query runs again, until all of its rows are locked and as they
//! were read. LIMIT counts the rows that are returned, so with one, others are looked for further down: the
//! query runs without its limit, row by row in its order, until it has locked as many as the limit lets
//! through. Only then the answer is computed. So a worker that takes the next job passes a hundred that
//! others are at with one reading of the rows, and locks only what it returns: besides that, rows equal to
//! it in its order, and rows joined with one that is not free.
//!
//! Differs from PostgreSQL: whoever locks so many rows of a table that Weft locks the table for it is waited
//! for, as for LOCK TABLE.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use weft_base::{RowId, TableId};
use weft_lock::LockMode;
use weft_query::{LineMember, ReadSource, RowStream, StepRows, WithoutRows};
use weft_sql::statement::{RowLockStrength, RowLocks};
use weft_store::Catalog;
use weft_types::{SqlError, SqlState, Value};

use super::Session;
use super::modify::{LOCKING_ROUNDS, ModifyContext};
use super::statement_session::StatementSession;

/// A row to lock: table, handle and bytes as read.
type Row = (TableId, RowId, Vec<u8>);
/// The rows to lock for one row of the answer, in the order of FROM.
type Line = Vec<Row>;

/// What is known of the rows that one statement met.
#[derive(Default)]
struct Met {
    /// Locked by this statement.
    locked: HashSet<(TableId, RowId)>,
    /// Locked by others.
    skipped: Arc<HashSet<(TableId, RowId)>>,
    /// A row was not as it was read when it was locked.
    changed: bool,
}

impl Met {
    fn is_locked(&self, row: &Row) -> bool {
        self.locked.contains(&(row.0, row.1))
    }

    fn has_locked(&self, line: &Line) -> bool {
        line.iter().all(|row| self.is_locked(row))
    }

    fn skips(&self, line: &Line) -> bool {
        line.iter().any(|row| self.skipped.contains(&(row.0, row.1)))
    }

    /// What locked tables are read from, if not from `source`.
    fn target(&self, source: &Arc<dyn ReadSource>) -> Option<WithoutRows> {
        let skipped = (!self.skipped.is_empty()).then(|| Arc::clone(&self.skipped));
        skipped.map(|skipped| WithoutRows::new(Arc::clone(source), skipped))
    }
}

impl Session {
    /// The rows of a query that no other transaction has locked; they are locked now.
    pub(super) fn unlocked_rows(
        &mut self,
        tables: &[TableId],
        row_locks: &RowLocks,
        params: &[Value],
        session: &Arc<StatementSession>,
    ) -> Result<RowStream, SqlError> {
        let write = row_locks.strength == RowLockStrength::Update;
        let settings = self.query_settings(session).locking();
        let bound = ModifyContext {
            params,
            environment: self.environment(&settings),
            settings,
            steps: StepRows::default(),
        };
        let intent = if write { LockMode::IX } else { LockMode::IS };
        for table in &row_locks.tables {
            self.transaction().txn.lock_table(*table, intent)?;
        }
        let shared = Arc::clone(&self.shared);
        let mut met = Met::default();
        for _ in 0..LOCKING_ROUNDS {
            let source = self.read_source(tables)?;
            let mut lines: Vec<Line> = Vec::new();
            let answer = shared.queries.rows_to_lock(
                &row_locks.rows,
                &row_locks.tables,
                (Arc::clone(&source), met.target(&source)),
                &bound.evaluation(),
                |line| lines.push(owned(line)),
            )?;
            met.changed = false;
            let before = met.skipped.len();
            self.try_lines(&lines, write, &mut met)?;
            let has_skipped = met.skipped.len() > before;
            if !has_skipped && !met.changed {
                return Ok(answer);
            }
            let Some(unlimited) = row_locks.unlimited.as_ref().filter(|_| has_skipped) else {
                continue;
            };
            let wanted = lines.len();
            let reading = (Arc::clone(&source), met.target(&source));
            let (mut lines, mut found) = (Vec::new(), 0);
            let tables = &row_locks.tables;
            let with = bound.evaluation();
            shared
                .queries
                .each_line_to_lock(unlimited, tables, reading, &with, |line| {
                    lines.push(owned(line));
                    if found + lines.len() < wanted {
                        return Ok(ControlFlow::Continue(()));
                    }
                    self.try_lines(&lines, write, &mut met)?;
                    found += lines.iter().filter(|line| met.has_locked(line)).count();
                    lines.clear();
                    Ok(match found < wanted {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    })
                })?;
            self.try_lines(&lines, write, &mut met)?;
        }
        Err(SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "rows to lock kept changing",
        ))
    }

    /// Locks the rows of those lines that are free; notes which rows are not, and whether one has changed
    /// since it was read.
    fn try_lines(&mut self, lines: &[Line], write: bool, met: &mut Met) -> Result<(), SqlError> {
        let catalog = self.catalog();
        let lines = lines
            .iter()
            .filter(|line| !met.has_locked(line) && !met.skips(line));
        let lines: Vec<&[Row]> = lines.map(Vec::as_slice).collect();
        self.try_part(&lines, write, &catalog, met)
    }

    /// All lines at once, or else each half by itself; of a single line each row by itself, up to the first
    /// that is not free, as PostgreSQL locks them.
    fn try_part(
        &mut self,
        lines: &[&[Row]],
        write: bool,
        catalog: &Catalog,
        met: &mut Met,
    ) -> Result<(), SqlError> {
        self.check_cancelled()?;
        let rows: Vec<&Row> = lines
            .iter()
            .copied()
            .flatten()
            .filter(|row| !met.is_locked(row))
            .collect();
        if self.try_rows(&rows, write, catalog, met)? {
            return Ok(());
        }
        let [line] = lines else {
            let (left, right) = lines.split_at(lines.len() / 2);
            self.try_part(left, write, catalog, met)?;
            return self.try_part(right, write, catalog, met);
        };
        for row in line.iter() {
            if !self.try_rows(&[row], write, catalog, met)? {
                Arc::make_mut(&mut met.skipped).insert((row.0, row.1));
                break;
            }
        }
        Ok(())
    }

    /// Locks all of the rows, or returns false.
    fn try_rows(
        &mut self,
        rows: &[&Row],
        write: bool,
        catalog: &Catalog,
        met: &mut Met,
    ) -> Result<bool, SqlError> {
        let named = rows.iter().filter_map(|(table, row, image)| {
            let def = catalog.table_by_id(*table)?;
            Some((def.as_ref(), *row, image.as_slice()))
        });
        if !self.transaction().txn.try_lock_rows(named, write)? {
            return Ok(false);
        }
        for (table, row, image) in rows {
            if let Some(def) = catalog.table_by_id(*table) {
                // Under REPEATABLE READ a row changed since the snapshot is an error.
                let current = self.transaction().txn.current(def, *row, image)?;
                met.changed |= current.is_none_or(|current| current != *image);
            }
            met.locked.insert((*table, *row));
        }
        Ok(true)
    }
}

fn owned(line: &[LineMember<'_>]) -> Line {
    line.iter()
        .map(|(table, row, bytes)| (*table, *row, bytes.to_vec()))
        .collect()
}
