//! The system catalog that clients read: `pg_catalog` and `information_schema`.
//!
//! Nothing here is stored. A table of the catalog is made from the [`Catalog`](weft_store::Catalog) when a
//! statement names it, a few thousand cells at most, and planned like any other table. Ids of tables, indexes
//! and sequences are their PostgreSQL oids; constraints and column defaults, which have no id of their own,
//! get derived ones.
//!
//! [`layout`] has the columns, [`rows`] and [`information_schema`] the rows, [`functions`] the functions that
//! clients call on them, [`types`] the built-in types.

pub mod functions;
mod information_schema;
mod layout;
mod look_up;
mod procedures;
mod rows;
mod types;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use weft_store::Catalog;

use crate::query::SessionContext;

pub use layout::is_always_empty;
pub use look_up::{constraint_oid, default_oid};

/// Oid of the schema `pg_catalog`.
pub const PG_CATALOG_OID: u32 = 11;
/// Oid of the schema `public`.
pub const PUBLIC_OID: u32 = 2200;
/// Oid of the schema `information_schema`.
pub const INFORMATION_SCHEMA_OID: u32 = 13_000;
/// Oid of the only role.
pub const ROLE_OID: u32 = 10;
/// Oid of the only database.
pub const DATABASE_OID: u32 = 5;

/// A table of `pg_catalog` or `information_schema` with its rows, or `None` when there is no such table.
pub fn system_table(
    schema: &str,
    name: &str,
    catalog: &Arc<Catalog>,
    session: &Arc<SessionContext>,
) -> Option<Arc<dyn TableProvider>> {
    let columns = layout::columns(schema, name)?;
    let rows = if schema == "information_schema" {
        information_schema::rows(name, catalog, session)
    } else {
        rows::rows(name, catalog, session)
    };
    let batch = batch_of(&columns, rows)?;
    Some(Arc::new(MemTable::try_new(columns, vec![vec![batch]]).ok()?))
}

/// Rows name only the columns that they fill; the others are NULL.
type Row = Vec<(&'static str, ScalarValue)>;

fn batch_of(schema: &SchemaRef, rows: Vec<Row>) -> Option<RecordBatch> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let null = ScalarValue::try_from(field.data_type()).ok()?;
        if rows.is_empty() {
            arrays.push(datafusion::arrow::array::new_empty_array(field.data_type()));
            continue;
        }
        let cells = rows.iter().map(|row| {
            let cell = row
                .iter()
                .find(|(name, _)| name == field.name())
                .map(|(_, cell)| cell);
            cell.filter(|cell| !cell.is_null()).unwrap_or(&null).clone()
        });
        arrays.push(ScalarValue::iter_to_array(cells).ok()?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options).ok()
}

fn text(value: impl Into<String>) -> ScalarValue {
    ScalarValue::Utf8(Some(value.into()))
}

fn oid(value: u32) -> ScalarValue {
    ScalarValue::UInt32(Some(value))
}

fn flag(value: bool) -> ScalarValue {
    ScalarValue::Boolean(Some(value))
}

fn int2(value: usize) -> ScalarValue {
    ScalarValue::Int16(Some(i16::try_from(value).unwrap_or(i16::MAX)))
}

fn int4(value: i32) -> ScalarValue {
    ScalarValue::Int32(Some(value))
}

fn int8(value: i64) -> ScalarValue {
    ScalarValue::Int64(Some(value))
}

fn oid_list(values: impl Iterator<Item = u32>) -> ScalarValue {
    let cells: Vec<ScalarValue> = values.map(oid).collect();
    ScalarValue::List(ScalarValue::new_list(
        &cells,
        &datafusion::arrow::datatypes::DataType::UInt32,
        true,
    ))
}

fn int2_list(values: impl Iterator<Item = usize>) -> ScalarValue {
    let cells: Vec<ScalarValue> = values.map(int2).collect();
    ScalarValue::List(ScalarValue::new_list(
        &cells,
        &datafusion::arrow::datatypes::DataType::Int16,
        true,
    ))
}
