//! Subqueries used as values.
//!
//! DataFusion decorrelates a scalar subquery only when an aggregate bounds it to one row. PostgreSQL takes
//! any, and fails at run time when a second row comes. `__single` is an aggregate that does exactly that.

use std::ops::ControlFlow;

use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    GroupByExpr, Ident, Join, JoinOperator, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, Select,
    SetExpr, TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use super::super::naming::{factor_name, folded, last_part};
use super::{call, item_expr, null};
use crate::pg_catalog::is_always_empty;

/// Bounds a scalar subquery to one row by an aggregate, unless it has one, groups, or is no plain select.
/// Returns a condition on the outer row alone that was taken out of it: without it the value is NULL.
pub(super) fn make_scalar(query: &mut Query) -> Option<Expr> {
    let order_by = order_items(query);
    let limited = match &query.limit_clause {
        None => false,
        Some(LimitClause::LimitOffset {
            limit: Some(limit),
            offset: None,
            limit_by,
        }) => {
            if !is_one(limit) || !limit_by.is_empty() {
                return None;
            }
            true
        }
        Some(_) => return None,
    };
    let select = plain_select(query)?;
    if select.from.is_empty() {
        return None;
    }
    localize(select);
    let [item] = select.projection.as_mut_slice() else {
        return None;
    };
    let expr = item_expr(item)?;
    if is_bounded(expr) {
        return None;
    }
    let inner = std::mem::replace(expr, null());
    *expr = if limited {
        aggregate("first_value", inner, order_by)
    } else {
        aggregate("__single", inner, Vec::new())
    };
    let guard = take_outer_conditions(select);
    query.order_by = None;
    query.limit_clause = None;
    guard
}

/// Names that the select's FROM clause introduces; `None` when some have none.
fn inner_names(select: &Select) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for from in &select.from {
        for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
            names.push(factor_name(factor)?);
        }
    }
    Some(names)
}

fn conjuncts(expr: Expr, into: &mut Vec<Expr>) {
    match expr {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            conjuncts(*left, into);
            conjuncts(*right, into);
        }
        Expr::Nested(inner)
            if matches!(
                *inner,
                Expr::BinaryOp {
                    op: BinaryOperator::And,
                    ..
                }
            ) =>
        {
            conjuncts(*inner, into);
        }
        other => into.push(other),
    }
}

fn conjunction(conditions: Vec<Expr>) -> Option<Expr> {
    conditions.into_iter().reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    })
}

/// `table.column`, and whether the table is one of `inner`.
fn column_side(expr: &Expr, inner: &[String]) -> Option<(Vec<Ident>, bool)> {
    match expr {
        Expr::CompoundIdentifier(parts) if parts.len() == 2 => {
            Some((parts.clone(), inner.contains(&folded(&parts[0]))))
        }
        _ => None,
    }
}

/// Where a conjunct equates an outer column with an inner one, the other conjuncts may as well use the inner
/// one: `c.oid = a.x AND a.x <> t.y` becomes `c.oid = a.x AND c.oid <> t.y`, which needs no correlation of
/// its own.
fn localize(select: &mut Select) {
    let Some(inner) = inner_names(select) else { return };
    let Some(selection) = select.selection.take() else {
        return;
    };
    let mut conditions = Vec::new();
    conjuncts(selection, &mut conditions);
    let mut equal: Vec<(Vec<Ident>, Vec<Ident>)> = Vec::new();
    let mut equates = vec![false; conditions.len()];
    for (position, condition) in conditions.iter().enumerate() {
        if let Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } = condition
            && let (Some(left), Some(right)) = (column_side(left, &inner), column_side(right, &inner))
            && left.1 != right.1
        {
            equates[position] = true;
            equal.push(if left.1 {
                (right.0, left.0)
            } else {
                (left.0, right.0)
            });
        }
    }
    for (position, condition) in conditions.iter_mut().enumerate() {
        if !equates[position] {
            let _ = condition.visit(&mut Localize { equal: &equal });
        }
    }
    select.selection = conjunction(conditions);
}

struct Localize<'a> {
    equal: &'a [(Vec<Ident>, Vec<Ident>)],
}

impl VisitorMut for Localize<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr {
            let same = |outer: &[Ident]| {
                outer.len() == parts.len()
                    && outer
                        .iter()
                        .zip(parts.iter())
                        .all(|(a, b)| folded(a) == folded(b))
            };
            if let Some((_, replacement)) = self.equal.iter().find(|(outer, _)| same(outer)) {
                *parts = replacement.clone();
            }
        }
        ControlFlow::Continue(())
    }
}

/// Takes out the conjuncts whose columns all belong to the outer query.
fn take_outer_conditions(select: &mut Select) -> Option<Expr> {
    let inner = inner_names(select)?;
    let mut conditions = Vec::new();
    conjuncts(select.selection.take()?, &mut conditions);
    let (outer, own): (Vec<Expr>, Vec<Expr>) = conditions
        .into_iter()
        .partition(|condition| is_outer(condition, &inner));
    select.selection = conjunction(own);
    conjunction(outer)
}

fn is_outer(condition: &Expr, inner: &[String]) -> bool {
    struct Columns<'a> {
        inner: &'a [String],
        outer: bool,
    }
    impl Visitor for Columns<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) => ControlFlow::Break(()),
                Expr::CompoundIdentifier(_) => match column_side(expr, self.inner) {
                    Some((_, false)) => {
                        self.outer = true;
                        ControlFlow::Continue(())
                    }
                    _ => ControlFlow::Break(()),
                },
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let mut columns = Columns { inner, outer: false };
    condition.visit(&mut columns).is_continue() && columns.outer
}

/// `ARRAY(SELECT ... FROM unnest(t.reloptions) x)`: the catalog's columns of options are always NULL here,
/// and an array over their elements is empty.
pub(super) fn is_array_of_nothing(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else {
        return false;
    };
    let FunctionArguments::Subquery(query) = &function.args else {
        return false;
    };
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let [from] = select.from.as_slice() else {
        return false;
    };
    let (name, args) = match &from.relation {
        TableFactor::Table {
            name,
            args: Some(args),
            ..
        } => (name, args.args.as_slice()),
        TableFactor::Function { name, args, .. } => (name, args.as_slice()),
        _ => return false,
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(parts)))] = args else {
        return false;
    };
    last_part(&function.name).as_deref() == Some("array")
        && last_part(name).as_deref() == Some("unnest")
        && from.joins.is_empty()
        && parts
            .last()
            .is_some_and(|column| matches!(folded(column).as_str(), "reloptions" | "attoptions"))
}

/// `ARRAY(SELECT e ... ORDER BY o)`: one row with the array of all values, NULL when there are none.
pub(super) fn make_array(query: &mut Query) {
    if query.limit_clause.is_some() {
        return;
    }
    let mut order_by = order_items(query);
    let Some(select) = plain_select(query) else { return };
    let [item] = select.projection.as_mut_slice() else {
        return;
    };
    let Some(expr) = item_expr(item) else { return };
    let inner = std::mem::replace(expr, null());
    for order in &mut order_by {
        if is_one(&order.expr) {
            order.expr = inner.clone();
        }
    }
    *expr = aggregate("array_agg", inner, order_by);
    query.order_by = None;
}

/// A select over an inner join with a catalog that never has rows yields none: whatever subqueries stand in
/// its select list are never evaluated, and need not be planned.
pub(super) fn prune_never_evaluated(select: &mut Select) {
    let empty = select.from.iter().any(|from| {
        let inner_only = from.joins.iter().all(|join| {
            matches!(
                join.join_operator,
                JoinOperator::Join(_)
                    | JoinOperator::Inner(_)
                    | JoinOperator::CrossJoin(_)
                    | JoinOperator::Left(_)
                    | JoinOperator::LeftOuter(_)
            )
        });
        inner_only && (is_empty_factor(&from.relation) || from.joins.iter().any(is_empty_join))
    });
    if !empty {
        return;
    }
    for item in &mut select.projection {
        if let Some(expr) = item_expr(item)
            && !is_bounded(expr)
            && has_subquery(expr)
        {
            *expr = null();
        }
    }
}

fn is_empty_join(join: &Join) -> bool {
    matches!(
        join.join_operator,
        JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
    ) && is_empty_factor(&join.relation)
}

fn is_empty_factor(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table { name, args: None, .. }
        if last_part(name).is_some_and(|name| is_always_empty(&name)))
}

fn order_items(query: &Query) -> Vec<OrderByExpr> {
    match &query.order_by {
        Some(OrderBy {
            kind: OrderByKind::Expressions(items),
            ..
        }) => items.clone(),
        _ => Vec::new(),
    }
}

pub(super) fn plain_select(query: &mut Query) -> Option<&mut Select> {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    let ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
    (ungrouped && select.distinct.is_none() && select.having.is_none()).then_some(select)
}

pub(super) fn is_one(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(&value.value, Value::Number(digits, _) if digits == "1"))
}

fn aggregate(name: &str, argument: Expr, order_by: Vec<OrderByExpr>) -> Expr {
    let mut aggregate = call(name, vec![argument]);
    if let Expr::Function(function) = &mut aggregate
        && let FunctionArguments::List(list) = &mut function.args
        && !order_by.is_empty()
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(order_by));
    }
    aggregate
}

/// Whether an expression holds an aggregate or window function of its own level.
pub(super) fn is_bounded(expr: &Expr) -> bool {
    let mut finder = AggregateFinder { depth: 0 };
    expr.visit(&mut finder).is_break()
}

struct AggregateFinder {
    depth: usize,
}

impl Visitor for AggregateFinder {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Function(function) = expr
            && (function.over.is_some() || last_part(&function.name).is_some_and(|name| is_aggregate(&name)))
        {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Whether a function of this name aggregates.
pub(crate) fn is_aggregate(name: &str) -> bool {
    static NAMES: std::sync::OnceLock<std::collections::HashSet<String>> = std::sync::OnceLock::new();
    let names = NAMES.get_or_init(|| {
        all_default_aggregate_functions()
            .iter()
            .flat_map(|udaf| udaf.aliases().iter().cloned().chain([udaf.name().to_string()]))
            .chain(["__single", "every"].map(String::from))
            .collect()
    });
    names.contains(name)
}

fn has_subquery(expr: &Expr) -> bool {
    struct QueryFinder;
    impl Visitor for QueryFinder {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    expr.visit(&mut QueryFinder).is_break()
}
