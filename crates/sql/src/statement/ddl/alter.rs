//! ALTER TABLE, ALTER INDEX.

use std::sync::Arc;

use sqlparser::ast::{
    self, AlterColumnOperation, AlterIndexOperation, AlterTableOperation, ObjectName, RenameTableNameKind,
};
use weft_base::IndexId;
use weft_store::{CatalogOp, ColumnDef, ForeignKey, SequenceId, TableDef, ViewDef};
use weft_types::{SqlError, SqlState, Value};

use super::super::scalar::{NoSource, Scalar};
use super::super::{PlanContext, defaults, names};
use super::constraint::{self, NewConstraint};
use super::index::{IndexKind, check_key};
use super::rewrite::{self, NewValue};
use super::{Changes, table, view};
use crate::error;

/// ALTER TABLE.
pub(super) fn alter_table(
    changes: &mut Changes,
    alter: &ast::AlterTable,
    ctx: &PlanContext<'_>,
) -> Result<(), SqlError> {
    let parts = names::parts(&alter.name);
    for operation in &alter.operations {
        let found = names::table(&changes.catalog, &parts).cloned();
        match found {
            Ok(table) => alter_one(changes, &table, operation)?,
            Err(error) if alter.if_exists && error.state == SqlState::UNDEFINED_TABLE => {
                let shown = parts.join(".");
                changes.notice(format!("relation \"{shown}\" does not exist, skipping"));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    rewrite::write_again(changes, ctx)
}

fn column(table: &TableDef, name: &ast::Ident) -> Result<u32, SqlError> {
    let name = names::ident(name);
    table
        .column_index(&name)
        .and_then(|position| u32::try_from(position).ok())
        .ok_or_else(|| error::undefined_column_of(&name, &table.name))
}

fn alter_one(
    changes: &mut Changes,
    table: &Arc<TableDef>,
    operation: &AlterTableOperation,
) -> Result<(), SqlError> {
    match operation {
        AlterTableOperation::ValidateConstraint { name } => {
            constraint::validate(changes, table, &names::ident(name))
        }
        AlterTableOperation::AddConstraint {
            constraint,
            not_valid,
        } => {
            if let Some(constraint) = NewConstraint::of_table(constraint)? {
                return constraint.add(changes, table.id, !not_valid);
            }
            if *not_valid {
                let message = "NOT VALID is supported for CHECK and FOREIGN KEY constraints only";
                return Err(error::unsupported(message));
            }
            let (kind, name, columns) = table::read_constraint(constraint)?;
            add_constraint(changes, table, kind, name, &columns)
        }
        AlterTableOperation::AddColumn {
            if_not_exists,
            column_def,
            column_position: None,
            ..
        } => add_column(changes, table, column_def, *if_not_exists),
        AlterTableOperation::DropColumn {
            column_names,
            if_exists,
            drop_behavior,
            ..
        } => {
            let cascade = matches!(drop_behavior, Some(ast::DropBehavior::Cascade));
            drop_columns(changes, table, column_names, (*if_exists, cascade))
        }
        AlterTableOperation::DropConstraint {
            if_exists,
            name,
            drop_behavior,
        } => {
            let cascade = matches!(drop_behavior, Some(ast::DropBehavior::Cascade));
            drop_constraint(changes, table, &names::ident(name), (*if_exists, cascade))
        }
        AlterTableOperation::RenameTable { table_name } => {
            let (RenameTableNameKind::To(name) | RenameTableNameKind::As(name)) = table_name;
            let parts = names::parts(name);
            let name = names::relation(&parts)?.to_owned();
            changes.push(CatalogOp::RenameTable {
                table: table.id,
                name,
            })
        }
        AlterTableOperation::RenameColumn {
            old_column_name,
            new_column_name,
        } => {
            let column = column(table, old_column_name)?;
            let name = names::ident(new_column_name);
            changes.push(CatalogOp::RenameColumn {
                table: table.id,
                column,
                name,
            })
        }
        AlterTableOperation::RenameConstraint { old_name, new_name } => {
            let old = names::ident(old_name);
            if constraint::rename(changes, table, &old, names::ident(new_name))? {
                return Ok(());
            }
            let index = table
                .indexes
                .iter()
                .find(|index| index.unique && index.name == old);
            let index = index.ok_or_else(|| constraint::missing(&old, &table.name))?.id;
            changes.push(CatalogOp::RenameIndex {
                index,
                name: names::ident(new_name),
            })
        }
        AlterTableOperation::AlterColumn { column_name, op } => alter_column(changes, table, column_name, op),
        // There is only one owner, and storage and logging settings have no effect.
        AlterTableOperation::OwnerTo { .. } => Ok(()),
        AlterTableOperation::SetOptionsParens { options } => refuse_distribution(options),
        other => Err(error::unsupported(format!(
            "ALTER TABLE {other} is not supported"
        ))),
    }
}

fn drop_columns(
    changes: &mut Changes,
    table: &TableDef,
    list: &[ast::Ident],
    (if_exists, cascade): (bool, bool),
) -> Result<(), SqlError> {
    for name in list {
        match column(table, name) {
            Ok(column) => {
                if cascade {
                    let reads = |key: &ForeignKey| key.parent_columns.contains(&(column as usize));
                    constraint::drop_references(changes, table, &reads)?;
                    let name = names::ident(name);
                    let uses = |view: &ViewDef| view.uses_column(table.id.0, &name);
                    view::drop_readers(changes, table.id.0, &uses)?;
                }
                changes.push(CatalogOp::DropColumn {
                    table: table.id,
                    column,
                })?;
            }
            Err(_) if if_exists => {
                let name = names::ident(name);
                changes.notice(format!(
                    "column \"{name}\" of relation \"{}\" does not exist, skipping",
                    table.name
                ));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn add_constraint(
    changes: &mut Changes,
    table: &TableDef,
    kind: IndexKind,
    name: Option<String>,
    columns: &[String],
) -> Result<(), SqlError> {
    let positions = columns
        .iter()
        .map(|name| {
            table.column_index(name).ok_or_else(|| {
                SqlError::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{name}\" named in key does not exist"),
                )
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    check_key(table, &positions)?;
    let name = name.unwrap_or_else(|| {
        changes
            .catalog
            .free_name(&kind.default_name(&table.name, columns))
    });
    let index = kind.define(
        IndexId(changes.catalog.next_object_id()),
        name,
        table.id,
        positions,
    );
    changes.push(match kind {
        IndexKind::Primary => CatalogOp::AddPrimaryKey(index),
        _ => CatalogOp::CreateIndex(index),
    })
}

fn drop_constraint(
    changes: &mut Changes,
    table: &TableDef,
    name: &str,
    (if_exists, cascade): (bool, bool),
) -> Result<(), SqlError> {
    if constraint::drop(changes, table, name)? {
        return Ok(());
    }
    match table
        .indexes
        .iter()
        .find(|index| index.unique && index.name == name)
    {
        Some(index) => {
            if cascade {
                constraint::drop_references(changes, table, &|key| key.index == index.id)?;
            }
            changes.push(CatalogOp::DropIndex(index.id))
        }
        None if if_exists => {
            changes.notice(format!(
                "constraint \"{name}\" of relation \"{}\" does not exist, skipping",
                table.name
            ));
            Ok(())
        }
        None => Err(constraint::missing(name, &table.name)),
    }
}

fn add_column(
    changes: &mut Changes,
    table: &Arc<TableDef>,
    def: &ast::ColumnDef,
    if_not_exists: bool,
) -> Result<(), SqlError> {
    let mut new = table::new_column(def, &table.name)?;
    if if_not_exists && table.column_index(&new.def.name).is_some() {
        changes.notice(format!(
            "column \"{}\" of relation \"{}\" already exists, skipping",
            new.def.name, table.name
        ));
        return Ok(());
    }
    let column_name = new.def.name.clone();
    if new.sequence.is_some() {
        let position = table.columns.len() as u32;
        let sequence = SequenceId(changes.catalog.next_object_id());
        table::tie_sequence(changes, &table.name, (table.id, position), &mut new)?;
        rewrite::add_column(changes, table.id, new.def.clone(), NewValue::Sequence(sequence))?;
    } else {
        table::settle_default(&changes.catalog, &mut new)?;
        match one_value(changes, &new.def)? {
            Some(fill) => {
                changes.added.push(new.def.clone());
                changes.push(CatalogOp::AddColumn {
                    table: table.id,
                    column: new.def.clone(),
                    fill,
                })?;
            }
            None => {
                let default = new.def.default.as_ref().map_or("NULL", |default| &default.sql);
                let value = NewValue::Expression(default.to_owned());
                rewrite::add_column(changes, table.id, new.def.clone(), value)?;
            }
        }
    }
    let indexes = new
        .primary
        .into_iter()
        .map(|name| (IndexKind::Primary, name))
        .chain(new.unique.into_iter().map(|name| (IndexKind::Unique, name)));
    for (kind, name) in indexes {
        let current = changes
            .catalog
            .table_by_id(table.id)
            .cloned()
            .unwrap_or_else(|| Arc::clone(table));
        add_constraint(changes, &current, kind, name, std::slice::from_ref(&column_name))?;
    }
    new.constraints
        .into_iter()
        .try_for_each(|constraint| constraint.add(changes, table.id, true))
}

/// The value that all rows get, if the default is not one of its own for each.
fn one_value(changes: &Changes, column: &ColumnDef) -> Result<Option<Value>, SqlError> {
    if column.default.is_none() {
        return Ok(Some(Value::Null));
    }
    if defaults::is_volatile(&changes.catalog, column)? {
        return Ok(None);
    }
    let value = match defaults::column_default(&changes.catalog, column)? {
        Scalar::Constant(value) => Ok(value),
        other => other.evaluate(&[], &[], &mut NoSource),
    };
    Ok(value.ok())
}

fn alter_column(
    changes: &mut Changes,
    table: &Arc<TableDef>,
    name: &ast::Ident,
    operation: &AlterColumnOperation,
) -> Result<(), SqlError> {
    let column = column(table, name)?;
    match operation {
        AlterColumnOperation::SetNotNull => changes.push(CatalogOp::SetNotNull {
            table: table.id,
            column,
            not_null: true,
        }),
        AlterColumnOperation::DropNotNull => changes.push(CatalogOp::SetNotNull {
            table: table.id,
            column,
            not_null: false,
        }),
        AlterColumnOperation::DropDefault => changes.push(CatalogOp::SetDefault {
            table: table.id,
            column,
            default: None,
        }),
        AlterColumnOperation::SetDefault { value } => {
            let def = table.columns.get(column as usize).cloned();
            let def = def.ok_or_else(|| SqlError::internal("a column vanished"))?;
            let mut new = table::NewColumn {
                def,
                default: Some(value.clone()),
                sequence: None,
                primary: None,
                unique: Vec::new(),
                constraints: Vec::new(),
            };
            table::settle_default(&changes.catalog, &mut new)?;
            changes.push(CatalogOp::SetDefault {
                table: table.id,
                column,
                default: new.def.default,
            })
        }
        AlterColumnOperation::SetDataType { data_type, using, .. } => {
            let ty = super::types::column_type(data_type)?.ty;
            rewrite::set_type(changes, table, column, ty, using.as_ref())
        }
        other => Err(error::unsupported(format!(
            "ALTER COLUMN {other} is not supported"
        ))),
    }
}

/// ALTER INDEX name RENAME TO name.
pub(super) fn alter_index(
    changes: &mut Changes,
    name: &ObjectName,
    operation: &AlterIndexOperation,
) -> Result<(), SqlError> {
    let parts = names::parts(name);
    let name = names::relation(&parts)?;
    let AlterIndexOperation::RenameIndex { index_name } = operation;
    let Some(index) = changes.catalog.index_by_name(name).map(|index| index.id) else {
        return Err(error::undefined_table(name));
    };
    let parts = names::parts(index_name);
    let name = names::relation(&parts)?.to_owned();
    changes.push(CatalogOp::RenameIndex { index, name })
}

/// Which ranks hold a table's rows is said when it is created: rows are not moved.
fn refuse_distribution(options: &[ast::SqlOption]) -> Result<(), SqlError> {
    let places = |option: &ast::SqlOption| match option {
        ast::SqlOption::KeyValue { key, .. } | ast::SqlOption::Ident(key) => {
            super::table::is_distribution_option(&names::ident(key))
        }
        _ => false,
    };
    match options.iter().any(places) {
        true => Err(error::unsupported(
            "changing the distribution of a table is not supported",
        )),
        false => Ok(()),
    }
}
