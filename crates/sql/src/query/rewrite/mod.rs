//! PostgreSQL's syntax into what DataFusion's planner takes, on the syntax tree.
//!
//! All rewrites are structural: they look at the shape of an expression, never at the text of a known client.
//!
//! | PostgreSQL                                   | becomes                                                        |
//! |----------------------------------------------|----------------------------------------------------------------|
//! | `pg_catalog.f(x)`, `OPERATOR(pg_catalog.~)`  | `f(x)`, `~`                                                    |
//! | `x COLLATE c`                                | `x` (one collation: bytes)                                     |
//! | `x::type`, `type 'text'`                     | `__cast(x, 'oid:typmod')`, PostgreSQL's conversion             |
//! | `x::regclass`, `::regtype`, `::oid` ...      | look-up functions, see [`casts`]                               |
//! | `1`                                          | an int4 (DataFusion would take int8)                           |
//! | `(SELECT e FROM ...)` as a value             | `(SELECT __single(e) FROM ...)`: one row or error 21000        |
//! | `(SELECT e ... ORDER BY o LIMIT 1)`          | `(SELECT first_value(e ORDER BY o) ...)`                       |
//! | `EXISTS (SELECT ...)` in a select list       | `(SELECT count(*) > 0 ...)`                                    |
//! | `ARRAY(SELECT e ...)`                        | `__array((SELECT array_agg(e) ...))`                           |
//! | `CROSS JOIN LATERAL (SELECT e) AS a(c)`      | `a.c` replaced by `e`                                          |
//! | a select over a catalog that is always empty | its subqueries, never evaluated, become NULL                   |
//! | `FOR UPDATE`                                 | dropped here; locking is asked for separately                  |

mod casts;
mod exists;
mod lateral;
mod subqueries;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, DataType, Expr, Fetch, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, LimitClause, ObjectName, ObjectNamePart,
    OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor, Value, ValueWithSpan,
    VisitMut, VisitorMut, WindowFrameBound, WindowType,
};
use datafusion::sql::sqlparser::ast::{CastKind, Distinct};
use weft_types::SqlType;

use super::naming::{self, folded, last_part};

/// Name of the marker type of an integer literal that fits int4.
pub const INT4_MARKER: &str = "__int4";

/// What the rewrite found out on its way.
#[derive(Debug, Default)]
pub struct Findings {
    /// Types of parameters that the statement itself casts (`$1::int`), by 0-based number; declared ones are
    /// kept.
    pub parameter_types: BTreeMap<usize, SqlType>,
}

/// Rewrites a statement in place. `declared` are the parameter types that the client gave.
pub fn rewrite(statement: &mut Statement, declared: &[Option<SqlType>]) -> Findings {
    naming::name_outputs(statement);
    let mut rewriter = Rewriter {
        declared,
        findings: Findings::default(),
    };
    let _ = statement.visit(&mut rewriter);
    rewriter.findings
}

struct Rewriter<'a> {
    declared: &'a [Option<SqlType>],
    findings: Findings,
}

impl VisitorMut for Rewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        query.locks.clear();
        lateral::inline(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            name, args: Some(_), ..
        }
        | TableFactor::Function { name, .. } = factor
        {
            strip_catalog(name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // Before the subquery inside is looked at.
        if subqueries::is_array_of_nothing(expr) {
            *expr = call("__array", vec![null()]);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        subqueries::prune_never_evaluated(select);
        exists::in_select_list(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.expression(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let GroupByExpr::Expressions(exprs, _) = &mut select.group_by {
            exprs.iter_mut().for_each(unmark);
        }
        if let Some(Distinct::On(exprs)) = &mut select.distinct {
            exprs.iter_mut().for_each(unmark);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(OrderBy {
            kind: OrderByKind::Expressions(items),
            ..
        }) = &mut query.order_by
        {
            items.iter_mut().for_each(|item| unmark(&mut item.expr));
        }
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                limit.iter_mut().for_each(unmark);
                offset.iter_mut().for_each(|offset| unmark(&mut offset.value));
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
                unmark(offset);
                unmark(limit);
            }
            None => {}
        }
        if let Some(limit) = &query.limit_clause {
            self.count_parameters(limit);
        }
        plain_values(query);
        if let Some(Fetch {
            quantity: Some(quantity),
            ..
        }) = &mut query.fetch
        {
            unmark(quantity);
        }
        fetch_as_limit(query);
        ControlFlow::Continue(())
    }
}

impl Rewriter<'_> {
    /// `LIMIT $1` counts rows.
    fn count_parameters(&mut self, clause: &LimitClause) {
        let exprs = match clause {
            LimitClause::LimitOffset { limit, offset, .. } => {
                [limit.as_ref(), offset.as_ref().map(|offset| &offset.value)]
            }
            LimitClause::OffsetCommaLimit { offset, limit } => [Some(limit), Some(offset)],
        };
        for position in exprs.into_iter().flatten().filter_map(casts::placeholder) {
            if self.declared.get(position).is_none_or(Option::is_none) {
                self.findings
                    .parameter_types
                    .entry(position)
                    .or_insert(SqlType::Int8);
            }
        }
    }

    fn expression(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Value(ValueWithSpan {
                value: Value::Number(digits, _),
                ..
            }) => {
                if digits.parse::<i32>().is_ok() {
                    *expr = marked(expr.clone());
                } else if digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<i64>().is_err() {
                    *expr = call("__cast", vec![string(digits), string("1700:-1")]);
                }
            }
            Expr::Collate { expr: inner, .. } => *expr = std::mem::replace(inner, null()),
            Expr::Cast { .. } | Expr::TypedString(_) => self.cast(expr),
            Expr::BinaryOp { op, .. } => {
                if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                    && let Some(plain) = parts.last().and_then(|symbol| plain_operator(symbol))
                {
                    *op = plain;
                }
            }
            Expr::Function(function) => {
                if let Some(replacement) = rewrite_function(function) {
                    *expr = replacement;
                }
            }
            Expr::Subquery(query) => {
                if let Some(guard) = subqueries::make_scalar(query) {
                    *expr = guarded(guard, Expr::Subquery(query.clone()));
                }
            }
            Expr::Identifier(ident) if ident.quote_style.is_none() => {
                let name = folded(ident);
                if matches!(name.as_str(), "current_schema" | "current_role") {
                    *expr = call(&name, Vec::new());
                }
            }
            Expr::Interval(interval) => unmark(&mut interval.value),
            _ => {}
        }
    }
}

/// Function names without `pg_catalog.`, PostgreSQL's names for what DataFusion calls otherwise,
/// ARRAY(subquery).
fn rewrite_function(function: &mut Function) -> Option<Expr> {
    strip_catalog(&mut function.name);
    if let Some(WindowType::WindowSpec(spec)) = &mut function.over
        && let Some(frame) = &mut spec.window_frame
    {
        unmark_bound(&mut frame.start_bound);
        frame.end_bound.iter_mut().for_each(unmark_bound);
    }
    let name = last_part(&function.name)?;
    if name == "array"
        && let FunctionArguments::Subquery(query) = &mut function.args
    {
        subqueries::make_array(query);
        let query = Expr::Subquery(query.clone());
        return Some(call("__array", vec![query]));
    }
    let df_name = match name.as_str() {
        "every" => "bool_and",
        "ceiling" => "ceil",
        "sign" => "signum",
        "pow" => "power",
        "mod" => {
            let (left, right) = two_arguments(function)?;
            return Some(Expr::Nested(Box::new(Expr::BinaryOp {
                left: Box::new(left),
                op: BinaryOperator::Modulo,
                right: Box::new(right),
            })));
        }
        _ => return None,
    };
    function.name = object_name(df_name);
    None
}

/// `CASE WHEN condition THEN value END`.
fn guarded(condition: Expr, value: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen {
            condition,
            result: value,
        }],
        else_result: None,
    }
}

fn strip_catalog(name: &mut ObjectName) {
    if name.0.len() == 2 && matches!(name.0[0].as_ident(), Some(schema) if folded(schema) == "pg_catalog") {
        name.0.remove(0);
    }
}

/// Rows of VALUES must agree in their exact types, which only casts name: `__plain` forgets the name.
fn plain_values(query: &mut Query) {
    let SetExpr::Values(values) = query.body.as_mut() else {
        return;
    };
    for expr in values.rows.iter_mut().flat_map(|row| row.iter_mut()) {
        if matches!(expr, Expr::Function(function) if last_part(&function.name).as_deref() == Some("__cast"))
        {
            let inner = std::mem::replace(expr, null());
            *expr = call("__plain", vec![inner]);
        }
    }
}

fn two_arguments(function: &Function) -> Option<(Expr, Expr)> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    match list.args.as_slice() {
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
        ] => Some((
            Expr::Nested(Box::new(left.clone())),
            Expr::Nested(Box::new(right.clone())),
        )),
        _ => None,
    }
}

fn plain_operator(symbol: &str) -> Option<BinaryOperator> {
    Some(match symbol {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// `FETCH FIRST n ROWS ONLY` is `LIMIT n`.
fn fetch_as_limit(query: &mut Query) {
    let Some(fetch) = &query.fetch else { return };
    if fetch.with_ties || fetch.percent {
        return;
    }
    let quantity = fetch.quantity.clone().unwrap_or_else(|| number("1"));
    let limit = match &mut query.limit_clause {
        None => {
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: Some(quantity),
                offset: None,
                limit_by: Vec::new(),
            });
            query.fetch = None;
            return;
        }
        Some(LimitClause::LimitOffset { limit, .. }) => limit,
        Some(LimitClause::OffsetCommaLimit { .. }) => return,
    };
    *limit = Some(quantity);
    query.fetch = None;
}

fn marked(literal: Expr) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(literal),
        data_type: DataType::Custom(object_name(INT4_MARKER), Vec::new()),
        array: false,
        format: None,
    }
}

/// Takes the int4 mark off where a bare number means something else: a position, a count.
fn unmark(expr: &mut Expr) {
    if let Expr::Cast {
        expr: inner,
        data_type: DataType::Custom(name, _),
        ..
    } = expr
        && last_part(name).as_deref() == Some(INT4_MARKER)
    {
        *expr = std::mem::replace(inner, null());
    }
}

fn unmark_bound(bound: &mut WindowFrameBound) {
    if let WindowFrameBound::Preceding(Some(expr)) | WindowFrameBound::Following(Some(expr)) = bound {
        unmark(expr);
    }
}

/// A one-part name.
pub(super) fn object_name(name: &str) -> ObjectName {
    ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))])
}

/// `name(arguments)`.
pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments
        .into_iter()
        .map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)))
        .collect();
    Expr::Function(Function {
        name: object_name(name),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// A string literal.
pub(super) fn string(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_string()).into())
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_string(), false).into())
}

pub(super) fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

/// The expression of a select item.
fn item_expr(item: &mut SelectItem) -> Option<&mut Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}
