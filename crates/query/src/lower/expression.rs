//! Expressions in plans: columns, literals, and opaque functions for everything else.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, Volatility};
use weft_expression::{ColumnId, Expr, Op};
use weft_types::{SqlError, SqlType};

use super::walk::{is_fallible, is_volatile, varies};
use super::{Lowering, arrow_of, column};
use crate::arrays::{array_of_values, needs_order_key};
use crate::errors::sql_error;
use crate::evaluate::BatchExpr;
use crate::functions::scalar::{Computation, computed};
use crate::schema::arrow_type;
use crate::session::ExecutionContext;

/// Maximum number of stacked projections through which filters are pushed.
const LEVELS_MAX: u32 = 3;

/// Makes an expression for columns of these types.
type Compile = fn(&Expr, &[(ColumnId, DataType)], &Arc<ExecutionContext>) -> Result<BatchExpr, SqlError>;

impl Lowering<'_> {
    /// An expression over the columns of a plan.
    pub(crate) fn scalar(&mut self, expr: &Expr, plan: &LogicalPlan) -> Result<PlanExpr, SqlError> {
        if let Some(id) = expr.as_column() {
            return Ok(column(id));
        }
        if let Some(literal) = self.literal(expr)? {
            return Ok(PlanExpr::Literal(literal, None));
        }
        self.opaque(expr, plan)
    }

    /// An expression as a single function over columns.
    pub(crate) fn opaque(&mut self, expr: &Expr, plan: &LogicalPlan) -> Result<PlanExpr, SqlError> {
        let volatility = if is_volatile(expr) {
            Volatility::Volatile
        } else {
            Volatility::Immutable
        };
        self.opaque_as(expr, plan, volatility, BatchExpr::new)
    }

    /// An expression whose values are only added up, exactly.
    pub(crate) fn summed(&mut self, expr: &Expr, plan: &LogicalPlan) -> Result<PlanExpr, SqlError> {
        if expr.columns().next().is_none() || is_volatile(expr) {
            return self.scalar(expr, plan);
        }
        self.opaque_as(expr, plan, Volatility::Immutable, BatchExpr::summed)
    }

    /// An item of a projection.
    ///
    /// When DataFusion pushes a filter below a projection, it replaces the projection's columns by their
    /// expressions. If each of many projections uses its columns twice, the result grows exponentially.
    /// Functions that DataFusion considers volatile are not inlined.
    pub(crate) fn projected_item(
        &mut self,
        id: ColumnId,
        expr: &Expr,
        plan: &LogicalPlan,
    ) -> Result<PlanExpr, SqlError> {
        let level = expr
            .columns()
            .filter_map(|id| self.levels.get(&id).copied())
            .max()
            .unwrap_or(0);
        if expr.as_column().is_some() {
            self.levels.insert(id, level);
            return self.scalar(expr, plan);
        }
        self.levels.insert(id, level.saturating_add(1));
        if level < LEVELS_MAX || expr.columns().next().is_none() {
            return self.scalar(expr, plan);
        }
        self.opaque_as(expr, plan, Volatility::Volatile, BatchExpr::new)
    }

    fn opaque_as(
        &mut self,
        expr: &Expr,
        plan: &LogicalPlan,
        volatility: Volatility,
        compiled: Compile,
    ) -> Result<PlanExpr, SqlError> {
        let mut ids: Vec<ColumnId> = expr.columns().collect();
        ids.sort_unstable();
        ids.dedup();
        let mut inputs = Vec::with_capacity(ids.len());
        for id in ids {
            inputs.push((id, arrow_of(plan.schema(), id)?));
        }
        let batch = compiled(expr, &inputs, &self.context)?;
        let ty = batch.data_type();
        let number = self.next_function();
        let computation = Computation::Expression(batch);
        let function = computed(format!("e{number}"), number, computation, ty, volatility);
        let arguments = inputs.iter().map(|(id, _)| column(*id)).collect();
        Ok(PlanExpr::ScalarFunction(ScalarFunction::new_udf(
            function, arguments,
        )))
    }

    /// The value of an expression without columns, if it is the same in every execution of the plan and
    /// computing it does not fail.
    pub(crate) fn literal(&self, expr: &Expr) -> Result<Option<ScalarValue>, SqlError> {
        if self.waits(expr) {
            return Ok(None);
        }
        self.present_literal(expr)
    }

    /// Whether an expression without columns can only be evaluated when the plan runs.
    pub(crate) fn waits(&self, expr: &Expr) -> bool {
        self.context.repeats() && varies(expr)
    }

    /// The value of an expression without columns in this execution, if it is stable and computing it does
    /// not fail.
    pub(crate) fn present_literal(&self, expr: &Expr) -> Result<Option<ScalarValue>, SqlError> {
        if expr.columns().next().is_some() || is_volatile(expr) {
            return Ok(None);
        }
        if let Some(value) = expr.as_constant() {
            let array = array_of_values(std::slice::from_ref(value), &expr.ty(), &arrow_type(&expr.ty()))?;
            return ScalarValue::try_from_array(&array, 0)
                .map(Some)
                .map_err(sql_error);
        }
        let batch = BatchExpr::new(expr, &[], &self.context)?;
        match batch.evaluate(&[], 1) {
            Ok(array) => ScalarValue::try_from_array(&array, 0)
                .map(Some)
                .map_err(sql_error),
            // An error is raised only if the expression is reached.
            Err(_) if is_fallible(expr) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An expression whose Arrow order and equality are PostgreSQL's: itself or its order key.
    pub(crate) fn ordered(
        &mut self,
        value: PlanExpr,
        ty: SqlType,
        plan: &LogicalPlan,
    ) -> Result<PlanExpr, SqlError> {
        use datafusion::logical_expr::ExprSchemable;
        let arrow = value.get_type(plan.schema()).map_err(sql_error)?;
        if !needs_order_key(&ty, &arrow) {
            return Ok(value);
        }
        Ok(self.order_key(value, ty))
    }

    /// The order key of a value.
    pub(crate) fn order_key(&mut self, value: PlanExpr, ty: SqlType) -> PlanExpr {
        let number = self.next_function();
        let function = computed(
            format!("key{number}"),
            number,
            Computation::OrderKey(ty),
            datafusion::arrow::datatypes::DataType::Binary,
            Volatility::Immutable,
        );
        PlanExpr::ScalarFunction(ScalarFunction::new_udf(function, vec![value]))
    }

    /// A key of a row: equal if all values are, NULL being equal to NULL.
    pub(crate) fn row_key(&mut self, values: Vec<PlanExpr>) -> PlanExpr {
        let number = self.next_function();
        let function = computed(
            format!("row{number}"),
            number,
            Computation::RowKey,
            datafusion::arrow::datatypes::DataType::Binary,
            Volatility::Immutable,
        );
        PlanExpr::ScalarFunction(ScalarFunction::new_udf(function, values))
    }

    /// The value in another Arrow type of its SQL type.
    pub(crate) fn converted(
        &mut self,
        value: PlanExpr,
        ty: SqlType,
        to: &datafusion::arrow::datatypes::DataType,
    ) -> PlanExpr {
        let number = self.next_function();
        let function = computed(
            format!("as{number}"),
            number,
            Computation::Converted(ty, to.clone()),
            to.clone(),
            Volatility::Immutable,
        );
        PlanExpr::ScalarFunction(ScalarFunction::new_udf(function, vec![value]))
    }

    /// Makes two expressions of one type comparable by Arrow's equality and order.
    pub(crate) fn comparable(
        &mut self,
        left: PlanExpr,
        left_plan: &LogicalPlan,
        right: PlanExpr,
        right_plan: &LogicalPlan,
        ty: SqlType,
    ) -> Result<(PlanExpr, PlanExpr), SqlError> {
        use datafusion::logical_expr::ExprSchemable;
        let left_type = left.get_type(left_plan.schema()).map_err(sql_error)?;
        let right_type = right.get_type(right_plan.schema()).map_err(sql_error)?;
        if left_type == right_type && !needs_order_key(&ty, &left_type) {
            return Ok((left, right));
        }
        Ok((self.order_key(left, ty), self.order_key(right, ty)))
    }
}

/// The conjunction of expressions; `None` if there are none.
pub(crate) fn all_of(conjuncts: Vec<Expr>) -> Option<Expr> {
    match conjuncts.len() {
        0 | 1 => conjuncts.into_iter().next(),
        _ => Some(Expr::new(Op::And, SqlType::Bool, conjuncts)),
    }
}
