//! Unnests subqueries: turns them into joins.
//!
//! ```text
//!   names no outer column                  lowered independently
//!   names it only in filters near the top  these become the join's condition                 (pull_up)
//!   aggregates rows chosen by equality     grouped by the compared columns                   (grouped)
//!   anything else                          computed for all distinct bindings at once, and
//!                                          joined back on them                               (Domain)
//! ```
//!
//! EXISTS, IN, ANY and ALL are mark joins, or semi and anti joins if a filter only needs the matching rows.
//! Whether a test was unknown for some row is a second mark, so that NOT IN and ALL return NULL where
//! PostgreSQL does.
//!
//! Source: "Unnesting Arbitrary Queries", Neumann and Kemper, 2015.

mod filter;
mod grouped;
mod pull_up;
mod quantified;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use datafusion::common::{Column, JoinType};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan};
use weft_binder::relation::{AggregateCall, Apply, JoinKind, Relation};
use weft_expression::{ColumnId, Expr, Op};
use weft_types::{ArrayValue, SqlError, SqlType, Value};

use crate::functions::single::single;
use crate::lower::join::crossed;
use crate::lower::predicate::conjuncts;
use crate::lower::walk::{columns_made, is_volatile, named_of, visit};
use crate::lower::{Domain, Lowering, column, columns_of, projected};
use crate::schema::field_name;
use pull_up::Purpose;

/// A subquery to be joined to the rows that it belongs to: keys must be equal and conditions true.
pub(crate) struct SubqueryJoin {
    pub(crate) left: LogicalPlan,
    pub(crate) right: LogicalPlan,
    pub(crate) keys: Vec<(PlanExpr, PlanExpr)>,
    pub(crate) on: Vec<Expr>,
}

impl Lowering<'_> {
    pub(crate) fn applied(
        &mut self,
        left: LogicalPlan,
        subquery: &Relation,
        kind: &Apply,
    ) -> Result<LogicalPlan, SqlError> {
        if self.is_unused(subquery, kind) {
            return Ok(left);
        }
        match kind {
            Apply::Lateral { kind, on } => self.lateral(left, subquery, *kind, on.as_ref()),
            Apply::Scalar { .. } | Apply::Row { .. } => {
                let columns = row_columns(kind).unwrap_or_default();
                self.row_of(left, subquery, &columns)
            }
            Apply::Exists { output } => {
                let subquery_join = self.subquery_join(left, subquery, Purpose::Exists)?;
                let plan = self.marked(subquery_join, Vec::new(), *output)?;
                self.made([(*output, SqlType::Bool)]);
                Ok(plan)
            }
            Apply::Quantified { output, test, all } => self.quantified(left, subquery, *output, test, *all),
            Apply::Array { output, value, ty } => {
                let (whole, filled) = self.array(subquery, *value, *ty)?;
                self.row_of(left, &whole, &[(*output, filled, *ty)])
            }
        }
    }

    /// The only row of a subquery that names no column of the rows it belongs to, with the columns that the
    /// `Apply` adds; `None` for kinds that do not add one row.
    fn only_row(&mut self, subquery: &Relation, kind: &Apply) -> Result<Option<LogicalPlan>, SqlError> {
        Ok(Some(match kind {
            Apply::Lateral { .. } | Apply::Quantified { .. } => return Ok(None),
            Apply::Scalar { .. } | Apply::Row { .. } => {
                let columns = row_columns(kind).unwrap_or_default();
                self.independent_row(subquery, &columns)?
            }
            Apply::Exists { output } => {
                let plan = self.lower(subquery, None)?;
                self.made([(*output, SqlType::Bool)]);
                self.found(plan, *output)?
            }
            Apply::Array { output, value, ty } => {
                let (whole, filled) = self.array(subquery, *value, *ty)?;
                self.independent_row(&whole, &[(*output, filled, *ty)])?
            }
        }))
    }

    /// Whether the subquery's result is unused, and computing it has no effects.
    fn is_unused(&self, subquery: &Relation, kind: &Apply) -> bool {
        let asked = |id: &ColumnId| self.uses.get(id).is_some_and(|uses| *uses > 0);
        let alone = !matches!(kind, Apply::Lateral { .. });
        let mut unused = alone && !filter::outputs(subquery, kind).iter().any(asked);
        if unused {
            visit(subquery, &mut |part| {
                unused = !part.exprs.iter().any(|expr| is_volatile(expr));
                unused
            });
        }
        unused
    }

    /// The subquery's plan, and how its rows join to those of `left`.
    pub(crate) fn subquery_join(
        &mut self,
        left: LogicalPlan,
        subquery: &Relation,
        purpose: Purpose,
    ) -> Result<SubqueryJoin, SqlError> {
        let needed = named_of(subquery, &columns_of(&left));
        if needed.is_empty() {
            let right = self.lower(subquery, None)?;
            return Ok(SubqueryJoin {
                left,
                right,
                keys: Vec::new(),
                on: Vec::new(),
            });
        }
        let outer: HashSet<ColumnId> = needed.iter().copied().collect();
        if let Some((relation, on)) = self.pull_up(subquery, &outer, purpose)? {
            let right = self.lower(&relation, None)?;
            return Ok(SubqueryJoin {
                left,
                right,
                keys: Vec::new(),
                on,
            });
        }
        let (left, domain) = self.domain_of(left, needed)?;
        let right = self.lower(subquery, Some(&domain))?;
        let (right, copies) = self.with_copies(right, &domain.columns)?;
        let keys = self.null_safe_keys(&left, &domain.columns, &right, &copies)?;
        Ok(SubqueryJoin {
            left,
            right,
            keys,
            on: Vec::new(),
        })
    }

    /// The distinct bindings of some columns of a plan; the plan is computed once for both.
    pub(crate) fn domain_of(
        &mut self,
        plan: LogicalPlan,
        columns: Vec<ColumnId>,
    ) -> Result<(LogicalPlan, Domain), SqlError> {
        let plan = self.materialized(plan, "outer rows")?;
        let bindings = projected(plan.clone(), columns.iter().map(|id| column(*id)).collect())?;
        let bindings = self.distinct_rows(bindings)?;
        let bindings = self.materialized(bindings, "outer bindings")?;
        Ok((
            plan,
            Domain {
                plan: bindings,
                columns,
            },
        ))
    }

    /// Adds a mark column to the left side: whether a row of the right side matches.
    pub(crate) fn marked(
        &mut self,
        subquery_join: SubqueryJoin,
        mut test: Vec<Expr>,
        output: ColumnId,
    ) -> Result<LogicalPlan, SqlError> {
        let columns = columns_of(&subquery_join.left);
        let mut on = subquery_join.on;
        on.append(&mut test);
        let joined = if subquery_join.keys.is_empty() && on.is_empty() {
            let found = self.found(subquery_join.right, output)?;
            return crossed(subquery_join.left, found);
        } else {
            // The mark is qualified by a column of the right side, so a side without columns gets one.
            let mut right = subquery_join.right;
            if columns_of(&right).is_empty() {
                let id = self.fresh(SqlType::Bool);
                right = self.extended(right, vec![(id, datafusion::logical_expr::lit(true))])?;
            }
            self.joined_as(
                JoinType::LeftMark,
                subquery_join.left,
                right,
                subquery_join.keys,
                on,
            )?
        };
        let mut items: Vec<PlanExpr> = columns.into_iter().map(column).collect();
        let schema = joined.schema();
        let mark = schema
            .columns()
            .pop()
            .unwrap_or_else(|| Column::new_unqualified("mark"));
        items.push(PlanExpr::Column(mark).alias(field_name(output)));
        projected(joined, items)
    }

    /// One row: whether a plan has a row.
    fn found(&mut self, plan: LogicalPlan, output: ColumnId) -> Result<LogicalPlan, SqlError> {
        let one = LogicalPlan::Limit(datafusion::logical_expr::Limit {
            skip: None,
            fetch: Some(Box::new(datafusion::logical_expr::lit(1_i64))),
            input: std::sync::Arc::new(plan),
        });
        let count = self.fresh(SqlType::Int8);
        let counted = self.grouped(one, &[], &[], Some(count))?;
        let found = crate::lower::predicate::binary(
            column(count),
            datafusion::logical_expr::Operator::Gt,
            datafusion::logical_expr::lit(0_i64),
        );
        projected(counted, vec![found.alias(field_name(output))])
    }

    /// LATERAL.
    fn lateral(
        &mut self,
        left: LogicalPlan,
        subquery: &Relation,
        kind: JoinKind,
        on: Option<&Expr>,
    ) -> Result<LogicalPlan, SqlError> {
        let own = columns_of(&left);
        let mut subquery_join = self.subquery_join(left, subquery, Purpose::Rows)?;
        subquery_join.on.extend(on.map(conjuncts).unwrap_or_default());
        let made = columns_made(subquery);
        let joined = if kind == JoinKind::Inner && subquery_join.keys.is_empty() {
            self.joined(kind, subquery_join.left, subquery_join.right, subquery_join.on)?
        } else {
            let kind = if kind == JoinKind::Inner {
                JoinType::Inner
            } else {
                JoinType::Left
            };
            self.joined_as(
                kind,
                subquery_join.left,
                subquery_join.right,
                subquery_join.keys,
                subquery_join.on,
            )?
        };
        let there: HashSet<ColumnId> = columns_of(&joined).into_iter().collect();
        let items = own.into_iter().chain(made).filter(|id| there.contains(id));
        projected(joined, items.map(column).collect())
    }

    /// Adds the columns of a subquery's only row, NULL if it has none.
    fn row_of(
        &mut self,
        left: LogicalPlan,
        subquery: &Relation,
        columns: &[(ColumnId, ColumnId, SqlType)],
    ) -> Result<LogicalPlan, SqlError> {
        let needed = named_of(subquery, &columns_of(&left));
        if needed.is_empty() {
            let row = self.independent_row(subquery, columns)?;
            return crossed(left, row);
        }
        if let Some(plan) = self.grouped_row(&left, subquery, columns, &needed)? {
            return Ok(plan);
        }
        let (left, domain) = self.domain_of(left, needed)?;
        let plan = self.lower(subquery, Some(&domain))?;
        let plan = self.single_row(plan, columns, &domain.columns)?;
        let (plan, copies) = self.with_copies(plan, &domain.columns)?;
        let keys = self.null_safe_keys(&left, &domain.columns, &plan, &copies)?;
        let own = columns_of(&left);
        let joined = self.joined_as(JoinType::Left, left, plan, keys, Vec::new())?;
        self.made(columns.iter().map(|(output, _, ty)| (*output, *ty)));
        let outputs = columns.iter().map(|(output, _, _)| *output);
        projected(joined, own.into_iter().chain(outputs).map(column).collect())
    }

    /// The only row of a subquery that names no outer column, NULL if it has none.
    fn independent_row(
        &mut self,
        subquery: &Relation,
        columns: &[(ColumnId, ColumnId, SqlType)],
    ) -> Result<LogicalPlan, SqlError> {
        let plan = self.lower(subquery, None)?;
        let plan = if gives_one_row(subquery) {
            let items = columns
                .iter()
                .map(|(output, value, _)| column(*value).alias(field_name(*output)));
            projected(plan, items.collect())?
        } else {
            self.single_row(plan, columns, &[])?
        };
        self.made(columns.iter().map(|(output, _, ty)| (*output, *ty)));
        Ok(plan)
    }

    /// The only row of a plan, or of each binding in `by`.
    fn single_row(
        &mut self,
        plan: LogicalPlan,
        columns: &[(ColumnId, ColumnId, SqlType)],
        by: &[ColumnId],
    ) -> Result<LogicalPlan, SqlError> {
        let pairs: Vec<(ColumnId, ColumnId)> = by.iter().map(|id| (*id, *id)).collect();
        let (plan, keys) = self.keyed(plan, &pairs)?;
        let calls: Vec<_> = columns
            .iter()
            .map(|(output, value, ty)| crate::lower::calls::PlannedCall {
                output: *output,
                ty: *ty,
                expr: single(column(*value)),
                empty: weft_types::Value::Null,
            })
            .collect();
        self.grouped(plan, &keys, &calls, None)
    }
}

impl Lowering<'_> {
    /// `ARRAY(SELECT ...)`: an aggregate over the subquery's rows, or an empty array if there are none. The
    /// relation and its column.
    fn array(
        &mut self,
        subquery: &Relation,
        value: ColumnId,
        ty: SqlType,
    ) -> Result<(Relation, ColumnId), SqlError> {
        let SqlType::Array(element) = ty else {
            return Err(SqlError::internal("ARRAY(SELECT ...) is an array"));
        };
        let element = element.ty();
        let aggregate = weft_expression::functions::aggregates("array_agg").first();
        let aggregate = *aggregate.ok_or_else(|| SqlError::internal("there is no array_agg"))?;
        let argument = type_made(subquery, value).unwrap_or(element);
        let collected = self.fresh(ty);
        let whole = Relation::Aggregate {
            input: Box::new(subquery.clone()),
            groups: Vec::new(),
            sets: Vec::new(),
            grouping: Vec::new(),
            calls: vec![AggregateCall {
                output: collected,
                ty,
                aggregate,
                arguments: vec![Expr::column(value, argument)],
                distinct: false,
                order: Vec::new(),
                filter: None,
            }],
        };
        let empty = Value::Array(Box::new(ArrayValue {
            element,
            dimensions: Vec::new(),
            items: Vec::new(),
        }));
        let items = vec![Expr::column(collected, ty), Expr::constant(empty, ty)];
        let filled = self.fresh(ty);
        let whole = Relation::Project {
            input: Box::new(whole),
            items: vec![(filled, Expr::new(Op::Coalesce, ty, items))],
        };
        Ok((whole, filled))
    }
}

/// What a subquery with one row makes: the columns outside, those inside, and their types.
fn row_columns(kind: &Apply) -> Option<Vec<(ColumnId, ColumnId, SqlType)>> {
    match kind {
        Apply::Scalar { output, value, ty } => Some(vec![(*output, *value, *ty)]),
        Apply::Row { columns } => Some(columns.clone()),
        _ => None,
    }
}

/// The type of a column that an expression in the relation computes.
fn type_made(relation: &Relation, column: ColumnId) -> Option<SqlType> {
    let mut found = None;
    visit(relation, &mut |part| {
        found = part.types.iter().find(|(id, _)| *id == column).map(|(_, ty)| *ty);
        found.is_none()
    });
    found
}

/// Whether a subquery always returns exactly one row.
fn gives_one_row(relation: &Relation) -> bool {
    let mut relation = relation;
    loop {
        match relation {
            Relation::One => return true,
            Relation::Aggregate { groups, sets, .. } => return groups.is_empty() && sets.is_empty(),
            Relation::Project { input, .. }
            | Relation::Sort { input, .. }
            | Relation::Window { input, .. } => {
                relation = input;
            }
            Relation::Apply { input, kind, .. } if !matches!(kind, Apply::Lateral { .. }) => relation = input,
            _ => return false,
        }
    }
}
