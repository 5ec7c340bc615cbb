//! The conditions of CHECK constraints: their text in the catalog, and their evaluation over a row.
//!
//! A condition is evaluated wherever a row is written, inside batches and again on replay, so its value must
//! follow from the row alone: stable and volatile functions are refused (PostgreSQL accepts them and relies
//! on the user), and so are functions that the C library computes, whose last digit may differ between
//! machines.

use std::ops::ControlFlow;
use std::sync::Arc;

use sqlparser::ast::{Expr as AstExpr, Ident, VisitMut, VisitorMut};
use weft_binder::{ExpressionBinder, ParameterTypes};
use weft_expression::{Compiled, Context, Expr, Op, Volatility, volatility_of};
use weft_store::{Catalog, CheckLanguage, CompiledCheck, RowTest, TableDef, set_check_language};
use weft_types::{RowLayout, SqlError, SqlState, SqlType, Value};

use super::bind::{Named, Scope, named};
use super::general::environment;
use super::names;
use crate::error;

/// Functions over floating-point numbers that the C library computes.
const TRANSCENDENTAL: &[&str] = &[
    "^", "acos", "acosd", "acosh", "asin", "asind", "asinh", "atan", "atan2", "atan2d", "atand", "atanh",
    "cbrt", "cos", "cosd", "cosh", "cot", "cotd", "dcbrt", "dexp", "dlog1", "dlog10", "dpow", "erf", "erfc",
    "exp", "ln", "log", "log10", "pow", "power", "sin", "sind", "sinh", "tan", "tand", "tanh", "||/",
];

/// Makes conditions known to the catalogs of this process. To be called before a database is opened.
pub fn install() {
    set_check_language(&Conditions);
}

/// Conditions are expressions of SQL.
struct Conditions;

/// A compiled condition; it reads columns by their positions in the table.
struct Condition(Compiled);

impl RowTest for Condition {
    fn holds(&self, layout: &RowLayout, row: &[u8]) -> Result<Option<bool>, SqlError> {
        let value = self
            .0
            .evaluate(&Context::PURE, &|column| layout.value_ref(row, column))?;
        Ok(match value {
            Value::Bool(holds) => Some(holds),
            _ => None,
        })
    }
}

impl CheckLanguage for Conditions {
    fn compile(&self, table: &TableDef, sql: &str) -> Result<CompiledCheck, SqlError> {
        let bound = bind(table, &weft_syntax::parse_expression(sql)?, "")?;
        let mut columns: Vec<usize> = bound.columns().filter_map(position).collect();
        columns.sort_unstable();
        columns.dedup();
        let compiled = Compiled::new(&bound, &position)?;
        Ok(CompiledCheck {
            columns,
            test: Arc::new(Condition(compiled)),
        })
    }

    fn rename_column(&self, sql: &str, from: &str, to: &str) -> Result<String, SqlError> {
        let mut parsed = weft_syntax::parse_expression(sql)?;
        let _ = parsed.visit(&mut Renaming { from, to });
        Ok(weft_syntax::print_expression(&parsed))
    }
}

/// The position in the table of a column of a bound condition.
fn position(id: weft_expression::ColumnId) -> Option<usize> {
    match named(id) {
        Named::Column(column) => Some(usize::from(column)),
        _ => None,
    }
}

/// Binds a condition over a table's columns and refuses what may not be in one.
fn bind(table: &TableDef, condition: &AstExpr, text: &str) -> Result<Expr, SqlError> {
    // A condition is bound by itself: it can name nothing but columns.
    let catalog = Catalog::new();
    let scope = Scope::of_table(table, &table.name, None);
    let types = ParameterTypes::declared(&[]);
    let mut binder = ExpressionBinder::new(environment(&catalog, &[], text), &scope, types);
    let bound = binder.check(condition)?;
    if binder.into_parameters().count() > 0 {
        return Err(SqlError::new(
            SqlState::UNDEFINED_PARAMETER,
            "there is no parameter $1",
        ));
    }
    if volatility_of(&bound) != Volatility::Immutable {
        return Err(error::unsupported(
            "a CHECK constraint whose condition depends on more than the row is not supported",
        )
        .hint("Its functions and conversions must be immutable."));
    }
    let nodes = bound.nodes();
    let is_float = |ty: &SqlType| matches!(ty, SqlType::Float4 | SqlType::Float8);
    for node in nodes {
        if let Op::Call(entry) = &node.op
            && is_float(&node.ty)
            && TRANSCENDENTAL.contains(&entry.name)
        {
            let message = format!("function {} in a CHECK constraint is not supported", entry.name);
            return Err(error::unsupported(message));
        }
    }
    Ok(bound)
}

/// A new condition: its text for the catalog, and the columns that it reads.
pub(crate) fn condition(
    table: &TableDef,
    condition: &AstExpr,
    text: &str,
) -> Result<(String, Vec<usize>), SqlError> {
    let bound = bind(table, condition, text)?;
    let mut columns: Vec<usize> = bound.columns().filter_map(position).collect();
    columns.sort_unstable();
    columns.dedup();
    // It is shown in parentheses.
    let mut inner = condition;
    while let AstExpr::Nested(within) = inner {
        inner = within;
    }
    let mut plain = inner.clone();
    let _ = plain.visit(&mut Unqualifying);
    Ok((weft_syntax::print_expression(&plain), columns))
}

/// Takes the table's name away from column names: the table may be renamed.
struct Unqualifying;

impl VisitorMut for Unqualifying {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut AstExpr) -> ControlFlow<()> {
        if let AstExpr::CompoundIdentifier(parts) = expr
            && let Some(column) = parts.pop()
        {
            *expr = AstExpr::Identifier(column);
        }
        ControlFlow::Continue(())
    }
}

/// Gives a column its new name.
struct Renaming<'a> {
    from: &'a str,
    to: &'a str,
}

impl VisitorMut for Renaming<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut AstExpr) -> ControlFlow<()> {
        if let AstExpr::Identifier(name) = expr
            && names::ident(name) == self.from
        {
            *name = Ident::with_quote('"', self.to);
        }
        ControlFlow::Continue(())
    }
}
