//! Statements for the query engine: bound to typed relations.

use std::sync::Arc;

use sqlparser::ast;
use weft_binder::{Environment, bind_locking, bind_modify, bind_query};
use weft_store::Catalog;
use weft_types::{SqlError, SqlType};

use super::plan::{ModifyPlan, OutputColumn, QueryPlan, RowLocks, bound_bytes};
use super::{PlanContext, rights};

/// The binder's environment.
pub(crate) fn environment<'a>(
    catalog: &'a Catalog,
    parameters: &'a [Option<SqlType>],
    text: &'a str,
) -> Environment<'a> {
    Environment {
        catalog,
        parameters,
        text,
        functions: &weft_pg_catalog::functions,
        relations: &weft_pg_catalog::relation_columns,
    }
}

fn environment_of<'a>(ctx: &PlanContext<'a>) -> Environment<'a> {
    environment(ctx.catalog, ctx.param_types, ctx.text)
}

/// Plans a query that is not a point statement.
pub(crate) fn query(
    statement: &ast::Statement,
    query: &ast::Query,
    ctx: &PlanContext<'_>,
) -> Result<QueryPlan, SqlError> {
    if query.locks.is_empty() {
        return Ok(QueryPlan::new(
            bind_query(statement, environment_of(ctx))?,
            None,
            ctx.text,
        ));
    }
    let bound = bind_locking(statement, environment_of(ctx))?;
    let locks = RowLocks::of(&bound.locked);
    Ok(QueryPlan::new(bound.query, Some(locks), ctx.text))
}

/// Plans an INSERT, UPDATE or DELETE that is not a point statement.
pub(crate) fn modify(statement: &ast::Statement, ctx: &PlanContext<'_>) -> Result<ModifyPlan, SqlError> {
    let modify = bind_modify(statement, environment_of(ctx))?;
    let returning = modify.returning.as_ref();
    let columns = returning.map_or_else(Vec::new, |query| {
        query.output.iter().map(OutputColumn::of).collect()
    });
    Ok(ModifyPlan {
        steps: RowLocks::of_steps(&modify.rows),
        modify: Arc::new(modify),
        columns,
        reads_target: rights::reads_target(statement),
        bytes: bound_bytes(ctx.text),
    })
}
