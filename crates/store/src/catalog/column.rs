//! Changes of a table's columns.

use weft_base::{BatchId, IndexId, TableId};
use weft_types::{SqlError, SqlState, SqlType, Value};

use std::sync::Arc;

use super::change::{check_columns, duplicate_column, missing, missing_column};
use super::definition::{ColumnDef, Identity, IndexDef, TableDef};
use super::distribution::Distribution;
use super::{Catalog, codec};

impl Catalog {
    pub(super) fn edit_column(
        &mut self,
        table: TableId,
        column: u32,
        edit: impl FnOnce(&mut ColumnDef),
    ) -> Result<(), SqlError> {
        let mut table = TableDef::clone(self.table_def(table)?.as_ref());
        let name = table.name.clone();
        let column = table
            .columns
            .get_mut(column as usize)
            .ok_or_else(|| missing_column(&name, column))?;
        edit(column);
        self.put_table(table);
        Ok(())
    }

    pub(super) fn set_not_null(
        &mut self,
        table: TableId,
        column: u32,
        not_null: bool,
    ) -> Result<(), SqlError> {
        let def = self.table_def(table)?;
        let in_key = def
            .primary_index()
            .is_some_and(|index| index.columns.contains(&(column as usize)));
        if !not_null && in_key {
            let name = def
                .columns
                .get(column as usize)
                .map_or("", |column| column.name.as_str());
            return Err(SqlError::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("column \"{name}\" is in a primary key"),
            ));
        }
        self.edit_column(table, column, |column| column.not_null = not_null)
    }

    pub(super) fn add_column(
        &mut self,
        table: TableId,
        (column, fill): (&ColumnDef, &Value),
        batch: BatchId,
    ) -> Result<(), SqlError> {
        let mut table = TableDef::clone(self.table_def(table)?.as_ref());
        if table.column_index(&column.name).is_some() {
            return Err(duplicate_column(&table.name, &column.name));
        }
        codec::check_fill(column, fill)?;
        table.keep_layout(batch);
        table.columns.push(column.clone());
        check_columns(&table.columns)?;
        table.column_added(fill);
        table.renew_checks()?;
        self.put_table(table);
        Ok(())
    }

    pub(super) fn drop_column(
        &mut self,
        table: TableId,
        column: u32,
        batch: BatchId,
    ) -> Result<(), SqlError> {
        let position = column as usize;
        let def = self.table_def(table)?;
        if def.columns.get(position).is_none() {
            return Err(missing_column(&def.name, column));
        }
        let mut keys = def.references_to_it();
        if let Some((constraint, _)) = keys.find(|(_, key)| key.parent_columns.contains(&position)) {
            let name = def
                .columns
                .get(position)
                .map_or("", |column| column.name.as_str());
            let what = format!("column {name} of table {}", def.name);
            return Err(self.refuse_dependent(&what, constraint));
        }
        let name = def.columns.get(position).map(|column| column.name.clone());
        self.column_leaves_views((table.0, &def.name), &name.unwrap_or_default())?;
        let over: Vec<IndexId> = def
            .indexes
            .iter()
            .filter(|index| index.columns.contains(&position))
            .map(|index| index.id)
            .collect();
        for index in over {
            self.drop_index(index)?;
        }
        let mut def = TableDef::clone(self.table_def(table)?.as_ref());
        def.keep_layout(batch);
        def.drop_constraints_over(position);
        def.columns.remove(position);
        for index in &mut def.indexes {
            let mut moved = IndexDef::clone(index);
            for other in moved.columns.iter_mut().filter(|other| **other > position) {
                *other -= 1;
            }
            *index = Arc::new(moved);
        }
        def.column_dropped(position);
        def.renew_checks()?;
        self.put_table(def);
        self.move_referenced_columns(table, position);
        self.move_owned_sequences(table, column);
        Ok(())
    }

    pub(super) fn rename_column(&mut self, table: TableId, column: u32, name: &str) -> Result<(), SqlError> {
        let def = self.table_def(table)?;
        if def.column_index(name).is_some() {
            return Err(duplicate_column(&def.name, name));
        }
        let old = def.columns.get(column as usize).map(|column| column.name.clone());
        self.column_renamed_under_views(table.0, old.as_deref().unwrap_or_default())?;
        self.edit_column(table, column, |column| column.name = name.to_owned())?;
        let mut def = TableDef::clone(self.table_def(table)?.as_ref());
        def.rename_in_constraints(&old.unwrap_or_default(), name)?;
        self.put_table(def);
        Ok(())
    }

    pub(super) fn set_identity(
        &mut self,
        table: TableId,
        column: u32,
        identity: Option<Identity>,
    ) -> Result<(), SqlError> {
        if let Some(Identity { sequence, .. }) = identity
            && self.sequence_by_id(sequence).is_none()
        {
            return Err(missing("sequence", sequence.0));
        }
        self.edit_column(table, column, |column| column.identity = identity)
    }

    pub(super) fn set_column_type(
        &mut self,
        table: TableId,
        column: u32,
        ty: SqlType,
    ) -> Result<(), SqlError> {
        let mut def = TableDef::clone(self.table_def(table)?.as_ref());
        let name = def.name.clone();
        let place = def.columns.get_mut(column as usize);
        let place = place.ok_or_else(|| missing_column(&name, column))?;
        if !ty.holds_all_of(&place.ty) {
            let (from, to) = (place.ty.name(), ty.name());
            let message = format!("changing the type of a column from {from} to {to} is not supported");
            return Err(SqlError::unsupported(message));
        }
        let column = place.name.clone();
        place.ty = ty;
        self.refuse_retype_under_views(table.0, &column)?;
        def.renew_layout();
        def.renew_checks()?;
        self.put_table(def);
        Ok(())
    }

    pub(super) fn retype_column(&mut self, table: TableId, column: u32, ty: SqlType) -> Result<(), SqlError> {
        let mut def = TableDef::clone(self.table_def(table)?.as_ref());
        let (name, position) = (def.name.clone(), column as usize);
        let in_keys = def.foreign_keys().any(|(_, key)| key.columns.contains(&position))
            || def
                .references_to_it()
                .any(|(_, key)| key.parent_columns.contains(&position));
        let place = def.columns.get_mut(position);
        let place = place.ok_or_else(|| missing_column(&name, column))?;
        if in_keys || def.distribution != Distribution::Single {
            let message = format!("changing the type of column \"{}\" is not supported", place.name);
            return Err(SqlError::unsupported(message)
                .detail("It is part of a foreign key, or its table is spread over ranks."));
        }
        let column = place.name.clone();
        place.ty = ty;
        self.refuse_retype_under_views(table.0, &column)?;
        def.forget_layouts();
        def.renew_layout();
        def.renew_checks()?;
        self.put_table(def);
        Ok(())
    }
}
