//! UNION, INTERSECT, EXCEPT.
//!
//! Rows are compared null-safely. With ALL, equal rows are numbered on both sides: the third 7 of one side
//! matches the third 7 of the other.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::JoinType;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, Union};
use weft_binder::relation::{Relation, SetOp};
use weft_expression::ColumnId;
use weft_types::{SqlError, SqlType};

use super::window::Rank;
use super::{Domain, Lowering, arrow_of, column, columns_of, projected};
use crate::errors::sql_error;
use crate::rows::rows_of;
use crate::schema::{arrow_type, field_name};

type SetColumn = (ColumnId, SqlType, Vec<ColumnId>);

/// A union of more inputs begins with one that has no rows.
const INPUTS_FEW: usize = 32;

/// The rows of all inputs, which have the same columns.
///
/// DataFusion looks through the inputs for one where a column may be NULL, compares each that it passes with
/// all others, and does so whenever a rule touches the union. So in a long union the first input is such a
/// one.
pub(crate) fn union_of(mut inputs: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan, SqlError> {
    if let Some(first) = inputs.first().filter(|_| inputs.len() > INPUTS_FEW) {
        let fields = first.schema().fields().iter();
        let fields: Vec<_> = fields
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        let nothing = rows_of(RecordBatch::new_empty(Arc::new(Schema::new(fields))))?;
        inputs.insert(0, Arc::new(nothing));
    }
    Ok(LogicalPlan::Union(Union::try_new(inputs).map_err(sql_error)?))
}

impl Lowering<'_> {
    pub(crate) fn set(
        &mut self,
        op: SetOp,
        all: bool,
        inputs: &[Relation],
        columns: &[SetColumn],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut plans = Vec::with_capacity(inputs.len());
        for input in inputs {
            plans.push(self.lower(input, domain)?);
        }
        let plans = self.aligned(plans, columns, domain)?;
        self.made(columns.iter().map(|(id, ty, _)| (*id, *ty)));
        match op {
            SetOp::Union => {
                let union = union_of(plans.into_iter().map(Arc::new).collect())?;
                if all { Ok(union) } else { self.distinct_rows(union) }
            }
            SetOp::Intersect => self.matched(plans, JoinType::LeftSemi, all),
            SetOp::Except => self.matched(plans, JoinType::LeftAnti, all),
        }
    }

    /// Gives the inputs the same columns in the same order and of the same Arrow types.
    fn aligned(
        &mut self,
        plans: Vec<LogicalPlan>,
        columns: &[SetColumn],
        domain: Option<&Domain>,
    ) -> Result<Vec<LogicalPlan>, SqlError> {
        let mut wanted: Vec<DataType> = Vec::with_capacity(columns.len());
        for (_, ty, from) in columns {
            let mut found = Vec::with_capacity(plans.len());
            for (plan, id) in plans.iter().zip(from) {
                found.push(arrow_of(plan.schema(), *id)?);
            }
            let same = found.windows(2).all(|pair| pair.first() == pair.last());
            wanted.push(match found.into_iter().next() {
                Some(first) if same => first,
                _ => arrow_type(ty),
            });
        }
        let mut aligned = Vec::with_capacity(plans.len());
        for (at, plan) in plans.into_iter().enumerate() {
            let mut items = Vec::with_capacity(columns.len());
            for ((id, ty, from), wanted) in columns.iter().zip(&wanted) {
                let Some(from) = from.get(at) else {
                    return Err(SqlError::internal("a set operation misses a column"));
                };
                let value = match arrow_of(plan.schema(), *from)? == *wanted {
                    true => column(*from),
                    false => self.converted(column(*from), *ty, wanted),
                };
                items.push(value.alias(field_name(*id)));
            }
            items.extend(
                domain
                    .into_iter()
                    .flat_map(|domain| &domain.columns)
                    .map(|id| column(*id)),
            );
            if items.is_empty() {
                items.push(datafusion::logical_expr::lit(true).alias("none"));
            }
            aligned.push(projected(plan, items)?);
        }
        Ok(aligned)
    }

    fn matched(
        &mut self,
        plans: Vec<LogicalPlan>,
        kind: JoinType,
        all: bool,
    ) -> Result<LogicalPlan, SqlError> {
        let Ok([left, right]) = <[LogicalPlan; 2]>::try_from(plans) else {
            return Err(SqlError::internal("INTERSECT and EXCEPT have two inputs"));
        };
        let columns = columns_of(&left);
        let (left, right, mut keys) = if all {
            // When DataFusion derives an order, it treats constants of several branches as constant after a
            // union.
            let left = self.materialized(left, "rows of a set operation")?;
            let right = self.materialized(right, "rows of a set operation")?;
            let (left, number) = self.numbered(left, Rank::Row, &columns, &[])?;
            let (right, other) = self.numbered(right, Rank::Row, &columns, &[])?;
            (left, right, vec![(column(number), column(other))])
        } else {
            (self.distinct_rows(left)?, right, Vec::new())
        };
        let (right, copies) = self.with_copies(right, &columns)?;
        keys.extend(self.null_safe_keys(&left, &columns, &right, &copies)?);
        if keys.is_empty() {
            keys.push((column_named("none"), column_named("none")));
        }
        let joined = self.joined_as(kind, left, right, keys, Vec::new())?;
        projected(joined, columns.into_iter().map(column).collect())
    }
}

fn column_named(name: &str) -> PlanExpr {
    PlanExpr::Column(datafusion::common::Column::new_unqualified(name))
}
