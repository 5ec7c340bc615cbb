//! Changes of definitions in a transaction: what it sees of them; indexes that are built before it commits.

use std::sync::Arc;

use weft_base::{TableId, blocking};
use weft_lock::{LockMode, LockRequest, ResourceId};
use weft_store::{CatalogOp, IndexDef, PreparedIndex, TableDef};
use weft_types::SqlError;

use super::Transaction;
use crate::locks::LockRequests;
use crate::overlay::TableOverlay;
use crate::view;

/// An index that is prepared follows the writers until about so few slots are written meanwhile, or so often.
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

    /// Tables with rows whose columns this transaction changed: the rows are rewritten at commit.
    pub(super) fn reshaped_tables(&self) -> Arc<[TableId]> {
        let hidden = |table| self.overlay.table(table).is_some_and(|table| table.base_hidden());
        let changed = self.catalog_ops.iter().filter_map(reshaped_by);
        changed.filter(|table| !hidden(*table)).collect()
    }

    /// Refuses to write to a table that is to be rewritten.
    pub(super) fn refuse_reshaped(&self, def: &TableDef) -> Result<(), SqlError> {
        if !self.catalog_ops.is_empty() && self.reshaped_tables().contains(&def.id) {
            return Err(view::reshaped());
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
        match &op {
            CatalogOp::Truncate(table) | CatalogOp::DropTable(table) => {
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

    /// Builds an index that the transaction is going to create, while others write to its table. To be called
    /// before the table is locked, and [`Transaction::catch_up_indexes`] afterwards: then little is left to
    /// be done when the transaction commits, and nobody waits for it. Without these calls everybody waits.
    pub fn prepare_index(&mut self, def: &IndexDef) -> Result<(), SqlError> {
        // Rows that it has written or removed decide whether keys are unique.
        let own = self.overlay.table(def.table);
        if own.is_some_and(|own| own.has_rows() || own.base_hidden()) {
            return Ok(());
        }
        // It will have other rows.
        if self
            .catalog_ops
            .iter()
            .filter_map(reshaped_by)
            .any(|table| table == def.table)
        {
            return Ok(());
        }
        let catalog = self.catalog();
        let Some(table) = catalog.table_by_id(def.table) else {
            return Ok(());
        };
        let store = &self.engine.shared().store;
        let prepared = blocking::section(|| -> Result<_, SqlError> {
            let mut prepared = store.prepare_index(table, def)?;
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
        Ok(())
    }

    /// See [`Transaction::prepare_index`]. The tables are locked until the transaction ends.
    pub fn catch_up_indexes(&mut self) -> Result<(), SqlError> {
        let all = &mut self.prepared;
        let caught_up = blocking::section(|| all.iter_mut().try_for_each(PreparedIndex::catch_up_last));
        self.observe(self.engine.boundary());
        caught_up
    }
}

/// The index that a change of definitions creates over rows that may be there.
pub(super) fn created_by(op: &CatalogOp) -> Option<&IndexDef> {
    match op {
        CatalogOp::CreateIndex(index) | CatalogOp::AddPrimaryKey(index) => Some(index),
        _ => None,
    }
}

/// The table whose rows a change of definitions rewrites.
fn reshaped_by(op: &CatalogOp) -> Option<TableId> {
    match op {
        CatalogOp::AddColumn { table, .. } | CatalogOp::DropColumn { table, .. } => Some(*table),
        _ => None,
    }
}
