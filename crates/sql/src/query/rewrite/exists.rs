//! EXISTS as a value of a select list. DataFusion takes it in conditions only, where it becomes a join; a
//! count that is more than nothing says the same and is a scalar subquery like others.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, LimitClause, Query, Select,
    SelectItem, UnaryOperator, VisitMut, VisitorMut,
};

use super::subqueries::{is_bounded, is_one, plain_select};
use super::{call, item_expr, number};

/// Rewrites every EXISTS of the select list itself, not of subqueries in it.
pub(super) fn in_select_list(select: &mut Select) {
    for expr in select.projection.iter_mut().filter_map(item_expr) {
        let _ = expr.visit(&mut Counter { depth: 0 });
    }
}

struct Counter {
    depth: usize,
}

impl VisitorMut for Counter {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Exists { subquery, negated } = expr
            && count_rows(subquery)
        {
            let counted = Expr::Subquery(subquery.clone());
            *expr = match negated {
                false => counted,
                true => Expr::UnaryOp {
                    op: UnaryOperator::Not,
                    expr: Box::new(counted),
                },
            };
        }
        ControlFlow::Continue(())
    }
}

/// Makes a plain select say whether it has rows. False: it is no such select.
fn count_rows(query: &mut Query) -> bool {
    let any_row = match &query.limit_clause {
        None => true,
        Some(LimitClause::LimitOffset {
            limit: Some(limit),
            offset: None,
            limit_by,
        }) => is_one(limit) && limit_by.is_empty(),
        Some(_) => false,
    };
    let Some(select) = plain_select(query).filter(|select| any_row && !select.from.is_empty()) else {
        return false;
    };
    if select
        .projection
        .iter_mut()
        .filter_map(item_expr)
        .any(|expr| is_bounded(expr))
    {
        return false;
    }
    let mut count = call("count", Vec::new());
    if let Expr::Function(function) = &mut count
        && let FunctionArguments::List(list) = &mut function.args
    {
        list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
    }
    select.projection = vec![SelectItem::UnnamedExpr(Expr::BinaryOp {
        left: Box::new(count),
        op: BinaryOperator::Gt,
        right: Box::new(number("0")),
    })];
    query.order_by = None;
    query.limit_clause = None;
    true
}
