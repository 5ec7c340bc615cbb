//! Constraint violations, in PostgreSQL's words.

use weft_types::{RowLayout, SqlError, SqlState, format_text};

use crate::catalog::{ConstraintDef, ConstraintRule, IndexDef, TableDef};

/// Longest text of one value in a failing row, in characters.
const VALUE_CHARS_MAX: usize = 64;

/// Refuses NULL in NOT NULL columns, first column first.
pub(crate) fn check_not_null(def: &TableDef, layout: &RowLayout, row: &[u8]) -> Result<(), SqlError> {
    for (position, column) in def.columns.iter().enumerate() {
        if column.not_null && layout.is_null(row, position) {
            let message = format!(
                "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                column.name, def.name
            );
            return Err(SqlError::new(SqlState::NOT_NULL_VIOLATION, message)
                .detail(failing_row(def, row))
                .table(def.name.clone())
                .column(column.name.clone()));
        }
    }
    Ok(())
}

/// Refuses a row for which the condition of a CHECK is false.
pub(crate) fn check_conditions(def: &TableDef, layout: &RowLayout, row: &[u8]) -> Result<(), SqlError> {
    for check in def.checks() {
        if check.test.holds(layout, row)? == Some(false) {
            let (table, name) = (&def.name, &check.constraint.name);
            let message = format!("new row for relation \"{table}\" violates check constraint \"{name}\"");
            return Err(SqlError::new(SqlState::CHECK_VIOLATION, message)
                .detail(failing_row(def, row))
                .table(table.clone())
                .constraint(name.clone()));
        }
    }
    Ok(())
}

/// A row that exists does not satisfy a new CHECK.
pub(crate) fn condition_in_rows(def: &TableDef, name: &str) -> SqlError {
    let table = &def.name;
    let message = format!("check constraint \"{name}\" of relation \"{table}\" is violated by some row");
    SqlError::new(SqlState::CHECK_VIOLATION, message)
        .table(table.clone())
        .constraint(name)
}

/// A row references a parent that does not exist.
pub(crate) fn missing_parent(
    def: &TableDef,
    constraint: &ConstraintDef,
    parent: &TableDef,
    row: &[u8],
) -> SqlError {
    let (table, name) = (&def.name, &constraint.name);
    let columns = match &constraint.rule {
        ConstraintRule::ForeignKey(key) => key.columns.as_slice(),
        ConstraintRule::Check { .. } => &[],
    };
    SqlError::new(
        SqlState::FOREIGN_KEY_VIOLATION,
        format!("insert or update on table \"{table}\" violates foreign key constraint \"{name}\""),
    )
    .detail(format!(
        "{} is not present in table \"{}\".",
        key_text(def, columns, row),
        parent.name
    ))
    .table(table.clone())
    .constraint(name.clone())
}

/// A parent goes while rows reference it.
pub(crate) fn still_referenced(
    parent: &TableDef,
    constraint: &ConstraintDef,
    child: &TableDef,
    row: &[u8],
) -> SqlError {
    let (table, name) = (&child.name, &constraint.name);
    let columns = match &constraint.rule {
        ConstraintRule::ForeignKey(key) => key.parent_columns.as_slice(),
        ConstraintRule::Check { .. } => &[],
    };
    SqlError::new(
        SqlState::FOREIGN_KEY_VIOLATION,
        format!(
            "update or delete on table \"{}\" violates foreign key constraint \"{name}\" on table \"{table}\"",
            parent.name
        ),
    )
    .detail(format!(
        "{} is still referenced from table \"{table}\".",
        key_text(parent, columns, row)
    ))
    .table(table.clone())
    .constraint(name.clone())
}

fn failing_row(def: &TableDef, row: &[u8]) -> String {
    let columns = 0..def.columns.len();
    let values: Vec<String> = columns.map(|column| value_text(def, row, column)).collect();
    format!("Failing row contains ({}).", values.join(", "))
}

/// A row's key is taken.
pub(crate) fn duplicate_key(def: &TableDef, index: &IndexDef, row: &[u8]) -> SqlError {
    SqlError::new(
        SqlState::UNIQUE_VIOLATION,
        format!(
            "duplicate key value violates unique constraint \"{}\"",
            index.name
        ),
    )
    .detail(format!("{} already exists.", key_text(def, &index.columns, row)))
    .table(def.name.clone())
    .constraint(index.name.clone())
}

/// Two rows that exist have the same key.
pub(crate) fn duplicate_rows(def: &TableDef, index: &IndexDef, row: &[u8]) -> SqlError {
    SqlError::new(
        SqlState::UNIQUE_VIOLATION,
        format!("could not create unique index \"{}\"", index.name),
    )
    .detail(format!("{} is duplicated.", key_text(def, &index.columns, row)))
    .table(def.name.clone())
    .constraint(index.name.clone())
}

/// A row that exists has a NULL where none may be.
pub(crate) fn null_in_rows(def: &TableDef, column: usize) -> SqlError {
    let column = def.columns.get(column).map_or("", |column| column.name.as_str());
    SqlError::new(
        SqlState::NOT_NULL_VIOLATION,
        format!(
            "column \"{column}\" of relation \"{}\" contains null values",
            def.name
        ),
    )
    .table(def.name.clone())
    .column(column.to_owned())
}

/// A write names a slot without a row: the caller did not look first.
pub(super) fn no_row(table: &str) -> SqlError {
    SqlError::new(
        SqlState::INTERNAL_ERROR,
        format!("no row of relation \"{table}\" in the slot to be written"),
    )
}

fn key_text(def: &TableDef, columns: &[usize], row: &[u8]) -> String {
    let name = |column: &usize| def.columns.get(*column).map_or("", |column| column.name.as_str());
    let names: Vec<&str> = columns.iter().map(name).collect();
    let values: Vec<String> = columns
        .iter()
        .map(|column| full_text(def, row, *column))
        .collect();
    format!("Key ({})=({})", names.join(", "), values.join(", "))
}

fn full_text(def: &TableDef, row: &[u8], column: usize) -> String {
    let Some(ty) = def.columns.get(column).map(|column| &column.ty) else {
        return String::new();
    };
    if def.layout.is_null(row, column) {
        return "null".to_owned();
    }
    let mut text = String::new();
    format_text(&def.layout.value(row, column), ty, &mut text);
    text
}

fn value_text(def: &TableDef, row: &[u8], column: usize) -> String {
    let text = full_text(def, row, column);
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
