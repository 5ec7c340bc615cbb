//! Aggregate calls: DataFusion's own aggregates where they return PostgreSQL's result, otherwise those of
//! [`crate::functions`].

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::functions_aggregate::bool_and_or::{bool_and_udaf, bool_or_udaf};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{AggregateUDF, Expr as PlanExpr, LogicalPlan};
use weft_binder::relation::{AggregateCall, SortKey};
use weft_expression::ColumnId;
use weft_types::{SqlError, SqlType, Value};

use super::walk::is_fallible;
use super::{Lowering, arrow_of, column};
use crate::functions::collect::{Collected, RowOrder, collect};
use crate::functions::sums::{SumKind, sums};

/// A planned call; its inputs are columns.
pub(crate) struct PlannedCall {
    pub(crate) output: ColumnId,
    pub(crate) ty: SqlType,
    pub(crate) expr: PlanExpr,
    /// Its value over an empty input.
    pub(crate) empty: Value,
}

impl Lowering<'_> {
    /// Plans one call; `order` is the order of the input's rows.
    pub(crate) fn planned_call(
        &mut self,
        call: &AggregateCall,
        order: &[SortKey],
        plan: &LogicalPlan,
        items: &mut Vec<(ColumnId, PlanExpr)>,
    ) -> Result<PlannedCall, SqlError> {
        let types: Vec<SqlType> = call.arguments.iter().map(|argument| argument.ty()).collect();
        let mut accumulator = (call.aggregate.start)(&types, call.ty);
        let empty = accumulator.value(&self.context.execution().context())?;
        let filter = match &call.filter {
            None => None,
            Some(filter) => Some(column(self.held(filter, plan, items)?)),
        };
        let ordered = !call.order.is_empty() || call.aggregate.ordered && !order.is_empty();
        let is_summed = !ordered && matches!(native(call, &types, None), Some(Native::Sum(_)));
        // Arguments that can fail are computed only for rows that the filter accepts.
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            let guarded = match &call.filter {
                Some(filter) if is_fallible(argument) => guarded(filter, argument),
                _ => argument.clone(),
            };
            arguments.push(match is_summed {
                true if guarded.as_column().is_none() => {
                    let (id, value) = (self.fresh(guarded.ty()), self.summed(&guarded, plan)?);
                    items.push((id, value));
                    id
                }
                _ => self.held(&guarded, plan, items)?,
            });
        }
        // An item's Arrow type is not known yet.
        let arrow = match (&arguments[..], &call.arguments[..]) {
            ([id], [argument]) if argument.as_column().is_some() => Some(arrow_of(plan.schema(), *id)?),
            _ => None,
        };
        let own = (!ordered).then(|| native(call, &types, arrow.as_ref())).flatten();
        let (function, columns) = match own {
            Some(Native::Rows) => {
                let one = PlanExpr::Literal(ScalarValue::Int64(Some(1)), None);
                return Ok(planned(call, count_udaf(), vec![one], filter, empty));
            }
            Some(Native::Distinct(function)) => {
                let columns = arguments.iter().map(|id| column(*id)).collect();
                let mut call = planned(call, function, columns, filter, empty);
                if let PlanExpr::AggregateFunction(function) = &mut call.expr {
                    function.params.distinct = true;
                }
                return Ok(call);
            }
            Some(Native::Of(function)) => (function, arguments.iter().map(|id| column(*id)).collect()),
            Some(Native::Sum(kind)) => (sums(kind), arguments.iter().map(|id| column(*id)).collect()),
            None => {
                let keys = if call.order.is_empty() { order } else { &call.order };
                let keys = if ordered { keys } else { &[] };
                self.collected(call, &types, &arguments, keys, plan, items)?
            }
        };
        Ok(planned(call, function, columns, filter, empty))
    }

    /// The call as a function that keeps or accumulates rows; its columns are the arguments, followed by the
    /// sort keys.
    fn collected(
        &mut self,
        call: &AggregateCall,
        types: &[SqlType],
        arguments: &[ColumnId],
        keys: &[SortKey],
        plan: &LogicalPlan,
        items: &mut Vec<(ColumnId, PlanExpr)>,
    ) -> Result<(Arc<AggregateUDF>, Vec<PlanExpr>), SqlError> {
        let mut columns: Vec<PlanExpr> = arguments.iter().map(|id| column(*id)).collect();
        let mut order = Vec::with_capacity(keys.len());
        for key in keys {
            columns.push(column(self.held(&key.expr, plan, items)?));
            order.push(RowOrder {
                ty: key.expr.ty(),
                descending: key.descending,
                nulls_first: key.nulls_first,
            });
        }
        let function = collect(Collected {
            number: self.next_function(),
            entry: call.aggregate,
            arguments: types.to_vec(),
            ty: call.ty,
            distinct: call.distinct,
            order,
            context: Arc::clone(&self.context),
        });
        if columns.is_empty() {
            columns.push(PlanExpr::Literal(ScalarValue::Boolean(Some(true)), None));
        }
        Ok((function, columns))
    }
}

fn planned(
    call: &AggregateCall,
    function: Arc<AggregateUDF>,
    arguments: Vec<PlanExpr>,
    filter: Option<PlanExpr>,
    empty: Value,
) -> PlannedCall {
    let expr = AggregateFunction::new_udf(function, arguments, false, filter.map(Box::new), Vec::new(), None);
    PlannedCall {
        output: call.output,
        ty: call.ty,
        expr: PlanExpr::AggregateFunction(expr),
        empty,
    }
}

/// CASE WHEN filter THEN argument END.
fn guarded(filter: &weft_expression::Expr, argument: &weft_expression::Expr) -> weft_expression::Expr {
    use weft_expression::{Expr, Op};
    let ty = argument.ty();
    let null = Expr::constant(Value::Null, ty);
    Expr::new(
        Op::Case { operand: false },
        ty,
        vec![filter.clone(), argument.clone(), null],
    )
}

/// A faster implementation than row by row.
enum Native {
    /// `count(*)`
    Rows,
    /// An aggregate of DataFusion.
    Of(Arc<AggregateUDF>),
    /// An aggregate of DataFusion over distinct values.
    Distinct(Arc<AggregateUDF>),
    /// One of our sums or averages.
    Sum(SumKind),
}

/// `arrow` is the Arrow type of the only argument, if it is known.
fn native(call: &AggregateCall, types: &[SqlType], arrow: Option<&DataType>) -> Option<Native> {
    use SqlType as T;
    if call.distinct {
        return match (call.aggregate.name, types) {
            ("count", [ty]) if compares_natively(ty) => Some(Native::Distinct(count_udaf())),
            _ => None,
        };
    }
    Some(match (call.aggregate.name, types) {
        ("count", []) => Native::Rows,
        ("count", [_]) => Native::Of(count_udaf()),
        ("min", [ty]) if compares_natively(ty) => Native::Of(min_udaf()),
        ("max", [ty]) if compares_natively(ty) => Native::Of(max_udaf()),
        // All have one scale, and NaN is the greatest.
        ("min", [T::Numeric(_)]) if matches!(arrow, Some(DataType::Decimal128(_, _))) => {
            Native::Of(min_udaf())
        }
        ("max", [T::Numeric(_)]) if matches!(arrow, Some(DataType::Decimal128(_, _))) => {
            Native::Of(max_udaf())
        }
        ("bool_and" | "every", [T::Bool]) => Native::Of(bool_and_udaf()),
        ("bool_or", [T::Bool]) => Native::Of(bool_or_udaf()),
        ("sum", [T::Int2 | T::Int4]) => Native::Sum(SumKind::IntegerSum),
        ("sum", [T::Int8 | T::Numeric(_)]) => Native::Sum(SumKind::NumericSum),
        ("avg", [T::Int2 | T::Int4 | T::Int8 | T::Numeric(_)]) => Native::Sum(SumKind::NumericAverage),
        ("sum", [T::Float8]) => Native::Sum(SumKind::FloatSum),
        ("avg", [T::Float8]) => Native::Sum(SumKind::FloatAverage),
        _ => return None,
    })
}

fn compares_natively(ty: &SqlType) -> bool {
    use SqlType as T;
    matches!(
        ty,
        T::Int2
            | T::Int4
            | T::Int8
            | T::Date
            | T::Timestamp
            | T::TimestampTz
            | T::Text
            | T::Varchar(_)
            | T::Char(_)
    )
}
