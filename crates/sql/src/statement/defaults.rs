//! Column defaults: what an INSERT or COPY puts where it names no value.
//!
//! A default is kept in the catalog as text and bound again for each plan. It may contain what the binder
//! understands and no columns; CREATE TABLE refuses others, so that an INSERT never meets one.

use sqlparser::ast::Expr;
use weft_store::{Catalog, ColumnDef, TableDef};
use weft_types::{SqlError, SqlType, Value};

use super::bind::{Binder, Refusal};
use super::params::ParamTypes;
use super::scalar::Scalar;
use crate::error;

/// The value that a column gets when none is given, in the column's type.
pub(crate) fn column_default(catalog: &Catalog, column: &ColumnDef) -> Result<Scalar, SqlError> {
    if let Some(identity) = &column.identity {
        let value = Scalar::NextValue(identity.sequence);
        return Ok(match column.ty {
            SqlType::Int8 => value,
            ty => Scalar::Assign(Box::new(value), SqlType::Int8, ty),
        });
    }
    match &column.default {
        None => Ok(Scalar::Constant(Value::Null)),
        Some(default) => bind_default(
            catalog,
            column,
            &weft_syntax::parse_expression(&default.sql)?,
            &default.sql,
        ),
    }
}

/// Binds a default's expression; used by CREATE TABLE too, to refuse what cannot be bound.
pub(crate) fn bind_default(
    catalog: &Catalog,
    column: &ColumnDef,
    expr: &Expr,
    text: &str,
) -> Result<Scalar, SqlError> {
    let mut params = ParamTypes::default();
    let mut binder = Binder::new(catalog, None, &mut params, "");
    let bound = binder.bind(expr).and_then(|typed| binder.assign(typed, column));
    if params.len() > 0 {
        return Err(error::undefined_parameter(1));
    }
    bound.map_err(|refusal| match refusal {
        Refusal::Error(error) if error.state == weft_types::SqlState::UNDEFINED_COLUMN => {
            error::unsupported("cannot use column reference in DEFAULT expression")
        }
        Refusal::Error(error) => error,
        Refusal::General => error::unsupported(format!(
            "the default expression {text} of column \"{}\" is not supported",
            column.name
        ))
        .hint("Defaults may use literals, casts, arithmetic, now(), nextval() and gen_random_uuid()."),
    })
}

/// Defaults of all columns but those given; columns whose default is NULL are left out.
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
