//! GROUP BY. Keys and arguments are computed below the aggregation, which therefore only names columns.
//!
//! A key whose Arrow equality is not PostgreSQL's (1.0 = 1.00) is grouped by its order key, and the group's
//! value is taken from one of its rows. Each grouping set is a separate aggregation over a shared input.
//!
//! With a domain, its columns are also keys. A binding without rows then has no group; where PostgreSQL
//! returns one row for an empty input (no GROUP BY, or the empty grouping set), the binding is added again,
//! with the values that the aggregates have over an empty input.

use std::sync::Arc;

use datafusion::common::{JoinType, ScalarValue};
use datafusion::logical_expr::{Aggregate, Expr as PlanExpr, LogicalPlan};
use weft_binder::relation::{AggregateCall, Item, Relation, SortKey};
use weft_expression::{ColumnId, Expr, Op};
use weft_types::{SqlError, SqlType, Value, interrupt};

use super::calls::PlannedCall;
use super::predicate::conjuncts;
use super::set::union_of;
use super::{Domain, Lowering, arrow_of, column, projected};
use crate::arrays::{array_of_values, needs_order_key};
use crate::errors::sql_error;
use crate::functions::first::first;
use crate::order::fixed_column;
use crate::schema::field_name;

/// A key of an aggregation: the column of its value, and the column to group by.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) output: ColumnId,
    pub(crate) value: ColumnId,
    pub(crate) by: ColumnId,
}

/// min or max of an indexed column as a one-row relation: the first row in the index's order.
fn only_extreme(input: &Relation, call: &AggregateCall) -> Option<Relation> {
    let descending = match call.aggregate.name {
        "min" => false,
        "max" => true,
        _ => return None,
    };
    let [argument] = &call.arguments[..] else {
        return None;
    };
    let id = argument.as_column().filter(|_| call.filter.is_none())?;
    let (mut below, mut fixed) = (input, Vec::new());
    while let Relation::Filter { input, predicate } = below {
        fixed.extend(conjuncts(predicate).iter().filter_map(fixed_column));
        below = input;
    }
    let Relation::Scan(scan) = below else { return None };
    let (position, _, _) = scan.columns.iter().find(|(_, column, _)| *column == id)?;
    let ordered = scan
        .table
        .indexes
        .iter()
        .filter(|index| index.method.is_ordered());
    if !ordered.into_iter().any(|index| index.columns.contains(position)) {
        return None;
    }
    let is_null = Expr::new(Op::IsNull, SqlType::Bool, vec![argument.clone()]);
    let some = Relation::Filter {
        input: Box::new(input.clone()),
        predicate: Expr::new(Op::Not, SqlType::Bool, vec![is_null]),
    };
    let sorted = Relation::Sort {
        input: Box::new(some),
        keys: vec![SortKey {
            expr: argument.clone(),
            descending,
            nulls_first: descending,
        }],
    };
    Some(Relation::Limit {
        input: Box::new(sorted),
        count: Some(Expr::constant(Value::Int8(1), SqlType::Int8)),
        offset: None,
        ties: None,
    })
}

impl Lowering<'_> {
    pub(crate) fn aggregate(
        &mut self,
        input: &Relation,
        groups: &[Item],
        sets: &[Vec<usize>],
        grouping: &[(ColumnId, Vec<usize>)],
        calls: &[AggregateCall],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let ordered;
        let (input, order) = if calls
            .iter()
            .any(|call| call.aggregate.ordered && call.order.is_empty())
        {
            let (input, order) = self.with_order(input);
            ordered = input;
            (&ordered, order)
        } else {
            (input, Vec::new())
        };
        let first;
        let input = match (groups, sets, calls, domain) {
            ([], [], [call], None) => {
                first = only_extreme(input, call);
                first.as_ref().unwrap_or(input)
            }
            _ => input,
        };
        let plan = self.lower(input, domain)?;
        let mut items = Vec::new();
        let mut keys = Vec::with_capacity(groups.len());
        for (output, expr) in groups {
            let value = self.held(expr, &plan, &mut items)?;
            keys.push((*output, value));
        }
        let mut planned = Vec::with_capacity(calls.len());
        for call in calls {
            planned.push(self.planned_call(call, &order, &plan, &mut items)?);
        }
        let plan = self.extended(plan, items)?;
        let (plan, keys) = self.keyed(plan, &keys)?;
        let outer: Vec<(ColumnId, ColumnId)> = domain
            .into_iter()
            .flat_map(|domain| domain.columns.iter().map(|id| (*id, *id)))
            .collect();
        let (plan, outer) = self.keyed(plan, &outer)?;
        self.made(
            groups
                .iter()
                .map(|(id, expr)| (*id, expr.ty()))
                .chain(grouping.iter().map(|(id, _)| (*id, SqlType::Int4)))
                .chain(calls.iter().map(|call| (call.output, call.ty))),
        );
        if sets.is_empty() {
            let set: Vec<usize> = (0..keys.len()).collect();
            return self.grouping_set(plan, &keys, &outer, &set, grouping, &planned, domain);
        }
        let plan = if sets.len() > 1 {
            self.materialized(plan, "grouping sets")?
        } else {
            plan
        };
        let mut parts = Vec::with_capacity(sets.len());
        for set in sets {
            interrupt::check()?;
            let part = self.grouping_set(plan.clone(), &keys, &outer, set, grouping, &planned, domain)?;
            parts.push(Arc::new(part));
        }
        match <[Arc<LogicalPlan>; 1]>::try_from(parts) {
            Ok([only]) => Ok(Arc::unwrap_or_clone(only)),
            Err(parts) => union_of(parts),
        }
    }

    /// Adds the columns to group by where they differ from the value columns.
    pub(crate) fn keyed(
        &mut self,
        plan: LogicalPlan,
        keys: &[(ColumnId, ColumnId)],
    ) -> Result<(LogicalPlan, Vec<Key>), SqlError> {
        let mut items = Vec::new();
        let mut keyed = Vec::with_capacity(keys.len());
        for (output, value) in keys {
            let ty = self.type_of(*value)?;
            let mut by = *value;
            if needs_order_key(&ty, &arrow_of(plan.schema(), *value)?) {
                by = self.fresh(SqlType::Bytea);
                let key = self.order_key(column(*value), ty);
                items.push((by, key));
            }
            keyed.push(Key {
                output: *output,
                value: *value,
                by,
            });
        }
        Ok((self.extended(plan, items)?, keyed))
    }

    /// One grouping set: the aggregation, then all outputs in the same order for every set.
    #[expect(clippy::too_many_arguments, reason = "the parts of one aggregation")]
    fn grouping_set(
        &mut self,
        plan: LogicalPlan,
        keys: &[Key],
        outer: &[Key],
        set: &[usize],
        grouping: &[(ColumnId, Vec<usize>)],
        calls: &[PlannedCall],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let own: Vec<Key> = keys
            .iter()
            .enumerate()
            .filter(|(at, _)| set.contains(at))
            .map(|(_, key)| *key)
            .collect();
        let schema = Arc::clone(plan.schema());
        let all: Vec<Key> = own.iter().chain(outer).copied().collect();
        let marker = match domain {
            Some(_) if own.is_empty() => Some(self.fresh(SqlType::Int8)),
            _ => None,
        };
        let mut plan = self.grouped(plan, &all, calls, marker)?;
        if let (Some(marker), Some(domain)) = (marker, domain) {
            plan = self.with_empty_bindings(plan, domain, calls, marker)?;
        }
        let mut items = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            items.push(if set.contains(&at) {
                column(key.output)
            } else {
                let null = ScalarValue::try_from(&arrow_of(&schema, key.value)?).map_err(sql_error)?;
                PlanExpr::Literal(null, None).alias(field_name(key.output))
            });
        }
        for (id, asked) in grouping {
            let bits = asked
                .iter()
                .fold(0_i32, |bits, at| bits << 1 | i32::from(!set.contains(at)));
            items.push(PlanExpr::Literal(ScalarValue::Int32(Some(bits)), None).alias(field_name(*id)));
        }
        items.extend(calls.iter().map(|call| column(call.output)));
        items.extend(outer.iter().map(|key| column(key.output)));
        projected(plan, items)
    }

    /// The aggregation, with a column for every key and call, and for the marker, which is never NULL.
    pub(crate) fn grouped(
        &mut self,
        plan: LogicalPlan,
        keys: &[Key],
        calls: &[PlannedCall],
        marker: Option<ColumnId>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut by: Vec<PlanExpr> = Vec::new();
        let mut aggregates = Vec::new();
        let mut items = Vec::new();
        for key in keys {
            let group = column(key.by);
            if !by.contains(&group) {
                by.push(group);
            }
            if key.by == key.value {
                items.push(column(key.by).alias(field_name(key.output)));
            } else {
                let id = self.fresh(self.type_of(key.value)?);
                aggregates.push(first(column(key.value)).alias(field_name(id)));
                items.push(column(id).alias(field_name(key.output)));
            }
        }
        for call in calls {
            aggregates.push(call.expr.clone().alias(field_name(call.output)));
            items.push(column(call.output));
        }
        if let Some(marker) = marker {
            let count = datafusion::functions_aggregate::count::count(PlanExpr::Literal(
                ScalarValue::Int64(Some(1)),
                None,
            ));
            aggregates.push(count.alias(field_name(marker)));
            items.push(column(marker));
        }
        if by.is_empty() && aggregates.is_empty() {
            return super::leaf::one_row();
        }
        let aggregate = Aggregate::try_new(Arc::new(plan), by, aggregates).map_err(sql_error)?;
        projected(LogicalPlan::Aggregate(aggregate), items)
    }

    /// Adds a group for each binding of the domain that has none.
    fn with_empty_bindings(
        &mut self,
        groups: LogicalPlan,
        domain: &Domain,
        calls: &[PlannedCall],
        marker: ColumnId,
    ) -> Result<LogicalPlan, SqlError> {
        let (groups, copies) = self.with_copies(groups, &domain.columns)?;
        let keys = self.null_safe_keys(&domain.plan, &domain.columns, &groups, &copies)?;
        let plan = self.joined_as(JoinType::Left, domain.plan.clone(), groups, keys, Vec::new())?;
        let mut items: Vec<PlanExpr> = domain.columns.iter().map(|id| column(*id)).collect();
        for call in calls {
            items.push(self.over_nothing(call, marker, &plan)?);
        }
        projected(plan, items)
    }

    /// The value of a call, or its value over an empty input where the marker is NULL.
    pub(crate) fn over_nothing(
        &mut self,
        call: &PlannedCall,
        marker: ColumnId,
        plan: &LogicalPlan,
    ) -> Result<PlanExpr, SqlError> {
        if call.empty.is_null() {
            return Ok(column(call.output));
        }
        let arrow = arrow_of(plan.schema(), call.output)?;
        let array = array_of_values(std::slice::from_ref(&call.empty), &call.ty, &arrow)?;
        let empty = ScalarValue::try_from_array(&array, 0).map_err(sql_error)?;
        let missing = PlanExpr::IsNull(Box::new(column(marker)));
        let value = super::join::chosen(missing, PlanExpr::Literal(empty, None), column(call.output))?;
        Ok(value.alias(field_name(call.output)))
    }
}
