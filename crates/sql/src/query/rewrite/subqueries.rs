//! Subqueries used as values.
//!
//! DataFusion decorrelates a scalar subquery only when an aggregate bounds it to one row. PostgreSQL takes any, and
//! fails at run time when a second row comes. `__single` is an aggregate that does exactly that.

use std::ops::ControlFlow;

use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Join, JoinOperator, LimitClause, OrderBy,
    OrderByExpr, OrderByKind, Query, Select, SetExpr, TableFactor, Value, Visit, Visitor,
};

use super::super::naming::last_part;
use super::{call, item_expr, null};
use crate::pg_catalog::is_always_empty;

/// Bounds a scalar subquery to one row by an aggregate, unless it has one, groups, or is no plain select.
pub(super) fn make_scalar(query: &mut Query) {
    let order_by = order_items(query);
    let limited = match &query.limit_clause {
        None => false,
        Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by }) => {
            if !is_one(limit) || !limit_by.is_empty() {
                return;
            }
            true
        }
        Some(_) => return,
    };
    let Some(select) = plain_select(query) else { return };
    if select.from.is_empty() {
        return;
    }
    let [item] = select.projection.as_mut_slice() else { return };
    let Some(expr) = item_expr(item) else { return };
    if is_bounded(expr) {
        return;
    }
    let inner = std::mem::replace(expr, null());
    *expr = if limited { aggregate("first_value", inner, order_by) } else { aggregate("__single", inner, Vec::new()) };
    query.order_by = None;
    query.limit_clause = None;
}

/// `ARRAY(SELECT e ... ORDER BY o)`: one row with the array of all values, NULL when there are none.
pub(super) fn make_array(query: &mut Query) {
    if query.limit_clause.is_some() {
        return;
    }
    let mut order_by = order_items(query);
    let Some(select) = plain_select(query) else { return };
    let [item] = select.projection.as_mut_slice() else { return };
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

/// A select over an inner join with a catalog that never has rows yields none: whatever subqueries stand in its
/// select list are never evaluated, and need not be planned.
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
        Some(OrderBy { kind: OrderByKind::Expressions(items), .. }) => items.clone(),
        _ => Vec::new(),
    }
}

fn plain_select(query: &mut Query) -> Option<&mut Select> {
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
    (ungrouped && select.distinct.is_none() && select.having.is_none()).then_some(select)
}

fn is_one(expr: &Expr) -> bool {
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
fn is_bounded(expr: &Expr) -> bool {
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
