//! ALTER COLUMN ... TYPE.
//!
//! Where every value is the same bytes under both types, only the definition changes. Otherwise all rows are
//! written again: the operation empties the table, and the plan has what would insert the converted rows into
//! a table of the new form ([`Rewrite`]), so that conversion is that of an assignment.

use sqlparser::ast;
use weft_base::TableId;
use weft_store::{CatalogOp, ColumnDef, TableDef};
use weft_types::{SqlError, SqlState, SqlType};

use super::super::copy::quote_ident;
use super::super::plan::Rewrite;
use super::super::{ModifyPlan, PlanContext, defaults, general, names};
use super::Changes;
use crate::error;

/// A column of a table whose rows are written again.
pub(super) struct Retyped {
    table: TableId,
    /// The column's position.
    column: usize,
    /// What USING gives, as text.
    using: Option<String>,
}

/// Changes the type of a column, by USING an expression or by the types' own conversion.
pub(super) fn set_type(
    changes: &mut Changes,
    table: &TableDef,
    column: u32,
    ty: SqlType,
    using: Option<&ast::Expr>,
) -> Result<(), SqlError> {
    let old = table.columns.get(column as usize).cloned();
    let old = old.ok_or_else(|| SqlError::internal("a column vanished"))?;
    if using.is_none_or(|using| is_conversion(using, &old.name, &ty)) {
        if old.ty == ty {
            return Ok(());
        }
        if ty.holds_all_of(&old.ty) {
            return changes.push(CatalogOp::SetColumnType {
                table: table.id,
                column,
                ty,
            });
        }
    }
    if old.identity.is_some() && !matches!(ty, SqlType::Int2 | SqlType::Int4 | SqlType::Int8) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "identity column type must be smallint, integer, or bigint",
        ));
    }
    check_default(changes, old, ty)?;
    changes.push(CatalogOp::RetypeColumn {
        table: table.id,
        column,
        ty,
    })?;
    changes.retyped.push(Retyped {
        table: table.id,
        column: column as usize,
        using: using.map(weft_syntax::print_expression),
    });
    Ok(())
}

/// At the end of ALTER TABLE: how the rows of retyped columns are written again.
pub(super) fn write_again(changes: &mut Changes, ctx: &PlanContext<'_>) -> Result<(), SqlError> {
    let Some(id) = changes.retyped.first().map(|retyped| retyped.table) else {
        return Ok(());
    };
    // The rows are read before the first operation: under the definitions of before the statement.
    let after = changes.catalog.table_by_id(id);
    let names = |table: &TableDef| -> Vec<String> {
        table.columns.iter().map(|column| column.name.clone()).collect()
    };
    let pair = ctx.catalog.table_by_id(id).zip(after);
    let Some((before, after)) = pair.filter(|(before, after)| names(before) == names(after)) else {
        return Err(error::unsupported(
            "changing the type of a column and the columns of its table in one statement is not supported",
        ));
    };
    let rows = rows(before, after, &changes.retyped, ctx)?;
    changes.rewrite = Some(Rewrite { table: id, rows });
    Ok(())
}

/// Whether USING says what would happen without it: the column, converted to the new type.
fn is_conversion(using: &ast::Expr, column: &str, ty: &SqlType) -> bool {
    match using {
        ast::Expr::Nested(inner) => is_conversion(inner, column, ty),
        ast::Expr::Cast { expr, data_type, .. } => {
            let is_same = super::types::column_type(data_type).is_ok_and(|cast| cast.ty == *ty);
            is_same && is_column(expr, column)
        }
        other => is_column(other, column),
    }
}

fn is_column(expr: &ast::Expr, column: &str) -> bool {
    match expr {
        ast::Expr::Nested(inner) => is_column(inner, column),
        ast::Expr::Identifier(name) => names::ident(name) == column,
        _ => false,
    }
}

/// What would insert the converted rows into a table of the new form.
fn rows(
    before: &TableDef,
    after: &TableDef,
    retyped: &[Retyped],
    ctx: &PlanContext<'_>,
) -> Result<ModifyPlan, SqlError> {
    let using = |place: usize| {
        let mut found = retyped.iter().filter(|retyped| retyped.column == place);
        found.next_back().and_then(|retyped| retyped.using.as_ref())
    };
    let bare = |column: &ColumnDef| ColumnDef::new(column.name.clone(), column.ty);
    let columns: Vec<ColumnDef> = after.columns.iter().map(bare).collect();
    let value = |(place, column): (usize, &ColumnDef)| match using(place) {
        Some(using) => format!("({using})"),
        None => quote_ident(&column.name),
    };
    let values: Vec<String> = before.columns.iter().enumerate().map(value).collect();
    let name = ctx.catalog.free_name("rewritten");
    let id = TableId(ctx.catalog.next_object_id());
    let made = CatalogOp::CreateTable(TableDef::new(id, name.clone(), columns));
    let catalog = ctx.catalog.apply(&made)?;
    let text = format!(
        "INSERT INTO {} SELECT {} FROM {}",
        quote_ident(&name),
        values.join(", "),
        quote_ident(&before.name)
    );
    let planned = weft_syntax::with_statement(&text, |statement| {
        general::modify(statement, &PlanContext::new(&catalog, &text))
    });
    let planned = planned.map_err(|error| no_conversion(error, after, &using))?;
    if !planned.steps.is_empty() || planned.modify.rows.moves_sequence {
        return Err(error::unsupported("this USING is not supported"));
    }
    Ok(planned)
}

/// The error of the statement that the client sent, in the place of that of ours.
fn no_conversion<'u>(
    mut error: SqlError,
    after: &TableDef,
    using: &dyn Fn(usize) -> Option<&'u String>,
) -> SqlError {
    error.fields_mut().position = None;
    let mut columns = after.columns.iter().enumerate();
    let named = |(_, column): &(usize, &ColumnDef)| {
        error
            .message
            .starts_with(&format!("column \"{}\" is of type", column.name))
    };
    let Some((place, column)) = columns.find(named) else {
        return error;
    };
    let (name, ty) = (&column.name, column.ty.name());
    let (message, hint) = match using(place) {
        Some(_) => (
            format!("result of USING clause for column \"{name}\" cannot be cast automatically to type {ty}"),
            "You might need to add an explicit cast.".to_owned(),
        ),
        None => (
            format!("column \"{name}\" cannot be cast automatically to type {ty}"),
            format!(
                "You might need to specify \"USING {}::{ty}\".",
                weft_pg_catalog::quote_ident(name)
            ),
        ),
    };
    SqlError::new(SqlState::DATATYPE_MISMATCH, message).hint(hint)
}

/// The default, a value of the old type, must be assignable to the new one.
fn check_default(changes: &Changes, mut column: ColumnDef, ty: SqlType) -> Result<(), SqlError> {
    if let Some(default) = &mut column.default {
        default.sql = format!("CAST(({}) AS {})", default.sql, column.ty.name());
        column.ty = ty;
        defaults::column_default(&changes.catalog, &column).map_err(|_| {
            let (name, ty) = (&column.name, ty.name());
            SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("default for column \"{name}\" cannot be cast automatically to type {ty}"),
            )
        })?;
    }
    Ok(())
}
