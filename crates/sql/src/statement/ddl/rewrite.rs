//! ALTER TABLE whose rows are written again: ALTER COLUMN ... TYPE, and ADD COLUMN with a value of its own
//! for each row.
//!
//! Where every value is the same bytes under both types, or all rows get the same value, only the definition
//! changes. Otherwise an operation empties the table, and the plan has what would insert the new rows into a
//! table of the new form ([`Rewrite`]), so that conversion is that of an assignment. Values of a new sequence
//! are numbers of rows until the rows are counted.

use std::sync::Arc;

use sqlparser::ast;
use weft_base::TableId;
use weft_store::{CatalogOp, ColumnDef, Distribution, SequenceId, TableDef};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::super::copy::quote_ident;
use super::super::plan::Rewrite;
use super::super::{ModifyPlan, PlanContext, defaults, general, names};
use super::Changes;
use crate::error;

/// A column with new values, by its name.
pub(super) struct NewValues {
    table: TableId,
    column: String,
    /// `None`: the column's own, converted.
    value: Option<NewValue>,
}

/// Where a column's values come from.
pub(super) enum NewValue {
    /// USING, or a default.
    Expression(String),
    /// A new sequence.
    Sequence(SequenceId),
}

/// Changes the type of a column, by USING an expression or by the types' own conversion.
pub(super) fn set_type(
    changes: &mut Changes,
    table: &Arc<TableDef>,
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
    if let Some(using) = using {
        let env = general::environment(&changes.catalog, &[], "");
        weft_binder::check_transform(using, table, env)?;
    }
    let name = old.name.clone();
    check_default(changes, old, ty)?;
    changes.push(CatalogOp::RetypeColumn {
        table: table.id,
        column,
        ty,
    })?;
    let using = using.map(weft_syntax::print_expression);
    changes.new_values.push(NewValues {
        table: table.id,
        column: name,
        value: using.map(NewValue::Expression),
    });
    Ok(())
}

/// Adds a column that has a value of its own in each row: those of a sequence, or a default's. NOT NULL is
/// checked when the rows are written.
pub(super) fn add_column(
    changes: &mut Changes,
    table: TableId,
    column: ColumnDef,
    value: NewValue,
) -> Result<(), SqlError> {
    let name = column.name.clone();
    let def = changes.catalog.table_by_id(table);
    if def.is_some_and(|def| def.distribution != Distribution::Single) {
        return Err(error::unsupported(
            "adding a column with a value of its own for each row is not supported over ranks",
        ));
    }
    changes.push(CatalogOp::Truncate(table))?;
    changes.push(CatalogOp::AddColumn {
        table,
        column,
        fill: Value::Null,
    })?;
    changes.new_values.push(NewValues {
        table,
        column: name,
        value: Some(value),
    });
    Ok(())
}

/// At the end of ALTER TABLE: how the rows are written again, if they are.
pub(super) fn write_again(changes: &mut Changes, ctx: &PlanContext<'_>) -> Result<(), SqlError> {
    let Some(id) = changes.new_values.first().map(|new| new.table) else {
        return Ok(());
    };
    // The rows are read before the first operation: under the definitions of before the statement.
    let pair = ctx.catalog.table_by_id(id).zip(changes.catalog.table_by_id(id));
    let (before, after) = pair.ok_or_else(mixed)?;
    let (rows, numbered) = rows(before, after, changes, ctx)?;
    changes.rewrite = Some(Rewrite {
        table: id,
        rows,
        numbered,
    });
    Ok(())
}

fn mixed() -> SqlError {
    error::unsupported("these changes of a table are not supported in one statement")
        .hint("Rows are written again for some of them: use a statement for each.")
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

/// What would insert the new rows into a table of the new form, and the sequences whose values they have.
fn rows(
    before: &TableDef,
    after: &TableDef,
    changes: &Changes,
    ctx: &PlanContext<'_>,
) -> Result<(ModifyPlan, Vec<SequenceId>), SqlError> {
    let new_value = |name: &str| {
        let mut found = changes.new_values.iter().filter(|new| new.column == name);
        found.next_back().and_then(|new| new.value.as_ref())
    };
    let (mut columns, mut values, mut numbered) = (Vec::new(), Vec::new(), Vec::new());
    for column in &after.columns {
        columns.push(ColumnDef::new(column.name.clone(), column.ty));
        values.push(match new_value(&column.name) {
            Some(NewValue::Expression(text)) => format!("({text})"),
            Some(NewValue::Sequence(id)) => {
                let sequence = changes.catalog.sequence_by_id(*id).ok_or_else(mixed)?;
                if sequence.cycle {
                    return Err(error::unsupported(
                        "adding a column with a sequence that cycles is not supported",
                    ));
                }
                numbered.push(*id);
                let (start, step) = (sequence.start, sequence.increment);
                format!("({start} + (row_number() OVER () - 1) * {step})")
            }
            None => match changes.added.iter().find(|added| added.name == column.name) {
                Some(added) => default_of(added),
                None if before.column_index(&column.name).is_none() => return Err(mixed()),
                None => quote_ident(&column.name),
            },
        });
    }
    let using = |name: &str| new_value(name).is_some();
    let name = ctx.catalog.free_name("rewritten");
    let id = TableId(ctx.catalog.next_object_id());
    let made = CatalogOp::CreateTable(TableDef::new(id, name.clone(), columns));
    let catalog = ctx.catalog.apply(&made)?;
    let text = format!(
        "INSERT INTO public.{} SELECT {} FROM public.{}",
        quote_ident(&name),
        values.join(", "),
        quote_ident(&before.name)
    );
    let planned = weft_syntax::with_statement(&text, |statement| {
        general::modify(statement, &PlanContext::new(&catalog, &text))
    });
    let planned = planned.map_err(|error| no_conversion(error, after, &using))?;
    if !planned.steps.is_empty() || planned.modify.rows.moves_sequence {
        return Err(error::unsupported(
            "values from a sequence for the rows that there are are not supported",
        ));
    }
    Ok((planned, numbered))
}

/// The value of a column that the statement adds, and that is the same in all rows.
fn default_of(column: &ColumnDef) -> String {
    let default = column.default.as_ref();
    default.map_or("NULL".to_owned(), |default| format!("({})", default.sql))
}

/// The error of the statement that the client sent, in the place of that of ours.
fn no_conversion(mut error: SqlError, after: &TableDef, using: &dyn Fn(&str) -> bool) -> SqlError {
    error.fields_mut().position = None;
    let named = |column: &&ColumnDef| {
        error
            .message
            .starts_with(&format!("column \"{}\" is of type", column.name))
    };
    let Some(column) = after.columns.iter().find(named) else {
        return error;
    };
    let (name, ty) = (&column.name, column.ty.name());
    let (message, hint) = match using(name) {
        true => (
            format!("result of USING clause for column \"{name}\" cannot be cast automatically to type {ty}"),
            "You might need to add an explicit cast.".to_owned(),
        ),
        false => (
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
        // A string literal is a value of the old type.
        if default.sql.starts_with('\'') {
            default.sql = format!("CAST(({}) AS {})", default.sql, column.ty.name());
        }
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
