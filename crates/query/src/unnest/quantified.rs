//! IN, ANY and ALL with three-valued logic.
//!
//! `test ANY` is true if the test is true for some row, otherwise NULL if it is unknown for some, otherwise
//! false. `ALL` is the negation of ANY over the negated test.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan};
use weft_binder::relation::Relation;
use weft_expression::{ColumnId, CompareOp, Expr, Op};
use weft_types::{SqlError, SqlType};

use super::SubqueryJoin;
use super::pull_up::Purpose;
use crate::lower::join::{chosen, crossed};
use crate::lower::predicate::{conjuncts, may_be_null};
use crate::lower::{Lowering, column, columns_of, projected};
use crate::schema::field_name;

/// The sides of a comparison of a left expression with a subquery expression.
pub(crate) struct Sides {
    pub(crate) left: Expr,
    pub(crate) right: Expr,
}

impl Lowering<'_> {
    pub(crate) fn quantified(
        &mut self,
        left: LogicalPlan,
        subquery: &Relation,
        output: ColumnId,
        test: &Expr,
        all: bool,
    ) -> Result<LogicalPlan, SqlError> {
        let own = columns_of(&left);
        let test = if all { negated(test) } else { test.clone() };
        let mut subquery_join = self.subquery_join(left, subquery, Purpose::Test)?;
        let sides = sides(&test, &subquery_join);
        let alone = subquery_join.keys.is_empty() && subquery_join.on.is_empty();
        let known = match &sides {
            Some(sides) => {
                !self.nullable(&sides.left, &subquery_join.left)?
                    && !self.nullable(&sides.right, &subquery_join.right)?
            }
            None => false,
        };
        let found = self.fresh(SqlType::Bool);
        let truth = |value: bool| PlanExpr::Literal(ScalarValue::Boolean(Some(value)), None);
        let unknown = PlanExpr::Literal(ScalarValue::Boolean(None), None);
        let (plan, unknown_if) = if known {
            (self.marked(subquery_join, conjuncts(&test), found)?, None)
        } else {
            subquery_join.right = self.materialized(subquery_join.right, "rows of a subquery")?;
            let right = subquery_join.right.clone();
            let keys = subquery_join.keys.clone();
            let on = subquery_join.on.clone();
            let plan = self.marked(subquery_join, conjuncts(&test), found)?;
            match sides {
                Some(sides) if alone => {
                    let (plan, unknown_if) = self.nulls_beside(plan, right, &sides)?;
                    (plan, Some(unknown_if))
                }
                _ => {
                    let doubt = self.fresh(SqlType::Bool);
                    let again = SubqueryJoin {
                        left: plan,
                        right,
                        keys,
                        on,
                    };
                    let is_unknown = Expr::new(Op::IsNull, SqlType::Bool, vec![test]);
                    (self.marked(again, vec![is_unknown], doubt)?, Some(column(doubt)))
                }
            }
        };
        let mut value = truth(all);
        if let Some(unknown_if) = unknown_if {
            value = chosen(unknown_if, unknown, value)?;
        }
        value = chosen(column(found), truth(!all), value)?;
        self.made([(output, SqlType::Bool)]);
        let mut items: Vec<PlanExpr> = own.into_iter().map(column).collect();
        items.push(value.alias(field_name(output)));
        projected(plan, items)
    }

    /// The plan, and whether a comparison with the rows of `right` is unknown for one of them: the right side
    /// is NULL in some row, or the left side is NULL and there is a row.
    pub(crate) fn nulls_beside(
        &mut self,
        plan: LogicalPlan,
        right: LogicalPlan,
        sides: &Sides,
    ) -> Result<(LogicalPlan, PlanExpr), SqlError> {
        let mut items = Vec::new();
        let value = self.held(&sides.right, &right, &mut items)?;
        let right = self.extended(right, items)?;
        let right = projected(right, vec![column(value)])?;
        let (rows, values) = (self.fresh(SqlType::Int8), self.fresh(SqlType::Int8));
        let counted = crate::lower::calls::PlannedCall {
            output: values,
            ty: SqlType::Int8,
            expr: datafusion::functions_aggregate::count::count(column(value)),
            empty: weft_types::Value::Int8(0),
        };
        let counts = self.grouped(right, &[], &[counted], Some(rows))?;
        let mut items = Vec::new();
        let test = self.held(&sides.left, &plan, &mut items)?;
        let plan = self.extended(plan, items)?;
        let plan = crossed(plan, counts)?;
        let some = column(rows).gt(datafusion::logical_expr::lit(0_i64));
        let unknown = column(rows)
            .gt(column(values))
            .or(PlanExpr::IsNull(Box::new(column(test))).and(some));
        Ok((plan, unknown))
    }

    /// Whether an expression over a plan may be NULL; conservative.
    pub(crate) fn nullable(&mut self, expr: &Expr, plan: &LogicalPlan) -> Result<bool, SqlError> {
        let value = self.scalar(expr, plan)?;
        Ok(may_be_null(&value, plan))
    }
}

/// The sides of a test that is a single comparison between both.
pub(crate) fn sides(test: &Expr, subquery_join: &SubqueryJoin) -> Option<Sides> {
    let Op::Compare(_) = test.root().op else {
        return None;
    };
    let [a, b] = <[Expr; 2]>::try_from(test.clone().into_arguments()).ok()?;
    let (of_left, of_right) = (columns_of(&subquery_join.left), columns_of(&subquery_join.right));
    let within = |expr: &Expr, columns: &[ColumnId]| expr.columns().all(|id| columns.contains(&id));
    if within(&a, &of_left) && within(&b, &of_right) {
        Some(Sides { left: a, right: b })
    } else if within(&b, &of_left) && within(&a, &of_right) {
        Some(Sides { left: b, right: a })
    } else {
        None
    }
}

/// The negation of a test; a comparison is negated by its operator.
pub(crate) fn negated(test: &Expr) -> Expr {
    let ty = SqlType::Bool;
    match test.root().op {
        Op::Compare(op) => {
            let op = match op {
                CompareOp::Eq => CompareOp::Ne,
                CompareOp::Ne => CompareOp::Eq,
                CompareOp::Lt => CompareOp::Ge,
                CompareOp::Le => CompareOp::Gt,
                CompareOp::Gt => CompareOp::Le,
                CompareOp::Ge => CompareOp::Lt,
            };
            Expr::new(Op::Compare(op), ty, test.clone().into_arguments())
        }
        _ => Expr::new(Op::Not, ty, vec![test.clone()]),
    }
}
