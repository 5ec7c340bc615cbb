//! Constraints that are not indexes: CHECK, in CREATE TABLE and ALTER TABLE.

use sqlparser::ast;
use weft_base::TableId;
use weft_store::{Catalog, CatalogOp, ConstraintDef, ConstraintId, ConstraintRule, TableDef};
use weft_types::{SqlError, SqlState};

use super::super::{checks, names};
use super::Changes;
use crate::error;

/// A CHECK as it was written.
#[derive(Clone)]
pub(super) struct NewCheck {
    pub(super) name: Option<String>,
    pub(super) condition: ast::Expr,
}

impl NewCheck {
    pub(super) fn read(check: &ast::CheckConstraint, name: Option<&ast::Ident>) -> Result<Self, SqlError> {
        if check.enforced == Some(false) {
            return Err(error::unsupported("NOT ENFORCED is not supported"));
        }
        Ok(NewCheck {
            name: check.name.as_ref().or(name).map(names::ident),
            condition: check.expr.as_ref().clone(),
        })
    }
}

/// Adds a CHECK; with NOT VALID the rows that are there are not tested.
pub(super) fn add_check(
    changes: &mut Changes,
    table: TableId,
    check: NewCheck,
    is_valid: bool,
) -> Result<(), SqlError> {
    let def = changes
        .catalog
        .table_by_id(table)
        .cloned()
        .ok_or_else(|| SqlError::internal("a table vanished"))?;
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
