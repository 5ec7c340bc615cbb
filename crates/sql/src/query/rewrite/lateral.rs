//! `LATERAL (SELECT e1, e2) AS a(c1, c2)`, without FROM, computes values from one row: `a.c1` is `e1`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr, TableFactor, Value,
    VisitMut, VisitorMut,
};

use super::super::naming::{folded, output_name};
use super::item_expr;

/// Replaces the columns of such derived tables by their expressions, everywhere in the query.
pub(super) fn inline(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return;
    };
    let mut columns: HashMap<(String, String), Expr> = HashMap::new();
    for from in &mut select.from {
        from.joins.retain(|join| match computed_columns(join) {
            Some(computed) => {
                columns.extend(computed);
                false
            }
            None => true,
        });
    }
    if columns.is_empty() {
        return;
    }
    keep_names(select, &columns);
    let _ = query.visit(&mut Substitute { columns });
}

/// An item that is a replaced column keeps the column's name.
fn keep_names(select: &mut Select, columns: &HashMap<(String, String), Expr>) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && let Some(key) = key_of(expr)
            && columns.contains_key(&key)
        {
            let alias = Ident::with_quote('"', key.1);
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias,
            };
        }
    }
}

fn computed_columns(join: &Join) -> Option<Vec<((String, String), Expr)>> {
    let always = match &join.join_operator {
        JoinOperator::CrossJoin(_) => true,
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on) => is_true(on),
        _ => false,
    };
    let TableFactor::Derived {
        lateral: true,
        subquery,
        alias: Some(alias),
        ..
    } = &join.relation
    else {
        return None;
    };
    let SetExpr::Select(inner) = subquery.body.as_ref() else {
        return None;
    };
    let plain = inner.from.is_empty()
        && inner.selection.is_none()
        && inner.having.is_none()
        && inner.distinct.is_none()
        && subquery.limit_clause.is_none();
    if !always || !plain {
        return None;
    }
    let mut computed = Vec::with_capacity(inner.projection.len());
    for (position, item) in inner.projection.iter().enumerate() {
        let mut item = item.clone();
        let own_name = match &item {
            SelectItem::ExprWithAlias { alias, .. } => folded(alias),
            SelectItem::UnnamedExpr(expr) => output_name(expr),
            _ => return None,
        };
        let name = alias
            .columns
            .get(position)
            .map_or(own_name, |column| folded(&column.name));
        let expr = Expr::Nested(Box::new(item_expr(&mut item)?.clone()));
        computed.push(((folded(&alias.name), name), expr));
    }
    Some(computed)
}

fn is_true(on: &JoinConstraint) -> bool {
    matches!(on, JoinConstraint::On(Expr::Value(value)) if value.value == Value::Boolean(true))
}

fn key_of(expr: &Expr) -> Option<(String, String)> {
    match expr {
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [table, column] => Some((folded(table), folded(column))),
            _ => None,
        },
        _ => None,
    }
}

struct Substitute {
    columns: HashMap<(String, String), Expr>,
}

impl VisitorMut for Substitute {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(replacement) = key_of(expr).and_then(|key| self.columns.get(&key)) {
            *expr = replacement.clone();
        }
        ControlFlow::Continue(())
    }
}
