//! CREATE INDEX, DROP INDEX, and the definitions of indexes for constraints.

use std::sync::Arc;

use sqlparser::ast::{self, Expr, IndexColumn, IndexType, ObjectName};
use weft_base::{IndexId, TableId};
use weft_expression::category::check_equality;
use weft_store::{CatalogOp, IndexDef, IndexMethod, TableDef};
use weft_types::{SqlError, SqlState};

use super::super::names;
use super::Changes;
use crate::error;

/// The kind of index that a constraint or statement creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexKind {
    /// PRIMARY KEY
    Primary,
    /// UNIQUE constraint
    Unique,
    /// CREATE [UNIQUE] INDEX
    Plain {
        /// UNIQUE
        unique: bool,
        /// USING hash
        hash: bool,
    },
}

impl IndexKind {
    /// PostgreSQL's default name, before a number makes it unique.
    pub(super) fn default_name(self, table: &str, columns: &[String]) -> String {
        let name = match self {
            IndexKind::Primary => format!("{table}_pkey"),
            IndexKind::Unique => format!("{table}_{}_key", columns.join("_")),
            IndexKind::Plain { .. } => format!("{table}_{}_idx", columns.join("_")),
        };
        names::cut(name)
    }

    /// The definition of an index of this kind.
    pub(super) fn define(self, id: IndexId, name: String, table: TableId, columns: Vec<usize>) -> IndexDef {
        let method = match self {
            IndexKind::Primary | IndexKind::Unique | IndexKind::Plain { unique: true, .. } => {
                IndexMethod::Both
            }
            IndexKind::Plain { hash: true, .. } => IndexMethod::Hash,
            IndexKind::Plain { .. } => IndexMethod::Ordered,
        };
        let unique = !matches!(self, IndexKind::Plain { unique: false, .. });
        IndexDef {
            id,
            name,
            table,
            columns,
            unique,
            primary: self == IndexKind::Primary,
            method,
        }
    }
}

/// Whether an operator class orders text by its bytes, as every index does.
fn orders_by_bytes(class: &str) -> bool {
    matches!(
        class,
        "text_ops" | "varchar_ops" | "text_pattern_ops" | "varchar_pattern_ops"
    )
}

/// Plain column names of an index column list.
pub(super) fn column_names(columns: &[IndexColumn]) -> Result<Vec<String>, SqlError> {
    columns
        .iter()
        .map(|column| {
            if let Some(class) = &column.operator_class
                && !names::parts(class)
                    .last()
                    .is_some_and(|class| orders_by_bytes(class))
            {
                return Err(error::unsupported(format!(
                    "operator class {class} is not supported"
                )));
            }
            let options = &column.column.options;
            if options.asc == Some(false) || options.nulls_first == Some(true) {
                return Err(error::unsupported("descending index columns are not supported")
                    .hint("An ascending index serves ORDER BY ... DESC too."));
            }
            match &column.column.expr {
                Expr::Identifier(ident) => Ok(names::ident(ident)),
                _ => Err(error::unsupported("indexes on expressions are not supported")),
            }
        })
        .collect()
}

/// Positions of columns in a table.
pub(super) fn positions(table: &TableDef, columns: &[String]) -> Result<Vec<usize>, SqlError> {
    columns
        .iter()
        .map(|name| {
            table
                .column_index(name)
                .ok_or_else(|| error::undefined_column(name))
        })
        .collect()
}

/// Checks that an index can order columns.
///
/// # Errors
/// 42704 for a type without equality.
pub(super) fn check_key(table: &TableDef, columns: &[usize]) -> Result<(), SqlError> {
    let types = columns
        .iter()
        .filter_map(|at| table.columns.get(*at))
        .map(|column| column.ty);
    match types.into_iter().find(|ty| check_equality(ty).is_err()) {
        Some(ty) => Err(SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("data type {ty} has no default operator class for access method \"btree\""),
        )
        .hint(
            "You must specify an operator class for the index or define a default operator class for the data \
             type.",
        )),
        None => Ok(()),
    }
}

/// CREATE INDEX.
pub(super) fn create_index(changes: &mut Changes, create: &ast::CreateIndex) -> Result<(), SqlError> {
    if create.predicate.is_some() {
        return Err(error::unsupported("partial indexes are not supported"));
    }
    if !create.include.is_empty() {
        return Err(error::unsupported("INCLUDE columns are not supported"));
    }
    if create.nulls_distinct == Some(false) {
        return Err(error::unsupported("NULLS NOT DISTINCT is not supported"));
    }
    let hash = match &create.using {
        None | Some(IndexType::BTree) => false,
        Some(IndexType::Hash) => true,
        Some(other) => {
            return Err(error::unsupported(format!(
                "index method {} is not supported",
                other.to_string().to_lowercase()
            )));
        }
    };
    if hash && create.unique {
        return Err(error::unsupported(
            "access method \"hash\" does not support unique indexes",
        ));
    }
    if create.concurrently {
        // Every index is built while others write; what is left of the word is where it may stand.
        changes.outside_block = Some("CREATE INDEX CONCURRENTLY");
    }
    let table = changes.table(&create.table_name)?;
    let columns = column_names(&create.columns)?;
    if hash && columns.len() > 1 {
        return Err(error::unsupported(
            "access method \"hash\" does not support multicolumn indexes",
        ));
    }
    let kind = IndexKind::Plain {
        unique: create.unique,
        hash,
    };
    let name = match &create.name {
        Some(name) => {
            let parts = names::parts(name);
            let name = names::relation(&parts)?.to_owned();
            if create.if_not_exists && changes.catalog.relation(&name).is_some() {
                changes.notice(format!("relation \"{name}\" already exists, skipping"));
                return Ok(());
            }
            name
        }
        None => changes
            .catalog
            .free_name(&kind.default_name(&table.name, &columns)),
    };
    let id = IndexId(changes.catalog.next_object_id());
    let columns = positions(&table, &columns)?;
    check_key(&table, &columns)?;
    changes.push(CatalogOp::CreateIndex(kind.define(id, name, table.id, columns)))
}

/// DROP INDEX.
pub(super) fn drop_indexes(
    changes: &mut Changes,
    list: &[ObjectName],
    if_exists: bool,
) -> Result<(), SqlError> {
    for name in list {
        let parts = names::parts(name);
        let name = names::relation(&parts)?;
        let Some(index) = changes.catalog.index_by_name(name).cloned() else {
            if changes.catalog.relation(name).is_some() {
                return Err(SqlError::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("\"{name}\" is not an index"),
                ));
            }
            if if_exists {
                changes.notice(format!("index \"{name}\" does not exist, skipping"));
                continue;
            }
            return Err(SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("index \"{name}\" does not exist"),
            ));
        };
        refuse_constraint(changes, &index)?;
        changes.push(CatalogOp::DropIndex(index.id))?;
    }
    Ok(())
}

fn refuse_constraint(changes: &Changes, index: &Arc<IndexDef>) -> Result<(), SqlError> {
    if !index.primary {
        return Ok(());
    }
    let table = changes
        .catalog
        .table_by_id(index.table)
        .map_or("", |table| table.name.as_str());
    Err(SqlError::new(
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
        format!(
            "cannot drop index {name} because constraint {name} on table {table} requires it",
            name = index.name
        ),
    )
    .hint(format!(
        "You can drop constraint {} on table {table} instead.",
        index.name
    )))
}
