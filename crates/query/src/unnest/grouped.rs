//! Subqueries that aggregate the rows which match the outer row by equality: the rows are grouped by the
//! compared columns once, and each outer row is joined to its group.
//!
//! ```text
//!   (SELECT f(sum(x)) FROM s WHERE s.k = t.k AND p)
//!   t LEFT JOIN (SELECT k, sum(x), count(*) FROM s WHERE p GROUP BY k) g ON g.k = t.k      then f
//! ```
//!
//! Groups without an outer row are computed needlessly, so an aggregate's arguments must not be able to fail.

use std::collections::{HashMap, HashSet};

use datafusion::common::JoinType;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan};
use weft_binder::relation::{AggregateCall, Relation, SortKey};
use weft_expression::{ColumnId, CompareOp, Expr, Op};
use weft_types::{SqlError, SqlType, Value};

use super::pull_up::Purpose;
use crate::lower::aggregate::Key;
use crate::lower::expression::all_of;
use crate::lower::walk::{expr_names, is_fallible, substituted};
use crate::lower::{Lowering, column, columns_of, projected};
use crate::schema::field_name;

/// What a subquery has above its aggregation.
struct Above<'r> {
    input: &'r Relation,
    calls: &'r [AggregateCall],
    /// The subquery's columns, as expressions over the results of the calls.
    values: HashMap<ColumnId, Expr>,
    /// HAVING
    conditions: Vec<Expr>,
}

impl Lowering<'_> {
    /// Joins the subquery's row to the plan, if the subquery has this form.
    pub(crate) fn grouped_row(
        &mut self,
        left: &LogicalPlan,
        subquery: &Relation,
        columns: &[(ColumnId, ColumnId, SqlType)],
        needed: &[ColumnId],
    ) -> Result<Option<LogicalPlan>, SqlError> {
        let outer: HashSet<ColumnId> = needed.iter().copied().collect();
        let Some(above) = above(subquery, columns) else {
            return Ok(None);
        };
        let mut parts = above.calls.iter().flat_map(|call| {
            let keys = call.order.iter().map(|key| &key.expr);
            call.arguments.iter().chain(&call.filter).chain(keys)
        });
        if parts.any(|expr| is_fallible(expr) || expr_names(expr, &outer)) {
            return Ok(None);
        }
        let (ordered, order) = self.with_order(above.input);
        let Some((input, on)) = self.pull_up(&ordered, &outer, Purpose::Rows)? else {
            return Ok(None);
        };
        let mut pairs = Vec::with_capacity(on.len());
        for conjunct in on {
            match key_pair(conjunct, &outer) {
                Some(pair) => pairs.push(pair),
                None => return Ok(None),
            }
        }
        self.row_of_group(left.clone(), (&input, &order), &above, pairs, columns)
            .map(Some)
    }

    fn row_of_group(
        &mut self,
        left: LogicalPlan,
        (input, order): (&Relation, &[SortKey]),
        above: &Above<'_>,
        pairs: Vec<(Expr, Expr)>,
        columns: &[(ColumnId, ColumnId, SqlType)],
    ) -> Result<LogicalPlan, SqlError> {
        let own = columns_of(&left);
        let plan = self.lower(input, None)?;
        let mut items = Vec::new();
        let mut keys = Vec::with_capacity(pairs.len());
        for (inner, _) in &pairs {
            let value = self.held(inner, &plan, &mut items)?;
            keys.push((self.fresh(inner.ty()), value));
        }
        let mut calls = Vec::with_capacity(above.calls.len());
        for call in above.calls {
            calls.push(self.planned_call(call, order, &plan, &mut items)?);
        }
        let plan = self.extended(plan, items)?;
        let (plan, keys) = self.keyed(plan, &keys)?;
        let marker = self.fresh(SqlType::Int8);
        let groups = self.grouped(plan, &keys, &calls, Some(marker))?;
        self.made(above.calls.iter().map(|call| (call.output, call.ty)));
        let joined = self.join_groups(left, groups, &keys, pairs)?;
        let mut items: Vec<PlanExpr> = own.iter().map(|id| column(*id)).collect();
        for call in &calls {
            items.push(self.over_nothing(call, marker, &joined)?);
        }
        let plan = projected(joined, items)?;
        let mut items: Vec<PlanExpr> = own.iter().map(|id| column(*id)).collect();
        for (output, value, ty) in columns {
            let value = above.values.get(value).cloned();
            let value = value.ok_or_else(|| SqlError::internal("a subquery's column is missing"))?;
            let value = match all_of(above.conditions.clone()) {
                None => value,
                Some(condition) => {
                    let null = Expr::constant(Value::Null, *ty);
                    Expr::new(Op::Case { operand: false }, *ty, vec![condition, value, null])
                }
            };
            items.push(self.scalar(&value, &plan)?.alias(field_name(*output)));
        }
        self.made(columns.iter().map(|(output, _, ty)| (*output, *ty)));
        projected(plan, items)
    }

    fn join_groups(
        &mut self,
        left: LogicalPlan,
        groups: LogicalPlan,
        keys: &[Key],
        pairs: Vec<(Expr, Expr)>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut on = Vec::with_capacity(pairs.len());
        for ((_, outside), key) in pairs.into_iter().zip(keys) {
            let value = self.scalar(&outside, &left)?;
            on.push(self.comparable(value, &left, column(key.output), &groups, outside.ty())?);
        }
        self.joined_as(JoinType::Left, left, groups, on, Vec::new())
    }
}

/// Decomposes a subquery down to its aggregation.
fn above<'r>(subquery: &'r Relation, columns: &[(ColumnId, ColumnId, SqlType)]) -> Option<Above<'r>> {
    let mut values: HashMap<ColumnId, Expr> = columns
        .iter()
        .map(|(_, value, ty)| (*value, Expr::column(*value, *ty)))
        .collect();
    let mut conditions: Vec<Expr> = Vec::new();
    let mut relation = subquery;
    loop {
        match relation {
            Relation::Project { input, items } => {
                let by: HashMap<ColumnId, Expr> = items.iter().cloned().collect();
                for value in values.values_mut() {
                    *value = substituted(value, &by);
                }
                for condition in &mut conditions {
                    *condition = substituted(condition, &by);
                }
                relation = input;
            }
            Relation::Filter { input, predicate } => {
                conditions.insert(0, predicate.clone());
                relation = input;
            }
            Relation::Sort { input, .. } => relation = input,
            Relation::Aggregate {
                input,
                groups,
                sets,
                calls,
                ..
            } if groups.is_empty() && sets.is_empty() => {
                return Some(Above {
                    input,
                    calls,
                    values,
                    conditions,
                });
            }
            _ => return None,
        }
    }
}

/// The inner and the outer side of an equality between both.
fn key_pair(conjunct: Expr, outer: &HashSet<ColumnId>) -> Option<(Expr, Expr)> {
    if conjunct.root().op != Op::Compare(CompareOp::Eq) {
        return None;
    }
    let [a, b] = <[Expr; 2]>::try_from(conjunct.into_arguments()).ok()?;
    let all_outer = |expr: &Expr| expr.columns().all(|id| outer.contains(&id));
    if all_outer(&b) && !expr_names(&a, outer) && a.columns().next().is_some() && !is_fallible(&a) {
        Some((a, b))
    } else if all_outer(&a) && !expr_names(&b, outer) && b.columns().next().is_some() && !is_fallible(&b) {
        Some((b, a))
    } else {
        None
    }
}
