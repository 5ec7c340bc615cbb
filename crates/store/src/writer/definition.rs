//! Changes of definitions inside a batch: the pure change of the catalog, and what it does to the data.
//!
//! Nothing that readers use is changed. A new index is built over the existing slots, unless it was prepared
//! before ([`BatchWriter::offer`]), and appears with a new [`TableData`]. So do other columns: rows stay as
//! they are (`catalog/earlier.rs`). If a table has had too many layouts, all rows are written into a new
//! core, with the same row ids. A table that is dropped or truncated is just removed from the schema. On an
//! error the batch's schema is unchanged.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_base::{CodecError, IndexId, TableId};
use weft_types::interrupt::Pace;
use weft_types::{RowLayout, SqlError, SqlState, Value};

use super::{BatchWriter, violation};
use crate::catalog::{
    Catalog, CatalogOp, Check, ConstraintDef, ConstraintRule, ForeignKey, ParentKey, TableDef,
};
use crate::index::build::{build, build_row_ids};
use crate::index::hash::HashIndex;
use crate::index::prepare::{Prepared, build_error, check_no_nulls};
use crate::memory::{Pin, Slot, VersionRef};
use crate::read::lookup_in;
use crate::table::{Residence, Schema, TableCore, TableData, TableIndex, TableLoader};

/// Units of work of a row that is written anew.
const ROW_UNITS: usize = 64;

impl BatchWriter<'_> {
    /// What was prepared for one of the catalog operations to come: it need not be done then.
    pub fn offer(&mut self, prepared: Prepared) {
        self.prepared.get_mut().push(prepared);
    }

    /// How many of these were offered and not used so far.
    pub fn offered(&mut self) -> usize {
        self.prepared.get_mut().len()
    }

    /// Changes the catalog and the data with it: builds indexes, checks their uniqueness, rewrites rows; all
    /// of this can be interrupted. On an error nothing has changed. Members that write must be committed;
    /// later members see the new catalog.
    pub fn apply_catalog(&mut self, op: &CatalogOp) -> Result<(), SqlError> {
        let catalog = Arc::new(self.schema.catalog.apply_in(op, self.batch)?);
        let mut tables = Arc::clone(&self.schema.tables);
        if let Some((table, data)) = self.changed_table(&catalog, op)? {
            let tables = Arc::make_mut(&mut tables);
            match data {
                Some(data) => drop(tables.insert(table, Arc::new(data))),
                None => tables.remove(&table),
            }
        }
        self.schema = Arc::new(Schema { catalog, tables });
        Ok(())
    }

    /// The table that an operation changes, with its new data; `None` if its data is removed.
    fn changed_table(
        &self,
        catalog: &Catalog,
        op: &CatalogOp,
    ) -> Result<Option<(TableId, Option<TableData>)>, SqlError> {
        let empty = |id: TableId| definition(catalog, id).map(|def| TableData::new(def, self.store.memory()));
        let (table, data) = match op {
            CatalogOp::CreateTable(def) => (def.id, empty(def.id)?),
            CatalogOp::Truncate(id) => (*id, empty(*id)?),
            CatalogOp::RetypeColumn { table, .. } => (*table, empty(*table)?),
            CatalogOp::DropTable(id) => return Ok(Some((*id, None))),
            CatalogOp::CreateIndex(index) | CatalogOp::AddPrimaryKey(index) => {
                (index.table, self.with_index(catalog, index.table, index.id)?)
            }
            CatalogOp::DropIndex(id) => match self.schema.catalog.index_by_id(*id) {
                Some(index) => (index.table, self.without_index(catalog, index.table)?),
                None => return Ok(None),
            },
            CatalogOp::RenameIndex { index, .. } => match catalog.index_by_id(*index) {
                Some(index) => (index.table, self.redefined(catalog, index.table)?),
                None => return Ok(None),
            },
            CatalogOp::SetNotNull {
                table,
                column,
                not_null,
            } => {
                let data = self.redefined(catalog, *table)?;
                if *not_null {
                    self.check_not_null(&data, *column as usize)?;
                }
                (*table, data)
            }
            CatalogOp::SetDefault { table, .. }
            | CatalogOp::RenameTable { table, .. }
            | CatalogOp::SetDistribution { table, .. }
            | CatalogOp::DropConstraint { table, .. }
            | CatalogOp::SetColumnType { table, .. }
            | CatalogOp::RenameColumn { table, .. } => (*table, self.redefined(catalog, *table)?),
            CatalogOp::PutConstraint(constraint) => {
                let data = self.redefined(catalog, constraint.table)?;
                if constraint.is_valid && !self.is_known_valid(constraint) {
                    self.test_rows(&data, constraint)?;
                }
                (constraint.table, data)
            }
            CatalogOp::AddColumn { table, column, fill } => {
                let position = definition(catalog, *table)?.columns.len() - 1;
                let has_rows = self.schema.table(*table)?.core.row_count.load(Ordering::Relaxed) > 0;
                if column.not_null && matches!(fill, Value::Null) && has_rows {
                    return Err(violation::null_in_rows(definition(catalog, *table)?, position));
                }
                (
                    *table,
                    self.reshaped(catalog, *table, |values| values.push(fill.clone()))?,
                )
            }
            CatalogOp::DropColumn { table, column } => {
                let position = *column as usize;
                let drop = |values: &mut Vec<Value>| {
                    if position < values.len() {
                        values.remove(position);
                    }
                };
                (*table, self.reshaped(catalog, *table, drop)?)
            }
            CatalogOp::CreateSequence(_)
            | CatalogOp::DropSequence(_)
            | CatalogOp::SetSequenceOwner { .. }
            | CatalogOp::AdvanceSequence { .. }
            | CatalogOp::SetSequence { .. }
            | CatalogOp::PutProcedure(_)
            | CatalogOp::DropProcedure(_)
            | CatalogOp::Account(_)
            | CatalogOp::PutView(_)
            | CatalogOp::DropView(_)
            | CatalogOp::SetIdentity { .. }
            | CatalogOp::Comment { .. } => return Ok(None),
        };
        Ok(Some((table, Some(data))))
    }

    /// The same rows and indexes under the definition in `catalog`, without indexes that have no data yet.
    fn redefined(&self, catalog: &Catalog, table: TableId) -> Result<TableData, SqlError> {
        let old = self.schema.table(table)?;
        Ok(old.under(definition(catalog, table)?))
    }

    /// Whether the constraint only gets another name: rows need not be tested again.
    fn is_known_valid(&self, constraint: &ConstraintDef) -> bool {
        let table = self.schema.catalog.table_by_id(constraint.table);
        let mut known = table.iter().flat_map(|table| &table.constraints);
        known.any(|known| known.id == constraint.id && known.is_valid && known.rule == constraint.rule)
    }

    /// Tests all rows of a table against one of its constraints.
    fn test_rows(&self, data: &TableData, constraint: &ConstraintDef) -> Result<(), SqlError> {
        if let ConstraintRule::ForeignKey(key) = &constraint.rule {
            return self.test_references(data, constraint, key);
        }
        let is_it = |check: &&Check| check.constraint.id == constraint.id;
        let Some(check) = data.def.checks().iter().find(is_it) else {
            return Ok(());
        };
        let (mut pace, mut outcome, mut buffer) = (Pace::default(), Ok(Some(true)), Vec::new());
        data.core.each_live(self.pin(Pin::EVERYTHING), |_, _, version| {
            if !matches!(outcome, Err(_) | Ok(Some(false))) {
                let tested = |()| check.test.holds(data.layout(), data.row_in(version, &mut buffer));
                outcome = pace.step(ROW_UNITS).and_then(tested);
            }
        })?;
        match outcome? {
            Some(false) => Err(violation::condition_in_rows(&data.def, &constraint.name)),
            _ => Ok(()),
        }
    }

    /// Looks for the parents of all rows of a table by one of its foreign keys.
    fn test_references(
        &self,
        data: &TableData,
        constraint: &ConstraintDef,
        key: &ForeignKey,
    ) -> Result<(), SqlError> {
        let pin = self.pin(Pin::EVERYTHING);
        let parent = self.schema.table(key.parent)?;
        let index = parent.index(key.index)?;
        let (mut pace, mut outcome) = (Pace::default(), Ok(()));
        let mut test = |row: &[u8]| {
            pace.step(ROW_UNITS)?;
            let mut is_there = false;
            match key.parent_key(&data.def, &parent.def, row) {
                ParentKey::Null => is_there = true,
                ParentKey::Impossible => {}
                ParentKey::Key(key) => lookup_in(parent, index, pin, &key, &mut |_| {
                    is_there = true;
                    ControlFlow::Break(())
                })?,
            }
            match is_there {
                true => Ok(()),
                false => Err(violation::missing_parent(&data.def, constraint, &parent.def, row)),
            }
        };
        let mut buffer = Vec::new();
        data.core.each_live(pin, |_, _, version| {
            if outcome.is_ok() {
                outcome = test(data.row_in(version, &mut buffer));
            }
        })?;
        outcome
    }

    fn with_index(&self, catalog: &Catalog, table: TableId, index: IndexId) -> Result<TableData, SqlError> {
        let data = self.redefined(catalog, table)?;
        let Some(def) = data.def.index(index).cloned() else {
            return Ok(data);
        };
        let pin = self.pin(Pin::EVERYTHING);
        let is_it = |prepared: &mut Prepared| match prepared {
            Prepared::Index(index) => index.is_of(&def, &data.core),
            Prepared::NotNull(_) => false,
        };
        let prepared = self.prepared.lock().extract_if(.., is_it).next();
        let built = match prepared {
            Some(Prepared::Index(prepared)) => {
                prepared.finish(self.pin(self.batch.0.saturating_sub(1)), pin)?
            }
            _ => {
                if def.primary {
                    for column in &def.columns {
                        check_no_nulls(&data.def, &data.core, pin, *column)?;
                    }
                }
                build((&data.def, &def), &data.core, pin, data.core.rows(), 1)
                    .map_err(|why| build_error(why, (&data.def, &def), &data.core, pin))?
            }
        };
        let mut indexes = data.indexes;
        indexes.push(TableIndex {
            id: def.id,
            def,
            data: built,
        });
        Ok(TableData::with_indexes(
            data.def,
            (data.core, data.asked),
            indexes,
            data.row_ids,
        ))
    }

    /// Fails if a row has a NULL in a column.
    fn check_not_null(&self, data: &TableData, column: usize) -> Result<(), SqlError> {
        let pin = self.pin(Pin::EVERYTHING);
        let is_it = |prepared: &mut Prepared| match prepared {
            Prepared::NotNull(checked) => checked.is_of(&data.def, &data.core, column),
            Prepared::Index(_) => false,
        };
        let prepared = self.prepared.lock().extract_if(.., is_it).next();
        match prepared {
            Some(Prepared::NotNull(checked)) => checked.finish(pin),
            _ => check_no_nulls(&data.def, &data.core, pin, column),
        }
    }

    /// After DROP INDEX; a table that loses its primary key gets an index over row ids, which then name its
    /// rows.
    fn without_index(&self, catalog: &Catalog, table: TableId) -> Result<TableData, SqlError> {
        self.with_row_ids(self.redefined(catalog, table)?)
    }

    fn with_row_ids(&self, mut data: TableData) -> Result<TableData, SqlError> {
        if data.def.primary_key.is_none() && data.row_ids.is_none() {
            data.row_ids = Some(Arc::new(self.row_ids(&data.core)?));
        }
        Ok(data)
    }

    fn row_ids(&self, core: &TableCore) -> Result<HashIndex, SqlError> {
        build_row_ids(core, self.pin(Pin::EVERYTHING), core.rows(), 1)
    }

    /// The same rows under the definition in `catalog`, which has other columns. `change` says how to change
    /// a row if all have to be written: the table has had too many layouts, or this batch has made its rows.
    fn reshaped(
        &self,
        catalog: &Catalog,
        table: TableId,
        change: impl Fn(&mut Vec<Value>),
    ) -> Result<TableData, SqlError> {
        let old = self.schema.table(table)?;
        let is_of_this_batch = !self.kept(&old.core).0;
        if is_of_this_batch || !definition(catalog, table)?.has_earlier() {
            return self.rewritten(catalog, table, change);
        }
        self.with_row_ids(self.redefined(catalog, table)?)
    }

    /// All rows, changed, in a new core under the definition in `catalog`, with the row ids they had.
    fn rewritten(
        &self,
        catalog: &Catalog,
        table: TableId,
        change: impl Fn(&mut Vec<Value>),
    ) -> Result<TableData, SqlError> {
        let old = self.schema.table(table)?;
        let loader = TableLoader::new(definition(catalog, table)?, self.store.memory());
        let mut range = loader.range(Residence::All);
        let mut outcome = Ok(());
        let (mut pace, mut buffer) = (Pace::default(), Vec::new());
        let mut change_row = |place: Slot<'_>, version: VersionRef<'_>| {
            pace.step(ROW_UNITS)?;
            let row = old.row_in(version, &mut buffer);
            let row = changed_row(old.layout(), loader.layout(), row, &change)?;
            range
                .push(place.row_id(), self.batch, &row)
                .map_err(|error| damaged_row(&error))
        };
        old.core
            .each_live(self.pin(Pin::EVERYTHING), |_, place, version| {
                if outcome.is_ok() {
                    outcome = change_row(place, version);
                }
            })?;
        let loaded = range.finish();
        outcome?;
        let rows = loaded.rows();
        let built: Result<Vec<_>, SqlError> = (0..loader.structure_count())
            .map(|number| loader.build(number, rows, 1))
            .collect();
        let mut data = loader.finish(loaded, built?);
        if data.row_ids.is_none() && old.row_ids.is_some() {
            data.row_ids = Some(Arc::new(self.row_ids(&data.core)?));
        }
        Ok(data)
    }
}

fn definition(catalog: &Catalog, table: TableId) -> Result<&Arc<TableDef>, SqlError> {
    catalog.table_by_id(table).ok_or_else(|| {
        SqlError::new(
            SqlState::UNDEFINED_TABLE,
            format!("relation with OID {} does not exist", table.0),
        )
    })
}

fn changed_row(
    old: &RowLayout,
    new: &RowLayout,
    row: &[u8],
    change: &impl Fn(&mut Vec<Value>),
) -> Result<Vec<u8>, SqlError> {
    let mut values = old.decode(row).map_err(|error| damaged_row(&error))?;
    change(&mut values);
    new.encode(&values)
}

fn damaged_row(error: &CodecError) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("damaged row: {error}"))
}
