//! Window functions, and the numbering of rows that LIMIT, DISTINCT ON and set operations need.

use std::sync::Arc;

use datafusion::functions_window::rank::rank_udwf;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, SortExpr, Window, WindowFrame};
use weft_binder::relation::{FrameBound, FrameUnit, SortKey, WindowCall};
use weft_expression::{ColumnId, Expr};
use weft_types::{SqlError, SqlType};

use super::{Domain, Lowering, column, columns_of, projected};
use crate::errors::sql_error;
use crate::schema::{arrow_type, field_name};
use crate::window::{Bound, Call};

/// How rows are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// row_number: consecutive numbers.
    Row,
    /// rank: one more than the number of rows before the row's peers.
    Rank,
}

/// The number of windows of the calls; each becomes an operator.
pub(super) fn count(calls: &[WindowCall]) -> usize {
    let mut firsts: Vec<&WindowCall> = Vec::new();
    for call in calls {
        if !firsts.iter().any(|first| shares_window(first, call)) {
            firsts.push(call);
        }
    }
    firsts.len()
}

fn shares_window(first: &WindowCall, call: &WindowCall) -> bool {
    first.partition == call.partition && first.order == call.order
}

impl Lowering<'_> {
    pub(crate) fn window(
        &mut self,
        plan: LogicalPlan,
        calls: &[WindowCall],
        domain: Option<&Domain>,
    ) -> Result<LogicalPlan, SqlError> {
        let mut calls = calls.to_vec();
        for call in &mut calls {
            for id in domain.into_iter().flat_map(|domain| &domain.columns) {
                call.partition.push(Expr::column(*id, self.type_of(*id)?));
            }
        }
        // Calls with the same partition and order keys are grouped: one sort serves all of them.
        let mut windows: Vec<Vec<WindowCall>> = Vec::new();
        for call in calls {
            let same = |window: &&mut Vec<WindowCall>| {
                window.first().is_some_and(|first| shares_window(first, &call))
            };
            match windows.iter_mut().find(same) {
                Some(window) => window.push(call),
                None => windows.push(vec![call]),
            }
        }
        let mut keep = columns_of(&plan);
        let mut plan = plan;
        for window in windows {
            self.made(window.iter().map(|call| (call.output, call.ty)));
            keep.extend(window.iter().map(|call| call.output));
            plan = self.one_window(plan, &window)?;
        }
        projected(plan, keep.into_iter().map(column).collect())
    }

    /// Calls that share partition and order keys; the other columns of the plan are kept.
    fn one_window(&mut self, plan: LogicalPlan, calls: &[WindowCall]) -> Result<LogicalPlan, SqlError> {
        let Some(first) = calls.first() else {
            return Ok(plan);
        };
        let mut items = Vec::new();
        let mut partition = Vec::with_capacity(first.partition.len());
        for expr in &first.partition {
            partition.push(self.held(expr, &plan, &mut items)?);
        }
        let mut order = Vec::with_capacity(first.order.len());
        for key in &first.order {
            let id = self.held(&key.expr, &plan, &mut items)?;
            order.push((id, key.descending, key.nulls_first));
        }
        let sort_key = first.order.first().zip(order.first());
        let sort_key = sort_key.map(|(key, (id, descending, _))| (*id, key.expr.ty(), *descending));
        let mut planned = Vec::with_capacity(calls.len());
        for call in calls {
            planned.push(self.planned_window_call(call, sort_key, &plan, &mut items)?);
        }
        let plan = self.extended(plan, items)?;
        let mut items = Vec::new();
        for id in &mut partition {
            *id = self.natural(*id, &plan, &mut items)?;
        }
        for (id, _, _) in &mut order {
            *id = self.natural(*id, &plan, &mut items)?;
        }
        let plan = self.extended(plan, items)?;
        let window = crate::window::WindowPlan {
            partition,
            order,
            calls: planned,
            context: Arc::clone(&self.context),
        };
        crate::window::window(window, plan)
    }

    fn planned_window_call(
        &mut self,
        call: &WindowCall,
        sort_key: Option<(ColumnId, SqlType, bool)>,
        plan: &LogicalPlan,
        items: &mut Vec<(ColumnId, PlanExpr)>,
    ) -> Result<Call, SqlError> {
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push((self.held(argument, plan, items)?, argument.ty()));
        }
        let filter = match &call.filter {
            None => None,
            Some(filter) => Some(self.held(filter, plan, items)?),
        };
        let start = self.bound(&call.frame.start, plan, items)?;
        let end = self.bound(&call.frame.end, plan, items)?;
        let by_distance = |bound: &Bound| matches!(bound, Bound::Preceding(..) | Bound::Following(..));
        let range = call.frame.unit == FrameUnit::Range && (by_distance(&start) || by_distance(&end));
        Ok(Call {
            output: call.output,
            ty: call.ty,
            function: call.function,
            arguments,
            filter,
            unit: call.frame.unit,
            start,
            end,
            exclude: call.frame.exclude,
            range_key: if range { sort_key } else { None },
        })
    }

    fn bound(
        &mut self,
        bound: &FrameBound,
        plan: &LogicalPlan,
        items: &mut Vec<(ColumnId, PlanExpr)>,
    ) -> Result<Bound, SqlError> {
        Ok(match bound {
            FrameBound::UnboundedPreceding | FrameBound::UnboundedFollowing => Bound::Unbounded,
            FrameBound::CurrentRow => Bound::CurrentRow,
            FrameBound::Preceding(expr) => Bound::Preceding(self.held(expr, plan, items)?, expr.ty()),
            FrameBound::Following(expr) => Bound::Following(self.held(expr, plan, items)?, expr.ty()),
        })
    }

    /// Adds a column with the number of each row within its partition.
    pub(crate) fn numbered(
        &mut self,
        plan: LogicalPlan,
        rank: Rank,
        partition: &[ColumnId],
        order: &[SortKey],
    ) -> Result<(LogicalPlan, ColumnId), SqlError> {
        let columns = columns_of(&plan);
        let mut items = Vec::new();
        let mut sorts = Vec::with_capacity(order.len());
        for key in order {
            sorts.push((self.held(&key.expr, &plan, &mut items)?, key));
        }
        let plan = self.extended(plan, items)?;
        let mut items = Vec::new();
        let mut by = Vec::with_capacity(partition.len());
        for id in partition {
            by.push(self.natural(*id, &plan, &mut items)?);
        }
        let mut order_by = Vec::with_capacity(sorts.len());
        for (id, key) in sorts {
            let id = self.natural(id, &plan, &mut items)?;
            order_by.push(SortExpr::new(column(id), !key.descending, key.nulls_first));
        }
        let plan = self.extended(plan, items)?;
        let function = match rank {
            Rank::Row => row_number_udwf(),
            Rank::Rank => rank_udwf(),
        };
        let mut call = WindowFunction::new(WindowFunctionDefinition::WindowUDF(function), Vec::new());
        call.params.partition_by = by.into_iter().map(column).collect();
        call.params.window_frame = WindowFrame::new((!order_by.is_empty()).then_some(false));
        call.params.order_by = order_by;
        let call = PlanExpr::WindowFunction(Box::new(call));
        let name = call.schema_name().to_string();
        let window = Window::try_new(vec![call], Arc::new(plan)).map_err(sql_error)?;
        let number = self.fresh(SqlType::Int8);
        let mut items: Vec<PlanExpr> = columns.into_iter().map(column).collect();
        let counted = PlanExpr::Column(datafusion::common::Column::new_unqualified(name));
        // DataFusion's numbers are unsigned.
        let signed = datafusion::logical_expr::cast(counted, arrow_type(&SqlType::Int8));
        items.push(signed.alias(field_name(number)));
        Ok((projected(LogicalPlan::Window(window), items)?, number))
    }

    /// A column whose Arrow order and equality are those of the values of `id`.
    fn natural(
        &mut self,
        id: ColumnId,
        plan: &LogicalPlan,
        items: &mut Vec<(ColumnId, PlanExpr)>,
    ) -> Result<ColumnId, SqlError> {
        let ty = self.type_of(id)?;
        match self.ordered(column(id), ty, plan)? {
            PlanExpr::Column(_) => Ok(id),
            key => {
                let id = self.fresh(SqlType::Bytea);
                items.push((id, key));
                Ok(id)
            }
        }
    }
}
