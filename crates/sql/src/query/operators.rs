//! PostgreSQL's operators where DataFusion's differ.
//!
//! - An untyped string literal takes the type of the other operand and is parsed as PostgreSQL parses it
//!   (22P02).
//! - Integer `+ - * / %` fail on overflow (22003) and on division by zero (22012) instead of wrapping.
//! - numeric `/` has PostgreSQL's number of digits; numeric `*` widens before it can overflow.
//! - `||` turns its operands into text as casts do.
//! - Arguments of aggregates keep their own names: `count(1)` beside `count(*)`.
//! - date - date is an integer, date + integer a date.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Cast, Placeholder, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawWindowExpr,
};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use weft_types::{SqlType, parse_text};

use super::errors::external;
use super::functions::arithmetic::{checked_integer, numeric_divide};
use super::functions::cast::cast_to;
use super::results::scalar_of_value;
use super::schema::{arrow_type, sql_type_of, sql_type_of_arrow};

/// Plans binary operators.
#[derive(Debug)]
pub struct PgOperators;

impl ExprPlanner for PgOperators {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        type_placeholders(&mut expr, schema);
        adopt_literals(&mut expr, schema)?;
        let (Some(left), Some(right)) = (type_of(&expr.left, schema), type_of(&expr.right, schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let planned = match &expr.op {
            BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo => arithmetic(&expr, &left, &right),
            BinaryOperator::StringConcat => concatenation(&expr, &left, &right),
            _ => None,
        };
        Ok(match planned {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(expr),
        })
    }

    fn plan_aggregate(&self, mut expr: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        expr.args.iter_mut().for_each(fold_int4);
        Ok(PlannerResult::Original(expr))
    }

    fn plan_window(&self, mut expr: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        expr.args.iter_mut().for_each(fold_int4);
        Ok(PlannerResult::Original(expr))
    }
}

/// An int4 literal, which is planned as a cast, becomes a value. DataFusion names a result after its
/// expression less the casts in it, and refuses two of one name: `count(1)` would have that of `count(*)`,
/// which counts an int8.
fn fold_int4(arg: &mut Expr) {
    if let Expr::Cast(Cast { expr, field }) = &*arg
        && *field.data_type() == DataType::Int32
        && let Expr::Literal(ScalarValue::Int64(Some(value)), _) = **expr
        && let Ok(value) = i32::try_from(value)
    {
        *arg = Expr::Literal(ScalarValue::Int32(Some(value)), None);
    }
}

/// An expression's type, unless it is an untyped parameter or NULL.
fn type_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    match expr {
        Expr::Placeholder(Placeholder { field: None, .. }) => None,
        _ => expr.get_type(schema).ok(),
    }
}

fn type_placeholders(expr: &mut RawBinaryExpr, schema: &DFSchema) {
    let left = type_of(&expr.left, schema);
    let right = type_of(&expr.right, schema);
    let concat = matches!(expr.op, BinaryOperator::StringConcat);
    let give = |side: &mut Expr, other: &Option<DataType>| {
        if let Expr::Placeholder(Placeholder {
            field: field @ None, ..
        }) = side
            && let Some(ty) = other
            && *ty != DataType::Null
        {
            let ty = if concat {
                DataType::Utf8
            } else {
                arrow_type(&sql_type_of_arrow(ty))
            };
            *field = Some(Arc::new(Field::new("", ty, true)));
        }
    };
    give(&mut expr.left, &right);
    give(&mut expr.right, &left);
}

/// `column = 'text'`: the literal becomes a value of the column's type.
fn adopt_literals(expr: &mut RawBinaryExpr, schema: &DFSchema) -> Result<()> {
    if matches!(expr.op, BinaryOperator::StringConcat) {
        return Ok(());
    }
    let left = type_of(&expr.left, schema);
    let right = type_of(&expr.right, schema);
    trim_beside_char(&mut expr.left, &expr.right, schema);
    trim_beside_char(&mut expr.right, &expr.left, schema);
    if let Some(ty) = right {
        adopt(&mut expr.left, &ty)?;
    }
    if let Some(ty) = left {
        adopt(&mut expr.right, &ty)?;
    }
    Ok(())
}

/// char(n) is held without its trailing blanks; a literal compared with it loses its own.
fn trim_beside_char(literal: &mut Expr, other: &Expr, schema: &DFSchema) {
    if let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = literal
        && text.ends_with(' ')
        && let Ok((_, field)) = other.to_field(schema)
        && matches!(sql_type_of(&field), SqlType::Char(_))
    {
        text.truncate(text.trim_end_matches(' ').len());
    }
}

/// Parses an untyped literal as a value of `ty`; anything else is left alone.
pub fn adopt(expr: &mut Expr, ty: &DataType) -> Result<()> {
    let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = &*expr else {
        return Ok(());
    };
    let value = match ty {
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Null
        | DataType::Interval(_)
        | DataType::Duration(_)
        | DataType::Time32(_)
        | DataType::Time64(_) => return Ok(()),
        DataType::List(item) => list_literal(text, item.data_type())?,
        DataType::UInt32 => match parse_text(text, &SqlType::Int8).map_err(external)? {
            weft_types::Value::Int8(oid) => ScalarValue::UInt32(u32::try_from(oid).ok()),
            _ => return Ok(()),
        },
        DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => {
            let value = parse_text(text, &SqlType::Numeric(None)).map_err(external)?;
            scalar_of_value(&value, &SqlType::Numeric(None)).map_err(external)?
        }
        _ => {
            let sql_type = sql_type_of_arrow(ty);
            let value = parse_text(text, &sql_type).map_err(external)?;
            scalar_of_value(&value, &sql_type).map_err(external)?
        }
    };
    *expr = Expr::Literal(value, None);
    Ok(())
}

/// `'{1,2}'` as an array; elements without quotes only.
fn list_literal(text: &str, item: &DataType) -> Result<ScalarValue> {
    let inner = text.trim().trim_start_matches('{').trim_end_matches('}');
    let mut items = Vec::new();
    for part in inner.split(',').filter(|part| !part.is_empty()) {
        items.push(ScalarValue::try_from_string(part.trim().to_string(), item)?);
    }
    Ok(ScalarValue::List(ScalarValue::new_list(&items, item, true)))
}

fn arithmetic(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    let operator = match expr.op {
        BinaryOperator::Plus => Operator::Plus,
        BinaryOperator::Minus => Operator::Minus,
        BinaryOperator::Multiply => Operator::Multiply,
        BinaryOperator::Divide => Operator::Divide,
        _ => Operator::Modulo,
    };
    if let Some(date) = date_arithmetic(expr, operator, left, right) {
        return Some(date);
    }
    if let (Some(left_bytes), Some(right_bytes)) = (integer_bytes(left), integer_bytes(right)) {
        let ty = match left_bytes.max(right_bytes) {
            2 => DataType::Int16,
            4 => DataType::Int32,
            _ => DataType::Int64,
        };
        let args = vec![cast(&expr.left, left, &ty), cast(&expr.right, right, &ty)];
        return Some(Expr::ScalarFunction(ScalarFunction::new_udf(
            checked_integer(operator),
            args,
        )));
    }
    let left_scale = decimal_scale(left);
    let right_scale = decimal_scale(right);
    if left_scale.is_none() && right_scale.is_none() {
        return None;
    }
    let left_scale = left_scale.or_else(|| integer_bytes(left).map(|_| (19, 0)))?;
    let right_scale = right_scale.or_else(|| integer_bytes(right).map(|_| (19, 0)))?;
    match operator {
        Operator::Divide => {
            let args = vec![
                cast(&expr.left, left, &DataType::Decimal256(76, left_scale.1)),
                cast(&expr.right, right, &DataType::Decimal256(76, right_scale.1)),
            ];
            Some(Expr::ScalarFunction(ScalarFunction::new_udf(
                numeric_divide(),
                args,
            )))
        }
        Operator::Multiply if left_scale.0 as u16 + right_scale.0 as u16 + 1 > 38 => {
            let args = [
                cast(
                    &expr.left,
                    left,
                    &DataType::Decimal256(widened(left_scale.0), left_scale.1),
                ),
                cast(
                    &expr.right,
                    right,
                    &DataType::Decimal256(widened(right_scale.0), right_scale.1),
                ),
            ];
            let [wide_left, wide_right] = args;
            Some(binary(wide_left, Operator::Multiply, wide_right))
        }
        _ => None,
    }
}

/// Half of Decimal256's digits, so that a product fits.
fn widened(precision: u8) -> u8 {
    precision.max(38)
}

fn date_arithmetic(expr: &RawBinaryExpr, op: Operator, left: &DataType, right: &DataType) -> Option<Expr> {
    let date = |ty: &DataType| *ty == DataType::Date32;
    let days = |side: &Expr, ty: &DataType| cast(side, ty, &DataType::Int32);
    let checked = |op: Operator, left: Expr, right: Expr| {
        Expr::ScalarFunction(ScalarFunction::new_udf(checked_integer(op), vec![left, right]))
    };
    match op {
        Operator::Minus if date(left) && date(right) => {
            Some(checked(op, days(&expr.left, left), days(&expr.right, right)))
        }
        Operator::Plus | Operator::Minus if date(left) && integer_bytes(right).is_some() => {
            let sum = checked(op, days(&expr.left, left), days(&expr.right, right));
            Some(Expr::Cast(Cast::new(Box::new(sum), DataType::Date32)))
        }
        Operator::Plus if integer_bytes(left).is_some() && date(right) => {
            let sum = checked(op, days(&expr.left, left), days(&expr.right, right));
            Some(Expr::Cast(Cast::new(Box::new(sum), DataType::Date32)))
        }
        _ => None,
    }
}

fn concatenation(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    let is_list = |ty: &DataType| matches!(ty, DataType::List(_) | DataType::LargeList(_));
    if is_list(left) || is_list(right) {
        return None;
    }
    let text = |side: &Expr, ty: &DataType| match ty {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => side.clone(),
        _ => cast_to(side.clone(), &SqlType::Text),
    };
    Some(binary(
        text(&expr.left, left),
        Operator::StringConcat,
        text(&expr.right, right),
    ))
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn integer_bytes(ty: &DataType) -> Option<usize> {
    match ty {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Some(2),
        DataType::UInt16 | DataType::Int32 => Some(4),
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => Some(8),
        _ => None,
    }
}

fn decimal_scale(ty: &DataType) -> Option<(u8, i8)> {
    match ty {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

fn cast(expr: &Expr, from: &DataType, to: &DataType) -> Expr {
    if from == to {
        expr.clone()
    } else {
        Expr::Cast(Cast::new(Box::new(expr.clone()), to.clone()))
    }
}

/// Does for `IN` and `BETWEEN`, which have no hook in the planner, what [`PgOperators`] does for operators.
/// Runs before DataFusion's own type coercion.
#[derive(Debug)]
pub struct AdoptLiterals;

impl AnalyzerRule for AdoptLiterals {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| {
            if plan.inputs().is_empty() {
                return Ok(Transformed::no(plan));
            }
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let adopted = expr.transform_up(|mut expr| {
                    let changed = adopt_in(&mut expr, &schema)?;
                    Ok(if changed {
                        Transformed::yes(expr)
                    } else {
                        Transformed::no(expr)
                    })
                })?;
                Ok(adopted.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "adopt_literals"
    }
}

fn adopt_in(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::InList(list) if list.list.iter().any(is_text_literal) => {
            if let Some(ty) = type_of(&list.expr, schema) {
                list.list.iter_mut().try_for_each(|item| adopt(item, &ty))?;
            }
            Ok(true)
        }
        Expr::Between(between) if is_text_literal(&between.low) || is_text_literal(&between.high) => {
            if let Some(ty) = type_of(&between.expr, schema) {
                adopt(&mut between.low, &ty)?;
                adopt(&mut between.high, &ty)?;
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn is_text_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}
