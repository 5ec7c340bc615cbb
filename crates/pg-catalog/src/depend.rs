//! `pg_depend`: which object goes with which, as far as clients ask. pg_dump orders what it writes by it.

use weft_store::{Catalog, ConstraintRule, TableDef};

use crate::look_up::{constraint_oid, default_oid};
use crate::visible::named_sequences;
use crate::{Row, int4, oid, text, views};

const ATTRDEF: u32 = 2604;
const CLASS: u32 = 1259;
const CONSTRAINT: u32 = 2606;

/// An object, or a column of a relation: its system relation, its oid, and the column from 1.
type Object = (u32, u32, usize);

fn row(object: Object, on: Object, kind: &str) -> Row {
    let part = |column: usize| int4(i32::try_from(column).unwrap_or(i32::MAX));
    vec![
        ("classid", oid(object.0)),
        ("objid", oid(object.1)),
        ("objsubid", part(object.2)),
        ("refclassid", oid(on.0)),
        ("refobjid", oid(on.1)),
        ("refobjsubid", part(on.2)),
        ("deptype", text(kind)),
    ]
}

/// The rows.
pub(crate) fn rows(catalog: &Catalog) -> Vec<Row> {
    let mut rows = Vec::new();
    for sequence in catalog.sequences() {
        let Some((table, column)) = sequence.owned_by else {
            continue;
        };
        let owner = catalog.table_by_id(table);
        let Some(owner) = owner.and_then(|owner| owner.columns.get(column as usize)) else {
            continue;
        };
        let kind = if owner.identity.is_some() { "i" } else { "a" };
        let place = (CLASS, table.0, column as usize + 1);
        rows.push(row((CLASS, sequence.id.0, 0), place, kind));
    }
    for table in catalog.tables() {
        of_defaults(catalog, table, &mut rows);
        of_indexes(table, &mut rows);
        of_constraints(table, &mut rows);
    }
    rows.extend(views::dependencies(catalog));
    rows
}

fn of_defaults(catalog: &Catalog, table: &TableDef, rows: &mut Vec<Row>) {
    for (position, column) in table.columns.iter().enumerate() {
        let Some(default) = &column.default else {
            continue;
        };
        let object = (ATTRDEF, default_oid(table.id, position), 0);
        rows.push(row(object, (CLASS, table.id.0, position + 1), "a"));
        for sequence in named_sequences(catalog, &default.sql) {
            rows.push(row(object, (CLASS, sequence.0, 0), "n"));
        }
    }
}

fn of_indexes(table: &TableDef, rows: &mut Vec<Row>) {
    for index in &table.indexes {
        let object = (CLASS, index.id.0, 0);
        let columns = index.columns.iter().map(|column| (CLASS, table.id.0, column + 1));
        if index.is_constraint() {
            let constraint = (CONSTRAINT, constraint_oid(index.id), 0);
            rows.push(row(object, constraint, "i"));
            rows.extend(columns.map(|column| row(constraint, column, "a")));
        } else {
            rows.extend(columns.map(|column| row(object, column, "a")));
        }
    }
}

fn of_constraints(table: &TableDef, rows: &mut Vec<Row>) {
    for constraint in &table.constraints {
        let object = (CONSTRAINT, constraint.id.0, 0);
        let own = |column: &usize| row(object, (CLASS, table.id.0, column + 1), "a");
        match &constraint.rule {
            ConstraintRule::Check { .. } => {
                let checks = table.checks().iter();
                let mut check = checks.filter(|check| check.constraint.id == constraint.id);
                rows.extend(
                    check
                        .next()
                        .into_iter()
                        .flat_map(|check| check.columns.iter().map(own)),
                );
            }
            ConstraintRule::ForeignKey(key) => {
                rows.extend(key.columns.iter().map(own));
                let parents = key.parent_columns.iter();
                rows.extend(parents.map(|column| row(object, (CLASS, key.parent.0, column + 1), "n")));
                rows.push(row(object, (CLASS, key.index.0, 0), "n"));
            }
        }
    }
}
