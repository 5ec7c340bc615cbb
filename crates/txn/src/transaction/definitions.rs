//! Changes of definitions in a transaction: what it sees of them; what is prepared before it commits.

use std::sync::Arc;

use weft_base::{TableId, blocking};
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_store::{Catalog, CatalogOp, Prepared, Snapshot, TableDef};
use weft_types::{SqlError, Value};

use super::Transaction;
use crate::locks::LockRequests;
use crate::overlay::TableOverlay;
use crate::view;

/// What is prepared follows the writers until about so few slots are written meanwhile, or so often.
const CATCH_UP_SLOTS_FEW: usize = 4_096;
const CATCH_UP_ROUNDS_MAX: usize = 16;

impl Transaction {
    /// Locks all definitions for change until the transaction ends.
    pub fn lock_catalog(&mut self) -> Result<(), SqlError> {
        let request = LockRequest {
            resource: ResourceId::catalog(),
            mode: LockMode::X,
        };
        self.lock(LockRequests::from_slice(&[request]))
    }

    /// Tables with rows whose columns this transaction changed.
    fn reshaped(&self) -> impl Iterator<Item = TableId> {
        let hidden = |table| self.overlay.table(table).is_some_and(|table| table.base_hidden());
        let changed = self.catalog_ops.iter().filter_map(reshaped_by);
        changed.filter(move |table| !hidden(*table))
    }

    /// Tables whose primary key this transaction dropped: before the commit there is nothing by which their
    /// rows are found again.
    pub(super) fn unusable_tables(&self) -> Arc<[TableId]> {
        if self.catalog_ops.is_empty() {
            return Arc::default();
        }
        let hidden = |table| self.overlay.table(table).is_some_and(|table| table.base_hidden());
        let (before, after) = (self.engine.catalog(), self.catalog());
        let lost_key = |def: &&Arc<TableDef>| {
            let now = after.table_by_id(def.id);
            def.primary_key.is_some() && now.is_some_and(|now| now.primary_key != def.primary_key)
        };
        let tables = before.tables().filter(lost_key).map(|def| def.id);
        tables.filter(|table| !hidden(*table)).collect()
    }

    /// A snapshot as this transaction reads it: with the columns that it added, without those that it
    /// dropped.
    pub(super) fn seen(&self, snapshot: Snapshot) -> Snapshot {
        match &self.private_catalog {
            Some(catalog) if self.reshaped().next().is_some() => snapshot.under(catalog),
            _ => snapshot,
        }
    }

    /// Refuses to write to a table whose rows cannot be found again.
    pub(super) fn refuse_reshaped(&self, def: &TableDef) -> Result<(), SqlError> {
        if !self.catalog_ops.is_empty() && self.unusable_tables().contains(&def.id) {
            return Err(view::without_key());
        }
        Ok(())
    }

    /// A change of definitions, seen by this transaction at once and by others after its commit. The caller
    /// locks the table it concerns in X first.
    pub fn catalog_op(&mut self, op: CatalogOp) -> Result<(), SqlError> {
        self.refuse_writes_in_excess()?;
        // Based on the newest definitions, as at commit, whatever snapshot the transaction reads.
        let before = self
            .private_catalog
            .clone()
            .unwrap_or_else(|| self.engine.catalog());
        // The answer depends on them.
        self.observe(self.engine.boundary());
        let next = before.apply(&op)?;
        if let Some(table) = reshaped_by(&op)
            && self.overlay.table(table).is_some_and(TableOverlay::has_rows)
        {
            return Err(SqlError::unsupported(
                "the columns of a table cannot be changed in a transaction that has written its rows",
            ));
        }
        self.check_added(&op, &next)?;
        match &op {
            CatalogOp::Truncate(table)
            | CatalogOp::DropTable(table)
            | CatalogOp::RetypeColumn { table, .. } => {
                let indexes = next.table_by_id(*table).map_or(&[][..], |def| &def.indexes);
                self.overlay_mut().hide_base(*table, indexes);
            }
            CatalogOp::CreateTable(def) => self.overlay_mut().hide_base(def.id, &def.indexes),
            _ => {}
        }
        self.private_catalog = Some(Arc::new(next));
        self.known = None;
        self.catalog_ops.push(op);
        Ok(())
    }

    /// Refuses a new NOT NULL column without a value for the rows that there are. The table is locked, so
    /// that this is still right when the transaction commits.
    fn check_added(&self, op: &CatalogOp, next: &Catalog) -> Result<(), SqlError> {
        let CatalogOp::AddColumn { table, column, fill } = op else {
            return Ok(());
        };
        let hidden = self.overlay.table(*table).is_some_and(TableOverlay::base_hidden);
        let has_rows = !hidden && self.engine.snapshot().row_count_estimate(*table) > 0;
        match next.table_by_id(*table) {
            Some(def) if column.not_null && matches!(fill, Value::Null) && has_rows => {
                Err(def.nulls_in_rows(def.columns.len() - 1))
            }
            _ => Ok(()),
        }
    }

    /// Refuses to prepare a transaction with definitions that are checked against rows when it commits: who
    /// is told that it is prepared is told that it can be committed.
    pub(super) fn refuse_unchecked(&self) -> Result<(), SqlError> {
        let is_unchecked = |op: &CatalogOp| {
            let table = match op {
                CatalogOp::CreateIndex(def) | CatalogOp::AddPrimaryKey(def) if def.unique => def.table,
                CatalogOp::SetNotNull {
                    table,
                    not_null: true,
                    ..
                } => *table,
                _ => return false,
            };
            let own = self.overlay.table(table);
            let is_empty = own.is_some_and(|own| own.base_hidden() && !own.has_rows());
            !is_empty && !self.prepared.iter().any(|prepared| prepared.is_for(op))
        };
        match self.catalog_ops.iter().any(is_unchecked) {
            true => Err(SqlError::unsupported(
                "cannot PREPARE a transaction with a constraint that is checked when it commits",
            )
            .hint("Create unique indexes and set NOT NULL before the table's columns and rows are changed.")),
            false => Ok(()),
        }
    }

    /// Does what takes long of a change that the transaction is going to make, while others write to its
    /// table: builds an index, looks for NULLs. To be called before the table is locked, and
    /// [`Transaction::catch_up`] afterwards: then little is left to be done when the transaction commits, and
    /// nobody waits for it. Without these calls everybody waits. Returns whether it is such a change.
    pub fn prepare_change(&mut self, op: &CatalogOp) -> Result<bool, SqlError> {
        let table = match op {
            CatalogOp::CreateIndex(def) | CatalogOp::AddPrimaryKey(def) => def.table,
            CatalogOp::SetNotNull {
                table,
                not_null: true,
                ..
            } => *table,
            _ => return Ok(false),
        };
        // Rows that it has written or removed decide whether keys are unique.
        let own = self.overlay.table(table);
        if own.is_some_and(|own| own.has_rows() || own.base_hidden()) {
            return Ok(true);
        }
        // It will have other columns.
        if self
            .catalog_ops
            .iter()
            .filter_map(reshaped_by)
            .any(|reshaped| reshaped == table)
        {
            return Ok(true);
        }
        let catalog = self.catalog();
        let Some(table) = catalog.table_by_id(table) else {
            return Ok(true);
        };
        let store = &self.engine.shared().store;
        let prepared = blocking::section(|| -> Result<_, SqlError> {
            let mut prepared = match op {
                CatalogOp::CreateIndex(def) | CatalogOp::AddPrimaryKey(def) => store
                    .prepare_index(table, def)?
                    .map(|index| Prepared::Index(Box::new(index))),
                CatalogOp::SetNotNull { column, .. } => store
                    .check_not_null(table, *column as usize)?
                    .map(Prepared::NotNull),
                _ => None,
            };
            if let Some(prepared) = &mut prepared {
                let mut rounds = 0;
                while rounds < CATCH_UP_ROUNDS_MAX && prepared.catch_up()? > CATCH_UP_SLOTS_FEW {
                    rounds += 1;
                }
            }
            Ok(prepared)
        });
        self.observe(self.engine.boundary());
        self.prepared.extend(prepared?);
        Ok(true)
    }

    /// See [`Transaction::prepare_change`]. The tables are locked until the transaction ends.
    pub fn catch_up(&mut self) -> Result<(), SqlError> {
        let all = &mut self.prepared;
        let caught_up = blocking::section(|| all.iter_mut().try_for_each(Prepared::catch_up_last));
        self.observe(self.engine.boundary());
        caught_up
    }
}

/// The table whose columns a change of definitions adds to or drops from.
fn reshaped_by(op: &CatalogOp) -> Option<TableId> {
    match op {
        CatalogOp::AddColumn { table, .. } | CatalogOp::DropColumn { table, .. } => Some(*table),
        _ => None,
    }
}
