//! Data definition: from statements to lists of catalog operations.
//!
//! While a statement's operations are collected, they are applied to a working copy of the catalog, so that
//! each is checked against the previous ones and planning reports every error that depends only on
//! definitions. Errors that depend on rows (a duplicate key, a NULL) are reported when the operations run.
//! Object ids are taken from the catalog's counter in order of creation.

mod alter;
pub(crate) mod comment;
mod constraint;
pub(crate) mod extension;
pub(crate) mod identity;
mod index;
mod rewrite;
pub(crate) mod sequence;
mod table;
pub(crate) mod table_as;
pub(crate) mod types;
pub(crate) mod view;

use std::sync::Arc;

use sqlparser::ast::{self, ObjectType, Statement};
use weft_store::{Catalog, CatalogOp, TableDef};
use weft_types::{SqlError, SqlState};

use super::plan::{DdlPlan, Plan, Rewrite};
use super::{PlanContext, names};
use crate::error;

/// Operations under construction.
pub(super) struct Changes {
    /// The catalog after the operations so far.
    catalog: Catalog,
    ops: Vec<CatalogOp>,
    outside_block: Option<&'static str>,
    notices: Vec<SqlError>,
    /// Of ALTER TABLE: columns with new values, and the rows that are written again for them.
    new_values: Vec<rewrite::NewValues>,
    /// Of ALTER TABLE: columns that all rows get with the same value.
    added: Vec<weft_store::ColumnDef>,
    rewrite: Option<Rewrite>,
}

impl Changes {
    fn new(catalog: &Catalog) -> Self {
        // Conditions are compiled while the changes are collected.
        super::checks::install();
        Changes {
            catalog: catalog.clone(),
            ops: Vec::new(),
            outside_block: None,
            notices: Vec::new(),
            new_values: Vec::new(),
            added: Vec::new(),
            rewrite: None,
        }
    }

    /// Adds an operation after checking it against the previous ones.
    fn push(&mut self, op: CatalogOp) -> Result<(), SqlError> {
        self.catalog = self.catalog.apply(&op)?;
        self.ops.push(op);
        Ok(())
    }

    fn notice(&mut self, message: String) {
        self.notices
            .push(SqlError::new(SqlState::SUCCESSFUL_COMPLETION, message));
    }

    fn table(&self, name: &ast::ObjectName) -> Result<Arc<TableDef>, SqlError> {
        names::table(&self.catalog, &names::parts(name)).cloned()
    }

    fn finish(self, tag: &'static str) -> Plan {
        Plan::Ddl(Arc::new(DdlPlan {
            tag,
            ops: self.ops,
            outside_block: self.outside_block,
            fill: None,
            rewrite: self.rewrite.map(Arc::new),
            notices: self.notices,
        }))
    }
}

/// Plans any statement that is neither a query nor a data modification.
pub(crate) fn plan_ddl(statement: &Statement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let mut changes = Changes::new(ctx.catalog);
    let tag = match statement {
        Statement::CreateTable(create) => {
            table::create_table(&mut changes, create)?;
            "CREATE TABLE"
        }
        Statement::CreateIndex(create) => {
            index::create_index(&mut changes, create)?;
            "CREATE INDEX"
        }
        Statement::AlterTable(alter) => {
            alter::alter_table(&mut changes, alter, ctx)?;
            "ALTER TABLE"
        }
        Statement::AlterIndex { name, operation } => {
            alter::alter_index(&mut changes, name, operation)?;
            "ALTER INDEX"
        }
        Statement::Truncate(truncate) => {
            self::truncate(&mut changes, truncate)?;
            "TRUNCATE TABLE"
        }
        Statement::Drop {
            object_type,
            if_exists,
            names,
            cascade,
            temporary: false,
            table: None,
            ..
        } => match object_type {
            ObjectType::Table => {
                drop_tables(&mut changes, names, *if_exists, *cascade)?;
                "DROP TABLE"
            }
            ObjectType::Index => {
                index::drop_indexes(&mut changes, names, *if_exists)?;
                "DROP INDEX"
            }
            ObjectType::Sequence => {
                sequence::drop_sequences(&mut changes, names, *if_exists, *cascade)?;
                "DROP SEQUENCE"
            }
            other => return Err(error::unsupported(format!("DROP {other} is not supported"))),
        },
        other => return Err(unsupported(other)),
    };
    Ok(changes.finish(tag))
}

/// Plans CREATE SEQUENCE and ALTER SEQUENCE.
pub(crate) fn plan_sequence(
    statement: &sequence::SequenceStatement,
    ctx: &PlanContext<'_>,
) -> Result<Plan, SqlError> {
    let mut changes = Changes::new(ctx.catalog);
    if statement.create {
        sequence::create_sequence(&mut changes, statement)?;
        return Ok(changes.finish("CREATE SEQUENCE"));
    }
    sequence::alter_sequence(&mut changes, statement)?;
    Ok(changes.finish("ALTER SEQUENCE"))
}

fn unsupported(statement: &Statement) -> SqlError {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    error::unsupported(format!("{} is not supported", words.join(" ").to_uppercase()))
}

fn drop_tables(
    changes: &mut Changes,
    list: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<(), SqlError> {
    release_tables(changes, list, cascade)?;
    for name in list {
        let parts = names::parts(name);
        match names::table(&changes.catalog, &parts) {
            Ok(table) => {
                let id = table.id;
                if cascade {
                    view::drop_readers(changes, id.0, &|_| true)?;
                }
                changes.push(CatalogOp::DropTable(id))?;
            }
            Err(error) if error.state == SqlState::UNDEFINED_TABLE => {
                let shown = parts.last().map_or("", String::as_str);
                if !if_exists {
                    return Err(SqlError::new(
                        SqlState::UNDEFINED_TABLE,
                        format!("table \"{shown}\" does not exist"),
                    ));
                }
                changes.notice(format!("table \"{shown}\" does not exist, skipping"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Drops the foreign keys between tables that are dropped together, and with CASCADE those of other tables.
fn release_tables(changes: &mut Changes, list: &[ast::ObjectName], cascade: bool) -> Result<(), SqlError> {
    let found = list.iter().filter_map(|name| changes.table(name).ok());
    let tables: Vec<Arc<TableDef>> = found.collect();
    for table in &tables {
        let others: Vec<_> = table
            .references_to_it()
            .filter(|(constraint, _)| constraint.table != table.id)
            .map(|(constraint, _)| Arc::clone(constraint))
            .collect();
        for constraint in others {
            let together = tables.iter().any(|other| other.id == constraint.table);
            if !together && !cascade {
                continue;
            }
            if !together {
                constraint::tell_of_cascade(changes, &constraint);
            }
            changes.push(CatalogOp::DropConstraint {
                table: constraint.table,
                constraint: constraint.id,
            })?;
        }
    }
    Ok(())
}

/// The tables to truncate: those that are named, and with CASCADE those that reference them.
fn truncated_tables(changes: &mut Changes, truncate: &ast::Truncate) -> Result<Vec<Arc<TableDef>>, SqlError> {
    let mut tables: Vec<Arc<TableDef>> = Vec::new();
    for target in &truncate.table_names {
        match changes.table(&target.name) {
            Err(error) if truncate.if_exists && error.state == SqlState::UNDEFINED_TABLE => {}
            found => tables.push(found?),
        }
    }
    let cascade = matches!(truncate.cascade, Some(ast::CascadeOption::Cascade));
    let mut at = 0;
    while let Some(table) = tables.get(at).cloned() {
        at += 1;
        for (constraint, _) in table.references_to_it() {
            if tables.iter().any(|other| other.id == constraint.table) {
                continue;
            }
            let Some(child) = changes.catalog.table_by_id(constraint.table).cloned() else {
                continue;
            };
            if !cascade {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                return Err(error::unsupported(message)
                    .detail(format!("Table \"{}\" references \"{}\".", child.name, table.name))
                    .hint(format!(
                        "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                        child.name
                    )));
            }
            changes.notice(format!("truncate cascades to table \"{}\"", child.name));
            tables.push(child);
        }
    }
    Ok(tables)
}

fn truncate(changes: &mut Changes, truncate: &ast::Truncate) -> Result<(), SqlError> {
    if truncate.partitions.is_some() || truncate.on_cluster.is_some() {
        return Err(error::unsupported("TRUNCATE of partitions is not supported"));
    }
    let restart = matches!(truncate.identity, Some(ast::TruncateIdentityOption::Restart));
    for table in truncated_tables(changes, truncate)? {
        changes.push(CatalogOp::Truncate(table.id))?;
        if !restart {
            continue;
        }
        let owned: Vec<_> = changes
            .catalog
            .sequences()
            .filter(|sequence| sequence.owned_by.is_some_and(|(owner, _)| owner == table.id))
            .map(|sequence| (sequence.id, sequence.initial_state()))
            .collect();
        for (id, state) in owned {
            changes.push(CatalogOp::SetSequence { id, state })?;
        }
    }
    Ok(())
}
