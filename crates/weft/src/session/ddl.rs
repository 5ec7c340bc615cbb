//! Definitions: catalog operations inside a transaction.
//!
//! A transaction that changes definitions locks the catalog in X until its end, so the ids that its plan took
//! from the catalog stay its own; it also locks the tables that it changes in X, so nobody is using them. An
//! index is built, and rows are searched for NULLs, before that ([`weft_txn::Transaction::prepare_change`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use weft_base::CatalogVersion;
use weft_lock::LockMode;
use weft_sql::statement::{DdlPlan, Rewrite};
use weft_store::{Catalog, CatalogOp, ConstraintRule, SequenceState};
use weft_txn::Isolation;
use weft_types::{SqlError, SqlState};

use super::Session;
use super::control::ACTIVE_SQL_TRANSACTION;
use super::modify::{CHUNK_ROWS, ModifyContext};
use super::rights::ownership_of;
use crate::sink::{CommandTag, NoticeLevel, OutputColumn, PipelinePosition, ResultSink, RowRef};

/// The most bytes of rows that are written again: as many as one transaction may write.
const REWRITTEN_BYTES_MAX: usize = 960 << 20;

/// The existing tables that an operation changes: one, and the parent of a foreign key.
fn tables_of(op: &CatalogOp, catalog: &Catalog) -> impl Iterator<Item = weft_base::TableId> {
    let parent = match op {
        CatalogOp::PutConstraint(constraint) => match &constraint.rule {
            ConstraintRule::ForeignKey(key) => Some(key.parent),
            ConstraintRule::Check { .. } => None,
        },
        CatalogOp::DropConstraint { table, constraint } => {
            let keys = catalog.table_by_id(*table);
            let mut keys = keys.into_iter().flat_map(|table| table.foreign_keys());
            keys.find(|(known, _)| known.id == *constraint)
                .map(|(_, key)| key.parent)
        }
        _ => None,
    };
    let existing: Vec<_> = table_of(op, catalog)
        .into_iter()
        .chain(parent)
        .filter(|table| catalog.table_by_id(*table).is_some())
        .collect();
    existing.into_iter()
}

fn table_of(op: &CatalogOp, catalog: &Catalog) -> Option<weft_base::TableId> {
    match op {
        CatalogOp::DropTable(table) | CatalogOp::Truncate(table) => Some(*table),
        CatalogOp::CreateIndex(index) | CatalogOp::AddPrimaryKey(index) => Some(index.table),
        CatalogOp::DropIndex(index) | CatalogOp::RenameIndex { index, .. } => {
            catalog.index_by_id(*index).map(|index| index.table)
        }
        CatalogOp::SetNotNull { table, .. }
        | CatalogOp::SetDefault { table, .. }
        | CatalogOp::AddColumn { table, .. }
        | CatalogOp::DropColumn { table, .. }
        | CatalogOp::RenameTable { table, .. }
        | CatalogOp::SetDistribution { table, .. }
        | CatalogOp::DropConstraint { table, .. }
        | CatalogOp::SetColumnType { table, .. }
        | CatalogOp::RetypeColumn { table, .. }
        | CatalogOp::SetIdentity { table, .. }
        | CatalogOp::RenameColumn { table, .. } => Some(*table),
        CatalogOp::PutConstraint(constraint) => Some(constraint.table),
        CatalogOp::CreateTable(_)
        | CatalogOp::CreateSequence(_)
        | CatalogOp::DropSequence(_)
        | CatalogOp::SetSequenceOwner { .. }
        | CatalogOp::AdvanceSequence { .. }
        | CatalogOp::SetSequence { .. }
        | CatalogOp::PutProcedure(_)
        | CatalogOp::DropProcedure(_)
        | CatalogOp::PutView(_)
        | CatalogOp::DropView(_)
        | CatalogOp::Account(_)
        | CatalogOp::Comment { .. } => None,
    }
}

/// A sequence that goes with a column belongs to the owner of its table.
fn check_same_owner(op: &CatalogOp, catalog: &Catalog) -> Result<(), SqlError> {
    let id = match op {
        CatalogOp::CreateSequence(sequence) => sequence.id,
        CatalogOp::SetSequenceOwner { id, .. } => *id,
        _ => return Ok(()),
    };
    let linked = catalog.sequence_by_id(id).and_then(|sequence| sequence.owned_by);
    match linked {
        Some((table, _))
            if catalog.table_by_id(table).is_some()
                && catalog.owner_of(table.0) != catalog.owner_of(id.0) =>
        {
            let message = "sequence must have same owner as table it is linked to";
            Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
        }
        _ => Ok(()),
    }
}

/// Takes the count of an INSERT.
#[derive(Default)]
struct Filled {
    rows: u64,
}

impl ResultSink for Filled {
    fn columns(&mut self, _: &[OutputColumn]) {}

    fn row(&mut self, _: RowRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.rows = tag.rows.unwrap_or(0);
    }
}

impl Session {
    /// Applies a definition statement to the open transaction (an implicit one, if none is open).
    /// `planned_for` is the catalog version that the plan was made for.
    pub(crate) fn run_ddl(
        &mut self,
        plan: &DdlPlan,
        planned_for: CatalogVersion,
        position: PipelinePosition,
        sink: &mut dyn ResultSink,
    ) -> Result<(), SqlError> {
        if let Some(statement) = plan.outside_block
            && self.open.as_ref().is_some_and(|open| open.explicit)
        {
            let message = format!("{statement} cannot run inside a transaction block");
            return Err(SqlError::new(ACTIVE_SQL_TRANSACTION, message));
        }
        for notice in &plan.notices {
            let level = match notice.state == SqlState::INVALID_CATALOG_NAME {
                true => NoticeLevel::Warning,
                false => NoticeLevel::Notice,
            };
            sink.notice(level, notice);
        }
        if !plan.ops.is_empty() {
            let changed = self.change_definitions(plan, planned_for);
            // An error tells of rows, too: those of an index that cannot be built.
            let observed = self.transaction().txn.observed();
            self.gate.raise(observed);
            changed?;
        }
        let tag = match &plan.fill {
            Some(insert) => CommandTag::counted("SELECT", self.fill(insert)?),
            None => CommandTag::plain(plan.tag),
        };
        if position == PipelinePosition::Alone && self.open.as_ref().is_some_and(|open| !open.explicit) {
            // Whether rows violate a definition is found at the end of the transaction: before success is
            // reported.
            self.sync()?;
        }
        sink.complete(&tag);
        Ok(())
    }

    /// Fills a new table in the transaction that made it; returns the number of rows.
    fn fill(&mut self, insert: &str) -> Result<u64, SqlError> {
        let mut filled = Filled::default();
        self.run_text(insert, &[], PipelinePosition::Pipelined, &mut filled)?;
        Ok(filled.rows)
    }

    /// Applies the operations, with the locks that they need.
    fn change_definitions(&mut self, plan: &DdlPlan, planned_for: CatalogVersion) -> Result<(), SqlError> {
        let shared = Arc::clone(&self.shared);
        let creator = self.acting_role();
        let open = self.transaction();
        open.txn.lock_catalog()?;
        // The newest definitions, even where the transaction reads an older snapshot.
        let newest = if open.txn.changes_catalog() {
            open.txn.catalog()
        } else {
            shared.engine.catalog()
        };
        if newest.version() != planned_for {
            // Another transaction changed definitions before the lock was granted: plan again with the
            // new ones.
            return Err(weft_txn::stale_program());
        }
        // Others may use the tables meanwhile. What comes after another change depends on that.
        for op in &plan.ops {
            if !open.txn.prepare_change(op)? {
                break;
            }
        }
        let first_new = newest.next_object_id();
        // The rows as they are, before the table is emptied.
        let rewritten = match &plan.rewrite {
            Some(rewrite) => Some(self.rows_to_rewrite(rewrite)?),
            None => None,
        };
        let open = self.transaction();
        for op in &plan.ops {
            for table in tables_of(op, &open.txn.catalog()) {
                open.txn.lock_table(table, LockMode::X)?;
            }
            open.txn.catch_up()?;
            open.txn.catalog_op(op.clone())?;
            let is_new = |id: u32| id >= first_new;
            let new = match op {
                CatalogOp::PutProcedure(procedure) => is_new(procedure.id.0),
                CatalogOp::PutView(view) => is_new(view.id.0),
                _ => true,
            };
            for owned in ownership_of(op, &open.txn.catalog(), new, creator) {
                open.txn.catalog_op(CatalogOp::Account(owned))?;
            }
            check_same_owner(op, &open.txn.catalog())?;
            if let CatalogOp::SetSequence { id, .. } | CatalogOp::DropSequence(id) = op {
                open.sequences_set.push(*id);
            }
        }
        match (&plan.rewrite, rewritten) {
            (Some(rewrite), Some(rows)) => self.write_again(rewrite, &rows),
            _ => Ok(()),
        }
    }

    /// The rows of a table as they are to be, in its new layout. The table is locked until the transaction
    /// ends.
    fn rows_to_rewrite(&mut self, rewrite: &Rewrite) -> Result<Vec<Vec<u8>>, SqlError> {
        let open = self.transaction();
        if open.txn.isolation() != Isolation::ReadCommitted {
            return Err(SqlError::unsupported(
                "a table's rows are rewritten under READ COMMITTED only",
            ));
        }
        open.txn.lock_table(rewrite.table, LockMode::X)?;
        let modify = &rewrite.rows.modify;
        let session = self.statement_session();
        let settings = self.query_settings(&session).locking();
        let bound = ModifyContext {
            params: &[],
            environment: self.environment(&settings),
            settings,
            steps: Default::default(),
        };
        let source = self.read_source(&modify.rows.tables)?;
        let queries = Arc::clone(&self.shared);
        let mut rows = Vec::new();
        let mut bytes = 0;
        let read = queries
            .queries
            .new_rows(modify, source, &bound.evaluation(), |row| {
                bytes += row.row.len();
                if bytes > REWRITTEN_BYTES_MAX {
                    return Err(SqlError::new(
                        SqlState::PROGRAM_LIMIT_EXCEEDED,
                        "the table is too large to be rewritten",
                    ));
                }
                rows.push(row.row);
                Ok(())
            });
        self.end_statement_session(&session)?;
        read?;
        Ok(rows)
    }

    /// Writes a table's rows again after it was emptied.
    fn write_again(&mut self, rewrite: &Rewrite, rows: &[Vec<u8>]) -> Result<(), SqlError> {
        let catalog = self.transaction().txn.catalog();
        let Some(table) = catalog.table_by_id(rewrite.table) else {
            return Err(weft_txn::stale_program());
        };
        for chunk in rows.chunks(CHUNK_ROWS) {
            self.transaction().txn.insert(table, chunk)?;
            self.check_cancelled()?;
        }
        self.transaction().txn.end_statement()?;
        for id in &rewrite.numbered {
            let (Some(sequence), Some(last)) = (catalog.sequence_by_id(*id), rows.len().checked_sub(1))
            else {
                continue;
            };
            let steps = i64::try_from(last).unwrap_or(i64::MAX);
            let state = SequenceState {
                last_value: sequence
                    .start
                    .saturating_add(steps.saturating_mul(sequence.increment)),
                is_called: true,
            };
            let open = self.transaction();
            open.txn.catalog_op(CatalogOp::SetSequence { id: *id, state })?;
            open.sequences_set.push(*id);
        }
        Ok(())
    }
}
