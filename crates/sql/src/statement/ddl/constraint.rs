//! Constraints that are not indexes, in CREATE TABLE and ALTER TABLE: CHECK and FOREIGN KEY.

use sqlparser::ast;
use weft_base::TableId;
use weft_store::{
    Catalog, CatalogOp, CheckTime, ConstraintDef, ConstraintId, ConstraintRule, ForeignKey,
    ReferentialAction, TableDef,
};
use weft_types::{SqlError, SqlState};

use super::super::{checks, names};
use super::Changes;
use crate::error;

/// A CHECK as it was written.
#[derive(Clone)]
pub(super) struct NewCheck {
    pub(super) name: Option<String>,
    pub(super) condition: Box<ast::Expr>,
}

impl NewCheck {
    pub(super) fn read(check: &ast::CheckConstraint, name: Option<&ast::Ident>) -> Result<Self, SqlError> {
        if check.enforced == Some(false) {
            return Err(error::unsupported("NOT ENFORCED is not supported"));
        }
        Ok(NewCheck {
            name: check.name.as_ref().or(name).map(names::ident),
            condition: check.expr.clone(),
        })
    }
}

/// A constraint as it was written.
#[derive(Clone)]
pub(super) enum NewConstraint {
    Check(NewCheck),
    ForeignKey {
        key: Box<ast::ForeignKeyConstraint>,
        name: Option<String>,
    },
}

impl NewConstraint {
    /// A constraint of the table; `None` if it is an index.
    pub(super) fn of_table(constraint: &ast::TableConstraint) -> Result<Option<Self>, SqlError> {
        Ok(match constraint {
            ast::TableConstraint::Check(check) => Some(NewConstraint::Check(NewCheck::read(check, None)?)),
            ast::TableConstraint::ForeignKey(key) => Some(NewConstraint::foreign_key(key, None)),
            _ => None,
        })
    }

    pub(super) fn foreign_key(key: &ast::ForeignKeyConstraint, name: Option<&ast::Ident>) -> Self {
        NewConstraint::ForeignKey {
            key: Box::new(key.clone()),
            name: key.name.as_ref().or(name).map(names::ident),
        }
    }

    /// Adds it; with NOT VALID the rows that are there are not tested.
    pub(super) fn add(self, changes: &mut Changes, table: TableId, is_valid: bool) -> Result<(), SqlError> {
        match self {
            NewConstraint::Check(check) => add_check(changes, table, check, is_valid),
            NewConstraint::ForeignKey { key, name } => add_foreign_key(changes, table, &key, name, is_valid),
        }
    }
}

fn table_of(changes: &Changes, table: TableId) -> Result<std::sync::Arc<TableDef>, SqlError> {
    let table = changes.catalog.table_by_id(table).cloned();
    table.ok_or_else(|| SqlError::internal("a table vanished"))
}

fn add_foreign_key(
    changes: &mut Changes,
    table: TableId,
    key: &ast::ForeignKeyConstraint,
    name: Option<String>,
    is_valid: bool,
) -> Result<(), SqlError> {
    let def = table_of(changes, table)?;
    let own: Vec<String> = key.columns.iter().map(names::ident).collect();
    let parent = names::table(&changes.catalog, &names::parts(&key.foreign_table)).cloned();
    let parent = parent?;
    let columns = key_columns(&def, &own)?;
    if !matches!(
        key.match_kind,
        None | Some(ast::ConstraintReferenceMatchKind::Simple)
    ) {
        return Err(error::unsupported(
            "MATCH FULL and MATCH PARTIAL are not supported",
        ));
    }
    let (parent_columns, index) = referenced(&parent, &key.referred_columns)?;
    if columns.len() != parent_columns.len() {
        let message = "number of referencing and referenced columns for foreign key disagree";
        return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
    }
    let name = name.unwrap_or_else(|| free_name(&changes.catalog, &def.name, Some(&own.join("_")), "fkey"));
    refuse_incompatible(&def, &parent, (&columns, &parent_columns), &name)?;
    let rule = ForeignKey {
        columns,
        parent: parent.id,
        parent_columns,
        index,
        on_delete: action(key.on_delete)?,
        on_update: action(key.on_update)?,
        check_time: check_time(key.characteristics.as_ref())?,
    };
    changes.push(CatalogOp::PutConstraint(ConstraintDef {
        id: ConstraintId(changes.catalog.next_object_id()),
        name,
        table,
        is_valid,
        rule: ConstraintRule::ForeignKey(rule),
    }))
}

fn key_columns(table: &TableDef, names: &[String]) -> Result<Vec<usize>, SqlError> {
    let position = |name: &String| {
        table.column_index(name).ok_or_else(|| {
            let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })
    };
    names.iter().map(position).collect()
}

/// The columns that are referenced, and the unique index over them; without names those of the primary key.
fn referenced(
    parent: &TableDef,
    listed: &[ast::Ident],
) -> Result<(Vec<usize>, weft_base::IndexId), SqlError> {
    if listed.is_empty() {
        let Some(primary) = parent.primary_index() else {
            let message = format!("there is no primary key for referenced table \"{}\"", parent.name);
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        return Ok((primary.columns.clone(), primary.id));
    }
    let listed: Vec<String> = listed.iter().map(names::ident).collect();
    let columns = key_columns(parent, &listed)?;
    let same =
        |index: &[usize]| index.len() == columns.len() && index.iter().all(|column| columns.contains(column));
    let mut unique = parent.indexes.iter().filter(|index| index.unique);
    match unique.find(|index| same(&index.columns)) {
        Some(index) => Ok((columns, index.id)),
        None => Err(SqlError::new(
            SqlState::INVALID_FOREIGN_KEY,
            format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                parent.name
            ),
        )),
    }
}

fn refuse_incompatible(
    table: &TableDef,
    parent: &TableDef,
    (own, theirs): (&[usize], &[usize]),
    name: &str,
) -> Result<(), SqlError> {
    for pair in own.iter().zip(theirs) {
        let (Some(own), Some(theirs)) = (table.columns.get(*pair.0), parent.columns.get(*pair.1)) else {
            continue;
        };
        if ForeignKey::are_compatible(&own.ty, &theirs.ty) {
            continue;
        }
        let message = format!("foreign key constraint \"{name}\" cannot be implemented");
        return Err(
            SqlError::new(SqlState::DATATYPE_MISMATCH, message).detail(format!(
                "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                own.name,
                theirs.name,
                error::bare_name(&own.ty),
                error::bare_name(&theirs.ty)
            )),
        );
    }
    Ok(())
}

fn action(action: Option<ast::ReferentialAction>) -> Result<ReferentialAction, SqlError> {
    Ok(match action {
        None | Some(ast::ReferentialAction::NoAction) => ReferentialAction::NoAction,
        Some(ast::ReferentialAction::Restrict) => ReferentialAction::Restrict,
        Some(ast::ReferentialAction::Cascade) => ReferentialAction::Cascade,
        Some(ast::ReferentialAction::SetNull) => ReferentialAction::SetNull,
        Some(ast::ReferentialAction::SetDefault) => {
            return Err(error::unsupported(
                "SET DEFAULT of a foreign key is not supported",
            ));
        }
    })
}

fn check_time(given: Option<&ast::ConstraintCharacteristics>) -> Result<CheckTime, SqlError> {
    let Some(given) = given else {
        return Ok(CheckTime::Statement);
    };
    if given.enforced == Some(false) {
        return Err(error::unsupported("NOT ENFORCED is not supported"));
    }
    let deferred = given.initially == Some(ast::DeferrableInitial::Deferred);
    match (given.deferrable, deferred) {
        (Some(false), true) => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
        )),
        (_, true) => Ok(CheckTime::DeferrableCommit),
        (Some(true), false) => Ok(CheckTime::DeferrableStatement),
        (_, false) => Ok(CheckTime::Statement),
    }
}

/// Adds a CHECK; with NOT VALID the rows that are there are not tested.
fn add_check(changes: &mut Changes, table: TableId, check: NewCheck, is_valid: bool) -> Result<(), SqlError> {
    let def = table_of(changes, table)?;
    let (sql, columns) = checks::condition(&def, &check.condition, "")?;
    let name = check.name.unwrap_or_else(|| {
        let only = match columns.as_slice() {
            [column] => def.columns.get(*column).map(|column| column.name.as_str()),
            _ => None,
        };
        free_name(&changes.catalog, &def.name, only, "check")
    });
    changes.push(CatalogOp::PutConstraint(ConstraintDef {
        id: ConstraintId(changes.catalog.next_object_id()),
        name,
        table,
        is_valid,
        rule: ConstraintRule::Check { sql },
    }))
}

/// A name for a constraint that no constraint of any table has, as PostgreSQL chooses it.
fn free_name(catalog: &Catalog, table: &str, columns: Option<&str>, label: &str) -> String {
    let is_taken = |name: &str| {
        catalog.tables().any(|table| {
            table.constraint(name).is_some()
                || table
                    .indexes
                    .iter()
                    .any(|index| index.unique && index.name == name)
        })
    };
    let mut suffix = 0_u32;
    loop {
        let label = match suffix {
            0 => label.to_owned(),
            suffix => format!("{label}{suffix}"),
        };
        let name = joined_name(table, columns, &label);
        if !is_taken(&name) {
            return name;
        }
        suffix += 1;
    }
}

/// `table_columns_label`, with the longer of the first two cut until it is short enough.
fn joined_name(table: &str, columns: Option<&str>, label: &str) -> String {
    let fixed = label.len() + 1 + usize::from(columns.is_some());
    let available = names::NAME_BYTES_MAX.saturating_sub(fixed);
    let (mut first, mut second) = (table.len(), columns.map_or(0, str::len));
    while first + second > available {
        if first > second {
            first -= 1;
        } else {
            second -= 1;
        }
    }
    let cut = |text: &str, mut end: usize| {
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.get(..end).unwrap_or_default().to_owned()
    };
    match columns {
        Some(columns) => format!("{}_{}_{label}", cut(table, first), cut(columns, second)),
        None => format!("{}_{label}", cut(table, first)),
    }
}

/// ALTER TABLE ... VALIDATE CONSTRAINT.
pub(super) fn validate(changes: &mut Changes, table: &TableDef, name: &str) -> Result<(), SqlError> {
    match table.constraint(name) {
        Some(constraint) if constraint.is_valid => Ok(()),
        Some(constraint) => changes.push(CatalogOp::PutConstraint(ConstraintDef {
            is_valid: true,
            ..ConstraintDef::clone(constraint)
        })),
        None if table
            .indexes
            .iter()
            .any(|index| index.unique && index.name == name) =>
        {
            Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!(
                    "constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint",
                    table.name
                ),
            ))
        }
        None => Err(missing(name, &table.name)),
    }
}

/// Drops a constraint that is not an index; false if the table has none of this name.
pub(super) fn drop(changes: &mut Changes, table: &TableDef, name: &str) -> Result<bool, SqlError> {
    let Some(constraint) = table.constraint(name) else {
        return Ok(false);
    };
    changes.push(CatalogOp::DropConstraint {
        table: table.id,
        constraint: constraint.id,
    })?;
    Ok(true)
}

/// Drops the foreign keys that reference a table in a certain way, as CASCADE does, and tells of it.
pub(super) fn drop_references(
    changes: &mut Changes,
    parent: &TableDef,
    concerns: &dyn Fn(&ForeignKey) -> bool,
) -> Result<(), SqlError> {
    for (constraint, key) in parent.references_to_it() {
        if !concerns(key) {
            continue;
        }
        tell_of_cascade(changes, constraint);
        changes.push(CatalogOp::DropConstraint {
            table: constraint.table,
            constraint: constraint.id,
        })?;
    }
    Ok(())
}

/// The notice that a foreign key is dropped with what it references.
pub(super) fn tell_of_cascade(changes: &mut Changes, constraint: &ConstraintDef) {
    let table = changes.catalog.table_by_id(constraint.table);
    let table = table.map_or_else(String::new, |table| table.name.clone());
    changes.notice(format!(
        "drop cascades to constraint {} on table {table}",
        constraint.name
    ));
}

/// Renames a constraint that is not an index; false if the table has none of this name.
pub(super) fn rename(
    changes: &mut Changes,
    table: &TableDef,
    name: &str,
    new: String,
) -> Result<bool, SqlError> {
    let Some(constraint) = table.constraint(name) else {
        return Ok(false);
    };
    changes.push(CatalogOp::PutConstraint(ConstraintDef {
        name: new,
        ..ConstraintDef::clone(constraint)
    }))?;
    Ok(true)
}

pub(super) fn missing(name: &str, table: &str) -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_OBJECT,
        format!("constraint \"{name}\" of relation \"{table}\" does not exist"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_where_postgresql_cuts_them() {
        let (table, column) = ("t".repeat(40), "c".repeat(40));
        // 63 bytes: 28 and 27 remain of the two.
        let expected = format!("{}_{}_check", "t".repeat(28), "c".repeat(28));
        assert_eq!(joined_name(&table, Some(&column), "check"), expected);
        assert_eq!(joined_name("t", Some("c"), "check1"), "t_c_check1");
        assert_eq!(joined_name(&"t".repeat(70), None, "check").len(), 63);
    }
}
