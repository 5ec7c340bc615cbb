//! Expressions: one function per construct, dispatched here.
//!
//! Left-deep chains of operators are bound in a loop ([`operators`]); other nesting is recursive.

mod calls;
mod cast;
mod conditions;
mod forms;
mod lists;
mod literals;
mod operators;

use std::borrow::Cow;

use sqlparser::ast::{
    BinaryOperator, Expr as AstExpr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
};
use weft_types::{SqlError, SqlState};

use crate::binder::Binder;
use crate::names::{fold, last_part};
use crate::parameters::Operand;

/// Whether a call is `ROW(...)`.
pub(crate) fn is_row(function: &Function) -> bool {
    function.name.0.len() == 1 && last_part(&function.name).as_deref() == Some("row")
}

/// The arguments of a call if all are plain expressions, otherwise `None`.
pub(crate) fn plain_arguments(function: &Function) -> Option<Vec<&AstExpr>> {
    match &function.args {
        FunctionArguments::List(list) => list
            .args
            .iter()
            .map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            })
            .collect(),
        FunctionArguments::None => Some(Vec::new()),
        FunctionArguments::Subquery(_) => None,
    }
}

/// Strips parentheses.
pub(crate) fn unnested(expr: &AstExpr) -> &AstExpr {
    let mut expr = expr;
    while let AstExpr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

impl Binder<'_> {
    /// Binds an expression.
    pub(crate) fn expr(&mut self, expr: &AstExpr) -> Result<Operand, SqlError> {
        self.pace.step(32)?;
        let expr = unnested(expr);
        match expr {
            AstExpr::BinaryOp { .. } => self.chain(expr),
            AstExpr::Identifier(ident) => self.name(std::slice::from_ref(ident)),
            AstExpr::CompoundIdentifier(idents) => self.name(idents),
            AstExpr::Value(value) => self.literal(value),
            AstExpr::Function(function) => self.function(function),
            AstExpr::UnaryOp { op, expr: inner } => self.prefix(*op, inner, expr.into()),
            AstExpr::Cast {
                kind,
                expr: inner,
                data_type,
                array: false,
                format: None,
            } => self.cast_expr(kind, inner, data_type),
            AstExpr::TypedString(typed) => self.typed_string(typed),
            AstExpr::Interval(interval) => self.interval(interval),
            _ => self.condition(expr),
        }
    }

    fn condition(&mut self, expr: &AstExpr) -> Result<Operand, SqlError> {
        match expr {
            AstExpr::IsNull(inner) => self.is_null(inner, false),
            AstExpr::IsNotNull(inner) => self.is_null(inner, true),
            AstExpr::IsTrue(inner) => self.is_truth(inner, Some(true), false),
            AstExpr::IsNotTrue(inner) => self.is_truth(inner, Some(true), true),
            AstExpr::IsFalse(inner) => self.is_truth(inner, Some(false), false),
            AstExpr::IsNotFalse(inner) => self.is_truth(inner, Some(false), true),
            AstExpr::IsUnknown(inner) => self.is_truth(inner, None, false),
            AstExpr::IsNotUnknown(inner) => self.is_truth(inner, None, true),
            AstExpr::IsDistinctFrom(left, right) => self.is_distinct(left, right, false),
            AstExpr::IsNotDistinctFrom(left, right) => self.is_distinct(left, right, true),
            AstExpr::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            AstExpr::InSubquery {
                expr,
                subquery,
                negated,
            } => self.in_subquery(expr, subquery, *negated),
            AstExpr::Between {
                expr,
                negated,
                low,
                high,
            } => self.between(expr, low, high, *negated),
            AstExpr::Like {
                negated,
                any,
                expr,
                pattern,
                escape_char,
            } => self.like(["~~", "!~~"], *negated, *any, expr, pattern, escape_char.as_ref()),
            AstExpr::ILike {
                negated,
                any,
                expr,
                pattern,
                escape_char,
            } => self.like(
                ["~~*", "!~~*"],
                *negated,
                *any,
                expr,
                pattern,
                escape_char.as_ref(),
            ),
            AstExpr::SimilarTo {
                negated,
                expr,
                pattern,
                escape_char,
            } => self.similar(*negated, expr, pattern, escape_char.as_ref()),
            AstExpr::AnyOp {
                left,
                compare_op,
                right,
                ..
            } => self.any_or_all(left, compare_op, right, false),
            AstExpr::AllOp {
                left,
                compare_op,
                right,
            } => self.any_or_all(left, compare_op, right, true),
            AstExpr::Exists { subquery, negated } => self.exists(subquery, *negated),
            AstExpr::Subquery(query) => self.scalar_subquery(query),
            _ => self.form(expr),
        }
    }

    fn form(&mut self, expr: &AstExpr) -> Result<Operand, SqlError> {
        match expr {
            AstExpr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(operand.as_deref(), conditions, else_result.as_deref()),
            AstExpr::Tuple(items) => {
                let items: Vec<&AstExpr> = items.iter().collect();
                self.row(&items)
            }
            AstExpr::Array(array) => self.array(&array.elem),
            AstExpr::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain),
            AstExpr::Collate { expr, collation } => self.collate(expr, collation),
            AstExpr::Prefixed { prefix, value } => {
                let operand = self.expr(value)?;
                self.prefix_operator(&prefix.value, operand, prefix.span.into())
            }
            AstExpr::Extract { .. }
            | AstExpr::Ceil { .. }
            | AstExpr::Floor { .. }
            | AstExpr::Position { .. }
            | AstExpr::Substring { .. }
            | AstExpr::Trim { .. }
            | AstExpr::Overlay { .. }
            | AstExpr::AtTimeZone { .. } => self.special_call(expr),
            AstExpr::RLike { .. } | AstExpr::Wildcard(_) | AstExpr::QualifiedWildcard(..) => {
                Err(self.at(crate::names::syntax_error("syntax error in an expression"), expr))
            }
            AstExpr::GroupingSets(_) | AstExpr::Cube(_) | AstExpr::Rollup(_) => Err(self.at(
                SqlError::unsupported("grouping sets are supported directly in GROUP BY only"),
                expr,
            )),
            _ => Err(self.at(
                SqlError::unsupported(format!("this form of expression is not supported: {expr}")),
                expr,
            )),
        }
    }

    /// Binds a name: a column, or a whole row.
    fn name(&mut self, idents: &[Ident]) -> Result<Operand, SqlError> {
        let found = self.column(idents);
        match found {
            Ok(Some((operand, _))) => return Ok(operand),
            // `DEFAULT` where it is not allowed.
            Ok(None) if is_default(idents) => {
                let span = idents
                    .first()
                    .map_or_else(crate::subquery::no_span, |ident| ident.span);
                return Err(self.at(
                    crate::names::syntax_error("DEFAULT is not allowed in this context"),
                    span,
                ));
            }
            Ok(None) => {}
            Err(error) => return Err(error),
        }
        if let Some(last) = idents.last() {
            let name = fold(last);
            if SYSTEM_COLUMNS.contains(&name.as_str()) && self.reads_tables() {
                return Err(self.at(
                    SqlError::unsupported(format!("the system column {name} is not supported")),
                    last.span,
                ));
            }
        }
        if let [only] = idents
            && let Some((depth, place)) = self.find_item(None, &fold(only)).ok().flatten()
        {
            return self.whole_row(depth, place, only);
        }
        self.column_or_error(idents).map(|(operand, _)| operand)
    }

    fn reads_tables(&self) -> bool {
        let mut items = self.levels.iter().flat_map(|level| &level.items);
        items.any(|item| item.table.is_some())
    }

    /// A table's row as a value: only its presence can be tested, by a column that is never NULL.
    fn whole_row(&mut self, depth: usize, place: usize, ident: &Ident) -> Result<Operand, SqlError> {
        let item = self.levels.get(depth).and_then(|level| level.items.get(place));
        let column = item.and_then(|item| {
            let table = item.table.as_ref()?;
            let never_null = table.columns.iter().position(|column| column.not_null)?;
            item.columns.get(never_null).map(|column| column.expr.clone())
        });
        let is_counted = self.aggregate_name.as_deref() == Some("count");
        match column {
            Some(expr) if is_counted => {
                for id in expr.columns() {
                    self.mark(id);
                    self.refer_to(depth, place, id, ident.span);
                }
                Ok(Operand::typed(expr))
            }
            _ => Err(self.at(
                SqlError::unsupported(format!(
                    "the row of table \"{}\" as a value is not supported",
                    fold(ident)
                )),
                ident.span,
            )),
        }
    }

    /// Binds a function's argument.
    pub(crate) fn argument(&mut self, argument: &FunctionArg) -> Result<Operand, SqlError> {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => self.expr(expr),
            FunctionArg::Unnamed(_) => Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                "* as an argument is for aggregate functions only",
            )),
            _ => Err(SqlError::unsupported("arguments by name are not supported")),
        }
    }
}

/// Columns that every PostgreSQL table has.
pub const SYSTEM_COLUMNS: &[&str] = &["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

/// A binary operator as written.
pub(crate) fn symbol(op: &BinaryOperator) -> Cow<'_, str> {
    Cow::Borrowed(match op {
        BinaryOperator::Eq => "=",
        BinaryOperator::Lt => "<",
        BinaryOperator::Gt => ">",
        BinaryOperator::LtEq => "<=",
        BinaryOperator::GtEq => ">=",
        BinaryOperator::Plus => "+",
        BinaryOperator::Minus => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().map_or("", String::as_str),
        BinaryOperator::Custom(name) => name,
        other => return Cow::Owned(other.to_string()),
    })
}

/// Whether a name is the word DEFAULT.
fn is_default(idents: &[Ident]) -> bool {
    matches!(idents, [only] if only.quote_style.is_none() && only.value.eq_ignore_ascii_case("default"))
}
