//! Filters and joins.
//!
//! DataFusion's own rule extracts join keys from the conjuncts of the condition, which have the form that it
//! expects ([`super::predicate`]). Joins on domain columns, which are null-safe, are made here with their
//! keys.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::logical_expr::{Expr as PlanExpr, Join, JoinConstraint, LogicalPlan};
use weft_binder::relation::{JoinKind, Relation};
use weft_expression::{ColumnId, Expr};
use weft_types::{SqlError, SqlType};

use super::predicate::{conjuncts, may_be_null};
use super::walk::names_any;
use super::{Domain, Lowering, column, columns_of, projected};
use crate::errors::sql_error;
use crate::operator::is_one_row;
use crate::schema::field_name;

impl Lowering<'_> {
    /// A filter; conjuncts on subqueries below it are handled by [`crate::unnest`].
    pub(crate) fn filter(
        &mut self,
        input: &Relation,
        predicate: &Expr,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut conjuncts = conjuncts(predicate);
        // Adjacent filters are combined in their order.
        let mut input = input;
        while let Relation::Filter {
            input: below,
            predicate,
        } = input
        {
            let mut earlier = super::predicate::conjuncts(predicate);
            earlier.append(&mut conjuncts);
            conjuncts = earlier;
            input = below;
        }
        self.restricted(input, conjuncts, domain)
    }

    /// A relation, filtered by all conjuncts.
    pub(crate) fn restricted(
        &mut self,
        relation: &Relation,
        conjuncts: Vec<Expr>,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        match relation {
            Relation::Apply { .. } => self.filtered_apply(relation, conjuncts, domain),
            Relation::Join { .. } | Relation::Filter { .. } => {
                self.joined_relations(relation, conjuncts, domain)
            }
            _ => {
                let plan = self.lower(relation, domain)?;
                self.filtered(plan, conjuncts)
            }
        }
    }

    /// A join of two relations as written, for relations that [`crate::order`] cannot reorder.
    pub(crate) fn join(
        &mut self,
        kind: JoinKind,
        left: &Relation,
        right: &Relation,
        on: Option<&Expr>,
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let on = on.map(conjuncts).unwrap_or_default();
        let Some(domain) = domain else {
            let left = self.lower(left, None)?;
            let right = self.lower(right, None)?;
            return self.joined(kind, left, right, on);
        };
        let right_depends = names_any(right, &domain.columns);
        let left_depends = names_any(left, &domain.columns);
        match kind {
            JoinKind::Inner if !right_depends => {
                let left = self.lower(left, Some(domain))?;
                let right = self.lower(right, None)?;
                self.joined(kind, left, right, on)
            }
            JoinKind::Inner if !left_depends => {
                let left = self.lower(left, None)?;
                let right = self.lower(right, Some(domain))?;
                self.joined(kind, left, right, on)
            }
            JoinKind::Left if !right_depends => {
                let left = self.lower(left, Some(domain))?;
                let right = self.lower(right, None)?;
                self.joined(kind, left, right, on)
            }
            JoinKind::Right if !left_depends => {
                let left = self.lower(left, None)?;
                let right = self.lower(right, Some(domain))?;
                self.joined(kind, left, right, on)
            }
            _ => {
                let left = self.lower(left, Some(domain))?;
                let right = self.lower(right, Some(domain))?;
                self.joined_within(kind, left, right, on, domain)
            }
        }
    }

    /// A join of sides without common columns.
    pub(crate) fn joined(
        &mut self,
        kind: JoinKind,
        left: LogicalPlan,
        right: LogicalPlan,
        on: Vec<Expr>,
    ) -> Result<LogicalPlan, SqlError> {
        if kind == JoinKind::Inner && on.is_empty() {
            return crossed(left, right);
        }
        self.joined_as(join_type(kind), left, right, Vec::new(), on)
    }

    /// A join with keys and a condition.
    pub(crate) fn joined_as(
        &mut self,
        kind: JoinType,
        left: LogicalPlan,
        right: LogicalPlan,
        keys: Vec<(PlanExpr, PlanExpr)>,
        on: Vec<Expr>,
    ) -> Result<LogicalPlan, SqlError> {
        let filter = if on.is_empty() {
            None
        } else {
            let both = crossed(left.clone(), right.clone())?;
            self.condition(on, &both)?
        };
        made_join(kind, left, right, keys, filter)
    }

    /// A join of two sides that both contain the domain's columns: it joins rows of the same binding.
    fn joined_within(
        &mut self,
        kind: JoinKind,
        left: LogicalPlan,
        right: LogicalPlan,
        on: Vec<Expr>,
        domain: &Domain,
    ) -> Result<LogicalPlan, SqlError> {
        let (right, copies) = self.with_copies(right, &domain.columns)?;
        let keys = self.null_safe_keys(&left, &domain.columns, &right, &copies)?;
        let own: Vec<ColumnId> = columns_of(&left)
            .into_iter()
            .chain(columns_of(&right))
            .filter(|id| !copies.contains(id) && !domain.columns.contains(id))
            .collect();
        // In rows that only the right side produces, the left side's domain columns are NULL.
        let marked = matches!(kind, JoinKind::Right | JoinKind::Full);
        let mut left = left;
        let mut mark = None;
        if marked {
            let id = self.fresh(SqlType::Bool);
            let truth = PlanExpr::Literal(datafusion::common::ScalarValue::Boolean(Some(true)), None);
            left = self.extended(left, vec![(id, truth)])?;
            mark = Some(id);
        }
        let joined = self.joined_as(join_type(kind), left, right, keys, on)?;
        let mut items: Vec<PlanExpr> = own.into_iter().map(column).collect();
        for (id, copy) in domain.columns.iter().zip(&copies) {
            items.push(match mark {
                None => column(*id),
                Some(mark) => chosen(
                    PlanExpr::IsNull(Box::new(column(mark))),
                    column(*copy),
                    column(*id),
                )?
                .alias(field_name(*id)),
            });
        }
        projected(joined, items)
    }

    /// Adds copies of some columns under fresh ids, which are returned.
    pub(crate) fn with_copies(
        &mut self,
        plan: LogicalPlan,
        columns: &[ColumnId],
    ) -> Result<(LogicalPlan, Vec<ColumnId>), SqlError> {
        let mut copies = Vec::with_capacity(columns.len());
        for id in columns {
            let ty = self.type_of(*id)?;
            copies.push(self.fresh(ty));
        }
        let items: Vec<PlanExpr> = columns_of(&plan)
            .into_iter()
            .map(|id| match columns.iter().position(|other| *other == id) {
                Some(at) => column(id).alias(field_name(copies[at])),
                None => column(id),
            })
            .collect();
        Ok((projected(plan, items)?, copies))
    }

    /// The key pairs of a null-safe join. The keys themselves are never NULL: nullable columns are combined
    /// into a row key. DataFusion's rules can therefore not misinterpret them.
    pub(crate) fn null_safe_keys(
        &mut self,
        left_plan: &LogicalPlan,
        left: &[ColumnId],
        right_plan: &LogicalPlan,
        right: &[ColumnId],
    ) -> Result<Vec<(PlanExpr, PlanExpr)>, SqlError> {
        let mut keys = Vec::with_capacity(left.len());
        let (mut left_row, mut right_row) = (Vec::new(), Vec::new());
        for (a, b) in left.iter().zip(right) {
            let ty = self.type_of(*a)?;
            let (a, b) = self.comparable(column(*a), left_plan, column(*b), right_plan, ty)?;
            if may_be_null(&a, left_plan) && may_be_null(&b, right_plan) {
                left_row.push(a);
                right_row.push(b);
            } else {
                keys.push((a, b));
            }
        }
        if !left_row.is_empty() {
            keys.push((self.row_key(left_row), self.row_key(right_row)));
        }
        Ok(keys)
    }
}

/// The cross join.
pub(crate) fn crossed(left: LogicalPlan, right: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    if is_one_row(&left) {
        return Ok(right);
    }
    if is_one_row(&right) {
        return Ok(left);
    }
    made_join(JoinType::Inner, left, right, Vec::new(), None)
}

pub(crate) fn made_join(
    kind: JoinType,
    left: LogicalPlan,
    right: LogicalPlan,
    keys: Vec<(PlanExpr, PlanExpr)>,
    filter: Option<PlanExpr>,
) -> Result<LogicalPlan, SqlError> {
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        keys,
        filter,
        kind,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    );
    Ok(LogicalPlan::Join(join.map_err(sql_error)?))
}

/// CASE WHEN condition THEN a ELSE b END.
pub(crate) fn chosen(condition: PlanExpr, then: PlanExpr, otherwise: PlanExpr) -> Result<PlanExpr, SqlError> {
    datafusion::logical_expr::when(condition, then)
        .otherwise(otherwise)
        .map_err(sql_error)
}

fn join_type(kind: JoinKind) -> JoinType {
    match kind {
        JoinKind::Inner => JoinType::Inner,
        JoinKind::Left => JoinType::Left,
        JoinKind::Right => JoinType::Right,
        JoinKind::Full => JoinType::Full,
    }
}
