//! Column defaults: the values that INSERT and COPY use for columns without a given value.
//!
//! A default is stored in the catalog as text and bound again for each plan. It may contain anything that
//! the binder supports except columns; CREATE TABLE rejects others, so that an INSERT never encounters one.

use weft_expression::{Volatility, volatility_of};
use weft_store::{Catalog, ColumnDef, TableDef};
use weft_types::{SqlError, Value};

use super::bind::{Refusal, scalar_of};
use super::general::environment;
use super::scalar::Scalar;
use crate::error;

/// The default value of a column, in the column's type; CREATE TABLE calls it too, to reject what no INSERT
/// could compute.
pub(crate) fn column_default(catalog: &Catalog, column: &ColumnDef) -> Result<Scalar, SqlError> {
    if column.default.is_none() && column.identity.is_none() {
        return Ok(Scalar::Constant(Value::Null));
    }
    let bound = weft_binder::bind_default(column, environment(catalog, &[], ""))?;
    scalar_of(catalog, &bound).map_err(|refusal| match refusal {
        Refusal::Error(error) => error,
        Refusal::General => {
            let text = column.default.as_ref().map_or("", |default| &default.sql);
            error::unsupported(format!(
                "the default expression {text} of column \"{}\" is not supported",
                column.name
            ))
            .hint("Defaults may use literals, casts, arithmetic, now(), nextval() and gen_random_uuid().")
        }
    })
}

/// Whether each evaluation of a column's default may give another value.
pub(crate) fn is_volatile(catalog: &Catalog, column: &ColumnDef) -> Result<bool, SqlError> {
    let bound = weft_binder::bind_default(column, environment(catalog, &[], ""))?;
    Ok(volatility_of(&bound) == Volatility::Volatile)
}

/// Defaults of all columns except the given ones; columns whose default is NULL are omitted.
pub(crate) fn missing_defaults(
    catalog: &Catalog,
    table: &TableDef,
    given: &[usize],
) -> Result<Vec<(usize, Scalar)>, SqlError> {
    let mut defaults = Vec::new();
    for (number, column) in table.columns.iter().enumerate() {
        if given.contains(&number) {
            continue;
        }
        let value = column_default(catalog, column)?;
        if value != Scalar::Constant(Value::Null) {
            defaults.push((number, value));
        }
    }
    Ok(defaults)
}

/// Defaults of every column, in column order; NULL where there is none.
pub(crate) fn all_defaults(catalog: &Catalog, table: &TableDef) -> Result<Vec<Scalar>, SqlError> {
    table
        .columns
        .iter()
        .map(|column| column_default(catalog, column))
        .collect()
}
