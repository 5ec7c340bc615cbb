//! The system catalog for clients: `pg_catalog` and `information_schema`, and the functions on it.
//!
//! Nothing here is stored. The rows of a catalog table are generated from the [`Catalog`] when a statement
//! references it, a few thousand values at most. Ids of tables, indexes and sequences are their PostgreSQL
//! oids; constraints and column defaults, which have no ids, get derived ones.
//!
//! ```text
//!   layout                    the tables, their columns and types
//!   rows, information_schema  their rows
//!   functions                 functions over the catalog, entries of the table of functions
//!   sequences                 functions over sequences given by oid
//!   view                      the functions' access to the catalog: SessionView
//!   types                     the built-in types
//! ```

mod accounts;
mod comments;
mod depend;
mod functions;
mod information_schema;
mod layout;
mod look_up;
mod privileges;
mod procedures;
mod rows;
mod sequences;
mod system;
mod types;
mod view;
mod views;
mod visible;

use weft_expression::Session;
use weft_store::{Catalog, RoleId};
use weft_types::sql_type::Element;
use weft_types::{ArrayValue, SqlType, Value};

pub use functions::{functions, oid_names};
pub use look_up::{constraint_oid, default_oid, quote_ident, relation_name, relation_oid};
pub use types::{format_type, oid_of as type_oid};
pub use view::{AdvisoryLock, ClientConnection, Encryption, PreparedTransaction, SessionView};

/// Oid of the schema `pg_catalog`.
pub const PG_CATALOG_OID: u32 = 11;
/// Oid of the schema `public`.
pub const PUBLIC_OID: u32 = 2200;
/// Oid of the schema `information_schema`.
pub const INFORMATION_SCHEMA_OID: u32 = 13_000;
/// Oid of the bootstrap role.
pub const ROLE_OID: u32 = 10;
/// Oid of the only database.
pub const DATABASE_OID: u32 = 5;

/// Columns of a catalog table: names and types.
pub type Columns = &'static [(&'static str, SqlType)];

/// The schema and the columns of a catalog table. Without a schema, only `pg_catalog` is searched.
#[must_use]
pub fn relation_columns(schema: Option<&str>, name: &str) -> Option<(&'static str, Columns)> {
    let schema = match schema {
        None | Some("pg_catalog") => "pg_catalog",
        Some("information_schema") => "information_schema",
        Some(_) => return None,
    };
    layout::columns(schema, name).map(|columns| (schema, columns))
}

/// The rows of a catalog table, values in the order of its columns and `tableoid` behind them; none if there
/// is no such table. The schema `public` has the sequences, each a relation of one row.
#[must_use]
pub fn relation_rows(schema: &str, name: &str, catalog: &Catalog, session: &dyn Session) -> Vec<Vec<Value>> {
    if schema == "public" {
        return sequences::row(name, catalog, session).into_iter().collect();
    }
    let Some((schema, columns)) = relation_columns(Some(schema), name) else {
        return Vec::new();
    };
    let named = match schema {
        "information_schema" => information_schema::rows(name, catalog, session),
        _ => rows::rows(name, catalog, session),
    };
    let table_oid = oid(system::system_oid(name).unwrap_or(0));
    let in_order = |row| {
        let mut row = in_order(row, columns);
        row.push(table_oid.clone());
        row
    };
    named.into_iter().map(in_order).collect()
}

/// Whether a role may read a catalog table: passwords are for superusers only, a sequence needs SELECT.
#[must_use]
pub fn may_read(schema: &str, name: &str, catalog: &Catalog, role: RoleId) -> bool {
    if schema == "public" {
        let sequence = catalog.sequence(name);
        return sequence.is_none_or(|sequence| {
            let privileges = catalog.privileges_of(role, sequence.id.0);
            privileges.contains(weft_store::Privileges::SELECT)
        });
    }
    !matches!(name, "pg_authid" | "pg_shadow") || catalog.accounts().is_superuser(role)
}

/// A row with only the columns that are set; the others are NULL.
type Row = Vec<(&'static str, Value)>;

fn in_order(mut row: Row, columns: Columns) -> Vec<Value> {
    columns
        .iter()
        .map(|(column, _)| {
            let cell = row.iter_mut().find(|(name, _)| name == column);
            cell.map_or(Value::Null, |(_, value)| std::mem::take(value))
        })
        .collect()
}

fn text(value: impl Into<String>) -> Value {
    Value::Text(value.into())
}

fn oid(value: u32) -> Value {
    Value::Oid(value)
}

fn flag(value: bool) -> Value {
    Value::Bool(value)
}

fn int2(value: usize) -> Value {
    Value::Int2(i16::try_from(value).unwrap_or(i16::MAX))
}

fn int4(value: i32) -> Value {
    Value::Int4(value)
}

fn int8(value: i64) -> Value {
    Value::Int8(value)
}

fn list(element: Element, items: Vec<Value>) -> Value {
    Value::Array(Box::new(ArrayValue::of_items(element.ty(), items)))
}

fn oid_list(values: impl Iterator<Item = u32>) -> Value {
    list(Element::Oid, values.map(oid).collect())
}

fn int2_list(values: impl Iterator<Item = usize>) -> Value {
    list(Element::Int2, values.map(int2).collect())
}

/// A list counted from 0, as the vectors of the catalogs are.
fn vector(mut list: Value) -> Value {
    if let Value::Array(array) = &mut list {
        for (_, lower) in &mut array.dimensions {
            *lower = 0;
        }
    }
    list
}
